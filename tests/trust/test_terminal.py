"""What is not finite is said in words, and what a user called a folder, a column or a run is shown as it is."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fedamp.cli import terminal
from fedamp.cli.terminal import mean_of
from fedamp.records.reading import read_runs

SGD = ["--rounds", "2", "--epochs", "1", "--model", "logistic", "--optimizer", "sgd"]


def write_silos(folder, scales=(1.0, 1.0, 1.0), words=("low", "high")):
    """Write csv files with a number to predict, and a word column; a silo's inputs are as large as its scale."""
    rng = np.random.default_rng(0)
    Path(folder).mkdir()
    for silo, scale in zip(("a[b]", "[red]c", "d"), scales, strict=True):
        x = scale * rng.normal(size=(60, 2))
        lines = [f"{a:.4f},{b:.4f},{words[k % 2]},1,{2 * a - b:.4f}" for k, (a, b) in enumerate(x)]
        Path(folder, f"{silo}.csv").write_text("\n".join(["u,v,dose [mg],same[1],y", *lines]) + "\n")
    return ["--data", f"{folder}/", "--label", "y", "--task", "regression"]


def page_of(folder):
    return Path(folder, "report.html").read_text()


# Not finite


def test_a_regression_that_diverges_is_said_in_words(fedamp_command):
    given = ["run", *write_silos("silos"), *SGD, "--lr", "1e30", "--method", "fedavg-ft", "--out", "here"]
    for _ in range(2):  # the second time the record alone is shown
        code, out, err = fedamp_command(*given)
        assert code == 0
        assert "not finite in any round" in out
        assert out.count("not finite") == 3
        assert "Lower the learning rate" in err or "already" in out
    result = json.loads(fedamp_command(*given, "--json")[1], parse_constant=pytest.fail)
    assert (result["best"], result["last"], result["worst"]) == (None, None, None)
    assert result["per_client"] == [None] * 3


def test_so_is_a_comparison_of_such(fedamp_command):
    given = ["compare", *write_silos("silos"), *SGD, "--lr", "1e30", "--methods", "fedavg-ft", "--seeds", "2"]
    code, out, err = fedamp_command(*given, "--out", "here")
    assert code == 0, err
    assert "not finite" in out
    assert "Not finite: the models of at least one client diverged" in out
    for form in ("text", "markdown", "csv"):
        code, out, _ = fedamp_command("report", "here", "--format", form)
        assert code == 0
        assert "not finite" in out
        assert "inf" not in out.replace("infinite", "")
        assert "nan" not in out
    row = next(csv.DictReader(io.StringIO(out)))
    assert (row["best"], row["sd"], row["last"], row["worst"]) == ("not finite",) * 4
    assert fedamp_command("report", "here")[0] == 0
    assert "No method has a finite mean: models diverged." in page_of("here")
    assert "<td>not finite</td>" in page_of("here")


def test_where_one_client_diverges_the_others_keep_their_numbers(fedamp_command):
    given = [*write_silos("silos", scales=(1.0, 1.0, 300.0)), *SGD[2:], "--rounds", "60", "--lr", "0.5"]
    code, _, err = fedamp_command("compare", *given, "--methods", "fedamp", "--out", "here")
    assert code == 0, err
    alone = next(record for record in read_runs(Path("here")) if record.config["method"]["name"] == "separate")
    last = alone.lines[60]["test"]["own"]["rmse"]
    assert last[2] == "inf"
    assert all(isinstance(score, float) for score in last[:2])
    assert alone.result["last"] is None
    row = next(csv.DictReader(io.StringIO(fedamp_command("report", "here", "--format", "csv")[1])))
    assert row["last"] == "not finite"
    assert float(row["best"]) > 0  # at a round at which all were finite still
    assert fedamp_command("run", *given, "--method", "separate", "--out", "one")[0] == 0


def test_a_classification_that_diverges_has_no_right_answer(fedamp_command):
    given = ["--clients", "5", "--rounds", "2", "--epochs", "1", "--optimizer", "sgd", "--lr", "1e30"]
    code, out, err = fedamp_command("run", *given, "--method", "fedavg-ft", "--out", "here")
    assert code == 0, err
    assert "0.00 % (round 1)" in out
    assert fedamp_command("compare", *given, "--methods", "fedavg-ft", "--out", "both")[0] == 0
    assert fedamp_command("report", "here", "both")[0] == 0


