"""All methods are compared with the same effort, and the table in docs/methods.md says what results/ say."""

import json
import sys
from dataclasses import replace

import pytest

from fedamp.methods import METHODS
from fedamp.runs.parts import check_optimizer, optimizer_of
from paper import experiments, peers, peers_page, pending, results, run

NAMES = [name for name in peers.NAMES if peers.PLACES[name].trials]


@pytest.fixture
def nothing_yet(tmp_path, monkeypatch):
    """No result of any run."""
    monkeypatch.setattr(results, "RESULTS", tmp_path)


def tried(name: str, best: dict[str, object]) -> None:
    """Write results of all trials of a table in which the value of `best` is the best, or else the last one."""
    for cell in peers.table(name):
        if cell.label.startswith("tune-"):
            method = cell.config.method.name
            wanted = best.get(method, peers.trials_of(name, method)[1][-1])
            score = 80.0 if cell.label == peers.trial_label(name, method, wanted) else 70.0
            results.write(cell.path, {"validation": {"own": score, "received": score}})


@pytest.mark.parametrize("name", NAMES)
def test_every_method_gets_three_trials_on_validation_samples_and_then_the_seeds(name, nothing_yet):
    trials = {}
    for cell in peers.table(name):
        config = cell.config
        assert (config.seed, config.validation) == (100, 0.2)
        assert config.seed not in experiments.SEEDS
        assert config.rounds == peers.PLACES[name].values["rounds"] // 2
        trials.setdefault(config.method.name, set()).add(cell.label)
    assert {len(labels) for labels in trials.values()} == {3}
    assert set(trials) == {peers.trained_as(method) for method in peers.compared(name)}
    tried(name, {})
    runs = [cell for cell in peers.table(name) if not cell.label.startswith("tune-")]
    for cell in runs:
        assert cell.config.validation == 0
        assert cell.config.rounds == peers.PLACES[name].values["rounds"]
    found = {(cell.config.method.name, cell.config.seed) for cell in runs}
    assert found == {(method, seed) for method in trials for seed in experiments.SEEDS}
    assert len({cell.label for cell in peers.table(name)}) == len(peers.table(name))


@pytest.mark.parametrize("name", peers.NAMES)
def test_every_trial_is_a_configuration_that_its_method_takes(name, nothing_yet):
    for cell in peers.table(name):
        config = cell.config
        method = METHODS[config.method.name](**config.method.parameters)
        check_optimizer(method, optimizer_of(config, method))


@pytest.mark.parametrize("name", NAMES)
def test_the_three_trials_of_a_method_differ(name):
    for method in peers.compared(name):
        knob, values = peers.trials_of(name, method)
        assert len(set(values)) == 3, (method, knob)


def test_who_needs_sgd_or_has_no_knob_tries_learning_rates():
    assert peers.trials_of("peers-digits", "scaffold") == ("lr", (0.03, 0.1, 0.3))
    assert peers.trials_of("peers-digits", "autoamp") == ("lr", (3e-4, 1e-3, 3e-3))
    assert peers.trials_of("peers-digits", "fedprox-ft") == peers.trials_of("peers-digits", "fedprox")
    assert peers.values_of("peers-digits", "autoamp", 0, {"lr": 3e-3})["lr"] == 3e-3


def test_twins_share_runs_and_each_chooses_at_its_own_model(nothing_yet):
    for value, own, received in ((3e-4, 70.0, 90.0), (1e-3, 80.0, 80.0), (3e-3, 90.0, 70.0)):
        path = results.path_of("peers-digits", peers.trial_label("peers-digits", "fedavg", value))
        results.write(path, {"validation": {"own": own, "received": received}})
    assert peers.chosen("peers-digits", "fedavg") == 3e-4
    assert peers.chosen("peers-digits", "fedavg-ft") == 3e-3
    runs = {cell.label for cell in peers.table("peers-digits") if cell.label.endswith("seed0")}
    assert runs == {"fedavg-lr-0.0003-seed0", "fedavg-lr-0.003-seed0"}


