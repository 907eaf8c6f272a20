"""The comparison: which runs belong together, and the numbers of each method."""

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from fedamp.methods import METHODS, USUAL
from fedamp.records.reading import read_runs
from fedamp.report import as_csv, as_markdown, as_text, comparison_table, write_report
from fedamp.report.groups import NUM_USUAL, ORDER
from fedamp.report.run_scores import RECEIVED
from fedamp.report.stats import wilcoxon_p
from run_folders import write_run


def table_of(folder: Path, against=None):
    return {row.method: row for row in comparison_table(read_runs(folder), against)}


def test_numbers_by_hand(tmp_path):
    write_run(tmp_path / "a0", "fedamp", 0, [(0.5, 0.7), (0.6, 0.8), (0.5, 0.5)])
    write_run(tmp_path / "a1", "fedamp", 1, [(0.7, 0.9), (0.6, 0.8), (0.5, 0.7)])
    write_run(tmp_path / "s0", "separate", 0, [(0.7, 0.7), (0.6, 0.6), (0.6, 0.6)])
    write_run(tmp_path / "s1", "separate", 1, [(0.8, 0.8), (0.6, 0.6), (0.6, 0.6)])
    rows = table_of(tmp_path)
    assert list(rows) == ["separate", "fedamp"]
    amp = rows["fedamp"]
    assert amp.best == pytest.approx((70 + 80) / 2)
    assert amp.sd == pytest.approx(np.sqrt(50))
    assert amp.last == pytest.approx((50 + 60) / 2)
    assert amp.worst == pytest.approx((60 + 70) / 2)
    assert amp.tenth == pytest.approx((62 + 72) / 2)
    assert amp.worse_off == 1  # 65 against 75, 85 against 75
    assert amp.seconds == 2.0
    assert (amp.clients, amp.seeds, amp.against) == (2, [0, 1], "separate")
    assert rows["separate"].worse_off is None
    assert amp.p == wilcoxon_p([65, 85], [75, 75])[0]


def test_one_seed_has_no_sd_and_without_separate_nobody_is_worse_off(tmp_path):
    write_run(tmp_path / "a")
    row = table_of(tmp_path)["fedamp"]
    assert (row.sd, row.worse_off, row.p, row.against) == (None, None, None, None)


def alone_beside(folder: Path, rounds) -> None:
    """Give a run the scores of models trained alone beside it."""
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for line, scores in zip(lines, rounds, strict=True):
        line["test"]["alone"] = {"accuracy": list(scores)}
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_without_separate_the_models_trained_beside_tell_who_is_worse_off(tmp_path):
    """Regression: the table had no number and denied what the next plot showed."""
    alone_beside(write_run(tmp_path / "a0", "fedamp", 0, [(0.5, 0.7), (0.6, 0.8)]), [(0, 0), (0.7, 0.7), (0.6, 0.6)])
    alone_beside(write_run(tmp_path / "a1", "fedamp", 1, [(0.5, 0.7), (0.6, 0.8)]), [(0, 0), (0.7, 0.9), (0.6, 0.6)])
    rows = list(table_of(tmp_path).values())
    assert rows[0].worse_off == 1  # 60 against 70, 80 against 80
    text = as_text(rows)
    assert "worse off than alone" in text
    assert "1 of 2" in text
    assert "the model trained alone beside it (--alone)" in text
    assert "Separate" not in text
    write_run(tmp_path / "a2", "fedamp", 2, [(0.5, 0.7), (0.6, 0.8)])
    assert table_of(tmp_path)["fedamp"].worse_off is None, "of one of the runs it is not known"
    write_run(tmp_path / "s0", "separate", 0, [(0.5, 0.5), (0.5, 0.5)])
    rows = list(table_of(tmp_path).values())
    assert rows[-1].worse_off == 0, "Separate goes first"
    assert "worse off than Separate" in as_text(rows)
    assert "beside" not in as_text(rows)


def test_errors_are_best_where_lowest_and_headings_say_so(tmp_path):
    write_run(tmp_path / "s", "separate", 0, [(3.0, 5.0), (4.0, 4.5)], metric="rmse")
    write_run(tmp_path / "a", "fedamp", 0, [(2.0, 5.0), (3.5, 4.5)], metric="rmse")
    rows = table_of(tmp_path)
    assert rows["fedamp"].best == 3.5
    assert rows["fedamp"].worst == 5.0
    assert rows["fedamp"].tenth == pytest.approx(4.7)
    assert rows["fedamp"].worse_off == 0
    text = as_text(list(rows.values()))
    assert "best RMSE (lowest)" in text
    assert text.splitlines()[0].count("lower is better") == 2
    assert "BMTA" not in text


