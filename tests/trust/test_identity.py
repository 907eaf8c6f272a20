"""A result belongs to its data and its model: other data or another model under the same words is another run."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedamp
from fedamp.errors import UserError
from fedamp.methods import FedAMP
from fedamp.models.fingerprint import code_digest
from fedamp.records.checkpoints import load_checkpoint, save_checkpoint
from fedamp.runs.in_use.export import export_client

QUICK = {"rounds": 2, "epochs": 1}


def write_silos(flip: bool = False, names: str = "abc") -> None:
    Path("silos").mkdir(exist_ok=True)
    for number, name in enumerate(names):
        x = np.random.default_rng(number).normal(size=(40, 2))
        y = (x[:, 0] > 0) ^ flip
        rows = [f"{a:.4f},{b:.4f},{int(label)}" for (a, b), label in zip(x, y, strict=True)]
        Path(f"silos/{name}.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")


COMMAND = ["run", "--data", "silos/", "--label", "y", "--rounds", "5"]


def test_changed_labels_are_refused_in_the_old_folder(fedamp_command):
    write_silos()
    assert fedamp_command(*COMMAND, "--out", "r1")[0] == 0
    before = {path.name: path.read_bytes() for path in Path("r1").iterdir()}
    write_silos(flip=True)
    code, out, err = fedamp_command(*COMMAND, "--out", "r1")
    assert (code, out) == (2, "")
    assert "r1 holds another run: the data are not those that it learned from" in err
    assert "goes on with what it began with alone" in err
    assert {path.name: path.read_bytes() for path in Path("r1").iterdir()} == before


def test_the_same_files_are_the_same_by_another_path(fedamp_command):
    write_silos()
    assert fedamp_command(*COMMAND, "--rounds", "2", "--out", "r1")[0] == 0
    before = {path.name: path.read_bytes() for path in Path("r1").iterdir()}
    here, elsewhere = Path.cwd(), Path("elsewhere")
    elsewhere.mkdir()
    os.chdir(elsewhere)
    try:
        again = ["run", "--data", "../silos", "--label", "y", "--rounds", "2", "--out", "../r1", "--json"]
        assert fedamp_command(*again)[0] == 0
        os.chdir(here)
        assert {path.name: path.read_bytes() for path in Path("r1").iterdir()} == before, "it was shown, not run again"
        write_silos(flip=True)
        os.chdir(elsewhere)
        code, _, err = fedamp_command(*again)
        assert code == 2
        assert "data is 'silos/' there and '../silos' here; the data are not those that it learned from" in err
    finally:
        os.chdir(here)


def test_and_get_a_folder_of_their_own_where_none_is_named(fedamp_command):
    write_silos()
    first = json.loads(fedamp_command(*COMMAND, "--json")[1])
    assert json.loads(fedamp_command(*COMMAND, "--json")[1]) == first, "the same data show the same result"
    write_silos(flip=True)
    second = json.loads(fedamp_command(*COMMAND, "--json")[1])
    assert second["folder"] != first["folder"]


@pytest.mark.parametrize("what", ["one label", "one number", "the order of rows", "another silo"])
def test_what_makes_other_data(fedamp_command, what):
    write_silos()
    fedamp_command(*COMMAND, "--out", "r1")
    lines = Path("silos/a.csv").read_text().splitlines()
    if what == "one label":
        lines[1] = lines[1][:-1] + ("0" if lines[1].endswith("1") else "1")
    elif what == "one number":
        lines[1] = "0.5" + lines[1][lines[1].index(",") :]
    elif what == "the order of rows":
        lines[1], lines[2] = lines[2], lines[1]
    else:
        Path("silos/a.csv").rename("silos/bb.csv")
    if what != "another silo":
        Path("silos/a.csv").write_text("\n".join(lines) + "\n")
    assert fedamp_command(*COMMAND, "--out", "r1")[0] == 2


def test_touching_a_file_does_not_make_other_data(fedamp_command):
    write_silos()
    fedamp_command(*COMMAND, "--out", "r1")
    os.utime("silos/a.csv", (1, 1))
    code, out, _ = fedamp_command(*COMMAND, "--out", "r1")
    assert code == 0
    assert "already finished" in out


def test_a_broken_off_run_does_not_go_on_with_other_data(fedamp_command, monkeypatch):
    write_silos()

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("fedamp.cli.terminal.Bar.advance", lambda bar, line: stop() if line["round"] == 2 else None)
        assert fedamp_command(*COMMAND, "--out", "r1")[0] == 130
    write_silos(flip=True)
    for arguments in ((*COMMAND, "--out", "r1"), ("resume", "r1")):
        code, _, err = fedamp_command(*arguments)
        assert code == 2
        assert "not those that it learned from" in err
    write_silos()
    assert fedamp_command("resume", "r1")[0] == 0


def test_a_digest_of_private_rows_stays_in_its_file(fedamp_command):
    write_silos()
    out = fedamp_command(*COMMAND, "--out", "r1", "--json")[1]
    fedamp_command("report", "r1")
    digests = json.loads(Path("r1/inputs.json").read_text())
    texts = {path.name: path.read_text(errors="replace") for path in Path("r1").iterdir() if path.name != "inputs.json"}
    for digest in (digests["data"], digests["split"]):
        assert len(digest) == 64
        assert digest[:12] not in out
        assert [name for name, text in texts.items() if digest[:12] in text] == []


FACTOR = 2.0


def doubled(x):
    return FACTOR * x


def plus(x):
    return x + 1


def minus(x):
    return x - 1


minus.__qualname__ = "plus"


def pairs(seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    return [(torch.randn(20, 3, generator=g), torch.randint(2, (20,), generator=g)) for _ in range(3)]


def linear(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(3, 2)


class Halved(nn.Linear):
    def forward(self, x):
        return super().forward(x) / 2


class Thirds(nn.Linear):
    def forward(self, x):
        return super().forward(x) / 3


def own_amp(factor: float) -> FedAMP:
    """Return a method of one's own, always of the same name."""

    @dataclass(frozen=True)
    class OwnAMP(FedAMP):
        def client_models(self, state, message):
            models = super().client_models(state, message)
            return {name: rows.mix(factor * torch.eye(len(rows))) for name, rows in models.items()}

    return OwnAMP()


