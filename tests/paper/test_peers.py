"""All methods are compared with the same effort, and the table in docs/methods.md says what results/ say."""

import json
import statistics
import sys
from dataclasses import fields, replace

import pytest

from fedamp.methods import METHODS
from fedamp.runs.parts import check_optimizer, optimizer_of
from paper import experiments, peers, peers_page, pending, results, run
from paper.peers import Choice

NAMES = [name for name in peers.NAMES if peers.PLACES[name].trials]


@pytest.fixture
def nothing_yet(tmp_path, monkeypatch):
    """No result of any run."""
    monkeypatch.setattr(results, "RESULTS", tmp_path)


def score(name: str, method: str, choice: Choice, own: float, received: float | None = None) -> None:
    """Write the result of a trial."""
    path = results.path_of(name, peers.trial_label(name, method, choice))
    results.write(path, {"validation": {"own": own, "received": own if received is None else received}})


def tried(name: str, *best: Choice) -> None:
    """Write results of all trials of a table in which `best` or, where it was not tried, the last trial is the best."""
    for number in range(2 * peers.TRIALS):
        cells = [cell for cell in peers.table(name) if cell.label.startswith("tune-") and not cell.path.exists()]
        for cell in cells:
            method = cell.config.method.name
            labels = [peers.trial_label(name, method, choice) for choice in best]
            accuracy = 90.0 if cell.label in labels else 50.0 + number
            results.write(cell.path, {"validation": {"own": accuracy, "received": accuracy}})


@pytest.mark.parametrize("name", NAMES)
def test_every_method_gets_five_trials_on_validation_samples_and_then_the_seeds(name, nothing_yet):
    assert len(peers.table(name)) == 3 * len({peers.trained_as(method) for method in peers.compared(name)})
    tried(name)
    trials = {}
    for cell in peers.table(name):
        config = cell.config
        if cell.label.startswith("tune-"):
            assert (config.seed, config.validation) == (100, 0.2)
            assert config.seed not in experiments.SEEDS
            assert config.rounds == peers.PLACES[name].values["rounds"] // 2
            trials.setdefault(config.method.name, []).append((config.lr, *config.method.parameters.values()))
    assert {len(each) for each in trials.values()} == {5}
    assert {len(set(each)) for each in trials.values()} == {5}
    assert {len({lr for lr, *_ in each[:3]}) for each in trials.values()} == {3}
    assert set(trials) == {peers.trained_as(method) for method in peers.compared(name)}
    runs = [cell for cell in peers.table(name) if not cell.label.startswith("tune-")]
    for cell in runs:
        assert cell.config.validation == 0
        assert cell.config.rounds == peers.PLACES[name].values["rounds"]
    found = [(cell.config.method.name, cell.config.seed) for cell in runs]
    assert sorted(found) == sorted((method, seed) for method in trials for seed in experiments.SEEDS)
    assert len({cell.label for cell in peers.table(name)}) == len(peers.table(name))


@pytest.mark.parametrize("name", peers.NAMES)
def test_every_run_is_a_configuration_that_its_method_takes_with_nothing_left_to_defaults(name, nothing_yet):
    tried(name)
    for cell in peers.table(name):
        config = cell.config
        kind = METHODS[config.method.name]
        assert config.method.parameters.keys() == {field.name for field in fields(kind)} - set(peers.WITHOUT)
        assert config.lr is not None
        assert config.optimizer == kind.optimizer
        method = kind(**config.method.parameters)
        check_optimizer(method, optimizer_of(config, method))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_what_its_label_says(name, nothing_yet):
    tried(name)
    for cell in peers.table(name):
        config = cell.config
        label = cell.label.removeprefix("tune-").partition("-seed")[0].removeprefix(f"{config.method.name}-lr-")
        rate, *own = label.split("-")
        assert float(rate) == config.lr
        if own:
            knob, value = own
            assert float(value) == config.method.parameters[knob] != peers.default_of(config.method.name, knob)


def test_the_time_is_that_of_the_defaults(nothing_yet):
    found = {cell.label: cell.config for cell in peers.table("peers-time")}
    assert found["ifca"].method.parameters["clusters"] == 4
    assert (found["fedavg"].lr, found["scaffold"].lr) == (METHODS["fedavg"].lr, METHODS["scaffold"].lr)