def test_a_method_waits_for_its_own_trials_alone_and_nobody_else(nothing_yet):
    first = [cell.label for cell in pending.missing(["peers-digits"])][:4]
    assert first == [
        "tune-separate-lr-0.0003",
        "tune-separate-lr-0.001",
        "tune-separate-lr-0.003",
        "tune-fedavg-lr-0.0003",
    ]
    for value in (3e-4, 1e-3, 3e-3):
        path = results.path_of("peers-digits", peers.trial_label("peers-digits", "separate", value))
        results.write(path, {"validation": {"own": value}})
    labels = [cell.label for cell in pending.missing(["peers-digits"])]
    assert labels[:2] == ["separate-lr-0.003-seed0", "tune-fedavg-lr-0.0003"]
    assert labels[-2:] == ["separate-lr-0.003-seed1", "separate-lr-0.003-seed2"]


@pytest.mark.parametrize("name", NAMES)
def test_nobody_knows_the_true_groups_and_alpha_falls_as_far_as_in_the_paper(name, nothing_yet):
    tried(name, {})
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
    assert names[:4] == [*(f"tune-separate-lr-{rate}" for rate in ("0.0003", "0.001", "0.003")), names[3]]
    assert names[3].startswith("separate-lr-")
    assert names[-2:] == ["separate", "fedavg"]
    assert not tiny("peers-digits", "peers-time")  # nothing is missing any more
    text = peers_page.details("peers-digits")
    rows = {row.split("|")[2].strip(): [cell.strip() for cell in row.split("|")[3:-1]] for row in text.splitlines()[2:]}
    assert rows.keys() == {"`separate`", "`fedavg`", "`fedavg-ft`"}
    for method, (_, worst, worse, value) in ((name.strip("`"), cells) for name, cells in rows.items()):
        scored = METHODS[method].scored
        rate = peers.chosen("peers-digits", method)
        assert value == f"lr {rate:g}"
        runs = [
            results.read("peers-digits", f"{peers.label_of('peers-digits', method, rate)}-seed{seed}")
            for seed in (0, 1, 2)
        ]
        assert worst.strip("*") == f"{sum(min(each[scored]['per_client']) for each in runs) / 3:.1f}"
        assert (worse == "–") == (method == "separate")
    costs = results.read("peers-time", "fedavg")
    assert len(costs["round_seconds"]) == 3
    assert costs["client_bytes"]["down"] == 4 * (64 * 64 + 64 + 64 * 10 + 10)
    assert costs["client_bytes"]["up"] == costs["client_bytes"]["down"] + 8  # and the number of samples
    assert results.read("peers-time", "separate")["client_bytes"] == {"up": 0, "down": 0}


def test_worse_off_is_counted_seed_by_seed_against_separate(nothing_yet):
    tried("peers-digits", {"separate": 1e-3, "fedavg": 1e-3})
    for seed, (alone, together) in enumerate((([50, 60], [40, 70]), ([50, 60], [40, 50]), ([50, 60], [50, 61]))):
        for method, accuracies in (("separate", alone), ("fedavg", together)):
            scores = {"best": sum(accuracies) / 2, "per_client": accuracies}
            path = results.path_of("peers-digits", f"{peers.label_of('peers-digits', method, 1e-3)}-seed{seed}")
            results.write(path, {"own": scores, "received": scores})
    found = peers_page.outcome("peers-digits", "fedavg")
    assert found.worse_off == [1, 2, 0]
    assert found.worst == [40, 40, 50]
    text = peers_page.details("peers-digits")
    assert "| alone | `separate` | **55.00 ± 0.00** | **50.0** | – | lr 0.001 |" in text
    assert "| one model for all | `fedavg` | 51.83 ± 5.92 | 43.3 | **1.0** | lr 0.001 |" in text
    assert "| `fedprox` | not run | not run | not run | mu 0.1 |" in text


def test_the_comparison_on_the_page_is_what_the_results_say():
    page = peers_page.PAGE.read_text(encoding="utf-8")
    assert page.count(peers_page.BEGIN) == page.count(peers_page.END) == 1
    assert peers_page.written(page) == page, "run: python -m paper.peers_page"


def test_where_nothing_was_run_the_comparison_says_so(nothing_yet):
    text = peers_page.block()
    assert "No run yet." in text
    assert "| alone | `separate` | not run | not run | – | not run |" in text


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
    path = results.path_of("peers-digits", "separate-lr-0.001-seed0")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(result))
    assert surroundings() == "No run yet"
    assert surroundings(peers.NAMES) == "1 run on CPU, torch 2, auto"
