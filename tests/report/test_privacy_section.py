"""The page, the terminal and a comparison say what was promised and what was spent."""

import json

import pytest
from typer.testing import CliRunner

from fedamp.cli.main import app
from fedamp.records.reading import read_runs
from fedamp.report.groups import make_blocks
from fedamp.report.page import write_report
from fedamp.report.privacy import privacy_note, privacy_section

pytest.importorskip("dp_accounting")

QUICK = ["--data", "digits", "--setting", "iid", "--clients", "3", "--model", "logistic", "--epochs", "1"]
QUICK += ["--batch-size", "100", "--dp-epsilon", "4"]


def fedamp(*words):
    done = CliRunner().invoke(app, [*words])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three methods beside each other, each with its own noise."""
    path = tmp_path_factory.mktemp("compared") / "folder"
    text = fedamp("compare", *QUICK, "--rounds", "2", "--methods", "separate,apfl,fedavg", "--out", str(path))
    assert "epsilon at most 4.00 at delta 1e-05 for every client's single samples (add or remove one)." in text
    assert text.count("A simulation protects nobody") == 1
    return path


def test_a_run_says_it_at_the_terminal(tmp_path):
    text = fedamp("run", *QUICK, "--rounds", "2", "--out", str(tmp_path / "run"))
    assert "privacy epsilon 4.00 at delta 1e-05 for every client's single samples (add or remove one)" in text
    assert text.count("A simulation protects nobody: all data are on this machine") == 1
    again = fedamp("run", *QUICK, "--rounds", "2", "--out", str(tmp_path / "run"))
    assert "already finished" in again
    assert "privacy epsilon 4.00" in again
    values = json.loads(
        CliRunner().invoke(app, ["run", *QUICK, "--rounds", "2", "--out", str(tmp_path / "run"), "--json"]).output
    )
    assert all(3.99 < each <= 4 for each in values["epsilon"])
    text = fedamp("run", *QUICK, "--rounds", "2", "--dry-run")
    assert "privacy epsilon 4 at delta 1e-05: noise " in text
    assert "each sample in a minibatch with a chance of 0.2" in text


def test_the_page_has_a_section(folder, tmp_path):
    blocks = make_blocks(read_runs(folder))
    section = privacy_section(blocks)
    assert [run.text.split(":")[0] for run in section.runs] == ["separate, seed 0", "fedavg, seed 0", "apfl, seed 0"]
    noise = [float(run.table.lines[0].cells[3]) for run in section.runs]
    assert noise[0] == noise[1] < noise[2]  # APFL takes two gradients of a minibatch
    plot = json.loads(section.plot)
    assert plot["asked"] == [4.0]
    assert [curve["x"] for curve in plot["curves"]] == [[1, 2]] * 3
    assert all(curve["y"][0] < curve["y"][1] <= 4 for curve in plot["curves"])
    page = write_report([folder], tmp_path / "page.html").read_text()
    assert "Privacy of single samples" in page
    assert page.count("for every client&#39;s single samples (add or remove one)") == 3


def test_a_run_by_itself_shows_who_spent_least_too(folder):
    (one,) = (run for run in read_runs(folder) if run.path.name.startswith("apfl"))
    section = privacy_section(make_blocks([one]))
    assert [curve["name"] for curve in json.loads(section.plot)["curves"]] == [
        "apfl, seed 0, most",
        "apfl, seed 0, least",
    ]


def test_a_run_without_privacy_has_none(tmp_path):
    text = fedamp("run", *QUICK[:-2], "--rounds", "1", "--out", str(tmp_path / "run"))
    assert "protects nobody" not in text
    records = read_runs(tmp_path / "run")
    assert privacy_section(make_blocks(records)) is privacy_note(records) is None
    assert "Privacy of single samples" not in write_report([tmp_path / "run"]).read_text()
