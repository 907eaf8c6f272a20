"""All clients at once gives the same numbers as one at a time."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedamp.data.clients import Clients
from fedamp.methods import METHODS
from fedamp.training.batches import Batching
from fedamp.training.one_at_a_time import LocalLoop
from fedamp.training.optimizers import Optimizer
from fedamp.training.stacked.all_at_once import LocalStack
from fedamp.training.stacked.chunks import ALL_AT_ONCE
from fedamp.training.torch_switches import use_threads
from helpers import SOME_AT_ONCE, Federation, data, mlp

SIZES = (5, 9, 13, 4, 20, 9)


class Picture(nn.Module):
    """A CNN with BatchNorm and both kinds of Dropout. No bias before BatchNorm: its true gradient is 0."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Dropout2d(0.2),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))

    def forward(self, x):
        return self.head(self.body(x))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.embedding(x).mean(1))


class Sentence(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.2, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.layer(self.embedding(x)).mean(1))


def pictures(size, g):
    return torch.randn(size, 1, 4, 4, generator=g, dtype=torch.float64), torch.randint(3, (size,), generator=g)


def words(size, g):
    return torch.randint(11, (size, 5), generator=g), torch.randint(3, (size,), generator=g)


def clients_of(draw) -> Clients:
    g = torch.Generator().manual_seed(0)
    return Clients.of([draw(size, g) for size in SIZES])


KINDS = {
    "mlp": (mlp, lambda: data(SIZES)),
    "mlp-norm-dropout": (lambda: mlp(norm=True, dropout=0.3), lambda: data(SIZES)),
    "cnn": (Picture, lambda: clients_of(pictures)),
    "embedding": (Words, lambda: clients_of(words)),
    "transformer": (Sentence, lambda: clients_of(words)),
}


def both_ways(name, kind, dtype=torch.float64, chunk=ALL_AT_ONCE, batching=None, optimizer=None):
    make, clients = KINDS[kind]
    torch.manual_seed(0)
    module, given = make().to(dtype), clients()
    if given.x.is_floating_point():
        given = replace(given, x=given.x.to(dtype))
    settings = {"module": module, "clients": given, "batching": batching or Batching(4, epochs=2)}
    # An attention's key bias has no influence on the output: its true gradient is 0, and Adam makes steps of the
    # rounding errors that are left. test_adam_and_a_parameter_without_influence shows that this does no harm.
    # So it is under BatchNorm for two samples: the half of the smallest client, or what is left when it holds some out.
    no_slope = kind == "transformer" or (kind == "mlp-norm-dropout" and name in ("autoamp", "fedfomo"))
    optimizer = optimizer or Optimizer("sgd" if no_slope else METHODS[name].optimizer, 0.01)
    # pFedMe's inner steps have a rate of their own: like all steps here, 0.01.
    own = {"personal_lr": 0.01} if name == "pfedme" else {}
    loop = Federation.of(name, **settings, optimizer=optimizer, **own)
    stacked = Federation.of(name, **settings, optimizer=optimizer, **own)
    stacked.trainer = stacked.trainer.changed(engine="stacked", chunk=chunk)
    assert isinstance(loop.local_for(torch.arange(2)), LocalLoop)
    assert isinstance(stacked.local_for(torch.arange(2)), LocalStack)
    return loop, stacked


def assert_same(a: Federation, b: Federation, tolerance: float) -> None:
    for name, rows in a.state.rows.items():
        torch.testing.assert_close(b.state.rows[name].params, rows.params, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(b.state.rows[name].buffers, rows.buffers, rtol=tolerance, atol=tolerance)
    for name, loss in a.rounds[-1].losses.items():
        torch.testing.assert_close(b.rounds[-1].losses[name], loss, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", SOME_AT_ONCE)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_stacked_equals_loop_in_float64(name, kind):
    loop, stacked = both_ways(name, kind)
    away = torch.tensor([True, True, False, True, True, True])
    for present in (None, away, None):
        loop.play(present=present), stacked.play(present=present)
    assert_same(loop, stacked, 1e-9)


@pytest.mark.parametrize("name", SOME_AT_ONCE)
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.many
def test_stacked_equals_loop_for_one_round_in_float32(name, kind):
    loop, stacked = both_ways(name, kind, torch.float32, batching=Batching(4, steps=3))
    loop.play(), stacked.play()
    assert_same(loop, stacked, 1e-5)


@pytest.mark.parametrize(
    "optimizer",
    [Optimizer("adam", 0.01, weight_decay=0.1), Optimizer("sgd", 0.05, momentum=0.9, weight_decay=0.01)],
)
@pytest.mark.parametrize("batching", [Batching(4, epochs=3), Batching(4, steps=7), Batching(100, epochs=2)], ids=str)
def test_other_optimizers_and_batches(optimizer, batching):
    loop, stacked = both_ways("fedamp", "cnn", batching=batching, optimizer=optimizer)
    loop.play(2), stacked.play(2)
    assert_same(loop, stacked, 1e-9)


def test_adam_and_a_parameter_without_influence():
    """The two ways may disagree in a parameter that nothing depends on, and in nothing else."""
    loop, stacked = both_ways("separate", "transformer", torch.float32, optimizer=Optimizer("adam", 0.01))
    loop.play(), stacked.play()
    model, a, b = loop.trainer.model, loop.models(), stacked.models()
    for i in range(len(SIZES)):
        key_bias = model.unflatten(torch.arange(model.num_params), torch.empty(0))[0]["layer.self_attn.in_proj_bias"]
        others = torch.ones(model.num_params, dtype=torch.bool)
        others[key_bias[8:16].long()] = False
        torch.testing.assert_close(a[i, others], b[i, others], rtol=1e-3, atol=1e-3)
        x = loop.clients.x[loop.clients.train[i]]
        outputs = [model(w[i], torch.empty(0), x, training=False)[0] for w in (a, b)]
        torch.testing.assert_close(*outputs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_chunks_make_no_difference(chunk):
    loop, stacked = both_ways("apfl", "mlp-norm-dropout", chunk=chunk)
    loop.play(2), stacked.play(2)
    assert_same(loop, stacked, 1e-9)


def test_threads_make_no_difference():
    """Clients whose kernels are large enough to be divided."""
    g = torch.Generator().manual_seed(0)
    sizes, inputs = (200, 160, 90), 28 * 28
    pairs = [
        (torch.randn(size, inputs, generator=g, dtype=torch.float64), torch.randint(10, (size,), generator=g))
        for size in sizes
    ]
    how = {"batching": Batching(100, epochs=1), "optimizer": Optimizer("adam", 0.01)}
    module, clients = nn.Linear(inputs, 10).double(), Clients.of(pairs)
    loop, stacked = (Federation.of("fedamp", module=module, clients=clients, **how) for _ in range(2))
    stacked.trainer = stacked.trainer.changed(engine="stacked")
    loop.play(2)
    with use_threads(2):
        stacked.play(2)
    assert_same(loop, stacked, 1e-9)
