"""Ditto, MR-MTL, pFedMe and Per-FedAvg against their papers' algorithms, and where they must be other methods.

The plain loops know nothing of rows, stacks or directions: a module, autograd on it, and the minibatches.
"""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedamp.data.clients import Clients
from fedamp.errors import UserError
from fedamp.methods import MRMTL, Ditto, FedAvg, PerFedAvg, PFedMe
from fedamp.training.batches import Batching
from fedamp.training.optimizers import Optimizer
from fedamp.training.tasks_and_metrics import regression
from helpers import Federation, mlp, plain_sgd

OPTIMIZERS = [
    Optimizer("adam", 0.01),
    Optimizer("sgd", 0.1),
    Optimizer("sgd", 0.05, momentum=0.9, weight_decay=0.01),
]
SIZES = (5, 9, 13, 30)
PRESENT = [[1, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 1]]
LR = 0.05


def close(one, other, tolerance=1e-9):
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def played(method, batching, optimizer=None):
    """Return a federation of unequal clients after rounds with an absent one; without BatchNorm, as in the loops."""
    a = Federation.of(method, sizes=SIZES, own_init=True, optimizer=optimizer or plain_sgd(LR), batching=batching)
    a.first = a.state.rows[next(iter(a.state.rows))].params.clone()
    for present in PRESENT:
        a.play(present=torch.tensor(present, dtype=torch.bool))
    return a


def gradient(a, w, positions):
    """Return the gradient of the mean loss on these samples, by autograd on a plain module."""
    module = copy.deepcopy(a.trainer.model.module)
    vector_to_parameters(w, module.parameters())
    loss = nn.functional.cross_entropy(module(a.clients.x[positions]), a.clients.y[positions])
    return parameters_to_vector(torch.autograd.grad(loss, list(module.parameters())))


def who(present):
    return [i for i in range(len(SIZES)) if present[i]]


def share(chosen):
    return torch.tensor([SIZES[i] for i in chosen], dtype=torch.float64) / sum(SIZES[i] for i in chosen)