def test_p_is_over_the_seeds_that_both_have(tmp_path):
    write_run(tmp_path / "a0", "fedamp", 0, [(0.5, 0.7, 0.9)])
    write_run(tmp_path / "a1", "fedamp", 1, [(0.1, 0.1, 0.1)])
    write_run(tmp_path / "s0", "separate", 0, [(0.5, 0.7, 0.9)])
    write_run(tmp_path / "f2", "fedavg-ft", 2, [(0.5, 0.7, 0.9)])
    rows = table_of(tmp_path)
    assert (rows["fedamp"].p, rows["fedamp"].p_note) == (None, "all clients equal")
    assert rows["fedavg-ft"].p_note == "no seed in common"


def test_parameters_tell_methods_apart(tmp_path):
    write_run(tmp_path / "a", {"name": "fedamp", "sigma": 25.0, "lam": 1.0})
    write_run(tmp_path / "b", {"name": "fedamp", "lam": 1.0})
    write_run(tmp_path / "c", {"name": "fedamp", "lam": 1.0}, lr=0.1)
    write_run(tmp_path / "d", "separate")
    assert list(table_of(tmp_path)) == [
        "separate",
        "fedamp (sigma=25.0, lr=default)",
        "fedamp (sigma=default, lr=default)",
        "fedamp (sigma=default, lr=0.1)",
    ]
    with pytest.raises(ValueError, match="several sets of hyperparameters; give 'fedamp"):
        table_of(tmp_path, "fedamp")
    assert table_of(tmp_path, "fedamp (sigma=25.0, lr=default)")["separate"].p_note == "all clients equal"


def test_other_settings_are_other_blocks(tmp_path):
    write_run(tmp_path / "a", "fedamp", data="digits")
    write_run(tmp_path / "b", "fedamp", data="mnist", rounds=5)
    write_run(tmp_path / "c", "separate", data="mnist", rounds=5)
    rows = comparison_table(read_runs(tmp_path))
    assert [(row.block, row.method) for row in rows] == [
        ("data=digits", "fedamp"),
        ("data=mnist", "separate"),
        ("data=mnist", "fedamp"),
    ]
    assert rows[0].worse_off is None
    for text in (as_text(rows), as_markdown(rows)):
        assert "compare methods only within a setting" in text
        assert "data=mnist" in text


def test_engine_and_device_make_no_other_setting(tmp_path):
    write_run(tmp_path / "a", "fedamp", 0, engine="loop")
    write_run(tmp_path / "b", "fedamp", 1, engine="stacked", device="cpu")
    assert table_of(tmp_path)["fedamp"].seeds == [0, 1]


def test_unfinished_runs_have_a_star(tmp_path):
    write_run(tmp_path / "a", "fedamp", result=False)
    write_run(tmp_path / "b", "separate", finished=False)
    write_run(tmp_path / "c", "apfl")
    rows = table_of(tmp_path)
    text = as_text(list(rows.values()))
    assert "fedamp*" in text
    assert "separate*" in text
    assert "apfl*" not in text
    assert "* a run did not finish" in text
    assert rows["fedamp"].best == 70
    assert rows["fedamp"].seconds == 2.0


def test_a_run_without_a_round_is_a_row_of_dashes(tmp_path):
    write_run(tmp_path / "a", "fedamp", result=False)
    (tmp_path / "a" / "rounds.jsonl").write_text("")
    row = table_of(tmp_path)["fedamp"]
    assert (row.best, row.seeds, row.unfinished) == (None, [], True)
    assert "fedamp*" in as_text([row])
    assert "No round has been scored yet" in write_report([tmp_path]).read_text()


def test_a_seed_counts_once(tmp_path):
    write_run(tmp_path / "a", accuracies=[(0.1, 0.1)], result=False)
    write_run(tmp_path / "b", accuracies=[(0.9, 0.9)])
    row = table_of(tmp_path)["fedamp"]
    assert (row.best, row.seeds, row.repeated) == (90, [0], 1)
    assert len(comparison_table(read_runs(tmp_path) * 2)[0].seeds) == 1