def scaled(factor: float) -> nn.Module:
    """Return a module whose class has always the same name."""

    class Scaled(nn.Linear):
        def forward(self, x):
            return super().forward(x) * factor

    return like(Scaled)


@dataclass
class Config:
    factor: float


class Configured(nn.Linear):
    def __init__(self, *sizes, config=None, table=None, hidden=0.0):
        super().__init__(*sizes)
        self.config, self.table, self._hidden = config, table, hidden


def configured(**options) -> nn.Module:
    module = Configured(3, 2, **options)
    module.load_state_dict(linear().state_dict())
    return module


def like(kind: type[nn.Linear]) -> nn.Module:
    module = kind(3, 2)
    module.load_state_dict(linear().state_dict())
    return module


def patched() -> nn.Module:
    module = linear()
    module.register_forward_hook(lambda module, args, output: 2 * output)
    return module


OTHERS = {
    "data": {"clients": pairs(1)},
    "first values": {"model": linear(1)},
    "structure": {"model": nn.Sequential(linear())},
    "class": {"model": like(Halved)},
    "hook": {"model": patched()},
    "setting": {"lr": 0.5},
}


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("finished", [True, False])
def test_another_run_from_python_is_refused(tmp_path, what, finished):
    settings = {"clients": pairs(), "model": linear(), "method": FedAMP(), **QUICK}
    fedamp.run(out=tmp_path / "run", observer=lambda line: finished or line["round"] < 1, **settings)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(UserError, match="holds another run"):
        fedamp.run(out=tmp_path / "run", **{**settings, **OTHERS[what]})
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_the_body_of_a_class_is_part_of_a_model(tmp_path):
    settings = {"clients": pairs(), **QUICK}
    fedamp.run(out=tmp_path / "run", model=scaled(1.0), **settings)
    fedamp.run(out=tmp_path / "run", model=scaled(1.0), **settings)
    with pytest.raises(UserError, match="the model is a different one"):
        fedamp.run(out=tmp_path / "run", model=scaled(2.0), **settings)


