"""The curve of privacy: every method has the same effort at every epsilon, and the page says what results/ say."""

import pytest

from paper import privacy, privacy_page, results
from paper.experiments import SEEDS

NAME = "privacy-digits"


@pytest.fixture
def nothing_yet(tmp_path, monkeypatch):
    """No result of any run."""
    monkeypatch.setattr(results, "RESULTS", tmp_path)


def tried(best: float) -> None:
    """Write all trials; this rate is the best after the last round, another one in the best round."""
    for cell in privacy.table(NAME):
        if cell.label.startswith(privacy.TRIAL):
            last = 90.0 if cell.config.lr == best else 50.0
            scores = dict.fromkeys(("own", "received"), last)
            results.write(cell.path, {"validation": dict.fromkeys(scores, 140.0 - last), "validation_last": scores})


def test_each_epsilon_has_four_trials_of_each_method_on_validation_samples_and_then_the_seeds(nothing_yet):
    trials = privacy.table(NAME)
    assert all(cell.label.startswith(privacy.TRIAL) and cell.config.validation for cell in trials)
    assert len({cell.label for cell in trials}) == len(trials) == 5 * 5 * 4  # methods, epsilons, rates
    assert not {cell.config.seed for cell in trials} & set(SEEDS)
    tried(best=0.3)
    runs = [cell for cell in privacy.table(NAME) if not cell.label.startswith(privacy.TRIAL)]
    assert {cell.config.lr for cell in runs} == {0.3}
    assert {cell.config.validation for cell in runs} == {0.0}
    assert len({cell.label for cell in runs}) == len(runs) == 5 * 5 * len(SEEDS)
    asked = {(cell.config.method.name, cell.config.dp_epsilon, cell.config.seed) for cell in runs}
    assert asked == {
        (privacy.trained_as(method), epsilon, seed)
        for method in privacy.COMPARED
        for epsilon in privacy.EPSILONS
        for seed in SEEDS
    }


def test_of_two_models_validation_samples_choose_one_with_the_rate(nothing_yet):
    for cell in privacy.table(NAME):
        scores = {"own": 50.0, "received": 60.0 if cell.config.lr == 3.0 else 40.0}
        results.write(cell.path, {"validation_last": scores})
    assert privacy.chosen(NAME, "autoamp", 2.0) == privacy.Choice(3.0, "received")
    assert privacy.chosen(NAME, "fedavg", 2.0) == privacy.Choice(3.0, "received")
    assert privacy.chosen(NAME, "fedavg-ft", 2.0) == privacy.Choice(0.1, "own")
    runs = [cell for cell in privacy.table(NAME) if not cell.label.startswith(privacy.TRIAL)]
    assert len({cell.label for cell in runs}) == len(runs)  # FedAvg and FedAvg-FT share runs where rates agree


def test_but_for_method_epsilon_rate_and_seed_all_runs_are_the_same(nothing_yet):
    tried(best=1.0)
    free = {"method", "dp_epsilon", "dp_delta", "lr", "seed", "validation"}
    for private in (True, False):
        cells = [cell for cell in privacy.table(NAME) if cell.config.private == private]
        kinds = [{k: v for k, v in cell.config.to_dict().items() if k not in free} for cell in cells]
        assert all(kind == kinds[0] for kind in kinds)


def test_a_run_without_an_epsilon_is_not_private(nothing_yet):
    tried(best=0.1)
    for cell in privacy.table(NAME):
        assert cell.config.private == ("eps-none" not in cell.label)


def test_the_table_has_the_last_rounds_figures_and_the_gain_over_training_alone(nothing_yet):
    tried(best=0.1)
    for cell in privacy.table(NAME):
        if not cell.label.startswith(privacy.TRIAL):
            last = {"separate": 60.0, "autoamp": 75.5}.get(cell.config.method.name, 70.0) + cell.config.seed
            scores = {"best": 99.0, "last": last}
            results.write(cell.path, {"own": scores, "received": scores})
    text = privacy_page.curve(NAME)
    assert "99" not in text
    assert "| `separate` | 61.0 ± 1.0 |" in text
    assert "| `autoamp` | **76.5 ± 1.0** (w) |" in text
    assert "| *AutoAMP over Separate* | +15.5 ± 0.0 |" in text


def test_what_is_not_run_says_so(nothing_yet):
    assert privacy_page.curve(NAME) == "Not run yet."
    assert "Not run yet" in privacy_page.block()


def test_the_curve_on_the_page_is_what_the_results_say():
    page = privacy_page.PAGE.read_text()
    assert page == privacy_page.written(page)
