"""Local training is a plain loop over minibatches, written as a careful user would."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedamp import seeds
from fedamp.data.clients import Clients
from fedamp.methods.base import descent, proximal
from fedamp.models.flat_model import FlatModel
from fedamp.rows import Rows
from fedamp.training.batches import Batching
from fedamp.training.config import TrainingConfig
from fedamp.training.optimizers import Optimizer
from fedamp.training.trainer import Trainer


class Norms(nn.Module):
    """A convolution with all three kinds of normalisation."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.GroupNorm(2, 4),
            nn.Flatten(),
            nn.LayerNorm(64),
        )
        self.out = nn.Linear(64, 3)

    def forward(self, x):
        return self.out(self.layers(x))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 5)
        self.out = nn.Linear(5, 3)

    def forward(self, x):
        return self.out(self.embedding(x).mean(1))


def pictures(size: int, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(size, 1, 4, 4, generator=g, dtype=torch.float64), torch.randint(3, (size,), generator=g)


def sentences(size: int, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(11, (size, 6), generator=g), torch.randint(3, (size,), generator=g)


def numbers(size: int, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(size, 4, generator=g, dtype=torch.float64), torch.randint(3, (size,), generator=g)


MODULES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), numbers),
    "norms": (Norms, pictures),
    "words": (Words, sentences),
}
OPTIMIZERS = {
    "adam": (Optimizer("adam", 0.01), lambda p: torch.optim.Adam(p, 0.01)),
    "adam-decay": (
        Optimizer("adam", 0.01, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1),
    ),
    "sgd": (Optimizer("sgd", 0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "sgd-momentum-decay": (
        Optimizer("sgd", 0.1, momentum=0.9, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1),
    ),
}


@pytest.mark.parametrize("kind", sorted(MODULES))
@pytest.mark.parametrize("which", sorted(OPTIMIZERS))
@pytest.mark.parametrize("batching", [Batching(4, epochs=3), Batching(4, steps=5), Batching(100, epochs=2)], ids=str)
def test_equals_a_plain_loop(kind, which, batching):
    """torch.optim, loss.backward(), a module's own weights; clients of 13, 9 (a last batch of one) and 6."""
    make, draw = MODULES[kind]
    ours, theirs = OPTIMIZERS[which]
    torch.manual_seed(0)
    module = make().double()
    clients = Clients.of([draw(size, seed=size) for size in (13, 9, 6)], numbers=[7, 2, 5])
    model = FlatModel(module)
    local = Trainer(model, TrainingConfig(ours, batching, seed=3)).local(clients, k=4)
    ended = local.run(model.row().repeat(3), descent)
    for i, number in enumerate(clients.numbers):
        plain = make().double()
        plain.load_state_dict(module.state_dict())
        plain.train()
        optimizer = theirs(plain.parameters())
        x, y = (t[clients.train[i]] for t in (clients.x, clients.y))
        losses = []
        for batch in batching.draw(len(x), seeds.generator(3, "batches", number, 4)):
            optimizer.zero_grad()
            loss = F.cross_entropy(plain(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        expected = model.row(plain)
        torch.testing.assert_close(ended.params[i : i + 1], expected.params, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(ended.buffers[i : i + 1], expected.buffers, rtol=1e-10, atol=1e-10)
        assert local.losses[""][i].item() == pytest.approx(sum(losses) / len(losses))
        assert local.steps[i] == len(losses)
        assert local.sizes[i] == len(x)


def test_the_penalty_is_seen_by_the_gradient():
    """A proximal walk equals a plain loop whose loss has the penalty in it."""
    torch.manual_seed(0)
    module = nn.Linear(4, 3).double()
    model, anchor = FlatModel(module), torch.randn(1, 15, dtype=torch.float64)
    x, y = numbers(9)
    config = TrainingConfig(Optimizer("sgd", 0.1), Batching(4, epochs=2), seed=1)
    local = Trainer(model, config).local(Clients.of([(x, y)]), k=1)
    ended = local.run(model.row(), proximal, anchor=anchor, strength=torch.tensor([[0.7]], dtype=torch.float64))
    w = model.row().params[0].clone()
    for batch in Batching(4, epochs=2).draw(9, seeds.generator(1, "batches", 0, 1)):
        w.requires_grad_()
        output, _ = model(w, torch.empty(0), x[batch], training=True)
        loss = F.cross_entropy(output, y[batch]) + 0.7 / 2 * ((w - anchor[0]) ** 2).sum()
        w = (w - 0.1 * torch.autograd.grad(loss, w)[0]).detach()
    torch.testing.assert_close(ended.params[0], w, rtol=1e-12, atol=1e-12)


def test_dropout_does_not_depend_on_the_neighbours():
    module = nn.Sequential(nn.Linear(4, 20), nn.Dropout(0.5), nn.Linear(20, 3)).double()
    model = FlatModel(module)
    clients = Clients.of([numbers(8, seed=i) for i in range(3)])
    trainer = Trainer(model, TrainingConfig(Optimizer("sgd", 0.1), Batching(4, epochs=1)))
    together = trainer.local(clients, 1).run(model.row().repeat(3), descent)
    alone = trainer.local(clients.take(torch.tensor([2])), 1).run(model.row(), descent)
    assert torch.equal(together.params[2:], alone.params)
    other_round = trainer.local(clients.take(torch.tensor([2])), 2).run(model.row(), descent)
    assert not torch.allclose(other_round.params, alone.params)


def test_any_other_randomness_comes_from_coordinates_too():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(4, 3).double()

        def forward(self, x):
            return self.out(x + torch.randn_like(x))

    model = FlatModel(Noisy())
    clients = Clients.of([numbers(8, seed=i) for i in range(2)])
    trainer = Trainer(model, TrainingConfig(Optimizer("sgd", 0.1), Batching(4, epochs=1)))
    torch.manual_seed(1)
    state = torch.get_rng_state()
    together = trainer.local(clients, 1).run(model.row().repeat(2), descent)
    assert torch.equal(state, torch.get_rng_state()), "the global generator is not ours to move"
    torch.manual_seed(2)
    alone = trainer.local(clients.take(torch.tensor([1])), 1).run(model.row(), descent)
    assert torch.equal(together.params[1:], alone.params)


def test_start_is_not_changed():
    model = FlatModel(nn.Linear(4, 3).double())
    start = Rows(model.row().params.clone(), model.row().buffers)
    local = Trainer(model, TrainingConfig(Optimizer(), Batching(4, epochs=1))).local(Clients.of([numbers(8)]), 1)
    before = start.params.clone()
    ended = local.run(start, descent)
    assert torch.equal(start.params, before)
    assert not torch.equal(ended.params, before)