def test_the_body_of_a_method_is_part_of_a_run(tmp_path):
    settings = {"clients": pairs(), "model": linear(), **QUICK}
    fedamp.run(out=tmp_path / "run", method=own_amp(1.0), **settings)
    fedamp.run(out=tmp_path / "run", method=own_amp(1.0), **settings)
    with pytest.raises(UserError, match="the code of the method has changed"):
        fedamp.run(out=tmp_path / "run", method=own_amp(0.5), **settings)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"config": Config(1.0)}, {"config": Config(2.0)}),
        ({"table": np.arange(3)}, {"table": np.arange(3) + 1}),
        ({"hidden": 1.0}, {"hidden": 2.0}),
        ({"table": [doubled]}, {"table": [plus]}),
    ],
)
def test_what_a_module_holds_is_part_of_it(one, other):
    assert code_digest(configured(**one)) == code_digest(configured(**one))
    assert code_digest(configured(**one)) != code_digest(configured(**other))


def test_the_mode_of_all_parts_together_is_not():
    """A module in eval mode as a whole trains as one in training mode; a part that is in another mode stays in it."""
    net = nn.Sequential(linear(), nn.Dropout(0.5))
    before = code_digest(net)
    assert code_digest(net.eval()) == before
    net.train()[1].eval()
    assert code_digest(net) != before


def test_a_model_that_was_edited_since_is_not_exported(fedamp_command):
    text = "from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.{}())\n"
    Path("edited_nets.py").write_text(text.format("ReLU"))
    sys.modules.pop("edited_nets", None)
    given = ["run", "--model", "edited_nets:net", "--rounds", "1", "--clients", "5", "--epochs", "1", "--out", "r1"]
    assert fedamp_command(*given)[0] == 0
    assert fedamp_command("export", "r1", "--client", "1")[0] == 0
    Path("edited_nets.py").write_text(text.format("Tanh"))
    sys.modules.pop("edited_nets")
    code, _, err = fedamp_command("export", "r1", "--client", "1")
    assert code == 2
    assert "not the one that was trained" in err


def test_a_run_with_a_method_of_ones_own_is_exported(tmp_path):
    fedamp.run(out=tmp_path / "run", method=own_amp(1.0), data="digits", clients=5, **QUICK)
    assert export_client(tmp_path / "run", 1).exists()


def test_a_folder_of_an_earlier_version_is_told(tmp_path):
    fedamp.run(out=tmp_path / "run", data="digits", clients=5, **QUICK)
    told = json.loads((tmp_path / "run" / "result.json").read_text())
    del told["best_models"]
    (tmp_path / "run" / "result.json").write_text(json.dumps(told))
    with pytest.raises(UserError, match="earlier version"):
        export_client(tmp_path / "run", 1)


def test_another_device_is_refused_before_anything_is_deleted(tmp_path):
    settings = {"data": "digits", "clients": 5, "rounds": 3, "epochs": 1}
    fedamp.run(out=tmp_path / "run", observer=lambda line: line["round"] < 1, **settings)
    saved = load_checkpoint(tmp_path / "run", torch.device("cpu"))
    save_checkpoint(tmp_path / "run", replace(saved, how={**saved.how, "device": "cuda"}))
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(UserError, match="was begun on cuda"):
        fedamp.run(out=tmp_path / "run", **settings)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_a_finished_run_is_read_again_from_python(tmp_path):
    settings = {"clients": pairs(), "model": linear(), "validation": 0.25, "held_out": 0.25, **QUICK}
    first = fedamp.run(out=tmp_path / "run", **settings)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    heard = []
    again = fedamp.run(out=tmp_path / "run", observer=heard.append, **settings)
    assert heard == []
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == before
    assert again.to_dict() == first.to_dict()
    assert again.history == first.history
    assert torch.equal(again.xi, first.xi)
    for client in range(3):
        for a, b in zip(again.client_model(client).parameters(), first.client_model(client).parameters(), strict=True):
            assert torch.equal(a, b)


