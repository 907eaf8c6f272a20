"""When a client is asked for its loss, and when that loss has stopped falling."""

import torch

from fedamp.methods.attention.misfit import (
    ALONE,
    FIRST,
    ROUNDS,
    asked,
    better_alone,
    judged,
    left_together,
    noted,
    questions,
    stalled,
)


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def test_asked_in_the_first_round_the_eighth_and_at_each_doubling():
    rounds = [k for k in range(1, 200) if asked(column(k - 1)).item()]
    assert rounds == [1, 8, 16, 32, 64, 128]


def history(losses: list[float]) -> list[int]:
    """Return the rounds in which a client with these losses, round by round, is called badly fitted."""
    kept, found = torch.zeros(1, 2, dtype=torch.float64), []
    for k, loss in enumerate(losses, start=1):
        played, now = column(k - 1), column(loss)
        if stalled(now, kept, played).item():
            found.append(k)
        kept = noted(now, kept, played)
    return found


def test_a_loss_that_stays_is_noticed_once_the_rounds_have_doubled():
    assert history([1.0] * 40) == [16, 32]


def test_a_loss_that_falls_on_is_not():
    assert history([0.9**k for k in range(40)]) == []
    assert history([1 / k for k in range(1, 65)]) == []  # halved while the rounds double


def test_nor_is_one_that_has_fallen_far_and_then_stays():
    assert history([1.0] + [0.2] * 40) == []


def test_what_happens_between_the_questions_does_not_matter():
    plain = [1 / k for k in range(1, 33)]
    wild = [loss if k in (1, 8, 16, 32) else 7.0 for k, loss in enumerate(plain, start=1)]
    assert history(wild) == history(plain)


def test_clients_are_judged_by_their_own_rounds():
    played = column(FIRST - 1, 2 * FIRST - 1, 2 * FIRST - 2)
    losses = torch.tensor([[1.0, 0.0], [1.0, 0.9], [1.0, 0.9]], dtype=torch.float64)
    assert stalled(column(0.9, 0.9, 0.9), losses, played)[:, 0].tolist() == [False, True, False]


def test_who_is_in_doubt_is_asked_to_look_a_second_time():
    assert questions(column(0, 3, 15, 16), column(0, 0, 0, 1))[:, 0].tolist() == [1, 0, 1, 2]


def test_a_loss_that_falls_slowly_is_carried_on_at_its_pace():
    for rate in (0.95, 0.97, 0.999):
        for k in (16, 32, 64):  # asked in the k-th round, and for the last time before at half of it
            assert abs(left_together(column(rate ** (k / 2)), column(k)).item() - rate**ROUNDS) < 1e-12
    assert left_together(column(1.3), column(16)).item() == 1  # one that rises stays
    assert left_together(column(0.0), column(0)).item() == 0  # nobody is in doubt, nobody is better off alone


def test_who_is_left_with_less_than_together_is_better_off_alone():
    left = column(ALONE - 0.01, ALONE + 0.01, 1.2)
    assert better_alone(left, column(1, 1, 1))[:, 0].tolist() == [True, False, False]
    assert better_alone(left, column(0.97, 0.97, 0.97))[:, 0].tolist() == [False] * 3
    assert better_alone(0.97 * left, column(0.97, 0.97, 0.97))[:, 0].tolist() == [True, False, False]


def test_a_doubt_is_kept_with_how_the_loss_fell_and_judged_by_it():
    fit = {"losses": torch.zeros(3, 2).double(), "doubted": column(0, 0, 0), "sharper": column(0, 0, 0)}
    for k in range(1, 17):
        fit = judged(column(1.0, 0.97**k, 0.9**k), fit, column(k - 1, k - 1, k - 1))
    assert fit["doubted"][:, 0].tolist() == [1.0, 0.97**16 / 0.97**8, 0.0]
    after = judged(column(0.93, 0.93, 0.5), fit, column(16, 16, 16))
    assert after["sharper"][:, 0].tolist() == [1, 0, 0]  # the second would have been left with 0.94 in any case
    assert not after["doubted"].any()
