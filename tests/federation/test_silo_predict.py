"""In a silo's house its own model says what the federation's record says of it, and what a run's model would say."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import fedamp
from fedamp.federation.plan_files import write_silo_config
from fedamp.federation.silo.asking import own_predictor
from federation.inprocess import Local, plan_of, write_silos
from runs.test_predict import read_columns


def bundle_of(local: Local, number: int) -> Path:
    """Return a folder like the one that a silo's operator has: the plan, and what the silo kept."""
    bundle = local.folder / f"bundle-{number}"
    bundle.mkdir()
    write_silo_config(bundle, local.houses[number].config)
    shutil.copytree(local.houses[number].folder, bundle / "run")
    return bundle


@pytest.mark.parametrize("validation", [0.0, 0.3])
@pytest.mark.parametrize("method", ["fedamp", "autoamp"])
def test_the_same_as_the_runs_model(tmp_path, method, validation, fedamp_command):
    data = write_silos(tmp_path / "data")
    plan = plan_of(data, method, validation=validation)
    local = Local(tmp_path, plan, data)
    local.serve()
    run = fedamp.run(
        data=str(data), method=method, validation=validation, rounds=3, epochs=2, batch_size=7,
        model={"name": "mlp", "hidden": 6}, engine="loop", out=tmp_path / "simulated",
    )  # fmt: skip
    x = np.random.default_rng(0).normal(0, 1, (9, 5)).astype(np.float32)
    np.savez("new.npz", x=x)
    for number in range(3):
        bundle = bundle_of(local, number)
        code, out, err = fedamp_command("silo", "predict", bundle, "new.npz", "--out", f"{number}.csv")
        assert (code, out, err) == (0, f"{number}.csv\n", "")
        told = read_columns(f"{number}.csv")
        name, _ = own_predictor(bundle)
        rule = "chosen" if name == "chosen" else "scored"
        assert name == ("best" if validation and method == "fedamp" else "chosen" if validation else run.scored)
        if name == "best":  # by the silo's own samples alone, of any entry: not what a run knows
            continue
        said = run.predict(x, number, take_home=rule)
        assert told["prediction"] == said.labels.tolist()
        shares = np.array([[float(share) for share in told[f"p({label})"]] for label in said.classes]).T
        np.testing.assert_allclose(shares, said.probabilities, atol=1e-5)


def test_a_model_by_its_name_gives_its_own_score(tmp_path):
    from fedamp.federation.silo.round import open_silo

    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, "fedamp", validation=0.3), data)
    local.serve()
    bundle, house = bundle_of(local, 1), local.houses[1]
    clients = open_silo(house.config, house.data, house.folder).setup.clients
    x, y = np.load(data / "silo-1.npz")["x"], np.load(data / "silo-1.npz")["y"]
    test = clients.test[0].numpy()
    for name in ("best", "own", "received", "rounds/0002/own"):
        said = own_predictor(bundle, name)[1].predict(x[test])
        score = json.loads((bundle / f"run/models/{name}.json").read_text())["score"]["test"]
        assert np.mean(said.labels.astype(int) == y[test]) == pytest.approx(score)


def test_mistakes_are_one_line(tmp_path, fedamp_command):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, "fedavg", rounds=1), data)
    np.savez("new.npz", x=np.zeros((2, 5)))
    np.savez("wide.npz", x=np.zeros((2, 6)))
    (local.houses[0].folder / "models").mkdir(parents=True)
    empty = bundle_of(local, 0)
    local.serve()
    bundle = bundle_of(local, 1)
    (bundle / "run/models/own.safetensors").write_bytes(b"rubbish")
    for arguments, words in {
        (empty, "new.npz"): "has no models yet; they come with the first round",
        (tmp_path, "new.npz"): "so it is not a silo's bundle",
        (bundle, "nothing.npz"): "there is no file nothing.npz",
        (bundle, "wide.npz"): "data has shape (2, 6); expected (samples, 5)",
        (bundle, "new.npz", "--model", "receive"): "unknown model 'receive' (did you mean 'received'?)",
        (bundle, "new.npz", "--model", "own"): "can't be read",
    }.items():
        code, out, err = fedamp_command("silo", "predict", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert words in err
    assert not list(Path().glob("*.csv"))
