"""What only a GPU does: recorded passes, and a recording that fails. Skipped where there is none."""

import pytest
import torch
from torch import nn

import fedamp
from fedamp.methods.fedavg import FedAvg
from fedamp.training.stacked.graphs import PATIENCE, Graphs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def pairs(num_clients: int, samples: int) -> list:
    g = torch.Generator().manual_seed(0)
    sizes = [samples + 20 * i for i in range(num_clients)]
    return [(torch.rand(size, 1, 12, 12, generator=g), torch.randint(10, (size,), generator=g)) for size in sizes]


def small_cnn() -> nn.Module:
    """A network without kinks: rounding stays rounding on both ways."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(4, 6, 3), nn.Tanh(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(54, 10))


@pytest.mark.parametrize("method", ["fedamp", "scaffold", "apfl"])
def test_recorded_passes_give_what_the_loop_gives(method):
    settings = {"clients": pairs(6, 40), "rounds": 3, "epochs": 3, "batch_size": 20, "model": small_cnn()}
    settings |= {"method": method, "precision": "fp32", "optimizer": "sgd", "lr": 0.05, "device": "cuda"}
    stacked, loop = (fedamp.run(**settings, engine=engine) for engine in ("stacked", "loop"))
    assert stacked.history[-1]["test"] != stacked.history[0]["test"]
    torch.testing.assert_close(stacked.models["own"].params, loop.models["own"].params, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["fedamp", "heurfedamp"])
@pytest.mark.parametrize("sigma", ["median", "local", "spread", 10.0])
def test_every_scale_is_deterministic(method, sigma):
    """torch raises where an operation is not."""
    settings = {"clients": pairs(5, 30), "rounds": 3, "epochs": 1, "batch_size": 20, "model": small_cnn()}
    settings |= {"method": {"name": method, "sigma": sigma}, "device": "cuda", "deterministic": True}
    first, second = (fedamp.run(**settings) for _ in range(2))
    assert torch.equal(first.models["own"].params, second.models["own"].params)


def test_a_replay_is_the_plain_call():
    graphs, g = Graphs(), torch.Generator(device="cuda").manual_seed(0)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x.sin() * 2, x.sum(1))

    for _ in range(PATIENCE + 4):
        x = torch.rand(5, 7, generator=g, device="cuda")
        for given, expected in zip(graphs(function, 0, x), function(x), strict=True):
            torch.testing.assert_close(given, expected, rtol=0, atol=0)
    assert len(graphs._recorded) == 1


def test_settled_rows_are_read_where_they_are():
    graphs, rows = Graphs(), torch.rand(6, 7, device="cuda")
    which = torch.tensor([4, 1, 3], device="cuda")

    def function(w: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (w.sin() + x,)

    for round_number in range(2):
        w = graphs.settled("", rows, which)
        torch.testing.assert_close(w, rows[which], rtol=0, atol=0)
        for step in range(PATIENCE + 2):
            x = torch.full((2, 7), float(step + round_number), device="cuda")
            torch.testing.assert_close(graphs(function, 0, w[:2], x)[0], w[:2].sin() + x, rtol=0, atol=0)
            w -= 0.1  # as a step does, in place
        torch.testing.assert_close(graphs(function, 0, rows[:2], x)[0], rows[:2].sin() + x, rtol=0, atol=0)
        (recorded,) = graphs._recorded.values()  # once for both rounds
        assert recorded.inputs[0].data_ptr() == w.data_ptr()
        assert recorded.inputs[1].data_ptr() != x.data_ptr()
    graphs.clear()
    assert not graphs._settled


def test_what_cannot_be_recorded_is_called():
    graphs, x = Graphs(), torch.arange(6.0, device="cuda")

    def waits_for_the_host(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x * float(x.sum()),)

    for _ in range(PATIENCE + 3):
        torch.testing.assert_close(graphs(waits_for_the_host, 0, x)[0], x * 15)
    assert not graphs._recorded
    torch.testing.assert_close(torch.ones(3, device="cuda").sum().item(), 3.0)  # the GPU is still there


class Keeps(FedAvg):
    """FedAvg whose direction is the mean of this step's gradient and the one before it."""

    def train(self, w, local):
        kept: list[torch.Tensor] = []

        def direction(w, grad):
            kept.append(grad(w))
            return sum(kept[-2:]) / len(kept[-2:])

        return local.run(w, direction)


def test_a_gradient_that_a_method_keeps_stays_what_it_was():
    settings = {"clients": pairs(1, 100), "rounds": 1, "epochs": 5, "batch_size": 20, "precision": "fp32"}
    settings |= {"model": small_cnn(), "optimizer": "sgd", "device": "cuda"}
    stacked, loop = (fedamp.run(**settings, method=Keeps(), engine=engine) for engine in ("stacked", "loop"))
    torch.testing.assert_close(stacked.models["own"].params, loop.models["own"].params, rtol=1e-4, atol=1e-5)
