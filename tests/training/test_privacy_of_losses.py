"""What noise does to the rows, the loss that is released, which models can be protected, and which way they train."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedamp.data.clients import Clients
from fedamp.errors import UserError
from fedamp.methods.base import descent
from fedamp.models.flat_model import FlatModel
from fedamp.models.zoo import cnn_small, resnet18
from fedamp.privacy.promise import Privacy
from fedamp.privacy.sampling import LOSS_CLIP
from fedamp.rows import Rows
from fedamp.training.batches import Batching
from fedamp.training.config import TrainingConfig
from fedamp.training.model_check import check_private
from fedamp.training.optimizers import Optimizer
from fedamp.training.stacked_or_loop import choose_engine
from fedamp.training.trainer import Trainer
from helpers import data, mlp

ENGINES = ("loop", "stacked")


def training(engine="loop", z=2.0, sizes=(10, 30), secret=None, optimizer=None, batching=None, clients=None, clip=0.5):
    clients = data(sizes) if clients is None else clients
    privacy = Privacy(clip, dict.fromkeys(range(len(clients)), z), secret)
    config = TrainingConfig(
        optimizer or Optimizer("sgd", 0.1), batching or Batching(5, steps=6), engine=engine, privacy=privacy
    )
    model = FlatModel(mlp())
    return Trainer(model, config).local(clients, 1), model.row().repeat(len(clients))


# What noise does to the rows


@pytest.mark.parametrize("engine", ENGINES)
def test_the_variance_in_the_rows_is_known_for_sgd(engine):
    local, start = training(engine)
    assert not local.noise().any()
    local.run(start, descent)
    d, each = start.params.shape[1], (0.1 * 2.0 * 0.5 / 5) ** 2
    torch.testing.assert_close(local.noise(), torch.full((2, 1), 6 * d * each, dtype=torch.float64))
    head = local.head()
    local.again(1, only=head, lr=0.2).run(start, descent)
    expected = 6 * int(head.params.sum()) * 4 * each
    torch.testing.assert_close(local.noise(), torch.full((2, 1), expected, dtype=torch.float64))
    local.run(
        {"a": start, "b": start},
        lambda rows, grad: {"a": grad(rows["a"], "a") + grad(rows["b"], "a"), "b": torch.ones_like(rows["b"])},
    )
    torch.testing.assert_close(local.noise("a"), torch.full((2, 1), 2 * 6 * d * each, dtype=torch.float64))
    assert not local.noise("b").any()
    local.run(start, lambda w, grad: grad(w, part=(1, 2)))
    torch.testing.assert_close(local.noise(), torch.full((2, 1), 4 * 6 * d * each, dtype=torch.float64))
    local.part(torch.ones(2, 1)).run(start, descent)
    torch.testing.assert_close(local.noise(), torch.full((2, 1), 6 * d * each, dtype=torch.float64))
    local.at_home().run(start, descent)
    assert not local.noise().any()


@pytest.mark.parametrize(
    ("optimizer", "tolerance"),
    [(Optimizer("sgd", 0.01), 0.1), (Optimizer("sgd", 0.01, momentum=0.5), 0.15), (Optimizer("adam", 0.001), 0.5)],
    ids=str,
)
def test_it_is_what_is_seen_among_clients_with_the_same_samples(optimizer, tolerance):
    """With a weak signal, so that the noise is nearly all that rows vary by."""
    clients = data((10,))
    clients = replace(clients, train=clients.train * 60, numbers=tuple(range(60)))
    local, start = training("stacked", clients=clients, optimizer=optimizer, batching=Batching(10, steps=60), z=20.0)
    seen = local.run(start, descent).params.var(0).sum()
    assert float(local.noise().mean() / seen) == pytest.approx(1, abs=tolerance)


# The loss that is released


def clients_with(values: list[float]) -> Clients:
    clients = data((20, 20))
    x = clients.x.clone()
    for place, value in enumerate(values):
        x[clients.train[0][place]] *= value
    return replace(clients, x=x)


@pytest.mark.parametrize("engine", ENGINES)
def test_with_all_samples_and_no_noise_it_is_the_mean_of_clipped_losses(engine):
    clients = clients_with([math.nan, math.inf, 1e3])
    local, start = training(engine, z=0.0, clients=clients, batching=Batching(20, steps=1))
    start = Rows(start.params * 30, start.buffers)
    found = local.loss(start)
    for i, positions in enumerate(clients.train):
        x, y = clients.samples(positions)
        output, _ = local.trainer.model(start.params[i], start.buffers[i], x, training=False)
        losses = cross_entropy(output, y, reduction="none").nan_to_num(LOSS_CLIP, LOSS_CLIP).clamp(0, LOSS_CLIP)
        assert (losses == LOSS_CLIP).any()
        assert found[i].item() == pytest.approx(losses.mean().item(), rel=1e-12)


def test_its_minibatches_and_its_noise_are_drawn_anew_each_time():
    sizes, batching = (200,), Batching(20, steps=1)
    seen = {}
    for z in (0.0, 0.4):
        found = []
        for secret in range(60):
            local, start = training(sizes=sizes, batching=batching, z=z, secret=secret)
            found += [local.loss(start).item(), local.loss(start).item()]
        seen[z] = torch.tensor(found, dtype=torch.float64)
        assert len(seen[z].unique()) == 120
    plain = training(sizes=sizes, batching=batching)[0].at_home().loss(start).item()
    quiet, loud = seen[0.0], seen[0.4] - seen[0.0]
    assert (quiet.mean() - plain).abs() < 4 * quiet.std() / math.sqrt(120)
    expected = 0.4 * LOSS_CLIP / 20 / math.sqrt(10)  # of ten minibatches
    assert loud.std() == pytest.approx(expected, rel=0.3)
    assert loud.mean().abs() < 4 * expected / math.sqrt(120)
    one, other = loud[::2], loud[1::2]
    assert torch.corrcoef(torch.stack([one, other]))[0, 1].abs() < 0.5
    assert torch.corrcoef(torch.stack([quiet[::2], quiet[1::2]]))[0, 1].abs() < 0.5


def test_one_sample_more_changes_it_by_no_more_than_the_clip():
    for value in (1.0, math.nan, math.inf, 1e200):
        for secret in range(4):
            found = []
            for size in (19, 20):
                clients = clients_with([1.0] * 19 + [value])
                clients = replace(clients, train=(clients.train[0][:size], clients.train[1]))
                local, start = training(z=0.0, secret=secret, clients=clients, batching=Batching(10, steps=1))
                local._known = (10, 10)  # one minibatch, and a public number
                found.append(local.loss(start)[0].item() * 10)
            assert 0 <= found[1] - found[0] <= LOSS_CLIP * (1 + 1e-12)


def test_it_is_never_below_zero():
    found = [training(z=50.0, secret=secret)[0] for secret in range(10)]
    losses = torch.stack([local.loss(local.trainer.model.row().repeat(2)) for local in found])
    assert (losses == 0).any()
    assert (losses >= 0).all()


# Which models can be protected


def check(module: nn.Module, shape: tuple[int, ...]) -> None:
    g = torch.Generator().manual_seed(0)
    clients = Clients.of([(torch.randn(8, *shape, generator=g), torch.randint(0, 3, (8,), generator=g))] * 2)
    check_private(FlatModel(module), clients)


class Counting(nn.Module):
    """A module that keeps the mean of what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = 0.9 * self.seen + 0.1 * x.mean(0).detach()
        return self.layer(x - self.seen)


