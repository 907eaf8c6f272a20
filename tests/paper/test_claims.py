"""Claims are counted as one would by hand."""

import pytest

from paper import automatic, claims, found, outcomes
from paper.outcomes import holm
from paper.published import TWELVE

CLIENTS = 30


def scores(mean, clients=CLIENTS, seeds=(0,)):
    """Return made-up scores: client i has the mean plus i / 100, so that gains of one size are all of one sign."""
    run = {"description": {"poisoned": []}}
    per_client = [mean + i / 100 for i in range(clients)]
    return {seed: {"best": mean, "per_client": per_client, "curve": [mean], "run": run} for seed in seeds}


def reader(figures):
    """Return a reader of made-up results: {(table, row): mean}; what is not there was not run."""
    return lambda table, name: scores(figures[table, name]) if (table, name) in figures else {}


def test_holm_by_hand():
    # Sorted 0.005, 0.01, 0.03, 0.04: times 4, 3, 2, 1 is 0.02, 0.03, 0.06, 0.04; none may be smaller than one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_claim_that_holds_in_three_of_four():
    figures = {}
    for data, gain in (("mnist", 2.0), ("fmnist", 1.0), ("emnist", 3.0), ("cifar100", -2.0)):
        figures[f"table3-{data}", "FedAMP, w"] = 80.0 + gain
        figures[f"table3-{data}", "Separate"] = 80.0
    found = claims.judge(claims.Claim("better than training alone", ("Separate",)), reader(figures))
    assert found.tests == 4
    assert found.count("FedAMP, w") == found.count("FedAMP, w", ("table3",)) == (3, 4)
    assert found.where("FedAMP, w", claims.WORSE) == [("table3", "cifar100")]
    assert found.count("HeurFedAMP, w") == (0, 0)


def test_a_claim_about_two_needs_both_and_a_setting_all_its_runs():
    figures = {(f"table3-{data}", "FedAMP, w"): 80.0 for data in ("mnist", "fmnist", "emnist")}
    figures |= {("table3-mnist", "FedAvg"): 70.0, ("table3-mnist", "FedProx"): 79.0}  # better than both
    figures |= {("table3-fmnist", "FedAvg"): 70.0, ("table3-fmnist", "FedProx"): 80.0}  # level with one
    figures |= {("table3-emnist", "FedAvg"): 70.0}  # the other was not run
    found = claims.judge(claims.Claim("better", ("FedAvg", "FedProx")), reader(figures))
    assert found.tests == 4
    assert found.count("FedAMP, w") == (1, 2)
    assert found.where("FedAMP, w", claims.LEVEL) == [("table3", "fmnist")]
    assert claims.judge(claims.Claim("not worse", ("FedAvg", "FedProx"), only_as_good=True), reader(figures)).count(
        "FedAMP, w"
    ) == (2, 2)


def test_the_correction_is_over_the_whole_family():
    """Six clients give p = 1/32 at best: enough for one test, and not for two."""

    def read(table, name):
        known = {("table3-mnist", "FedAMP, w"): 81.0, ("table3-mnist", "Separate"): 80.0, **more}
        return scores(known[table, name], clients=6) if (table, name) in known else {}

    more = {}
    claim = claims.Claim("better", ("Separate",), kinds=("table3",))
    assert claims.judge(claim, read).count("FedAMP, w") == (1, 1)
    more = {
        ("table1-mnist", "FedAMP, u"): 80.5,
        ("table1-mnist", "Separate"): 80.0,
    }  # of a setting that it is not about
    assert claims.judge(claim, read).count("FedAMP, w") == (0, 1)


def test_the_papers_own_figures():
    alone, tuned = claims.CLAIMS[0], claims.CLAIMS[2]
    assert claims.in_the_paper(alone, "HeurFedAMP, w") == (12, 12)
    assert claims.in_the_paper(alone, "FedAMP, w") == (11, 12)  # 99.22 against 99.27: MNIST, IID
    # FedAvg-FT or FedProx-FT is as high or higher in all pathological settings: 99.66, 98.07, 99.27, 95.00.
    assert claims.in_the_paper(tuned, "FedAMP, w") == (8, 12)


def test_a_claim_in_words_says_how_many_settings_are_complete():
    figures = {(f"table3-{data}", "FedAMP, w"): 81.0 for data in ("mnist", "fmnist")}
    figures |= {("table3-mnist", "Separate"): 70.0, ("table3-fmnist", "Separate"): 90.0}
    claim = claims.CLAIMS[0]
    words = found.sentence(claims.judge(claim, reader(figures)))
    assert "FedAMP's w in 1 of 2 complete settings, worse on FMNIST practical (the paper's figures: 11 of 12)" in words
    assert "AutoAMP, which is ours, has no complete setting yet" in words
    every = {
        (f"{kind}-{data}", name): mean
        for kind, data in TWELVE
        for name, mean in (("FedAMP, w", 81.0), ("Separate", 80.0))
    }
    assert "FedAMP's w in 12 of 12 settings (" in found.sentence(claims.judge(claim, reader(every)))


def test_where_autoamp_leads_ties_and_loses(monkeypatch):
    gains = {"table3-mnist": 1.0, "table3-fmnist": 0.0, "table3-emnist": -1.0}

    def scores_of(table, row):
        if table not in gains or row.run not in ("autoamp", "separate", "fedavg"):
            return {}
        return scores({"autoamp": 80.0 + gains[table], "separate": 60.0}.get(row.run, 80.0))

    monkeypatch.setattr(automatic, "scores_of", scores_of)
    standing = automatic.standing()
    assert standing.leads == ["MNIST practical +1.00"]
    assert standing.level == ["FMNIST practical +0.00"]
    assert standing.behind == ["EMNIST practical -1.00"]
    assert found.standing_in_words() == (
        "of 3 complete settings, it leads in 1 (MNIST practical +1.00), is not told apart in 1 (FMNIST practical "
        "+0.00) and is behind in 1 (EMNIST practical -1.00)."
    )


def test_what_is_ours_says_so():
    assert [row.title for row in outcomes.ROWS[-2:]] == ["AutoAMP (ours), w", "AutoAMP (ours), u"]
    assert outcomes.row_named("FedAMP, w").title == "FedAMP, w"
