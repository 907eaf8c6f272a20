"""pFedGraph and FedFomo against their papers' algorithms, written out as plain loops, and against what must follow."""

import copy

import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from fedamp.methods import FedAvgFT, FedFomo, PFedGraph, Separate
from fedamp.methods.attention import on_simplex
from fedamp.methods.base import descent
from fedamp.methods.fedfomo import gain
from fedamp.methods.pfedgraph import aligned, graph
from fedamp.rows import Rows
from fedamp.runs.round import play_round
from helpers import Federation, assert_states_equal, mlp, plain_sgd

SIZES = (12, 30, 9, 21, 16)
PRESENT = [[1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [1, 1, 0, 1, 1], [0, 1, 1, 1, 1], [1, 1, 1, 1, 1]]
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def federation(method, **settings) -> Federation:
    return Federation.of(method, sizes=SIZES, optimizer=plain_sgd(), **settings)


def play(a: Federation, rounds: list[list[int]]) -> Federation:
    for present in rounds:
        a.play(present=torch.tensor(present, dtype=torch.bool))
    return a


def row(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def module_at(values: Tensor) -> nn.Module:
    module = mlp()
    nn.utils.vector_to_parameters(values.clone(), module.parameters())
    return module


def trained(a: Federation, start: Tensor, batches: list[Tensor], penalty=None) -> Tensor:
    """Plain SGD on the module itself, with torch's own optimiser and autograd."""
    module = module_at(start)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    for batch in batches:
        loss = cross_entropy(module(a.clients.x[batch]), a.clients.y[batch])
        if penalty is not None:
            loss = loss + penalty(torch.cat([p.reshape(-1) for p in module.parameters()]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return row(module)


# pFedGraph


def solved(d: Tensor, p: Tensor, alpha: float) -> Tensor:
    """The program as it is printed, by a solver that knows nothing of projections; scaled to a Hessian of 1."""

    def objective(x):
        x = torch.as_tensor(x)
        value = (d @ x + alpha * (x - p).square().sum()) / (2 * alpha)
        return float(value), ((d + 2 * alpha * (x - p)) / (2 * alpha)).numpy()

    start = torch.full_like(p, 1 / len(p)).numpy()
    bounds = [(0, None)] * len(p)
    total = {"type": "eq", "fun": lambda x: x.sum() - 1, "jac": lambda x: torch.ones_like(p).numpy()}
    options = {"maxiter": 1000, "ftol": 1e-20}
    found = minimize(objective, start, jac=True, method="SLSQP", bounds=bounds, constraints=total, options=options)
    return torch.as_tensor(found.x)


@pytest.mark.parametrize("m", [2, 3, 5, 10, 20, 30])
@pytest.mark.parametrize("alpha", [0.05, 0.8, 5.0])
def test_pfedgraphs_weights_solve_its_program(m, alpha):
    g = torch.Generator().manual_seed(m)
    d = 2 * torch.rand(m, m, generator=g, dtype=torch.float64) - 1
    p = torch.rand(m, generator=g, dtype=torch.float64)
    p /= p.sum()
    x = graph(-d, p, alpha)
    torch.testing.assert_close(x.sum(1), torch.ones(m, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    for i in range(m):
        if i < 3:
            torch.testing.assert_close(x[i], solved(d[i], p, alpha), rtol=0, atol=1e-9)
        # Convex: where nobody gains by a shift of weight, it is the minimum.
        slope = d[i] + 2 * alpha * (x[i] - p)
        used = x[i] > 0
        assert slope[used].max() - slope[used].min() < 1e-9
        assert used.all() or slope[~used].min() > slope[used].max() - 1e-9


def test_pfedgraphs_limits():
    g = torch.Generator().manual_seed(0)
    alike = 2 * torch.rand(6, 6, generator=g, dtype=torch.float64) - 1
    p = torch.tensor([0.3, 0.1, 0.1, 0.2, 0.25, 0.05], dtype=torch.float64)
    torch.testing.assert_close(graph(alike, p, 1e12), p.expand(6, -1), **CLOSE)
    nearest = nn.functional.one_hot(alike.argmax(1), 6).double()
    for alpha in (1e-3, 1e-9, 1e-15):
        assert torch.equal(graph(alike, p, alpha), nearest)
    torch.testing.assert_close(graph(torch.zeros_like(alike), p, 0.8), p.expand(6, -1), **CLOSE)


def test_the_simplex_leaves_its_own_points_alone():
    g = torch.Generator().manual_seed(0)
    points = torch.rand(20, 7, generator=g, dtype=torch.float64)
    points /= points.sum(1, keepdim=True)
    torch.testing.assert_close(on_simplex(points), points, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(on_simplex(points + 1e6), points, **CLOSE)
    out = on_simplex(torch.tensor([[0.2, -torch.inf, 0.4]]))
    torch.testing.assert_close(out, torch.tensor([[0.4, 0.0, 0.6]]))


def test_the_cosines_gradient_is_autograds():
    g = torch.Generator().manual_seed(3)
    w, u, rest = torch.randn(3, 5, 40, generator=g, dtype=torch.float64)
    w.requires_grad_()
    strength = torch.tensor([[0.0], [0.01], [1.0], [7.0], [0.3]], dtype=torch.float64)
    (-strength[:, 0] * cosine_similarity(w, u)).sum().backward()
    moved = aligned(w.detach(), lambda point: rest, u, strength)
    torch.testing.assert_close(moved, rest + w.grad, rtol=1e-12, atol=1e-12)
    along = aligned(2 * u, lambda point: rest, u, strength)
    torch.testing.assert_close(along, rest, rtol=1e-12, atol=1e-12)
    zero = torch.zeros_like(u)
    assert aligned(zero, lambda point: rest, zero, strength).isfinite().all()


def level(v: Tensor) -> Tensor:
    """The projection onto the simplex by bisection."""
    low, high = float(v.max()) - 1, float(v.max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if float((v - middle).clamp(min=0).sum()) > 1 else (low, middle)
    return (v - low).clamp(min=0)


@pytest.mark.parametrize(("alpha", "lam"), [(0.8, 0.01), (0.3, 0.0), (0.5, 2.0)])
def test_pfedgraph_as_its_algorithm_1(alpha, lam):
    a = federation(PFedGraph(alpha=alpha, lam=lam))
    first = row(mlp())
    u, w, x, rounds = [first] * 5, [first] * 5, torch.eye(5, dtype=torch.float64), [[1, 1, 0, 1, 1], *PRESENT]
    for k, present in enumerate(rounds, start=1):
        known = [j for j in range(5) if any(before[j] for before in rounds[: k - 1])]
        total = sum(SIZES[j] for j in known)
        shares = torch.tensor([SIZES[j] / total for j in known], dtype=torch.float64)
        for i in range(5 if known else 0):
            d = torch.stack([-cosine_similarity(w[i] - first, w[j] - first, dim=0) for j in known])
            x[i] = 0
            x[i, known] = level(shares - d / (2 * alpha))
        u = [sum(x[i, j] * w[j] for j in range(5)) for i in range(5)]
        for i in (i for i in range(5) if present[i]):
            pull = (lambda v, near=u[i]: -lam * cosine_similarity(v, near, dim=0)) if k > 1 else None
            w[i] = trained(a, u[i], a.trainer.local(a.clients, k).batches(i), pull)
    play(a, rounds)
    torch.testing.assert_close(a.state.rows["w"].params, torch.stack(w), **CLOSE)
    torch.testing.assert_close(a.models("received"), torch.stack(u), **CLOSE)
    torch.testing.assert_close(a.server.pairs["xi"], x, **CLOSE)
    assert ((x > 0) & (x < 1)).any()


def test_who_has_sent_nothing_yet_gets_fedavgs_mixture_from_pfedgraph():
    a = play(federation(PFedGraph(), own_init=True), [[1, 1, 0, 1, 0], [1, 1, 0, 1, 0]])
    _, message = a.method.server_send(a.server, 3)
    known = torch.tensor([12.0, 30.0, 21.0], dtype=torch.float64)
    mixture = (known / known.sum()) @ a.server.rows["w"].params[[0, 1, 3]]
    for i in (2, 4):
        torch.testing.assert_close(message["u"].params[i], mixture, **CLOSE)
    assert (a.server.pairs["xi"][:, [2, 4]] == 0).all()


def test_pfedgraph_held_to_the_shares_is_fedavg_fine_tuned():
    a, b = federation(PFedGraph(alpha=1e12, lam=0.0)).play(4), federation(FedAvgFT()).play(4)
    for entry in ("own", "received"):
        torch.testing.assert_close(a.models(entry), b.models(entry), **CLOSE)
    assert (federation(PFedGraph(lam=0.0)).play(4).models() - b.models()).abs().max() > 1e-3


def test_pfedgraphs_regulariser_begins_with_the_second_round():
    plain, pulled = federation(PFedGraph(lam=0.0)), federation(PFedGraph(lam=5.0))
    assert torch.equal(plain.play().models(), pulled.play().models())
    assert (plain.play().models() - pulled.play().models()).abs().max() > 1e-3
    near = [cosine_similarity(f.models(), f.models("received")) for f in (plain, pulled)]
    assert (near[1] > near[0]).all()


# FedFomo


def loss_of(a: Federation, values: Tensor, positions: Tensor) -> float:
    with torch.no_grad():
        return float(cross_entropy(module_at(values)(a.clients.x[positions]), a.clients.y[positions]))


def test_fedfomo_as_its_algorithm_1():
    seats, share = 2, 0.3
    a = federation(FedFomo(models=seats, held_out=share))
    first = row(mlp())
    w, replied = [first] * 5, [False] * 5
    affinity, seen = torch.eye(5, dtype=torch.float64), [set() for _ in range(5)]
    weights = torch.eye(5, dtype=torch.float64)
    taken = 0
    for k, present in enumerate(PRESENT, start=1):
        before, able = copy.copy(w), [j for j in range(5) if replied[j]]
        for i in (i for i in range(5) if present[i]):
            rest, held = a.trainer.local(a.clients, k).held_out(share)
            mine = held.clients.train[i]
            asked = sorted(
                (j for j in able if j != i),
                key=lambda j: (j in seen[i], -float(affinity[i, j]), float((before[i] - before[j]).norm())),
            )[:seats]
            own = loss_of(a, before[i], mine)
            gains = {j: (own - loss_of(a, before[j], mine)) / float((before[j] - before[i]).norm()) for j in asked}
            better = {j: value for j, value in gains.items() if value > 0}
            start = before[i] + sum(
                value / sum(better.values()) * (before[j] - before[i]) for j, value in better.items()
            )
            weights[i] = 0
            for j, value in better.items():
                weights[i, j] = value / sum(better.values())
            weights[i, i] = 0 if better else 1
            affinity[i] += weights[i]
            seen[i] |= set(asked)
            taken += len(better)
            w[i] = trained(a, start, rest.batches(i))
        replied = [replied[i] or bool(present[i]) for i in range(5)]
    play(a, PRESENT)
    assert taken > 3
    torch.testing.assert_close(a.state.rows["w"].params, torch.stack(w), **CLOSE)
    torch.testing.assert_close(a.server.rows["w"].params, torch.stack(w), **CLOSE)
    torch.testing.assert_close(a.server.pairs["xi"], weights, **CLOSE)
    mean = affinity / affinity.sum(1, keepdim=True)
    torch.testing.assert_close(a.server.pairs["affinity"], mean, **CLOSE)
    others = a.server.pairs["sent"] - a.server.pairs["sent"].diag().diag()
    assert [set(line.nonzero()[:, 0].tolist()) for line in others] == seen


def told(method: FedFomo, others: list[Rows]):
    return {f"other{s}": rows for s, rows in zip(range(method.models), others, strict=True)}


def test_fedfomos_weights_are_the_formulas():
    method = FedFomo(models=3, held_out=0.25)
    a = federation(method).play(2)
    w, noise = a.state.rows["w"], torch.Generator().manual_seed(1)
    others = [Rows.of(w.params + s * torch.randn(w.params.shape, generator=noise).double()) for s in (0.1, 0.3, 1.0)]
    a.k = 3
    local = a.local_for(torch.arange(5))
    _, reply = method.client_update(a.state, told(method, others), local)
    found, positive = reply["weights"].params, 0
    for i in range(5):
        mine = local.held_out(0.25)[1].clients.train[i]
        own = loss_of(a, w.params[i], mine)
        gains = [(own - loss_of(a, o.params[i], mine)) / float((o.params[i] - w.params[i]).norm()) for o in others]
        gains = [max(value, 0.0) for value in gains]
        expected = [value / sum(gains) for value in gains] if sum(gains) else [0.0] * 3
        torch.testing.assert_close(found[i, 1:], torch.tensor(expected, dtype=torch.float64), **CLOSE)
        assert float(found[i, 0]) == (0.0 if sum(gains) else 1.0)
        positive += bool(sum(gains))
    assert positive > 0


def test_fedfomo_among_equals_is_separate_on_the_rest():
    method = FedFomo(models=2)
    a = federation(method, module=mlp(norm=True, dropout=0.2), own_init=True).play(2)
    a.k = 3
    local = a.local_for(torch.arange(5))
    state, reply = method.client_update(a.state, told(method, [a.state.rows["w"]] * 2), local)
    rest, _ = local.held_out(method.held_out)
    alone, _ = Separate().client_update(a.state, {}, rest)
    assert_states_equal(state, alone)
    assert reply["weights"].params.tolist() == [[1.0, 0.0, 0.0]] * 5


def test_a_client_whose_others_are_all_worse_keeps_to_itself():
    method = FedFomo(models=2)
    a = federation(method).play(6)
    a.k = 7
    local, w = a.local_for(torch.arange(5)), a.state.rows["w"]
    noise = torch.randn(w.params.shape, generator=torch.Generator().manual_seed(2)).double()
    worse = [Rows.of(w.params + 10 * noise), Rows.of(w.params * torch.nan)]
    rest, held = local.held_out(method.held_out)
    assert (held.loss(worse[0]) > held.loss(w)).all()
    _, reply = method.client_update(a.state, told(method, [worse[0], w]), local)
    assert torch.equal(reply["w"].params, rest.run(w, descent).params)
    assert reply["weights"].params[:, 0].eq(1).all()
    assert gain(held.loss(w), held.loss(worse[1]), worse[1].params - w.params).eq(0).all()


def test_a_gain_is_finite_whatever_the_losses_are():
    """An infinite loss of one's own would give the others no shares of 1: inf / inf."""
    own = torch.tensor([[torch.inf], [torch.nan], [2.0], [2.0], [2.0]], dtype=torch.float64)
    other = torch.tensor([[1.0], [1.0], [torch.inf], [1.0], [1.0]], dtype=torch.float64)
    step = torch.tensor([[3.0, 4.0], [3.0, 4.0], [3.0, 4.0], [0.0, 0.0], [3.0, 4.0]], dtype=torch.float64)
    assert gain(own, other, step)[:, 0].tolist() == [0.0, 0.0, 0.0, 0.0, 0.2]


def test_fedfomo_trains_alone_in_its_first_round():
    """Nobody has a model to show yet, whatever the first models are."""
    a = federation(FedFomo(), own_init=True)
    start = a.state
    a.play()
    assert torch.equal(a.server.pairs["xi"], torch.eye(5, dtype=torch.float64))
    rest, _ = a.local_for(torch.arange(5)).held_out(0.2)
    assert torch.equal(a.models(), rest.run(start.rows["w"], descent).params)


def test_everyone_is_tried_and_no_choice_depends_on_numbers():
    method, order = FedFomo(models=2), torch.tensor([3, 0, 4, 1, 2])
    a, b = federation(method), federation(method)  # from one common first model
    b.clients, b.server, b.state = a.clients.take(order), a.server.take(order), a.state.take(order)
    for present in PRESENT:
        here = torch.tensor(present, dtype=torch.bool)
        a.play(present=here), b.play(present=here[order])
        assert torch.equal(method.seats(a.server)[order], order[method.seats(b.server)])
    assert_states_equal(a.server.take(order), b.server, 1e-9)
    assert_states_equal(a.state.take(order), b.state, 1e-9)
    c = federation(method).play(3)  # one round alone, then twice two of the four others
    assert (c.server.pairs["sent"] > 0).all()
    for pairs in c.server.pairs.values():
        torch.testing.assert_close(pairs.sum(1), torch.ones(5, dtype=torch.float64))


def test_after_all_were_tried_the_highest_affinity_comes_first():
    method = FedFomo(models=2)
    a = federation(method).play(3)
    affinity = torch.tensor([[9.0, 3, 1, 2, 0]] * 5, dtype=torch.float64).softmax(1)
    seats = method.seats(a.server.replace(pairs={"affinity": affinity}))
    assert seats.tolist() == [[1, 3], [0, 3], [0, 1], [0, 1], [0, 1]]


def test_fewer_others_than_seats():
    method = FedFomo(models=7)
    a = federation(method).play(2)
    _, message = method.server_send(a.server, 3)
    assert list(message) == [f"other{s}" for s in range(7)]
    own = a.server.rows["w"].params
    for i in range(5):
        sent = [message[f"other{s}"].params[i] for s in range(7)]
        assert sum(torch.equal(one, own[i]) for one in sent) == 3
        assert all(any(torch.equal(one, own[j]) for one in sent) for j in range(5))


@pytest.mark.parametrize("method", [FedFomo(models=2), PFedGraph()])
def test_no_honest_reply_is_refused(method):
    a = federation(method)
    for k, present in enumerate([[1, 1, 0, 0, 0], *PRESENT], start=1):
        a.k = k
        here = torch.tensor(present, dtype=torch.bool)
        played = play_round(method, a.server, a.state, k, a.local_for, here, checked=True)
        assert played.refused == {}
        a.server, a.state = played.server, played.clients


@pytest.mark.parametrize("sent", [[-3.0, 4.0, -1.0], [0.0, 0.0, 0.0], [-1.0, -1.0, -1.0], [5.0, 5.0, 10.0]])
def test_whatever_weights_are_sent_the_rows_stay_mixtures(sent):
    a = Federation.of("fedfomo", models=2).play(2)
    _, message = a.method.server_send(a.server, 3)
    a.k = 3
    _, reply = a.method.client_update(a.state, message, a.local_for(torch.arange(4)))
    weights = reply["weights"].params.clone()
    weights[1] = torch.tensor(sent)
    after = a.method.server_receive(a.server, {**reply, "weights": Rows.of(weights)}, torch.ones(4, dtype=torch.bool))
    for name in ("xi", "affinity"):
        assert after.pairs[name].min() >= 0
        torch.testing.assert_close(after.pairs[name].sum(1), torch.ones(4, dtype=torch.float64))