@pytest.mark.parametrize("name", peers.NAMES)
def test_every_result_is_of_a_run_that_the_table_has_now(name):
    now = {cell.label: json.loads(json.dumps(cell.config.to_dict())) for cell in peers.table(name)}
    for _, label, result in results.read_all(name):
        assert label in now, f"{name}/{label} is in no table; delete it"
        was = result["description"]
        for key in (
            "setting",
            "clients",
            "model",
            "method",
            "rounds",
            "epochs",
            "optimizer",
            "lr",
            "validation",
            "seed",
        ):
            assert was[key] == now[label][key], f"{name}/{label} was run with another {key}; delete it"


def test_at_the_best_rate_two_more_values_of_the_knob_are_tried_or_two_more_rates(nothing_yet):
    name = "peers-digits"
    for method in ("separate", "scaffold", "ditto", "fedper"):
        assert peers.second_trials(name, method) == []
        for choice, accuracy in zip(peers.first_trials(method), (70.0, 80.0, 75.0), strict=True):
            assert peers.chosen(name, method) is None
            score(name, method, choice, accuracy)
        assert peers.chosen(name, method) is None
    assert peers.first_trials("ditto") == [Choice(3e-4), Choice(1e-3), Choice(3e-3)]
    assert peers.second_trials(name, "separate") == [Choice(5.5e-4), Choice(1.8e-3)]
    assert peers.first_trials("scaffold") == [Choice(0.03), Choice(0.1), Choice(0.3)]
    assert peers.second_trials(name, "scaffold") == [Choice(0.055), Choice(0.18)]
    assert peers.second_trials(name, "ditto") == [Choice(1e-3, 0.1), Choice(1e-3, 1.0)]
    assert peers.second_trials(name, "fedper") == [Choice(5.5e-4), Choice(1.8e-3)]  # of two layers one is the head
    assert peers.label_of(name, "ditto", Choice(3e-3)) == "ditto-lr-0.003"
    assert peers.label_of(name, "ditto", Choice(3e-3, 0.1)) == "ditto-lr-0.003-lam-0.1"
    values = peers.values_of(name, "ditto", 0, Choice(3e-3, 0.1))
    assert (values["lr"], values["method"].parameters["lam"]) == (3e-3, 0.1)
    assert peers.values_of(name, "ditto", 0, Choice(3e-3))["method"].parameters["lam"] == 0.01
    for choice, accuracy in zip(peers.second_trials(name, "ditto"), (79.0, 81.0), strict=True):
        score(name, "ditto", choice, accuracy)
    assert peers.chosen(name, "ditto") == Choice(1e-3, 1.0)


def test_of_equals_the_first_is_chosen_and_all_equal_is_said(nothing_yet):
    name = "peers-digits"
    for _ in range(2):
        for choice in peers.trials_of(name, "ditto"):
            score(name, "ditto", choice, 80.0)
    assert peers.chosen(name, "ditto") == Choice(3e-4)
    assert peers_page.outcome(name, "ditto").chosen == "lr 0.0003, lam 0.01 (all equal)"
    score(name, "ditto", Choice(3e-4), 70.0)
    for choice in peers.second_trials(name, "ditto"):
        score(name, "ditto", choice, 80.0)
    assert peers.chosen(name, "ditto") == Choice(1e-3)
    assert peers_page.outcome(name, "ditto").chosen == "lr 0.001, lam 0.01"


def test_of_two_models_the_one_is_taken_that_was_better_in_the_trial_that_was_chosen(nothing_yet):
    name, choice = NAMES[0], Choice(1e-3)
    for method, own, received, judged in (
        ("fedamp", 80.0, 81.0, "received"),
        ("fedamp", 81.0, 80.0, "own"),
        ("fedamp", 80.0, 80.0, "own"),  # of equals the one that the method is scored at
        ("autoamp", 80.0, 80.0, "received"),
        ("autoamp", 81.0, 80.0, "own"),
        ("ditto", 80.0, 81.0, "own"),  # what it receives is everybody's model
    ):
        score(name, method, choice, own, received)
        assert peers.judged(name, method, choice) == judged


