"""Who is present, what travels, and that a round refuses what it can't play."""

import pytest
import torch

import fedamp
from fedamp.data.clients import Clients
from fedamp.runs.simulated_faults import draw_present
from fedamp.seeds import generator, number
from helpers import Federation


def test_absent_share():
    drawn = torch.stack([draw_present(0, k, 40, 0.2) for k in range(200)])
    assert drawn.double().mean() == pytest.approx(0.8, abs=0.02)
    assert torch.equal(draw_present(0, 3, 40, 0.2), drawn[3])
    assert not torch.equal(drawn[3], drawn[4])


def test_a_client_comes_or_not_whoever_else_there_is():
    assert torch.equal(draw_present(0, 3, 40, 0.5)[:10], draw_present(0, 3, 10, 0.5))


@pytest.mark.parametrize("absent", [0.99, 1.0])
def test_somebody_is_always_there(absent):
    assert all(draw_present(1, k, 3, absent).any() for k in range(100))


def test_everybody_without_absence():
    assert draw_present(0, 1, 30, 0.0).all()


def test_bad_share():
    with pytest.raises(ValueError, match=r"absent is 1\.5"):
        draw_present(0, 1, 3, 1.5)


@pytest.mark.parametrize("present", [[False] * 4, [True] * 3])
def test_present_must_fit(present):
    with pytest.raises(ValueError, match="at least one client present"):
        Federation.of("fedavg").play(present=torch.tensor(present))


def test_streams_differ_in_every_coordinate():
    numbers = {number(s, p, c, k) for s in range(3) for p in ("a", "b") for c in range(10) for k in range(10)}
    assert len(numbers) == 600
    assert generator(1, "a", 2, 3).random() == generator(1, "a", 2, 3).random()


@pytest.mark.parametrize(
    ("pairs", "word"),
    [
        ([], "no clients"),
        (
            [(torch.ones(2, 1), torch.ones(2)), (torch.ones(0, 1), torch.ones(0))],
            "client 1 has no training samples",
        ),
        ([(torch.ones(2, 1), torch.ones(3))], "2 inputs and 3 targets"),
    ],
)
def test_clients_that_can_not_be(pairs, word):
    with pytest.raises(ValueError, match=word):
        Clients.of(pairs)


@pytest.mark.parametrize(
    (
        "method",
        "down",
        "up",
    ),  # bytes besides the model: a strength in float32; noise or a count in float64
    [("separate", None, None), ("fedamp", 4, 8), ("fedavg", 0, 8)],
)
def test_what_travels_is_the_models_of_the_present_clients(method, down, up):
    result = fedamp.run(method=method, clients=6, rounds=3, epochs=1, absent=0.4, seed=1)
    model = 4 * result.facts.parameters
    lines = [line for line in result.history if "present" in line]
    assert any(not all(line["present"]) for line in lines)
    for line in lines:
        sizes = {"down": 0, "up": 0} if down is None else {"down": model + down, "up": model + up}
        assert line["bytes"] == {way: sum(line["present"]) * size for way, size in sizes.items()}
