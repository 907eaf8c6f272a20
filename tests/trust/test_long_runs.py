"""A long run does not fall apart: alpha stops falling where the paper's does, and no pull is too strong."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fedamp
from fedamp import seeds
from fedamp.data.clients import Clients
from fedamp.methods import FedAMP, FedProx
from fedamp.methods.base import proximal
from fedamp.methods.message_passing import paper_alpha
from fedamp.models.flat_model import FlatModel
from fedamp.rows import Rows
from fedamp.training.batches import Batching
from fedamp.training.config import TrainingConfig
from fedamp.training.optimizers import Optimizer
from fedamp.training.tasks_and_metrics import regression
from fedamp.training.trainer import Trainer
from helpers import Federation, data, mlp

OPTIMIZERS = {
    "sgd": Optimizer("sgd", 0.05),
    "sgd-decay": Optimizer("sgd", 0.05, weight_decay=0.1),
    "momentum": Optimizer("sgd", 0.05, momentum=0.9),
    "momentum-decay": Optimizer("sgd", 0.05, momentum=0.9, weight_decay=0.1),
    "adam": Optimizer("adam", 0.01),
    "adam-decay": Optimizer("adam", 0.01, weight_decay=0.1),
}
STRENGTHS = (30.0, 200.0, 1e3, 1e4, 1e6, 1e9, 1e12)


# alpha


def test_the_papers_alpha_ends_with_its_third_stage():
    assert [paper_alpha(k) for k in (1, 30, 31, 60, 61, 90)] == [1e4, 1e4, 1e3, 1e3, 1e2, 1e2]
    assert [paper_alpha(k) for k in (91, 120, 300, 10**6)] == [1e2] * 4
    assert [paper_alpha(k, 6) for k in (6, 12, 13, 18, 19, 300)] == [1e4, 1e3, 1e2, 1e2, 1e2, 1e2]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_run_that_is_long_for_its_schedule_does_not_fall(optimizer):
    """A dozen stages: alpha would be 1e-7 at the end."""
    method = {"name": "fedamp", "alpha_every": 2}
    result = fedamp.run(method=method, optimizer=optimizer, clients=10, rounds=24, epochs=2)
    means = result.scores.mean(1)
    assert means[-1] > means[:-1].max() - 1
    assert result.warnings == []


@pytest.mark.many
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_300_rounds_of_the_defaults(optimizer):
    result = fedamp.run(method="fedamp", optimizer=optimizer, rounds=300)
    means = result.scores.mean(1)
    assert means[-1] > means.max() - 1
    assert result.warnings == []


# A strong pull, on a quadratic: what it should come to is known


class Quadratic:
    """Linear regression on one full batch, pulled to an anchor."""

    def __init__(self) -> None:
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(20, 4, generator=g, dtype=torch.float64)
        self.y = self.x @ torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64) + 0.3
        self.model = FlatModel(nn.Linear(4, 1).double())
        self.anchor = torch.full((1, 5), 0.5, dtype=torch.float64)

    def run(self, optimizer: Optimizer, strength: float, start: float = 0.0, steps: int = 300) -> torch.Tensor:
        trainer = Trainer(self.model, TrainingConfig(optimizer, Batching(20, steps=steps), task=regression()))
        local = trainer.local(Clients.of([(self.x, self.y)]), 1)
        context = {"anchor": self.anchor, "strength": torch.tensor([[strength]], dtype=torch.float64)}
        return local.run(Rows.of(self.anchor + start), proximal, **context).params

    def argmin(self, strength: float, decay: float) -> torch.Tensor:
        """Of the loss, the penalty and the optimiser's weight decay."""

        def loss(w: torch.Tensor) -> torch.Tensor:
            return F.mse_loss(self.x @ w[:4] + w[4], self.y) + decay / 2 * (w**2).sum()

        slope = torch.autograd.functional.jacobian(loss, self.anchor[0])
        bend = torch.autograd.functional.hessian(loss, self.anchor[0])
        return self.anchor - torch.linalg.solve(bend + strength * torch.eye(5, dtype=torch.float64), slope)