def test_twins_share_runs_and_each_chooses_at_its_own_model(nothing_yet):
    name = "peers-digits"
    for choice, own, received in zip(
        peers.first_trials("fedprox"), (70.0, 80.0, 90.0), (90.0, 80.0, 70.0), strict=True
    ):
        score(name, "fedprox", choice, own, received)
    assert peers.second_trials(name, "fedprox") == [Choice(3e-4, 1e-3), Choice(3e-4, 1e-1)]
    assert peers.second_trials(name, "fedprox-ft") == [Choice(3e-3, 1e-3), Choice(3e-3, 1e-1)]
    trials = [cell.label for cell in peers.table(name) if cell.label.startswith("tune-fedprox")]
    assert len(trials) == len(set(trials)) == 7
    for twin in ("fedprox", "fedprox-ft"):
        for choice, accuracy in zip(peers.second_trials(name, twin), (95.0, 60.0), strict=True):
            score(name, twin, choice, accuracy)
    assert peers.chosen(name, "fedprox") == Choice(3e-4, 1e-3)
    assert peers.chosen(name, "fedprox-ft") == Choice(3e-3, 1e-3)
    runs = {cell.label for cell in peers.table(name) if cell.label.endswith("seed0")}
    assert runs == {"fedprox-lr-0.0003-mu-0.001-seed0", "fedprox-lr-0.003-mu-0.001-seed0"}


def test_a_method_waits_for_its_own_trials_alone_and_nobody_else(nothing_yet):
    def labels() -> list[str]:
        return [cell.label for cell in pending.missing(["peers-digits"])]

    first = [f"tune-separate-lr-{rate}" for rate in ("0.0003", "0.001", "0.003")]
    assert labels()[:4] == [*first, "tune-fedavg-lr-0.0003"]
    for choice in peers.first_trials("separate"):
        score("peers-digits", "separate", choice, choice.lr)
    second = peers.second_trials("peers-digits", "separate")
    assert labels()[:3] == [
        *(peers.trial_label("peers-digits", "separate", choice) for choice in second),
        "tune-fedavg-lr-0.0003",
    ]
    for choice in second:
        score("peers-digits", "separate", choice, 0.0)
    assert labels()[:2] == ["separate-lr-0.003-seed0", "tune-fedavg-lr-0.0003"]
    assert labels()[-2:] == ["separate-lr-0.003-seed1", "separate-lr-0.003-seed2"]


def test_one_methods_trials_can_be_run_with_its_runs(nothing_yet):
    def labels(only: str) -> list[str]:
        return [cell.label for cell in pending.missing(["peers-digits"], only)]

    assert labels("ditto") == labels("tune-ditto") == [f"tune-ditto-lr-{rate}" for rate in ("0.0003", "0.001", "0.003")]


@pytest.mark.parametrize("name", NAMES)
def test_nobody_knows_the_true_groups_and_alpha_falls_as_far_as_in_the_paper(name, nothing_yet):
    tried(name)
    for cell in peers.table(name):
        if cell.config.method.name in ("fedamp", "heurfedamp"):
            own = cell.config.method.parameters
            assert own["self_weight"] == "uniform"
            assert own["alpha_every"] == round(cell.config.rounds / 3)


@pytest.fixture
def tiny(nothing_yet, monkeypatch, capsys):
    """Return a caller of `python -m paper.run peers-digits` with two methods, four clients and two rounds."""
    small = {"clients": 4, "rounds": 2, "epochs": 1, "setting": {"name": "practical", "groups": 2}}
    place = peers.PLACES["peers-digits"]
    place = replace(place, values={**place.values, **small}, methods=("separate", "fedavg", "fedavg-ft"))
    monkeypatch.setitem(peers.PLACES, "peers-digits", place)
    time = replace(place, values={**place.values, "rounds": 3}, trials=False)
    monkeypatch.setitem(peers.PLACES, "peers-time", time)

    def call(*arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["paper.run", *arguments])
        run.main()
        return capsys.readouterr().out.splitlines()

    return call