class Pairs(nn.Module):
    """A module that needs two samples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x - x[1])


def test_batchnorm_is_refused_with_a_cure():
    with pytest.raises(UserError, match=r"has BatchNorm \(2, 6\), which mixes.*use GroupNorm.*cnn-small without norm"):
        check(cnn_small((8, 8), 3, norm=True), (8, 8))
    with pytest.raises(UserError, match=r"BatchNorm \(.*, \.\.\.\)"):
        check(resnet18((8, 8), 3), (8, 8))


def test_a_frozen_batchnorm_and_a_groupnorm_are_not():
    frozen = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    frozen[1].eval()
    check(frozen, (6,))
    check(nn.Sequential(nn.Linear(6, 4), nn.GroupNorm(2, 4), nn.Linear(4, 3)), (6,))
    check(nn.Sequential(nn.Conv2d(3, 4, 1), nn.InstanceNorm2d(4), nn.Flatten(), nn.Linear(64, 3)), (3, 4, 4))


def test_other_statistics_are_refused():
    with pytest.raises(UserError, match=r"Counting keeps statistics .*\(buffer seen\)"):
        check(Counting(), (6,))


def test_a_module_that_needs_several_samples_is_refused():
    with pytest.raises(UserError, match="Pairs fails on a single sample"):
        check(Pairs(), (6,))


# Which way


class LooksAtValues(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if float(x.detach().sum()) > -1e9 else self.layer(-x)


@pytest.mark.parametrize("requested", ["auto", "stacked"])
@pytest.mark.parametrize(("module", "engine"), [(mlp(), "stacked"), (LooksAtValues(), "loop")])
def test_the_way_is_one_that_takes_samples_one_by_one(requested, module, engine):
    clients, model = data((10, 30)), FlatModel(module)
    config = TrainingConfig(Optimizer(), Batching(4, epochs=1), privacy=Privacy(1.0, {0: 1.0, 1: 1.0}))
    trainer = Trainer(model, config)
    choice = choose_engine(requested, trainer, clients, model.row().repeat(2))
    assert choice.engine == engine
    assert (choice.warning is None) == (engine == "stacked")
    ended = trainer.changed(engine=choice.engine).local(clients, 1).run(model.row().repeat(2), descent)
    assert ended.params.isfinite().all()


class OnlyMany(nn.Module):
    """Fine under vmap over clients, not under one over samples: known only by trying the private way."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        if len(x) == 1 and self.training:
            x = x * float(x.detach().abs().max() < 1e9)
        return self.layer(x)


def test_the_private_way_is_what_is_tried():
    clients, model = data((10, 30)), FlatModel(OnlyMany())
    engines = []
    for privacy in (None, Privacy(1.0, {0: 1.0, 1: 1.0})):
        trainer = Trainer(model, TrainingConfig(Optimizer(), Batching(4, epochs=1), privacy=privacy))
        engines.append(choose_engine("auto", trainer, clients, model.row().repeat(2)).engine)
    assert engines == ["stacked", "loop"]
