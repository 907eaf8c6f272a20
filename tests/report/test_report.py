import base64
import csv
import io
import json
import shlex
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from safetensors.numpy import save_file

from fedamp.cli import main
from fedamp.config import RunConfig
from fedamp.methods import METHODS
from fedamp.records.reading import read_runs
from fedamp.report import as_csv, as_markdown, as_text, comparison_table, write_report
from fedamp.report.commands import DEFAULTS, compare_command, run_command
from fedamp.report.groups import ORDER
from fedamp.report.stats import adjusted_rand_index, discovered_groups, order_by_group, wilcoxon_p
from fedamp.report.trials import RECEIVED


def write_run(
    folder: Path,
    method="fedamp",
    seed=0,
    accuracies=((0.5, 0.7), (0.6, 0.8)),
    metric="accuracy",
    finished=True,
    result=True,
    groups=None,
    xi=None,
    warnings=(),
    names=None,
    **config,
) -> Path:
    """Write a run whose clients have these scores after each round."""
    folder.mkdir(parents=True)
    method = {"name": method} if isinstance(method, str) else method
    told = RunConfig.of({"seed": seed, "method": method, "clients": len(accuracies[0]), **config}).to_dict()
    (folder / "description.json").write_text(json.dumps(told))
    lines = [{"round": 0, "events": [], "test": {"own": {metric: [0.0] * len(accuracies[0])}}}]
    for k, scores in enumerate(accuracies, 1):
        lines.append({"round": k, "events": [], "test": {"own": {metric: list(scores)}}, "seconds": 1.0})
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if result:
        facts = {"groups": groups, "sizes": [10] * len(accuracies[0])} | ({"names": names} if names else {})
        value = {"finished": finished, "metric": metric, "seconds": 2.0, "warnings": list(warnings), "facts": facts}
        (folder / "result.json").write_text(json.dumps(value))
    if xi is not None:
        save_file({"xi": np.ascontiguousarray(xi, dtype=np.float32)}, folder / "xi.safetensors")
    return folder


def grouped_xi(rounds: int, groups: list[int], among: float = 3.0) -> np.ndarray:
    same = np.equal.outer(groups, groups)
    weights = np.where(same, among, 1.0)
    weights /= weights.sum(1, keepdims=True)
    uniform = np.full_like(weights, 1 / len(groups))
    return np.stack([uniform if k == 0 else weights for k in range(rounds)])


def table_of(folder: Path, against=None):
    return {row.method: row for row in comparison_table(read_runs(folder), against)}


# Statistics


def test_wilcoxon_is_scipys():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=30), rng.normal(0.3, size=30)
    p, note = wilcoxon_p(a, b)
    assert note == ""
    assert p == pytest.approx(scipy.stats.wilcoxon(a, b).pvalue)


def test_wilcoxon_of_five_gains_is_two_in_thirty_two():
    assert wilcoxon_p([1, 2, 3, 4, 5], [0] * 5) == (2 / 32, "")


def test_rounding_does_not_break_ties_or_make_differences():
    assert wilcoxon_p([0.3, 0.2, 0.1 + 0.2], [0.3, 0.2, 0.3]) == (None, "all clients equal")
    steps = wilcoxon_p([0.3, 0.2, 0.9, 0.5], [0.2, 0.1, 0.8, 0.6])
    assert steps == wilcoxon_p([3, 2, 9, 5], [2, 1, 8, 6])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("a", "b", "word"),
    [
        ([1.0, 2.0], [1.0, 2.0], "all clients equal"),
        ([1.0], [2.0], "fewer than 2 clients"),
        ([], [], "fewer than 2 clients"),
        ([1.0, np.nan], [2.0, 1.0], "fewer than 2 clients"),
    ],
)
def test_wilcoxon_says_why_there_is_no_p(a, b, word):
    assert wilcoxon_p(a, b) == (None, word)


@pytest.mark.filterwarnings("error")
def test_ties_and_zeros_give_a_p_without_a_warning():
    p, _ = wilcoxon_p([5, 5, 5, 6, 7, 7, 8], [5, 5, 4, 5, 6, 6, 7])
    assert p is not None
    assert 0 < p < 0.1