def test_the_table_is_filled_by_one_command(tiny):
    lines = tiny("peers-digits", "peers-time")
    names = [line.split(":")[0].split(" ", 1)[1] for line in lines]
    assert names[:3] == [f"tune-separate-lr-{rate}" for rate in ("0.0003", "0.001", "0.003")]
    assert [name.startswith("tune-separate-lr-") for name in names[:6]] == [True] * 5 + [False]
    assert names[5].startswith("separate-lr-")
    assert names[-2:] == ["separate", "fedavg"]
    assert not tiny("peers-digits", "peers-time")  # nothing is missing any more
    text = peers_page.details("peers-digits")
    rows = {row.split("|")[2].strip(): [cell.strip() for cell in row.split("|")[3:-1]] for row in text.splitlines()[2:]}
    assert rows.keys() == {"`separate`", "`fedavg`", "`fedavg-ft`"}
    for method, (bmta, worst, worse, value) in ((name.strip("`"), cells) for name, cells in rows.items()):
        scored = METHODS[method].scored
        choice = peers.chosen("peers-digits", method)
        assert value.removesuffix(" (all equal)") == f"lr {choice.lr:g}"
        runs = [
            results.read("peers-digits", f"{peers.label_of('peers-digits', method, choice)}-seed{seed}")
            for seed in (0, 1, 2)
        ]
        best = [each[scored]["best"] for each in runs]
        assert bmta.strip("*") == f"{sum(best) / 3:.2f} ± {statistics.stdev(best):.2f}"
        assert worst.strip("*") == f"{sum(min(each[scored]['per_client']) for each in runs) / 3:.1f}"
        assert (worse == "–") == (method == "separate")
    costs = results.read("peers-time", "fedavg")
    assert len(costs["round_seconds"]) == 3
    assert costs["client_bytes"]["down"] == 4 * (64 * 64 + 64 + 64 * 10 + 10)
    assert costs["client_bytes"]["up"] == costs["client_bytes"]["down"] + 8  # and the number of samples
    assert results.read("peers-time", "separate")["client_bytes"] == {"up": 0, "down": 0}


def ran(name: str, method: str, seed: int, accuracies: list[float]) -> None:
    """Write the result of a run with what was chosen."""
    scores = {"best": sum(accuracies) / len(accuracies), "per_client": accuracies}
    path = results.path_of(name, f"{peers.label_of(name, method, peers.chosen(name, method))}-seed{seed}")
    results.write(path, {"own": scores, "received": scores})


SEPARATE_ROW = "| alone | `separate` | {} | {} | – | lr 0.001 |"
FEDAVG_ROW = "| one model for all | `fedavg` | {} | {} | {} | lr 0.001 |"


def test_worse_off_is_counted_seed_by_seed_against_separate(nothing_yet):
    tried("peers-digits", Choice(1e-3))
    for seed, (alone, together) in enumerate((([50, 60], [40, 70]), ([50, 60], [40, 50]), ([50, 60], [50, 61]))):
        ran("peers-digits", "separate", seed, alone)
        ran("peers-digits", "fedavg", seed, together)
    found = peers_page.outcome("peers-digits", "fedavg")
    assert found.worse_off == [1, 2, 0]
    assert found.worst == [40, 40, 50]
    text = peers_page.details("peers-digits")
    assert SEPARATE_ROW.format("55.00 ± 0.00", "50.0") in text
    assert FEDAVG_ROW.format("51.83 ± 5.92", "43.3", "1.0") in text
    assert "| `fedprox` | not run | not run | not run | lr 0.001, mu 0.01 |" in text
    assert "**" not in text  # who is the best is not known before all were run