def test_the_mean_beside_the_bar_says_so_too():
    def line(**scores):
        return {"round": 1, "test": {"own": scores}}

    assert mean_of(line(rmse=[1.0, "inf", None]), "own") == "RMSE not finite"
    assert mean_of(line(rmse=["inf", 1.0, 2.0]), "own", poisoned=(0,)) == "RMSE 1.5"
    assert mean_of(line(accuracy=[0.5, None, 0.25]), "own") == "37.50 %"
    assert mean_of(line(accuracy=[0.5]), "received") == ""


# Brackets are no markup


def test_a_folder_with_brackets_is_shown_as_it_is(fedamp_command):
    quick = ["--clients", "5", "--rounds", "1", "--epochs", "1"]
    for given, shown in [
        (["run", *quick, "--out", "runs[x]"], "record: runs[x]\n"),
        (["run", *quick, "--out", "runs[x]"], "This run is already finished: runs[x]\n"),
        (["compare", *quick, "--methods", "fedamp", "--out", "all[/]:bug:"], "page: fedamp report all[/]:bug:\n"),
        (["resume", "runs[x]"], "record: runs[x]\n"),
        (["report", "runs[x]"], "runs[x]/report.html\n"),
        (["data", "status", "--data-dir", "data[x]"], "data folder: data[x]\n"),
        (["data", "check", "--data-dir", "data[x]"], "there are no data sets in data[x]\n"),
    ]:
        code, out, err = fedamp_command(*given)
        assert code == 0, err
        assert shown in out
    code, _, err = fedamp_command("run", "--data", "no[w]here/")
    assert code == 2
    assert "no[w]here" in err


def test_so_are_columns_words_and_silos_in_notes(fedamp_command):
    given = write_silos("my[silos]", words=("[bold]low", "high"))
    code, out, err = fedamp_command("run", *given, "--rounds", "1", "--out", "here")
    assert code == 0, err
    note = " ".join(out.split())
    for name in ("'dose [mg]'", "[bold]low", "same[1]"):
        assert name in note
    fedamp_command("report", "here")
    assert "a[b]" in page_of("here")


def test_so_are_warnings(fedamp_command, monkeypatch, capsys):
    monkeypatch.setattr(
        "fedamp.runs.memory.needs.in_words", lambda *_: (["memory [GiB] 1"], "more than [free] there is")
    )
    out = fedamp_command("run", "--clients", "5", "--dry-run")[1]
    assert out == "memory [GiB] 1\nwarning: more than [free] there is\n"
    terminal.warn("a[b] is :warning: odd[/]")
    assert capsys.readouterr().err == "warning: a[b] is :warning: odd[/]\n"


def test_so_is_a_list(fedamp_command, monkeypatch):
    monkeypatch.setattr("fedamp.cli.choices.entries", lambda kind: [("mine[a]", "sizes=[1]", "takes [x] and [/x]")])
    assert fedamp_command("list", "models")[1] == "mine[a]  takes [x] and [/x]\n    sizes=[1]\n"


@pytest.mark.parametrize("name", ["fedamp-start=[w]-seed0", "[red]mine", "odd[/]"])
def test_so_is_a_run_beside_its_bar(monkeypatch, name):
    screen = Console(file=io.StringIO(), force_terminal=True, width=120, markup=False, emoji=False)
    monkeypatch.setattr(terminal, "out", screen)
    with terminal.Bar(3, name, "own") as bar:
        bar.advance({"round": 1, "test": {"own": {"accuracy": [0.5]}}})
        bar.progress.refresh()
    assert name in screen.file.getvalue()


def test_so_is_a_silo_of_a_federation(fedamp_command, monkeypatch):
    commands = pytest.importorskip("fedamp.federation.server.commands")
    silo = {"name": "clinic[a]", "state": "set aside", "reason": "reply [3] is odd[/]"}
    monkeypatch.setattr(commands, "status", lambda folder: (None, {"silos": [silo]}))
    monkeypatch.setattr(terminal.out, "width", 200)
    out = fedamp_command("federation", "status", "here")[1]
    assert "clinic[a]" in out
    assert "reply [3] is odd[/]" in out