def plain_net():
    return nn.Sequential(nn.Linear(3, 2))


def test_code_is_told_apart_by_what_it_does():
    """By what it calls on and the numbers it reads, not by where it stands or what was edited on disk since."""

    def uses_doubled(x):
        return doubled(x)

    before = code_digest(uses_doubled)
    assert before == code_digest(uses_doubled)
    global FACTOR
    FACTOR = 3.0
    try:
        assert code_digest(uses_doubled) != before
    finally:
        FACTOR = 2.0
    assert code_digest(uses_doubled) == before
    assert code_digest(plus) != code_digest(minus), "the same names and numbers, another operation"
    assert code_digest(Halved) != code_digest(Thirds)
    assert code_digest(like(Halved)) != code_digest(like(Thirds))
    assert code_digest(linear()) == code_digest(linear())
    assert code_digest(plain_net) != code_digest(doubled)


def test_a_module_that_a_model_file_imports_is_part_of_its_code(fedamp_command):
    Path("own_blocks.py").write_text("def squash(x):\n    return x / 2\n")
    Path("nets_of_blocks.py").write_text(
        "from torch import nn\n"
        "import own_blocks\n"
        "class Net(nn.Linear):\n"
        "    def forward(self, x):\n"
        "        return own_blocks.squash(super().forward(x.flatten(1)))\n"
        "def net():\n"
        "    return Net(64, 10)\n"
    )
    command = ["run", "--model", "nets_of_blocks:net", "--rounds", "1", "--clients", "5", "--epochs", "1"]
    command += ["--out", "r1"]
    assert fedamp_command(*command)[0] == 0
    Path("own_blocks.py").write_text("def squash(x):\n    return x * 1000000\n")
    for name in ("nets_of_blocks", "own_blocks"):
        sys.modules.pop(name)
    code, _, err = fedamp_command(*command)
    assert code == 2
    assert "the model is a different one" in err


@pytest.mark.slow
def test_digests_are_the_same_in_every_process(tmp_path):
    """Words in sets come in another order in each process."""
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n"
        "KINDS = {'a', 'b', 'c', 'd'}\n"
        "class Net(nn.Linear):\n"
        "    def forward(self, x):\n"
        "        assert 'a' in {'a', 'b', 'x', 'y', 'z'} and 'b' in KINDS\n"
        "        return super().forward(x)\n"
    )
    code = "from fedamp.models.fingerprint import code_digest; import nets; print(code_digest(nets.Net))"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


COMPARE = ["compare", "--data", "silos/", "--label", "y", "--rounds", "2", "--methods", "fedamp"]


@pytest.mark.parametrize("methods", ["fedamp", "fedavg"])
def test_a_comparison_is_not_mixed_of_two_kinds_of_data(fedamp_command, methods):
    """Neither shown again, nor added to: the Separate in the folder learned from other labels."""
    write_silos()
    assert fedamp_command(*COMPARE, "--out", "both")[0] == 0
    plan = Path("both/comparison.json").read_bytes()
    write_silos(flip=True)
    code, out, err = fedamp_command(*COMPARE[:-1], methods, "--out", "both")
    assert (code, out) == (2, "")
    assert "not those that it learned from" in err
    assert Path("both/comparison.json").read_bytes() == plan


def test_a_comparison_of_other_data_has_another_folder(fedamp_command):
    write_silos()
    _, first, _ = fedamp_command(*COMPARE)
    write_silos(flip=True)
    _, second, _ = fedamp_command(*COMPARE)
    folders = [out.split("record: ")[1].split()[0] for out in (first, second)]
    assert folders[0] != folders[1]
