"""What newcomers get, by method: a second table below that of a comparison."""

from pathlib import Path

import pytest

from fedamp.records.newcomers import Newcomers
from fedamp.records.reading import read_runs
from fedamp.report.newcomers import by_method

FLAGS = ["--rounds", 2, "--epochs", 1, "--clients", 7, "--model", "logistic", "--device", "cpu", "--newcomers", 2]


@pytest.mark.slow
def test_by_method_over_the_seeds(fedamp_command):
    methods = ["--methods", "fedavg,fedavg-ft,fedamp", "--seeds", 2]
    code, out, _ = fedamp_command("compare", *FLAGS, *methods, "--out", "all")
    assert code == 0
    runs = read_runs(Path("all"))
    found = {run.path.name: Newcomers.of(run.result["newcomers"]) for run in runs}
    table = out[out.index("newcomers  alone %") :].splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in table[2:6]}
    assert list(rows) == ["separate", "fedavg", "fedavg-ft", "fedamp"]
    for method, cells in rows.items():
        mine = [one for seed in range(2) for one in found[f"{method}-seed{seed}"].each]
        for place, column in enumerate(("alone", "received", "own", "chosen"), start=1):
            values = [getattr(one, column) for one in mine]
            shown = "–" if None in values else f"{sum(values) / len(values):.2f}"
            assert cells[place] == shown
        assert cells[0] == "4"
    # The same trajectory, but not the same models taken home.
    assert rows["fedavg"][:4] == rows["fedavg-ft"][:4]
    assert rows["fedavg"][4] == rows["fedavg"][2]
    assert rows["fedavg-ft"][4] == rows["fedavg-ft"][3]
    assert by_method(runs).startswith("method")


def test_a_run_without_newcomers_has_no_such_table(fedamp_command):
    code, out, _ = fedamp_command("run", *FLAGS[:-2], "--out", "run")
    assert (code, "newcomer" in out) == (0, False)
    assert by_method(read_runs(Path("run"))) is None


def test_a_run_shows_each_of_them(fedamp_command):
    code, out, _ = fedamp_command("run", *FLAGS, "--out", "run")
    assert code == 0
    assert "newcomer  alone %" in out
    assert "better" in out
    assert "newcomer  alone %" in fedamp_command("run", *FLAGS, "--out", "run")[1]  # already finished
