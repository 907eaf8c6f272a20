"""Run folders written by version 0.1, before the modules moved into packages, are still read, resumed and exported.

`old_runs/` holds three of them as they were left: a finished run with validation, a run interrupted after 2 of 4
rounds, and a finished run over the csv files in `silos/`.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from fedamp import __version__
from fedamp.records.reading import read_run

OLD = Path(__file__).parent / "old_runs"
RUNS = ("finished", "interrupted", "of_silos")
DIGITS = ["--clients", "5", "--epochs", "1", "--model", "logistic", "--device", "cpu"]
FLAGS = {
    "finished": [*DIGITS, "--method", "fedamp", "--rounds", "2", "--validation", "0.2"],
    "interrupted": [*DIGITS, "--method", "fedamp", "--rounds", "4"],
    "of_silos": ["--data", "silos/", "--label", "ill", "--method", "fedavg", "--rounds", "2", *DIGITS[2:]],
}


@pytest.fixture
def fedamp_here(fedamp_command):
    """Call the command line in a folder with copies of the old runs."""
    for name in (*RUNS, "silos"):
        shutil.copytree(OLD / name, name)
    return fedamp_command


def files(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def test_they_are_small():
    for name in RUNS:
        assert sum(path.stat().st_size for path in (OLD / name).iterdir()) < 200_000


@pytest.mark.parametrize("name", RUNS)
def test_report(fedamp_here, name):
    code, out, err = fedamp_here("report", name)
    assert (code, out) == (0, f"{name}/report.html\n"), err
    text = Path(name, "report.html").read_text()
    assert ("did not finish" in text) == (name == "interrupted")
    code, out, _ = fedamp_here("report", *RUNS, "--format", "csv")
    assert code == 0
    assert out.count("\n") >= 4


@pytest.mark.parametrize("name", ["finished", "of_silos"])
def test_resume_shows_a_finished_run_and_changes_nothing(fedamp_here, name):
    before = files(name)
    code, out, err = fedamp_here("resume", name, "--json")
    assert code == 0, err
    assert json.loads(out) == {**json.loads(before["result.json"]), "folder": name}
    assert files(name) == before


@pytest.mark.parametrize("name", ["finished", "of_silos"])
def test_the_same_flags_show_a_finished_run(fedamp_here, name):
    description = json.loads(Path(name, "description.json").read_text())
    # A later version is another run, by design; all else is as version 0.1 wrote it.
    Path(name, "description.json").write_text(json.dumps({**description, "version": __version__}))
    before = files(name)
    code, out, err = fedamp_here("run", *FLAGS[name], "--out", name, "--json")
    assert code == 0, err
    assert json.loads(out) == {**json.loads(before["result.json"]), "folder": name}
    assert files(name) == before


def test_an_interrupted_run_goes_on_and_ends_as_if_it_never_had_stopped(fedamp_here):
    assert not read_run(Path("interrupted")).finished
    assert fedamp_here("resume", "interrupted")[0] == 0
    assert fedamp_here("run", *FLAGS["interrupted"], "--out", "whole")[0] == 0
    resumed, whole = read_run(Path("interrupted")), read_run(Path("whole"))
    assert resumed.finished
    assert [line["round"] for line in resumed.lines] == [0, 1, 2, 3, 4, 5]
    # The first rounds were played on another machine, whose last digits may be others.
    assert resumed.result["per_client"] == pytest.approx(whole.result["per_client"], abs=2)
    models = [load_file(f"{folder}/models.safetensors") for folder in ("interrupted", "whole")]
    torch.testing.assert_close(*models, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(resumed.xi(), whole.xi(), rtol=1e-3, atol=1e-5)
    assert not list(Path("interrupted").glob("checkpoint-*"))


@pytest.mark.parametrize("name", RUNS)
def test_export(fedamp_here, name):
    code, out, err = fedamp_here("export", name, "--client", "1")
    assert code == 0, err
    spec = json.loads(Path(out.strip()).with_suffix(".json").read_text())
    assert Path(out.strip()).name == ("client-1-south.safetensors" if name == "of_silos" else "client-1.safetensors")
    module = nn.Sequential(*[getattr(nn, kind)(**options) for kind, options in spec["layers"]])
    module.load_state_dict(load_file(out.strip()))
    entry = read_run(Path(name)).result["scored"]
    kept = load_file(Path(name, "best.safetensors" if name == "finished" else "models.safetensors"))
    own = torch.cat([values.flatten() for values in module.parameters()])
    assert sorted(own.tolist()) == sorted(kept[f"{entry}.params"][1].tolist())
    if name == "of_silos":
        assert spec["inputs"] == ["age", "dose", "sex=f", "sex=m"]
    if name == "interrupted":
        assert "2 of 4 rounds" in spec["score"]["why_this_round"]


def test_an_interrupted_run_on_files_goes_on_with_the_rows_it_began_with(fedamp_here):
    """Version 0.1 held out rows at random; a new run holds out others."""
    finished = json.loads(Path("of_silos/result.json").read_text())
    Path("of_silos/result.json").unlink()
    code, out, err = fedamp_here("resume", "of_silos", "--json")
    assert code == 0, err
    assert json.loads(out)["facts"]["test_sizes"] == finished["facts"]["test_sizes"]
    assert json.loads(out)["per_client"] == pytest.approx(finished["per_client"], abs=2)
    code, out, err = fedamp_here("run", *FLAGS["of_silos"], "--out", "new", "--json")
    assert code == 0, err
    splits = [json.loads(Path(name, "inputs.json").read_text())["split"] for name in ("of_silos", "new")]
    assert splits[0] != splits[1]