@pytest.mark.parametrize("which", OPTIMIZERS)
@pytest.mark.parametrize("start", [0.0, 3.0])
@pytest.mark.parametrize("strength", [110.0, *STRENGTHS[1:]])
@pytest.mark.many
def test_a_strong_pull_comes_to_rest_where_loss_and_penalty_do(which, strength, start):
    problem, optimizer = Quadratic(), OPTIMIZERS[which]
    expected = problem.argmin(strength, optimizer.weight_decay)
    ended = problem.run(optimizer, strength, start)
    away = (expected - problem.anchor).norm()
    assert (ended - expected).norm() < 1e-3 * away + 1e-15


@pytest.mark.parametrize("which", OPTIMIZERS)
def test_the_stronger_the_pull_the_nearer_the_anchor_from_the_first_step_on(which):
    problem = Quadratic()
    for steps in (1, 2, 5, 20, 100):
        far = [(problem.run(OPTIMIZERS[which], s, 3.0, steps) - problem.anchor).norm() for s in (110.0, *STRENGTHS[1:])]
        assert all(near <= further for further, near in itertools.pairwise(far)), (steps, far)
        assert far[0] < 3.0 * 5**0.5  # where it started


@pytest.mark.parametrize("strength", [15.0, *STRENGTHS])
def test_a_plain_step_is_the_implicit_one(strength):
    """w' = (w - lr g(w) + lr s u) / (1 + lr s), minibatch by minibatch, written out."""
    torch.manual_seed(0)
    model = FlatModel(nn.Linear(4, 3).double())
    anchor = torch.randn(1, 15, dtype=torch.float64)
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(9, 4, generator=g, dtype=torch.float64), torch.randint(3, (9,), generator=g)
    batching = Batching(4, epochs=2)
    local = Trainer(model, TrainingConfig(Optimizer("sgd", 0.1), batching, seed=1)).local(Clients.of([(x, y)]), k=1)
    context = {"anchor": anchor, "strength": torch.tensor([[strength]], dtype=torch.float64)}
    ended = local.run(model.row(), proximal, **context)
    w = model.row().params[0].clone()
    for batch in batching.draw(9, seeds.generator(1, "batches", 0, 1)):
        w.requires_grad_()
        output, _ = model(w, torch.empty(0), x[batch], training=True)
        (slope,) = torch.autograd.grad(F.cross_entropy(output, y[batch]), w)
        w = ((w - 0.1 * slope + 0.1 * strength * anchor[0]) / (1 + 0.1 * strength)).detach()
    torch.testing.assert_close(ended.params[0], w, rtol=1e-12, atol=1e-12)


# Runs that were right keep their numbers


def explicit(w, grad, anchor, strength):
    """`proximal` under another name, so that the engine takes it as any direction."""
    return torch.addcmul(grad(w), strength, w - anchor)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("which", OPTIMIZERS)
def test_a_pull_that_is_not_strong_keeps_every_bit(which, engine):
    optimizer, clients = OPTIMIZERS[which], data((9, 5, 13))
    model = FlatModel(mlp())
    w = model.row().repeat(3)
    anchor = w.params + 0.1
    for share in (0.01, 0.5, 1.0):
        context = {"anchor": anchor, "strength": torch.full((3, 1), share / optimizer.lr, dtype=torch.float64)}
        trainer = Trainer(model, TrainingConfig(optimizer, Batching(4, epochs=2), engine=engine))
        now, before = (trainer.local(clients, 1).run(w, how, **context).params for how in (proximal, explicit))
        assert torch.equal(now, before)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("which", OPTIMIZERS)