def test_wilcoxon_refuses_unequal_lengths():
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(3,\)"):
        wilcoxon_p([1, 2], [1, 2, 3])


@pytest.mark.parametrize(
    ("a", "b", "value"),
    [
        ([0, 0, 1, 1], [1, 1, 0, 0], 1.0),
        ([0, 0, 1, 1], [0, 0, 1, 2], 4 / 7),  # scikit-learn's documented example, 0.57
        ([0, 0, 1, 1], [0, 1, 0, 1], -0.5),
        ([0, 0, 1, 1], [0, 0, 0, 0], 0.0),
        ([0, 0, 0], [5, 5, 5], 1.0),
        ([0, 1, 2], [0, 1, 2], 1.0),
        ([0], [0], 1.0),
        ([], [], 1.0),
        ([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2], 0.24242424),  # Hubert and Arabie's formula, by hand
    ],
)
def test_rand_index_by_hand(a, b, value):
    assert adjusted_rand_index(a, b) == pytest.approx(value)
    assert adjusted_rand_index(b, a) == pytest.approx(value)


def test_random_groups_have_a_rand_index_about_zero():
    rng = np.random.default_rng(0)
    values = [adjusted_rand_index(rng.integers(5, size=60), rng.integers(5, size=60)) for _ in range(200)]
    assert abs(np.mean(values)) < 0.01


@pytest.mark.parametrize("number", [3, None])
def test_groups_are_found_in_the_weights(number):
    groups = [0, 1, 2, 0, 1, 2, 0, 1, 2]
    noise = np.random.default_rng(0).uniform(0.95, 1.05, size=(9, 9))
    found = discovered_groups(grouped_xi(2, groups)[1] * noise, number)
    assert found.tolist() == groups
    assert order_by_group(found).tolist() == [0, 3, 6, 1, 4, 7, 2, 5, 8]


def test_weights_that_tell_nothing_make_no_groups():
    assert discovered_groups(np.full((4, 4), 0.25)).tolist() == [0, 0, 0, 0]
    assert discovered_groups(np.full((4, 4), 0.25), 2).tolist() == [0, 0, 0, 0]
    assert discovered_groups(np.eye(4), 2).tolist() == [0, 1, 2, 3]
    assert discovered_groups(np.ones((1, 1))).tolist() == [0]
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        discovered_groups(np.ones((2, 3)))


# The table


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
    with pytest.raises(ValueError, match="several hyperparameters; say 'fedamp"):
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
        assert "compare methods within a setting alone" in text
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
    assert "* a run did not come to its end" in text
    assert rows["fedamp"].best == 70
    assert rows["fedamp"].seconds == 2.0


def test_a_run_without_a_round_is_a_row_of_dashes(tmp_path):
    write_run(tmp_path / "a", "fedamp", result=False)
    (tmp_path / "a" / "rounds.jsonl").write_text("")
    row = table_of(tmp_path)["fedamp"]
    assert (row.best, row.seeds, row.unfinished) == (None, [], True)
    assert "fedamp*" in as_text([row])
    assert "No round was scored yet" in write_report([tmp_path]).read_text()


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
    assert "<strong>separate</strong> has the best" in write_report([tmp_path]).read_text()


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
    assert {name for name, method in METHODS.items() if method.scored == "received"} == set(RECEIVED)
    assert RunConfig().to_dict().items() >= DEFAULTS.items()


# The command


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"method": {"name": "fedamp", "sigma": 25.0, "start": "w"}, "seed": 3, "lr": 1e-4},
        {"setting": {"name": "practical", "share": 0.8, "sizes": [10, 20]}, "steps": 4, "poisoned": [0, 3]},
        {"method": {"name": "heurfedamp", "self_weight": "oracle"}, "label_noise": 0.25, "noisy_clients": [1]},
        {"model": {"name": "own module:net; rm -rf /"}, "data": "it's", "absent": 0.5, "deterministic": True},
        {"method": {"name": "fedamp", "alpha": "2", "attention": {"name": "x y", "a": True}}},
    ],
)
def test_the_command_describes_the_same_run(values, monkeypatch):
    told = RunConfig.of(values).to_dict()
    found = []
    monkeypatch.setattr("fedamp.cli.run.run_one", lambda config, *rest: found.append(config.to_dict()))
    command = shlex.split(run_command(told))
    main.app(command[1:], standalone_mode=False)
    assert found == [told]


