"""What a person meets at the command line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from rich.text import Text
from safetensors.torch import load_file

from fedamp import __version__
from fedamp.cli import main
from fedamp.methods import METHODS
from fedamp.records.folder import RunFolder

QUICK = ["--rounds", "2", "--epochs", "1", "--clients", "10"]


def test_version(fedamp_command):
    assert fedamp_command("--version") == (0, f"fedamp {__version__}\n", "")


def test_json_is_the_last_line(fedamp_command):
    code, out, _ = fedamp_command("run", "--method", "heurfedamp", "--rounds", "5", "--json")
    result = json.loads(out.splitlines()[-1])
    assert code == 0
    assert result["method"] == "heurfedamp"
    assert result["rounds"] == 5
    assert result["seconds"] > 0
    assert len(result["per_client"]) == 20
    assert sum(result["per_client"]) / 20 == pytest.approx(result["bmta"])
    assert 20 < result["bmta"] <= 100


def test_the_folder_holds_the_whole_run(fedamp_command):
    code, out, _ = fedamp_command("run", *QUICK, "--method", "fedamp", "--out", "here")
    assert code == 0
    assert "best mean test accuracy" in out
    folder = RunFolder(Path("here"))
    assert folder.config()["method"] == {"name": "fedamp"}
    assert [line["round"] for line in folder.lines()] == [0, 1, 2, 3]
    assert folder.result()["finished"]
    assert load_file("here/models.safetensors")["own.params"].shape == (10, 4810)
    xi = load_file("here/xi.safetensors")["xi"]
    assert xi.shape == (2, 10, 10)
    assert xi.sum(2).allclose(xi.new_ones(2, 10))


def test_a_finished_run_is_shown_and_not_run_again(fedamp_command):
    _, first, _ = fedamp_command("run", *QUICK, "--json")
    folder = Path(json.loads(first)["folder"])
    assert folder.parent == Path("runs")
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    code, second, _ = fedamp_command("run", *QUICK, "--json")
    assert code == 0
    assert json.loads(second) == json.loads(first)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    code, third, _ = fedamp_command("run", *QUICK)
    assert "already finished" in third


def test_another_runs_folder_is_not_touched(fedamp_command):
    fedamp_command("run", *QUICK, "--out", "here")
    before = Path("here/result.json").read_text()
    code, out, err = fedamp_command("run", *QUICK, "--seed", "1", "--out", "here")
    assert (code, out) == (2, "")
    assert "holds another run: seed is 0 there and 1 here" in err
    assert Path("here/result.json").read_text() == before


def test_a_folder_of_something_else_is_not_touched(fedamp_command):
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("three years of work")
    code, _, err = fedamp_command("run", *QUICK, "--out", "mine")
    assert code == 2
    assert "is not empty and holds no run" in err
    assert [path.name for path in Path("mine").iterdir()] == ["thesis.txt"]


def test_one_seed_one_result_and_another_seed_another(fedamp_command):
    results = [
        json.loads(fedamp_command("run", *QUICK, "--seed", seed, "--out", out, "--json")[1])
        for seed, out in ((3, "a"), (3, "b"), (4, "c"))
    ]
    assert results[0]["per_client"] == results[1]["per_client"]
    assert results[0]["per_client"] != results[2]["per_client"]


def test_config_file_flags_and_set(fedamp_command):
    Path("run.toml").write_text(
        'rounds = 9\nclients = 10\nepochs = 1\n[method]\nname = "fedprox"\nmu = 0.5\n[setting]\nname = "iid"\n'
    )
    fedamp_command("run", "--config", "run.toml", "--rounds", "2", "--set", "setting.samples=20", "--out", "here")
    config = RunFolder(Path("here")).config()
    assert config["rounds"] == 2
    assert config["method"] == {"name": "fedprox", "mu": 0.5}
    assert config["setting"] == {"name": "iid", "samples": 20}
    fedamp_command(
        "run", "--config", "run.toml", "--steps", "3", "--rounds", "1", "--method", "fedavg", "--out", "there"
    )
    config = RunFolder(Path("there")).config()
    assert (config["steps"], config["epochs"]) == (3, None)
    assert config["method"] == {"name": "fedavg"}


MISTAKES = {
    "unknown method": (["run", "--method", "nope"], ["'nope'", *METHODS]),
    "near miss": (["run", "--method", "fedapm"], ["did you mean 'fedamp'?"]),
    "unknown flag": (["run", "--metod", "fedamp"], ["--metod", "--method"]),
    "unknown command": (["rnu"], ["rnu"]),
    "word for a number": (["run", "--rounds", "many"], ["--rounds"]),
    "unknown data": (["run", "--data", "mnits"], ["'mnits'", "digits"]),
    "unknown setting": (["run", "--setting", "pratical"], ["did you mean 'practical'?"]),
    "unknown model": (["run", "--model", "vgg"], ["'vgg'", "mlp", "module:function"]),
    "model of a missing module": (["run", "--model", "nowhere:make"], ["nowhere"]),
    "unknown optimizer": (["run", "--optimizer", "adagrad"], ["adam, sgd"]),
    "adam for scaffold": (["run", "--method", "scaffold", "--optimizer", "adam"], ["plain SGD"]),
    "zero rounds": (["run", "--rounds", "0"], ["rounds is 0"]),
    "negative seed": (["run", "--seed", "-1"], ["seed is -1"]),
    "seed beyond torch's": (["run", "--seed", str(2**64)], ["expected a whole number from 0 to 2**64 - 1"]),
    "seeds beyond torch's": (["compare", "--seed", str(2**64 - 2), "--seeds", "3"], [f"seed is {2**64}; expected"]),
    "audit beyond it": (["audit", "--seed", str(2**64 - 1), "--repeats", "2", "--dp-noise", "1"], [f"seed is {2**64}"]),
    "noisy without noise": (["run", "--noisy-clients", "3"], ["noisy_clients is 3", "--label-noise"]),
    "scale of nobody's": (["run", "--poison-scale", "2"], ["poison_scale is 2", "--poisoned"]),
    "scale in a dry run": (["run", "--poison-scale", "2", "--dry-run"], ["poison_scale is 2"]),
    "scale in a comparison": (["compare", "--poison-scale", "2"], ["poison_scale is 2"]),
    "no methods": (["compare", "--methods", " , "], ["methods is ' , '", "fedamp,fedavg"]),
    "absent over 1": (["run", "--absent", "2"], ["absent is 2"]),
    "epochs and steps": (["run", "--epochs", "1", "--steps", "2"], ["exactly one"]),
    "no such hyperparameter": (["run", "--method", "fedamp", "--set", "method.sgima=2"], ["did you mean 'sigma'?"]),
    "no such table": (["run", "--set", "methd.sigma=2"], ["setting, model, method"]),
    "no value": (["run", "--set", "method.sigma"], ["TABLE.NAME=VALUE"]),
    "no such setting parameter": (["run", "--set", "setting.shares=2"], ["share"]),
    "bad hyperparameter": (["run", "--method", "fedamp", "--set", "method.sigma=-2"], ["sigma is -2"]),
    "oracle without groups": (
        ["run", "--method", "fedamp", "--setting", "iid", "--set", "method.self_weight=oracle"],
        ["has none"],
    ),
    "too many clients": (["run", "--clients", "5000"], ["clients is 5000", "expected up to 20"]),
    "no such config": (["run", "--config", "gone.toml"], ["gone.toml"]),
    "unknown init": (["run", "--init", "random"], ["common, own"]),
    "no such list": (["list", "metods"], ["methods"]),
    "no gpu": (["run", "--device", "tpu"], ["cpu, cuda"]),
    "unwritable folder": (["run", *QUICK, "--out", "/proc/here"], ["/proc/here", "--out"]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(fedamp_command, mistake):
    arguments, words = MISTAKES[mistake]
    code, out, err = fedamp_command(*arguments)
    assert (code, out) == (2, ""), err
    assert err.startswith("fedamp: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err, err


def test_a_bad_config_file(fedamp_command):
    Path("a.toml").write_text("rounds = = 3")
    assert "not valid TOML" in fedamp_command("run", "--config", "a.toml")[2]
    Path("b.toml").write_text("round = 3")
    code, _, err = fedamp_command("run", "--config", "b.toml")
    assert code == 2
    assert "did you mean 'rounds'?" in err


@pytest.mark.parametrize("kind", ["methods", "data", "settings", "models", "attention"])
def test_lists(fedamp_command, kind):
    code, out, _ = fedamp_command("list", kind)
    assert code == 0
    wanted = {
        "methods": [*METHODS, "mu=0.01", "sigma=median"],
        "data": ["digits"],
        "settings": ["iid", "pathological", "practical", "dirichlet", "share=0.8", "beta=0.5"],
        "models": ["mlp", "logistic", "cnn-small", "cnn", "resnet18", "hidden=64"],
        "attention": ["negative-exponential", "scad", "mcp", "tamed-square-root", "theta=3.7"],
    }[kind]
    for word in wanted:
        assert word in out


def test_own_model_from_a_file(fedamp_command):
    Path("mine.py").write_text(
        "from torch import nn\n"
        "def net(input_shape, num_outputs, width=8):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, num_outputs))\n"
    )
    code, out, err = fedamp_command("run", *QUICK, "--model", "mine:net", "--set", "model.width=5", "--json")
    assert code == 0, err
    assert json.loads(out)["facts"]["parameters"] == 64 * 5 + 5 + 5 * 10 + 10


def test_a_model_that_vmap_can_not_take(fedamp_command):
    Path("stubborn.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.out = nn.Linear(64, 10)\n"
        "    def forward(self, x):\n"
        "        return self.out(x.flatten(1)) * (1.0 if x.sum().item() > 0 else 2.0)\n"
    )
    code, _, err = fedamp_command("run", *QUICK, "--model", "stubborn:Net", "--engine", "stacked")
    assert code == 0
    assert "one at a time" in err


def test_absent_validation_and_own_init(fedamp_command):
    code, _, _ = fedamp_command(
        "run", *QUICK, "--absent", "0.4", "--validation", "0.2", "--init", "own", "--out", "here", "--json"
    )
    assert code == 0
    line = RunFolder(Path("here")).lines()[1]
    away = [i for i, here in enumerate(line["present"]) if not here]
    assert away
    assert all(line["test"]["own"]["accuracy"][i] is None for i in away)
    assert "validation" in line


def test_a_warning_is_shown_with_its_cure(fedamp_command):
    code, _, err = fedamp_command("run", *QUICK, "--method", "fedamp", "--set", "method.self_weight=1.0")
    assert code == 0
    assert "warning:" in err
    assert "Separate under another name" in err


def test_ctrl_c_leaves_a_readable_folder(tmp_path):
    command = [sys.executable, "-m", "fedamp", "run", "--rounds", "100000", "--out", "here"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        # A shell lets what it runs in the background ignore Ctrl-C, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    lines = tmp_path / "here" / "rounds.jsonl"
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and not (lines.exists() and lines.read_text().count("\n") > 3):
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert err.startswith("fedamp: interrupted")
    assert err.count("\n") == 1
    folder = RunFolder(tmp_path / "here")
    assert folder.result()["finished"] is False
    assert len(folder.lines()) > 3
    assert load_file(tmp_path / "here" / "models.safetensors")["own.params"].shape[0] == 20


def test_quiet_where_stdout_is_no_terminal(fedamp_command):
    _, out, err = fedamp_command("run", *QUICK, "--json")
    assert out.count("\n") == 1
    assert err == ""


def help_texts(command, name="fedamp"):
    """Return all help texts of a command and of those below it, by the name of what they explain."""
    yield name, command.help or ""
    for param in command.params:
        yield f"{name} {param.name}", getattr(param, "help", None) or ""
    for below, each in getattr(command, "commands", {}).items():
        yield from help_texts(each, f"{name} {below}")


def test_no_word_in_brackets_is_lost_from_a_help_text():
    """Regression: rich read the extra in pip install 'fedamp[onnx]' as its markup, and showed nothing."""
    found = dict(help_texts(typer.main.get_command(main.app)))
    assert "'fedamp[onnx]'" in Text.from_markup(found["fedamp export form"]).plain
    assert len(found) > 50
    for name, text in found.items():
        assert Text.from_markup(text).plain == text.replace("\\[", "["), name


def test_arguments_have_help_texts(fedamp_command):
    code, out, _ = fedamp_command("list", "--help")
    assert code == 0
    assert "methods, data, settings" in out


def test_a_near_command_is_suggested_once(fedamp_command):
    code, _, err = fedamp_command("runn")
    assert (code, err.count("Did you mean")) == (2, 1)


@pytest.mark.parametrize(
    ("command", "begins"),
    [
        (["run", "--rounds", "1", "--out", "here"], "fedamp.runs.watching.watched.play_tracked"),
        (["compare", "--rounds", "1", "--out", "here"], "fedamp.runs.compare.play_all"),
        (["join", "somewhere", "--data", "new.csv", "--out", "here"], "fedamp.runs.newcomers.joining.join"),
    ],
)
def test_what_is_interrupted_before_it_has_a_folder_begins_anew(fedamp_command, monkeypatch, command, begins):
    def interrupt(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(begins, interrupt)
    code, _, err = fedamp_command(*command)
    assert (code, err) == (130, "fedamp: interrupted before the first round; the same command begins anew\n")


@pytest.mark.parametrize("command", ["run", "compare"])
@pytest.mark.parametrize("folder", ["here", "here/below"])
def test_a_file_in_place_of_the_folder(fedamp_command, command, folder):
    Path("here").write_text("mine")
    code, _, err = fedamp_command(command, *QUICK, "--out", folder)
    assert (code, Path("here").read_text()) == (2, "mine")
    assert f"can't write to {folder}: there is a file in its place or above it; give another folder with --out" in err
    assert "make room" not in err


@pytest.mark.parametrize(("flag", "value", "said"), [("--validation", "20%", "0.2"), ("--held-out", "2.5 %", "0.025")])
def test_a_share_in_percent_is_told_as_a_number(fedamp_command, flag, value, said):
    code, _, err = fedamp_command("run", *QUICK, flag, value)
    assert (code, err) == (2, f"fedamp: Invalid value for '{flag}': '{value}' is not a valid float. Write {said}.\n")