def test_who_is_pulled_strongly_does_not_change_its_neighbour(which, engine):
    optimizer, clients = OPTIMIZERS[which], data((9, 9))
    model = FlatModel(mlp())
    w = model.row().repeat(2)
    strength = torch.tensor([[0.5 / optimizer.lr], [1e9]], dtype=torch.float64)
    trainer = Trainer(model, TrainingConfig(optimizer, Batching(4, epochs=2), engine=engine))
    beside = trainer.local(clients, 1).run(w, proximal, anchor=w.params + 0.1, strength=strength)
    weak = torch.full_like(strength, 0.5 / optimizer.lr)
    alone = trainer.local(clients, 1).run(w, explicit, anchor=w.params + 0.1, strength=weak)
    assert torch.equal(beside.params[0], alone.params[0])
    torch.testing.assert_close(beside.params[1], w.params[1] + 0.1, rtol=0, atol=1e-6)


@pytest.mark.parametrize("module", ["side by side", "vmap"])
@pytest.mark.parametrize("which", OPTIMIZERS)
def test_all_at_once_equals_one_at_a_time(which, module):
    torch.manual_seed(0)
    net = (
        mlp() if module == "side by side" else nn.Sequential(nn.Linear(6, 7), nn.LayerNorm(7), nn.Linear(7, 3)).double()
    )
    model, clients = FlatModel(net), data((9, 5, 13, 20))
    assert model.side_by_side == (module == "side by side")
    w = model.row().repeat(4)
    context = {
        "anchor": w.params + 0.1,
        "strength": torch.tensor([[1.0], [30.0], [300.0], [1e12]], dtype=torch.float64),
    }
    one, all_ = (
        Trainer(model, TrainingConfig(OPTIMIZERS[which], Batching(4, epochs=2), engine=engine))
        .local(clients, 1)
        .run(w, proximal, **context)
        for engine in ("loop", "stacked")
    )
    torch.testing.assert_close(all_.params, one.params, rtol=1e-9, atol=1e-9)


# The methods


@pytest.mark.parametrize("optimizer", [Optimizer("sgd", 0.05), Optimizer("sgd", 0.05, 0.9), Optimizer("adam", 0.05)])
@pytest.mark.parametrize(
    ("name", "hyperparameters"),
    [
        ("fedamp", {"alpha": 1e-9}),
        ("fedamp", {"alpha": 1e-9, "start": "w"}),
        ("heurfedamp", {"alpha": 1e-6}),
        ("fedprox", {"mu": 1e12}),
        ("fedprox-ft", {"mu": 1e5}),
    ],
)
def test_whatever_the_strength_a_client_stays_at_what_it_received(name, hyperparameters, optimizer):
    played = Federation.of(name, own_init=True, optimizer=optimizer, **hyperparameters).play(5)
    own, received = played.models("own"), played.models("received")
    assert own.isfinite().all()
    assert (own - received).norm() < 1e-3 * received.norm()
    (event,) = played.rounds[-1].diagnostics["events"]
    assert "hardly moves away from it" in event


@pytest.mark.parametrize("method", [FedAMP(alpha=2.0), FedProx(mu=0.5), FedProx()])
def test_no_word_where_a_client_can_move(method):
    assert Federation.of(method).play(1).rounds[-1].diagnostics["events"] == []


def test_a_silo_takes_the_pull_as_the_engine_does(tmp_path, monkeypatch):
    pytest.importorskip("flwr")
    from federation.inprocess import Local, engine_rounds, plan_of, strategy, write_silos

    def waits(seconds):
        raise AssertionError("a silo was set aside, or a round is played again")

    monkeypatch.setattr(strategy.time, "sleep", waits)
    silos = write_silos(tmp_path / "data")
    plan = plan_of(silos, {"name": "fedamp", "alpha": 1e-6}, rounds=3, optimizer="sgd", lr=0.01)
    state = Local(tmp_path, plan, silos).serve().state.method_state
    assert torch.equal(state.rows["w"].params, engine_rounds(plan)[-1].server.rows["w"].params)
    assert state.rows["w"].params.isfinite().all()
