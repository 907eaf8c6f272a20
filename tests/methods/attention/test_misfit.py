"""When a client is asked for its loss, and when that loss has stopped falling."""

import torch

from fedamp.methods.attention.misfit import ALONE, FIRST, asked, better_alone, noted, questions, stalled


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


def test_who_is_left_with_less_than_a_share_is_better_off_alone():
    assert better_alone(column(ALONE - 0.01, ALONE + 0.01, 1.2))[:, 0].tolist() == [True, False, False]