def test_the_best_is_bold_once_all_were_run_with_as_many_seeds(nothing_yet, monkeypatch):
    place = replace(peers.PLACES["peers-digits"], methods=("separate", "fedavg"))
    monkeypatch.setitem(peers.PLACES, "peers-digits", place)
    tried("peers-digits", Choice(1e-3))
    ran("peers-digits", "separate", 0, [50, 60])
    ran("peers-digits", "fedavg", 0, [40, 72])
    text = peers_page.details("peers-digits")
    assert SEPARATE_ROW.format("55.00 (1)", "**50.0 (1)**") in text
    assert FEDAVG_ROW.format("**56.00 (1)**", "40.0 (1)", "**1.0 (1)**") in text
    ran("peers-digits", "separate", 1, [52, 62])
    text = peers_page.details("peers-digits")
    assert SEPARATE_ROW.format("56.00 ± 1.41 (2)", "51.0 (2)") in text
    assert FEDAVG_ROW.format("56.00 (1)", "40.0 (1)", "**1.0 (1)**") in text


def test_the_costs_are_those_of_later_rounds_and_of_each_way(nothing_yet):
    result = {
        "round_seconds": [9.0, 5.0, 0.3, 0.1, 0.2, 0.2],
        "client_bytes": {"up": 1_500_000, "down": 4_200_000},
        "device": "Abacus",
        "torch": "2",
        "description": {"precision": "bf16"},
    }
    results.write(results.path_of("peers-time", "ifca"), result)
    text = peers_page.costs()
    assert "| clusters | `ifca` | 0.20 | 1.5 | 4.2 |" in text
    assert "| `ifca-ft` | 0.20 | 1.5 | 4.2 |" in text
    assert "Abacus, bf16" in text
    assert "`fedavg` | not run | not run | not run |" in text


def test_the_comparison_on_the_page_is_what_the_results_say():
    page = peers_page.PAGE.read_text(encoding="utf-8")
    assert page.count(peers_page.BEGIN) == page.count(peers_page.END) == 1
    assert peers_page.written(page) == page, "run: python -m paper.peers_page"


def test_where_nothing_was_run_the_comparison_says_so(nothing_yet):
    text = peers_page.block()
    assert "No run yet." in text
    assert text.count("\n\nNot run yet.") == 2 + len(NAMES)
    assert "not run" not in text
    assert max(len(line) for line in text.splitlines()) < 120


def test_lines_are_short_where_all_was_run(nothing_yet):
    for name in NAMES:
        tried(name)
        for method in peers.compared(name):
            for seed in (0, 1):
                ran(name, method, seed, [50.0, 60.0 + seed])
        for cell in peers.table(name):
            whole = results.read(name, cell.label) or {}
            surroundings = {"device": "NVIDIA H200", "torch": "2.11.0+cu130", "description": {"precision": "bf16"}}
            results.write(cell.path, {**whole, **surroundings})
    text = peers_page.block()
    assert "not run" not in text
    for line in text.splitlines():
        assert len(line) < (130 if line.startswith("|") else 120)


def test_the_text_has_the_rates_and_knobs_that_are_tried():
    text = " ".join(peers_page.block().split())
    assert "learning rates 0.0003, 0.001 and 0.003 (with SGD, where the method needs it: 0.03, 0.1 and 0.3)" in text
    assert "the best one times 0.55 and 1.8" in text
    assert "| `ditto` | `lam` | 0.01 | 0.1, 1 |" in text
    assert "| `fedamp`, model `mlp` | `sigma` | median | 0.1, 1 |" in text


def test_all_that_is_outside_of_the_comparison_stays():
    page = f"# A\n\n{peers_page.BEGIN}old\n{peers_page.END}\nthree sentences\n"
    now = peers_page.written(page)
    assert now.startswith(f"# A\n\n{peers_page.BEGIN}")
    assert now.endswith(f"{peers_page.END}\nthree sentences\n")
    assert "old\n" not in now
    assert peers_page.written(now) == now


def test_the_results_of_the_comparison_are_in_no_count_of_the_papers_page(nothing_yet):
    from paper.provenance import surroundings

    result = {"device": "CPU", "torch": "2", "description": {"precision": "auto"}, "stopped": None}
    for label in ("tune-separate-lr-0.001", "separate-lr-0.7-seed0"):  # the second is in no table
        results.write(results.path_of("peers-digits", label), {**result, "validation": {"own": 1.0}})
    assert surroundings() == "No run yet"
    assert "In the tables are 1 run on CPU, torch 2, fp32." in peers_page.block()