def cut(batch, parts):
    """Return a minibatch in so many parts, or as often as it is: too small ones are not cut."""
    size = len(batch)
    if size < 2 * parts:
        return [batch] * parts
    return [batch[i * size // parts : (i + 1) * size // parts] for i in range(parts)]


# Ditto


def test_ditto_as_its_algorithm_1():
    """The authors' turns: on each minibatch a step of v near the received model, then one of the client's w."""
    lam = 0.7
    a = played(Ditto(lam=lam), Batching(4, epochs=2))
    w, v = a.first.mean(0), a.first.clone()
    for k, present in enumerate(PRESENT, start=1):
        ends = []
        for i in who(present):
            own = w.clone()
            for batch in a.trainer.local(a.clients, k).batches(i):
                v[i] = v[i] - LR * (gradient(a, v[i], batch) + lam * (v[i] - w))
                own = own - LR * gradient(a, own, batch)
            ends.append(own)
        w = share(who(present)) @ torch.stack(ends)
    close(a.state.rows["v"].params, v)
    close(a.server.shared["w"].params[0], w)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("own_init", [False, True])
def test_ditto_without_pull_is_separate_beside_fedavg(optimizer, own_init):
    settings = {"sizes": SIZES, "optimizer": optimizer, "own_init": own_init, "module": mlp(norm=True, dropout=0.2)}
    a, b, c = (Federation.of(method, **settings) for method in (Ditto(lam=0.0), "separate", "fedavg"))
    for _ in range(4):
        ours, alone, together = (f.play().rounds[-1].models for f in (a, b, c))
        for one, other in ((ours["own"], alone["own"]), (ours["received"], together["received"])):
            assert torch.equal(one.params, other.params)
            assert torch.equal(one.buffers, other.buffers)
    assert "Separate's under another name" in a.rounds[-1].diagnostics["events"][0]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_with_a_huge_pull_dittos_own_model_is_what_was_received(optimizer):
    a = Federation.of(Ditto(lam=1e12), sizes=SIZES, optimizer=optimizer, own_init=True).play(3)
    close(a.models("own"), a.models("received"), 1e-6)
    assert not torch.allclose(a.models("received"), a.server.shared["w"].params, atol=1e-3)
    assert "Lower lam" in a.rounds[-1].diagnostics["events"][0]


def test_dittos_own_model_has_its_own_number_of_epochs():
    settings = {"sizes": SIZES, "optimizer": Optimizer("adam", 0.01)}
    a = Federation.of(Ditto(lam=0.0, personal_epochs=1), batching=Batching(4, epochs=3), **settings).play(3)
    b = Federation.of("separate", batching=Batching(4, epochs=1), **settings).play(3)
    c = Federation.of("fedavg", batching=Batching(4, epochs=3), **settings).play(3)
    assert torch.equal(a.models("own"), b.models("own"))
    assert torch.equal(a.models("received"), c.models("received"))


# MR-MTL


def test_mr_mtl_as_its_objective():
    lam = 0.7
    a = played(MRMTL(lam=lam), Batching(4, epochs=2))
    w = a.first.clone()
    for k, present in enumerate(PRESENT, start=1):
        mean = w.mean(0)  # of all of them, absent ones too
        for i in who(present):
            for batch in a.trainer.local(a.clients, k).batches(i):
                w[i] = w[i] - LR * (gradient(a, w[i], batch) + lam * (w[i] - mean))
    close(a.models("own"), w)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("lam", "alpha"), [(1.0, 10.0), (0.5, 0.5)])
def test_mr_mtl_is_fedamp_with_uniform_weights_started_at_w(optimizer, lam, alpha):
    """With absent clients, and with one who comes late."""
    settings = {"sizes": SIZES, "optimizer": optimizer, "own_init": True, "module": mlp(norm=True, dropout=0.2)}
    a = Federation.of(MRMTL(lam=lam / alpha), **settings)
    b = Federation.of("fedamp", sigma=math.inf, self_weight="uniform", start="w", lam=lam, alpha=alpha, **settings)
    everyone = a.clients
    for f in (a, b):
        three = torch.arange(3)
        f.clients, f.server, f.state = f.clients.take(three), f.server.take(three), f.state.take(three)
    for k, present in enumerate([[1, 1, 1], [1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1]]):
        for f in (a, b):
            if k == 2:
                late = f.trainer.model.row()
                f.clients = everyone
                f.server, f.state = (
                    f.server.append(f.method.server_init(late)),
                    f.state.append(f.method.client_init(late)),
                )
            f.play(present=torch.tensor(present, dtype=torch.bool))
        for name in ("own", "received"):
            close(a.models(name), b.models(name), 1e-11)
            close(a.rounds[-1].models[name].buffers, b.rounds[-1].models[name].buffers, 1e-11)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_mr_mtl_without_pull_is_separate(optimizer):
    settings = {"sizes": SIZES, "optimizer": optimizer, "own_init": True, "module": mlp(norm=True, dropout=0.2)}
    a, b = Federation.of(MRMTL(lam=0.0), **settings), Federation.of("separate", **settings)
    for _ in range(4):
        assert torch.equal(a.play().models(), b.play().models())
    assert "Separate's under another name" in a.rounds[-1].diagnostics["events"][0]


# pFedMe


@pytest.mark.parametrize("beta", [1.0, 0.5, 2.0])
def test_pfedme_as_its_algorithm_1(beta):
    lam, steps, rate = 3.0, 4, 0.1
    a = played(PFedMe(lam=lam, inner_steps=steps, personal_lr=rate, beta=beta), Batching(4, epochs=2))
    w, personal = a.first.mean(0), {}
    for k, present in enumerate(PRESENT, start=1):
        ends = []
        for i in who(present):
            own, theta = w.clone(), w.clone()
            for batch in a.trainer.local(a.clients, k).batches(i):
                for _ in range(steps):
                    theta = theta - rate * (gradient(a, theta, batch) + lam * (theta - own))
                own = own - LR * lam * (own - theta)
            ends.append(own)
            personal[i] = theta
        received, w = w, (1 - beta) * w + beta * sum(ends) / len(ends)
    close(a.models("own"), torch.stack([personal[i] for i in range(len(SIZES))]))
    close(a.models("received")[0], received)
    close(a.server.shared["w"].params[0], w)


def linear_regression(method, optimizer, sizes=(7, 5, 9)):
    """Return a federation whose losses are quadratic: full batches, one step; and x and y of each client."""
    g = torch.Generator().manual_seed(3)
    pairs = [tuple(torch.randn(*shape, generator=g, dtype=torch.float64) for shape in ((n, 4), (n,))) for n in sizes]
    torch.manual_seed(1)
    a = Federation.of(
        method, clients=Clients.of(pairs), module=nn.Linear(4, 1, bias=False).double(), optimizer=optimizer,
        batching=Batching(100, steps=1), own_init=True,
    )  # fmt: skip
    a.trainer = type(a.trainer)(a.trainer.model, replace(a.trainer.config, task=regression()))
    return a, pairs


def quadratic(x, y):
    """Return H and c of the mean squared error's gradient, H w - c."""
    return 2 / len(x) * x.T @ x, 2 / len(x) * x.T @ y


def test_pfedmes_theta_is_the_proximal_point_and_w_descends_the_moreau_envelope():
    lam, eta = 2.0, 0.1
    method = PFedMe(lam=lam, inner_steps=500, personal_lr=0.1)
    a, pairs = linear_regression(method, plain_sgd(eta))
    w = a.server.shared["w"].params[0].clone()
    a.play()
    ends = []
    for i, (x, y) in enumerate(pairs):
        h, c = quadratic(x, y)
        at = w.clone().requires_grad_()
        theta = torch.linalg.solve(h + lam * torch.eye(4, dtype=torch.float64), lam * at + c)
        close(a.models("own")[i], theta.detach())
        envelope = ((x @ theta - y) ** 2).mean() + lam / 2 * ((theta - at) ** 2).sum()
        (slope,) = torch.autograd.grad(envelope, at)
        ends.append(w - eta * slope)
    close(a.server.shared["w"].params[0], sum(ends) / len(ends))


def test_pfedme_averages_batchnorms_statistics_that_were_trained():
    a = Federation.of(PFedMe(), sizes=SIZES, module=mlp(norm=True), optimizer=plain_sgd(0.01)).play()
    assert not torch.equal(a.server.shared["w"].buffers, a.trainer.model.row().buffers)
    close(a.server.shared["w"].buffers[0], a.rounds[-1].models["own"].buffers.mean(0), 1e-12)


def test_pfedme_refuses_inner_steps_that_diverge():
    with pytest.raises(UserError, match=r"personal_lr is 0.2 and lam 15.*Lower personal_lr below 0.133"):
        PFedMe(personal_lr=0.2, lam=15.0)


# Per-FedAvg


@pytest.mark.parametrize("form", ["first-order", "hessian-free"])
def test_per_fedavg_as_its_algorithm_1(form):
    alpha, delta = 0.1, 1e-3
    method = PerFedAvg(form=form, alpha=alpha, delta=delta, adapt_epochs=2)
    a = played(method, Batching(8, epochs=2))
    w, personal = a.first.mean(0), {}
    for k, present in enumerate(PRESENT, start=1):
        ends = []
        for i in who(present):
            own, local = w.clone(), a.trainer.local(a.clients, k)
            for batch in local.batches(i):
                first, second, *third = cut(batch, 2 if form == "first-order" else 3)
                g = gradient(a, own - alpha * gradient(a, own, first), second)
                step = g
                if third:
                    ahead, behind = (gradient(a, own + sign * delta * g, third[0]) for sign in (1, -1))
                    step = g - alpha * (ahead - behind) / (2 * delta)
                own = own - LR * step
            ends.append(own)
            personal[i] = w.clone()
            for batch in local.again(1, epochs=2).batches(i):
                personal[i] = personal[i] - alpha * gradient(a, personal[i], batch)
        received, w = w, sum(ends) / len(ends)
    close(a.models("own"), torch.stack([personal[i] for i in range(len(SIZES))]))
    close(a.models("received")[0], received)
    close(a.server.shared["w"].params[0], w)


def test_hessian_free_has_the_exact_hessian_of_a_quadratic_loss():
    """(I - alpha H'') (H' (w - alpha (H w - c)) - c') in one step of each client, on the thirds of its samples."""
    alpha, beta = 0.2, 0.5
    a, pairs = linear_regression(PerFedAvg(form="hessian-free", alpha=alpha), plain_sgd(beta), sizes=(7, 8, 9))
    w = a.server.shared["w"].params[0].clone()
    a.play()
    ends = []
    for i, (x, y) in enumerate(pairs):
        (batch,) = (batch - a.clients.train[i].min() for batch in a.trainer.local(a.clients, 1).batches(i))
        (h, c), (h1, c1), (h2, _) = (quadratic(x[part], y[part]) for part in cut(batch, 3))
        g = h1 @ (w - alpha * (h @ w - c)) - c1
        ends.append(w - beta * (g - alpha * h2 @ g))
        whole, right = quadratic(x, y)
        close(a.models("own")[i], w - alpha * (whole @ w - right))  # one full batch is one gradient step
    close(a.server.shared["w"].params[0], sum(ends) / len(ends))


@pytest.mark.parametrize(("form", "exact"), [("first-order", False), ("hessian-free", True)])
def test_hessian_free_descends_the_adapted_models_loss(form, exact):
    """On a minibatch too small to be cut, HF's direction is the gradient of F(w - alpha grad F(w)); FO's isn't."""
    alpha = 0.3
    sizes, batching = (3, 3), Batching(3, steps=1)
    a = Federation.of(PerFedAvg(form=form, alpha=alpha), sizes=sizes, optimizer=plain_sgd(1.0), batching=batching)
    w = a.server.shared["w"].params[0].clone()
    a.play()
    slopes = []
    for i in range(2):
        x, y = a.clients.x[a.clients.train[i]], a.clients.y[a.clients.train[i]]

        def loss(point, x=x, y=y):
            return nn.functional.cross_entropy(a.trainer.model(point, torch.empty(0), x, training=True)[0], y)

        at = w.clone().requires_grad_()
        (inner,) = torch.autograd.grad(loss(at), at, create_graph=True)
        slopes.append(torch.autograd.grad(loss(at - alpha * inner), at)[0])
    error = (a.server.shared["w"].params[0] - (w - sum(slopes) / 2)).abs().max()
    assert (error < 1e-7) == exact
    assert exact or error > 1e-3


class SecondHalves(FedAvg):
    """FedAvg whose steps see only the second half of each minibatch."""

    def train(self, w, local):
        return local.run(w, lambda w, grad: grad(w, part=(2, 2)))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_without_adaptation_per_fedavg_is_fedavg_on_the_second_halves(optimizer):
    """With clients of one size, for Per-FedAvg's mean is not weighted; and its personal models are the global one."""
    settings = {"sizes": (12, 12, 12), "optimizer": optimizer, "batching": Batching(6, epochs=2)}
    a = Federation.of(PerFedAvg(alpha=1e-14), **settings)
    b, c = Federation.of(SecondHalves(), **settings), Federation.of("fedavg", **settings)
    for _ in range(3):
        a.play(), b.play(), c.play()
    close(a.models("received"), b.models("received"))
    close(a.models("own"), a.models("received"))
    assert not torch.allclose(a.models("received"), c.models("received"), atol=1e-4)


def test_per_fedavgs_optimizer_is_free_and_its_adaptation_plain_sgd():
    settings = {"sizes": SIZES, "module": mlp(), "batching": Batching(100, epochs=3)}
    a = Federation.of(PerFedAvg(alpha=0.1), optimizer=Optimizer("adam", 0.01), **settings).play()
    w = a.models("received")[0]
    for i in range(len(SIZES)):
        close(a.models("own")[i], w - 0.1 * gradient(a, w, a.clients.train[i]))
    assert not torch.allclose(a.server.shared["w"].params[0], w, atol=1e-3)
