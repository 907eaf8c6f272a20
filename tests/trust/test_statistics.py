"""One test of significance for the report and for the page of the paper's re-run, and ties that are ties."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import wilcoxon

from fedamp.records.reading import read_runs
from fedamp.report import as_text, comparison_table
from fedamp.report.stats import wilcoxon_p
from paper import outcomes, tables
from run_folders import write_run


def results_of(scores, poisoned=()):
    """Return results as `paper.run` keeps them: a run for each seed, with its clients' accuracies in percent."""
    run = {"description": {"poisoned": list(poisoned)}}
    return {seed: {"per_client": list(each), "run": run} for seed, each in enumerate(scores)}


def exact_p(mine, theirs):
    """Return p of differences without any rounding: sums of decimals, as whole tenths of a point."""
    both = sorted(mine.keys() & theirs.keys())
    totals = [
        [sum(Fraction(str(score)) for score in client) for client in zip(*(of[s]["per_client"] for s in both))]  # noqa: B905
        for of in (mine, theirs)
    ]
    differences = [10 * (a - b) for a, b in zip(*totals, strict=True)]
    assert all(each.denominator == 1 for each in differences)
    return float(wilcoxon([int(each) for each in differences]).pvalue)


@pytest.mark.parametrize("table", [f"table{n}-{data}" for n in (1, 2, 3) for data in ("emnist", "fmnist", "mnist")])
def test_every_p_on_the_page_is_that_of_exact_differences(table):
    lines = [line.strip("| ").split(" | ") for line in tables.significance(table).splitlines()]
    assert len(lines) == 2 + 7
    for line in lines[2:]:
        for name, cell in zip(lines[0][1:], line[1:], strict=True):
            if cell == outcomes.NOT_RUN:
                continue
            mine, theirs = (outcomes.scores_of(table, outcomes.row_named(each)) for each in (name, line[0]))
            p, shown = exact_p(mine, theirs), cell.partition(", ")[2]
            if p < 1e-4:
                assert shown == "< 1e-4", (line[0], name)
                continue
            half = 0.5 * 10.0 ** (math.floor(math.log10(p)) - 1)  # two digits are shown
            assert float(shown) == pytest.approx(p, abs=1.001 * half), (line[0], name)
            assert (float(shown) < 0.05) == (p < 0.05), (line[0], name)


def test_the_page_and_the_report_give_one_p(tmp_path):
    rng = np.random.default_rng(3)
    mine, theirs = (rng.integers(60, 70, size=(3, 20)) for _ in range(2))
    for seed in range(3):
        write_run(tmp_path / f"a{seed}", "fedamp", seed, [(mine[seed] / 100).tolist()])
        write_run(tmp_path / f"s{seed}", "separate", seed, [(theirs[seed] / 100).tolist()])
    row = next(row for row in comparison_table(read_runs(tmp_path)) if row.method == "fedamp")
    page = outcomes.gain(results_of(mine.tolist()), results_of(theirs.tolist())).partition(", ")[2]
    assert row.p == pytest.approx(exact_p(results_of(mine.tolist()), results_of(theirs.tolist())))
    assert f"{row.p:.2g}" == page
    assert f" {page} " in as_text([row])


@pytest.mark.parametrize(
    ("mine", "theirs", "table", "text"),
    [
        ([[70, 80]] * 2, [[70, 80]] * 2, "+0.00, all clients equal", "+0.00 points (all clients equal)"),
        ([[70]], [[69]], "+1.00, fewer than 2 clients", "+1.00 points (fewer than 2 clients)"),
        ([[70] * 6], [[69] * 6], "+1.00, 0.031", "+1.00 points (p = 0.031)"),
        ([[70] * 20], [[69] * 20], "+1.00, < 1e-4", "+1.00 points (p < 1e-4)"),
        ([], [[69]], "not run", "not run"),
    ],
)
def test_where_there_is_no_p_the_page_says_why(mine, theirs, table, text):
    assert outcomes.gain(results_of(mine), results_of(theirs)) == table
    assert outcomes.gain_in_words(results_of(mine), results_of(theirs)) == text


def test_two_digits_do_not_hide_on_which_side_of_a_twentieth_a_p_is(tmp_path):
    write_run(tmp_path / "a", "fedamp", 0, [(0.5, 0.7)])
    (row,) = comparison_table(read_runs(tmp_path))
    assert " 0.0499 " in as_text([replace(row, p=0.0499)])
    assert " 0.05 " in as_text([replace(row, p=0.0501)])


def test_a_poisoned_clients_gain_is_nobodys():
    honest = outcomes.gain(results_of([[70, 71, 72]]), results_of([[69, 69, 69]]))
    assert outcomes.gain(results_of([[70, 71, 72, 0]], [3]), results_of([[69, 69, 69, 100]], [3])) == honest


def test_a_client_that_fails_is_the_worst_of_all_not_left_out():
    alone = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0]
    mine = [0.9, 0.8, 0.7, math.inf, math.inf, math.inf, math.inf]
    assert wilcoxon_p(mine, alone) == wilcoxon_p([0.9, 0.8, 0.7, 50, 50, 50, 51], alone)
    assert wilcoxon_p(alone, mine) == wilcoxon_p(mine, alone)
    both = wilcoxon_p([*mine, math.inf], [*alone, math.inf])
    assert both == wilcoxon_p([*mine, 3.0], [*alone, 3.0])  # who fails with either has no difference
    assert wilcoxon_p([math.inf] * 3, [math.inf] * 3) == (None, "all clients equal")
    assert wilcoxon_p([math.nan, 1.0], [1.0, 2.0]) == (None, "fewer than 2 clients")


def test_failing_clients_are_worse_off_than_alone(tmp_path):
    write_run(tmp_path / "s", "separate", 0, [(1.0, 1.0, 1.0, "inf")], metric="rmse")
    write_run(tmp_path / "a", "fedamp", 0, [(0.5, "inf", "inf", "inf")], metric="rmse")
    row = next(row for row in comparison_table(read_runs(tmp_path)) if row.method == "fedamp")
    assert row.worse_off == 2
    assert row.p == wilcoxon_p([0.5, 9, 9], [1, 1, 1])[0]


def test_a_silo_that_never_came_does_not_take_the_mean_from_the_others(tmp_path):
    """Of a federation over real machines: its result leaves such a silo out, and so does its report."""
    for name, scores in (("separate", (0.6, None, 0.7, 0.8)), ("fedamp", (0.7, 0.1, None, 0.7))):
        folder = write_run(tmp_path / name, name, 0, [scores])
        lines = (folder / "rounds.jsonl").read_text().splitlines()[1:]
        (folder / "rounds.jsonl").write_text("\n".join(lines))
    alone, amp = comparison_table(read_runs(tmp_path))
    assert alone.best == pytest.approx(70)
    assert amp.best == pytest.approx(50)
    assert amp.worse_off == 1  # of the first and the last client, which both have
    assert amp.p == wilcoxon_p([70, 70], [60, 80])[0]
    assert "nan" not in as_text([alone, amp])


def test_a_seed_that_fails_does_not_drop_out_of_a_curve(tmp_path):
    from fedamp.report import write_report

    write_run(tmp_path / "a0", "fedamp", 0, [(3.0, 3.0), (1.0, 1.0)], metric="rmse")
    write_run(tmp_path / "a1", "fedamp", 1, [(5.0, 5.0), (9.0, "inf")], metric="rmse")
    text = Path(write_report([tmp_path])).read_text()
    data = json.loads(text.split('<script type="application/json" id="data">')[1].split("</script>")[0])
    assert data[0]["methods"][0]["curve"]["mean"] == [4.0, None]
