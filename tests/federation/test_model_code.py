"""A user's own model travels with the bundles, completely or not at all."""

from pathlib import Path

from fedamp.federation.plan_files import read_federation
from federation.provisioned import NAMES, silo_data


def test_a_model_of_ones_own_travels_with_the_bundles(fedamp_command, tmp_path):
    (tmp_path / "traveling_net.py").write_text(
        "from torch import nn\n\n\ndef small(input_shape, num_outputs):\n"
        "    return nn.Linear(input_shape[0], num_outputs)\n"
    )
    data = silo_data(tmp_path / "own.npz")
    assert fedamp_command("data", "schema", "--yes", data, "--out", "s.json")[0] == 0
    code, out, err = fedamp_command(
        *("federation", "init", "fed", "--silos", ",".join(NAMES), "--schema", "s.json", "--make-keys"),
        *("--model", "traveling_net:small", "--method", "fedavg", "--rounds", "4", "--strikes", "5"),
    )
    assert (code, err.count("\n")) == (0, 1), err
    assert f"{NAMES[0]}.zip" in out
    assert "PRIVATE" not in out
    federation = read_federation(Path("fed"))
    assert federation.plan.config.model.name == "traveling_net:small"
    assert federation.plan.config.model_code is not None
    assert (federation.plan.config.rounds, federation.rules.strikes) == (4, 5)
    for place in ["fed/server/code", f"fed/bundles/{NAMES[0]}/code"]:
        assert Path(place, "traveling_net.py").exists()
    assert fedamp_command("silo", "check", f"fed/bundles/{NAMES[0]}", "--data", data, "--offline")[0] == 0


def test_code_that_does_not_come_along_whole_is_told_at_init(fedamp_command, tmp_path):
    (tmp_path / "outer_layers.py").write_text("from torch import nn\nlayer = nn.Linear\n")
    (tmp_path / "outer_net.py").write_text(
        "from outer_layers import layer\ndef small(input_shape, num_outputs):\n"
        "    return layer(input_shape[0], num_outputs)\n"
    )
    fedamp_command("data", "schema", "--yes", silo_data(tmp_path / "own.npz"), "--out", "s.json")
    flags = ["--schema", "s.json", "--silos", "a,b", "--make-keys", "--model", "outer_net:small"]
    code, _, err = fedamp_command("federation", "init", "fed", *flags)
    assert code == 2
    assert "outer_layers" in err
    assert "--code" in err
    assert not (tmp_path / "fed").exists()