def described(method: str, seed: int, **values):
    return RunConfig.of({"method": method, "seed": seed, **values}).to_dict()


def test_the_command_of_a_comparison_plans_the_same_runs(monkeypatch):
    told = [described(name, seed, rounds=7, lr=0.1) for name in ("separate", "apfl", "fedamp") for seed in (3, 4)]
    found = []

    def stop(runs, *rest):
        found.extend(run.config.to_dict() for run in runs)
        raise SystemExit

    monkeypatch.setattr("fedamp.runs.compare.play_all", stop)
    command = shlex.split(compare_command(told))
    with pytest.raises(SystemExit):
        main.app(command[1:], standalone_mode=False)
    assert found == told


def test_every_method_is_all():
    assert "--methods all --seeds 1 " in compare_command([described(name, 0) for name in METHODS])


@pytest.mark.parametrize(
    "told",
    [
        [described("separate", 0)],
        [described("apfl", 0), described("fedamp", 0)],
        [described("separate", 0), described("fedamp", 1)],
        [described("separate", 0), described("fedamp", 0, lr=0.1)],
        [described("separate", 0), described("mine", 0)],
        [described("separate", seed) for seed in (0, 2)],
    ],
)
def test_what_no_comparison_stands_for(told):
    assert compare_command(told) is None


def test_given_clients_have_no_command(tmp_path):
    assert run_command(RunConfig.of({"data": "given", "setting": "given"}).to_dict()) is None
    write_run(tmp_path / "a", data="given", setting="given")
    assert "they are run from there" in write_report([tmp_path]).read_text()


# The page


def test_page_tells_what_was_run(tmp_path):
    groups = [0, 0, 1, 1]
    scores = [(0.5, 0.7, 0.6, 0.6), (0.6, 0.8, 0.7, 0.7)]
    xi = grouped_xi(2, groups)
    write_run(tmp_path / "a", {"name": "fedamp", "sigma": 25.0}, 0, scores, groups=groups, xi=xi, warnings=["lower it"])
    write_run(tmp_path / "s", "separate", 0, scores, groups=groups, finished=False)
    path = write_report([tmp_path])
    assert path == tmp_path / "report.html"
    text = path.read_text()
    assert "fedamp run --data digits" in text
    assert "sigma=25.0" in text
    assert "lower it" in text
    assert "did not come to its end" in text
    assert "separate*" in text
    data = page_data(text)
    amp = next(method for method in data[0]["methods"] if method["name"] == "fedamp")
    assert amp["curve"]["mean"] == pytest.approx([60, 70])
    assert amp["recovery"]["mean"] == [0.0, 1.0]
    assert amp["xi"]["rounds"] == [1, 2]
    assert "src=" not in text.split('<script type="application/json"')[0]


def page_data(text: str):
    return json.loads(text.split('<script type="application/json" id="data">')[1].split("</script>")[0])


def test_weights_survive_a_byte_each(tmp_path):
    xi = np.random.default_rng(0).dirichlet(np.ones(5), size=(3, 5)).astype(np.float32)
    write_run(tmp_path / "a", accuracies=[(0.5,) * 5] * 3, xi=xi)
    data = page_data(write_report([tmp_path / "a"]).read_text())[0]["methods"][0]["xi"]
    steps = np.frombuffer(base64.b64decode(data["bytes"]), dtype=np.uint8).reshape(3, 5, 5)
    order = [int(name.split()[1]) for name in data["clients"]]
    assert np.abs(data["top"] * (steps / 255) ** 2 - xi[np.ix_(range(3), order, order)]).max() < 0.005


def test_page_stays_small(tmp_path):
    rng = np.random.default_rng(0)
    groups = [i % 5 for i in range(62)]
    for name in METHODS:
        scores = rng.uniform(size=(90, 62)).tolist()
        xi = rng.dirichlet(np.ones(62), size=(90, 62))
        write_run(tmp_path / name, name, 0, scores, rounds=90, groups=groups, xi=xi)
    path = write_report([tmp_path])
    assert path.stat().st_size < 8e6
    assert len(page_data(path.read_text())[0]["methods"][0]["xi"]["rounds"]) == 90