def test_poisoned_clients_do_not_count(tmp_path):
    write_run(tmp_path / "a", "fedamp", accuracies=[(0.0, 0.8, 0.9)], poisoned=[0])
    write_run(tmp_path / "s", "separate", accuracies=[(0.9, 0.8, 0.8)], poisoned=[0])
    row = table_of(tmp_path)["fedamp"]
    assert (row.best, row.worst, row.worse_off, row.clients) == (pytest.approx(85), 80, 0, 2)


def test_what_the_server_sends_counts_for_fedavg(tmp_path):
    write_run(tmp_path / "a", "fedavg", accuracies=[(0.5, 0.5), (0.6, 0.6)])
    lines = [json.loads(line) for line in (tmp_path / "a" / "rounds.jsonl").read_text().splitlines()]
    for line, value in zip([*lines, {"round": 3, "test": {}}], (0.0, 0.1, 0.2), strict=False):
        line["test"]["received"] = {"accuracy": [value, value]}
    (tmp_path / "a" / "rounds.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert table_of(tmp_path)["fedavg"].best == pytest.approx(20)


def test_against_another_method_or_an_unknown_one(tmp_path):
    write_run(tmp_path / "a", "fedamp", accuracies=[(0.5, 0.6, 0.7, 0.8)])
    write_run(tmp_path / "b", "apfl", accuracies=[(0.4, 0.3, 0.2, 0.1)])
    row = table_of(tmp_path, "fedamp")["apfl"]
    assert row.p == wilcoxon_p([50, 60, 70, 80], [40, 30, 20, 10])[0]
    with pytest.raises(ValueError, match="against is 'nothing'; choose from the methods that were run: apfl, fedamp"):
        table_of(tmp_path, "nothing")


def test_what_was_trained_as_another_method_took_as_long(tmp_path):
    run = write_run(tmp_path / "a", "fedavg-ft")
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "seconds": 0.0, "trained_as": "fedavg"}))
    assert table_of(tmp_path)["fedavg-ft"].seconds == 2.0


def test_clients_without_a_finite_score_are_dashes(tmp_path):
    write_run(tmp_path / "a", accuracies=[(None, None), (None, None)])
    line = {"round": 0, "events": [], "test": {"own": {"accuracy": [None, None]}}}
    lines = (tmp_path / "a" / "rounds.jsonl").read_text().splitlines()[1:]
    (tmp_path / "a" / "rounds.jsonl").write_text("\n".join([json.dumps(line), *lines]))
    write_run(tmp_path / "s", "separate")
    rows = table_of(tmp_path)
    assert np.isnan(rows["fedamp"].best)
    assert "nan" not in as_text(list(rows.values()))
    assert "<strong>separate</strong> has the highest" in write_report([tmp_path]).read_text()


def test_a_block_without_the_other_method_says_so(tmp_path):
    write_run(tmp_path / "a", "fedamp", data="digits")
    write_run(tmp_path / "b", "apfl", data="mnist")
    rows = comparison_table(read_runs(tmp_path), "apfl")
    assert [row.p_note for row in rows] == ["apfl was not run here", ""]


def test_renderings(tmp_path):
    write_run(tmp_path / "a", {"name": "a|b<i>"}, accuracies=[(0.5, 0.755)])
    write_run(tmp_path / "s", "separate", accuracies=[(0.5, 0.755)])
    rows = comparison_table(read_runs(tmp_path))
    markdown = as_markdown(rows)
    assert "| a\\|b\\<i\\> | 1 | 62.75 | – | 62.75 | 50.00 | 52.55 | 0 of 2 | all clients equal | 2.0 |" in markdown
    lines = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert lines[1]["method"] == "a|b<i>"
    assert float(lines[1]["best"]) == 62.75
    assert lines[1]["better"] == "higher"
    assert lines[1]["sd"] == ""
    assert set(asdict(rows[0])) < set(lines[0])
    text = as_text(rows)
    assert text.splitlines()[2].split()[:3] == ["separate", "1", "62.75"]


def test_the_copies_of_names_are_true():
    assert tuple(METHODS) == ORDER
    assert ORDER[:NUM_USUAL] == USUAL
    assert {name for name, method in METHODS.items() if method.scored == "received"} == set(RECEIVED)
