"""Who is named as worse off than alone: as the textbook has it, and seldom by chance."""

import math

import numpy as np
import pytest
from scipy import stats

from fedamp.records.beside_alone import LEVEL, BesideAlone, Models, adjusted, beside_alone, enough, sign_test


def found(home, alone, counted=None, metric="accuracy"):
    """Return the finding for errors of clients, of both models."""
    sign = 100 if metric == "accuracy" else 1

    def models(errors):
        scores = [sign * ((1 - np.mean(e)) if metric == "accuracy" else np.sqrt(np.mean(e))) for e in errors]
        plain = [float(score) if math.isfinite(score) else None for score in scores]
        return Models(3, plain, plain)

    errors = [np.asarray(e, dtype=float) for e in home], [np.asarray(e, dtype=float) for e in alone]
    return beside_alone(metric, models(home), models(alone), errors, counted or [True] * len(home))


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (7, 3), (3, 7), (40, 12), (0, 5)])
def test_the_sign_test_is_the_textbooks(wins, losses):
    wanted = stats.binomtest(wins, wins + losses, 0.5, alternative="greater").pvalue if wins + losses else 1.0
    assert sign_test(wins, losses) == pytest.approx(wanted, abs=1e-12)


def test_the_adjustment_is_the_textbooks():
    p = np.random.default_rng(0).uniform(0, 0.2, 17).tolist()
    assert adjusted(p, [True] * 17) == pytest.approx(stats.false_discovery_control(p).tolist())


def test_chance_names_nobody_more_often_than_it_may():
    """20 clients with 3 to 30 held-out samples and two equally good models: hardly ever is anybody named."""
    g, named = np.random.default_rng(1), 0
    for _ in range(400):
        sizes = g.integers(3, 31, 20)
        errors = [[g.random(size) < 0.3 for size in sizes] for _ in range(2)]
        named += bool(found(*errors).worse_off)
    assert named / 400 <= LEVEL


def test_who_is_really_worse_off_is_named_and_nobody_else():
    home = [[0, 1] * 10, [1] * 20, [0] * 20, [1, 0] * 10]
    alone = [[1, 0] * 10, [0] * 18 + [1] * 2, [1] * 20, [1, 0] * 10]
    result = found(home, alone)
    assert result.worse_off == (1,)
    assert result.headline(["a", "b", "c", "d"]) == "1 of 4 clients is worse off by more than chance: b"
    (warning,) = result.warnings("fedavg", ["", "it is unlike the others", "", ""])
    assert warning.startswith(
        "client 1 is worse off than alone: 0.0 % against 90.0 % on 20 held-out samples (p = 1.5e-05)"
    )
    assert "; it is unlike the others. Take its model trained alone" in warning
    assert "autoamp" in warning
    assert "autoamp" not in result.warnings("autoamp", [""] * 4)[0]


def test_who_is_not_counted_is_not_named():
    assert found([[1] * 20] * 2, [[0] * 20] * 2, [True, False]).worse_off == (0,)


def test_too_few_samples_name_nobody_and_say_so():
    few = enough(1) - 1
    result = found([[1] * few], [[0] * few])
    assert result.worse_off == ()
    assert "no single client can be shown to be worse off (better: 0, worse: 1; with fewer" in result.headline()
    assert "with fewer than 5, one client alone can't stand out" in result.headline()
    assert found([[1] * (few + 1)], [[0] * (few + 1)]).worse_off == (0,)
    m = 20
    others = [[0] * 30] * (m - 1)
    for samples, named in ((enough(m) - 1, ()), (enough(m), (0,))):
        assert found([[1] * samples, *others], [[0] * samples, *others]).worse_off == named


def test_the_mean_over_clients_and_that_over_samples_are_both_told_where_they_differ():
    """Of a client with one held-out sample the first mean has a half, the second a thirtieth."""
    text = found([[0], [1] * 6 + [0] * 23], [[1], [1] * 3 + [0] * 26]).headline()
    assert text.startswith(
        "89.7 %, alone 44.8 % (mean over 2 clients of scores on held-out samples, 1 to 29 each); "
        "all held-out samples together 80.0 %, alone 86.7 %; no single client"
    )
    text = found([[1.0], [4.0] * 3], [[9.0], [1.0] * 3], metric="rmse").headline()
    assert text.startswith("RMSE 1.5, alone RMSE 2 (mean over 2 clients of scores on held-out samples, 1 to 3 each)")
    assert f"all held-out samples together RMSE {math.sqrt(13 / 4):.4g}, alone RMSE {math.sqrt(3):.4g};" in text
    assert "together" not in found([[0], [1]], [[0], [1]]).headline()
    assert "together" not in found([[0.1], [0.2] * 3], [[0.1], [0.2] * 3], metric="auc").headline()
    assert (
        "together RMSE 1, alone not finite;"
        in found([[1.0], [1.0] * 2], [[math.nan], [1.0] * 2], metric="rmse").headline()
    )


def test_who_is_poisoned_is_in_none_of_the_numbers():
    honest, poisoned = [[0] * 4, [1, 0, 0]], [[1] * 40]
    both = found(honest + poisoned, [*honest, [0] * 40], [True, True, False])
    assert both.headline() == found(honest, honest).headline()
    again = BesideAlone.of(both.to_dict())
    assert again == both
    assert BesideAlone.of({**both.to_dict(), "uncounted": []}).headline() != both.headline()
    earlier = {name: value for name, value in both.to_dict().items() if name != "uncounted"}
    assert BesideAlone.of(earlier).uncounted == ()


def test_an_error_that_is_usually_larger_is_not_worse_if_its_mean_is_not():
    """Regression: alone is nearer on most samples, but its root mean squared error is larger."""
    assert found([[0.2] * 20], [[0.1] * 19 + [100.0]], metric="rmse").worse_off == ()
    assert found([[0.2] * 20], [[0.1] * 20], metric="rmse").worse_off == (0,)


def test_what_diverged_is_worse_than_anything_and_as_bad_as_itself():
    nan, fine = [math.nan] * 20, [0.5] * 20
    assert found([nan], [fine], metric="rmse").worse_off == (0,)
    assert found([nan], [nan], metric="rmse").worse_off == ()
    assert "not finite against RMSE" in found([nan], [fine], metric="rmse").both(0)


def test_it_is_read_as_it_was_written():
    for one in (found([[1] * 20], [[0] * 20]), BesideAlone("rmse", Models(2, [1.0], None), Models(3, [2.0], None))):
        assert BesideAlone.of(one.to_dict()) == one
    assert "give --validation" in one.headline()