def test_more_than_a_page_holds_leaves_out_rounds_not_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("fedamp.report.figures.XI_BYTES", 4 * 4 * 5)
    write_run(tmp_path / "a", accuracies=[(0.5,) * 4] * 20, xi=grouped_xi(20, [0, 0, 1, 1]))
    rounds = page_data(write_report([tmp_path]).read_text())[0]["methods"][0]["xi"]["rounds"]
    assert len(rounds) == 5
    assert (rounds[0], rounds[-1]) == (1, 20)


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{data}}"


def test_names_can_not_break_the_page(tmp_path):
    plain = write_report([write_run(tmp_path / "plain")]).read_text()
    write_run(
        tmp_path / "a", EVIL, accuracies=[(0.5, 0.6)], names=[EVIL, "b"], warnings=[EVIL], data=f"./{EVIL}",
        xi=grouped_xi(1, [0, 1]), setting="natural", model=EVIL,
    )  # fmt: skip
    text = write_report([tmp_path / "a"]).read_text()
    assert "<img" not in text.split('<script type="application/json"')[0]
    assert "alert(1)</script>" not in text
    for sign in ("<script", "</script"):
        assert text.count(sign) == plain.count(sign)
    assert page_data(text)[0]["methods"][0]["name"] == EVIL


def test_out_says_where(tmp_path):
    run = write_run(tmp_path / "a")
    assert write_report([run], tmp_path / "new" / "page.html").name == "page.html"
    assert write_report([run], tmp_path) == tmp_path / "report.html"
    with pytest.raises(ValueError, match="can't write the report to"):
        write_report([run], run / "description.json" / "page.html")


def damage(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("description.json", "{}"),
        ("description.json", '{"method": "fedamp", "seed": 0}'),
        ("description.json", "[1]"),
        ("description.json", "{cut"),
        ("rounds.jsonl", '{"round": 1, "test": {"own": {"accuracy": ["x"]}}}\n'),
        ("rounds.jsonl", '{"round": 1, "test": {"own": {"loss": [1]}}}\n'),
        ("rounds.jsonl", '{"round": 1, "test": [1]}\n'),
        ("rounds.jsonl", "".join(f'{{"round": {k}, "test": {{"own": {{"accuracy": {[1] * k}}}}}}}\n' for k in (1, 2))),
        ("rounds.jsonl", '{"nothing": 1}\n'),
        ("result.json", '"x"'),
        ("result.json", '{"finished": true, "facts": [1], "metric": "accuracy"}'),
        ("result.json", '{"finished": true, "facts": {"groups": [1]}, "metric": "accuracy"}'),
        ("result.json", '{"finished": true, "warnings": 3, "metric": "accuracy"}'),
        ("result.json", '{"finished": true, "metric": "taste"}'),
        ("xi.safetensors", "no tensors"),
    ],
)  # fmt: skip
def test_damaged_folders_are_one_line(tmp_path, name, text):
    run = write_run(tmp_path / "a", xi=grouped_xi(2, [0, 1]))
    damage(run, name, text)
    with pytest.raises(ValueError, match=str(tmp_path)) as caught:
        write_report([run])
    assert "\n" not in str(caught.value)


def test_foreign_weights_and_folders_are_one_line(tmp_path):
    write_run(tmp_path / "a", xi=grouped_xi(2, [0, 1, 2]))
    with pytest.raises(ValueError, match=r"weights of shape \(2, 3, 3\)"):
        write_report([tmp_path / "a"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no run"):
        write_report([tmp_path / "empty"])
    with pytest.raises(ValueError, match="is no folder"):
        write_report([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="got no folders"):
        write_report([])
    with pytest.raises(ValueError, match="got no runs"):
        comparison_table([])


def test_a_report_needs_no_torch():
    code = "import sys, fedamp.report; print(*{'torch', 'pandas', 'matplotlib', 'sklearn'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == []
