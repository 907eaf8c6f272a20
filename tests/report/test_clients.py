"""Every client of a run on the page: its numbers are the records', whatever the metric, and whoever has none."""

import base64
import json

import numpy as np
import pytest

from fedamp.report import write_report
from fedamp.report.clients import MOST, listening
from run_folders import write_run


def block_of(folder):
    text = write_report([folder]).read_text()
    return json.loads(text.split('<script type="application/json" id="data">')[1].split("</script>")[0])[0]


def run_of(block, method, seed=0):
    return next(
        run for each in block["methods"] if each["name"] == method for run in each["runs"] if run["seed"] == seed
    )


def curve_of(run):
    table = np.frombuffer(base64.b64decode(run["curve"]["bytes"]), "<f4").reshape(-1, len(run["scores"]))
    return run["curve"]["rounds"], table


def test_gain_is_the_score_less_that_of_separate_with_the_same_seed(tmp_path):
    # Separate is best in its first round, fedamp in its last: each counts at its own best.
    write_run(tmp_path / "s0", "separate", 0, [(0.5, 0.7, 0.9), (0.4, 0.6, 0.9)])
    write_run(tmp_path / "a0", "fedamp", 0, [(0.1, 0.1, 0.1), (0.6, 0.7, 0.7)])
    write_run(tmp_path / "s1", "separate", 1, [(0.2, 0.2, 0.2)] * 2)
    write_run(tmp_path / "a1", "fedamp", 1, [(0.3, 0.1, 0.2)] * 2)
    block = block_of(tmp_path)
    run = run_of(block, "fedamp")
    assert run["scores"] == [60, 70, 70]
    assert run["alone"] == [50, 70, 90]
    assert run["gain"] == [10, 0, -20]
    assert run_of(block, "fedamp", seed=1)["gain"] == [10, -10, 0]
    assert run_of(block, "separate")["gain"] is None
    assert (block["unit"], block["decimals"], block["alone"]) == ("%", 2, "separate")


def test_a_lower_error_is_a_gain(tmp_path):
    write_run(tmp_path / "s", "separate", 0, [(2.0, 1.0)], metric="rmse")
    write_run(tmp_path / "a", "fedamp", 0, [(1.5, 1.25)], metric="rmse")
    block = block_of(tmp_path)
    assert run_of(block, "fedamp")["gain"] == [0.5, -0.25]
    assert block["metric"] == "RMSE (lower is better)"
    assert block["decimals"] is None


@pytest.mark.parametrize(
    ("metric", "label", "unit", "decimals", "sign"),
    [
        ("auc", "AUC", "", 4, 1),
        ("balanced-accuracy", "balanced accuracy, %", "%", 2, 1),
        ("log-loss", "log loss (lower is better)", "", None, -1),
        ("r2", "R2", "", None, 1),
        ("own:lower:cost:EUR", "cost, EUR (lower is better)", "EUR", None, -1),
    ],
)
def test_the_metric_has_its_own_words_digits_and_direction(tmp_path, metric, label, unit, decimals, sign):
    write_run(tmp_path / "s", "separate", 0, [(0.25, 0.5)], metric=metric)
    write_run(tmp_path / "a", "fedamp", 0, [(0.5, 0.5)], metric=metric)
    block = block_of(tmp_path)
    assert (block["metric"], block["unit"], block["decimals"]) == (label, unit, decimals)
    assert block["higher"] is (sign > 0)
    assert np.sign(run_of(block, "fedamp")["gain"]).tolist() == [sign, 0]


def test_without_separate_the_model_trained_beside_is_alone(tmp_path):
    folder = write_run(tmp_path / "a", "fedamp", 0, [(0.5, 0.7), (0.6, 0.8)])
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for line, scores in zip(lines, [(0.0, 0.0), (0.6, 0.6), (0.7, 0.7)], strict=True):
        line["test"]["alone"] = {"accuracy": list(scores)}
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    block = block_of(tmp_path)
    assert run_of(block, "fedamp")["alone"] == [70, 70]
    assert run_of(block, "fedamp")["gain"] == [-10, 10]
    assert block["alone"] is None


def test_a_client_without_a_score_has_none_and_breaks_nothing(tmp_path):
    write_run(tmp_path / "s", "separate", 0, [(0.5, None, 0.9)] * 2)
    write_run(tmp_path / "a", "fedamp", 0, [(0.6, None, 0.8)] * 2)
    block = block_of(tmp_path)
    run = run_of(block, "fedamp")
    assert run["scores"] == [60, None, 80]
    assert run["gain"] == [10, None, -10]
    assert run["counted"] == [True, False, True]
    assert block["methods"][0]["curve"]["mean"] == [70, 70]


def test_a_score_that_is_not_finite_is_a_word(tmp_path):
    write_run(tmp_path / "s", "separate", 0, [(1.0, 2.0)], metric="rmse")
    write_run(tmp_path / "a", "fedamp", 0, [("inf", 2.0)], metric="rmse")
    run = run_of(block_of(tmp_path), "fedamp")
    assert run["scores"] == ["not finite", 2.0]
    assert run["gain"] == [None, 0.0]


def test_clients_have_their_names_groups_and_samples(tmp_path):
    write_run(tmp_path / "a", "fedamp", 0, [(0.5, 0.7)], groups=[3, 1], names=["north", "south"], poisoned=[1])
    clients = block_of(tmp_path)["seeds"][0]["clients"]
    assert [(each["name"], each["group"], each["samples"]) for each in clients] == [("north", 3, 10), ("south", 1, 10)]
    assert [each["note"] for each in clients] == ["", "poisoned, not counted"]


def test_curves_of_clients_are_those_of_the_record(tmp_path):
    scores = np.random.default_rng(0).uniform(size=(7, 3))
    write_run(tmp_path / "a", "fedamp", 0, scores.tolist())
    rounds, table = curve_of(run_of(block_of(tmp_path), "fedamp"))
    assert rounds == [1, 2, 3, 4, 5, 6, 7]
    np.testing.assert_allclose(table, 100 * scores, rtol=1e-6)


def test_of_too_many_curves_rounds_are_left_out_and_not_the_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("fedamp.report.figures.CURVE_BYTES", 4 * 2 * 5)
    scores = np.random.default_rng(0).uniform(size=(41, 2))
    write_run(tmp_path / "a", "fedamp", 0, scores.tolist())
    rounds, table = curve_of(run_of(block_of(tmp_path), "fedamp"))
    assert rounds == [1, 11, 21, 31, 41]
    np.testing.assert_allclose(table, 100 * scores[::10], rtol=1e-6)


def test_who_listens_is_read_from_the_weights():
    xi = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [0.0, 0.0, 1.0]], dtype=np.float32)
    found = listening(xi)
    assert found["own"] == pytest.approx([0.5, 0.2, 1.0])
    assert found["others"] == pytest.approx([1.0, 1 / 0.54 - 1, 0.0], abs=1e-4)
    assert found["listens"] == [[(1, 0.5)], [(2, 0.7), (0, 0.1)], []]
    assert found["heard"] == [[(1, 0.1)], [(0, 0.5)], [(1, 0.7)]]


def test_the_largest_weights_alone_are_listed():
    m = MOST + 5
    weights = np.arange(1.0, m + 1)
    found = listening(np.tile((weights / weights.sum()).astype(np.float32), (m, 1)))
    assert [i for i, _ in found["listens"][0]] == list(range(m - 1, m - 1 - MOST, -1))


def test_a_silo_that_never_came_listens_to_nobody():
    found = listening(np.array([[1.0, 0.0], [np.nan, np.nan]], dtype=np.float32))
    assert found["others"] == [0.0, None]
    assert found["listens"] == [[], []]
