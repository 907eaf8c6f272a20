"""Where two methods must be one and the same, and where they must not.

The best-known public FedAMP is local training under another name. These tests are what would have shown it.
"""

import math

import pytest
import torch

from fedamp.methods import APFL, FedAMP, HeurFedAMP, Scaffold
from fedamp.training.batches import Batching
from fedamp.training.optimizers import Optimizer
from helpers import Federation, mlp, plain_sgd

OPTIMIZERS = [
    Optimizer("adam", 0.01),
    Optimizer("sgd", 0.1),
    Optimizer("sgd", 0.05, momentum=0.9, weight_decay=0.01),
]
SIZES = [(10, 10, 10, 10), (5, 9, 13, 30)]


def assert_same(a: Federation, b: Federation, rounds: int, names: tuple[str, ...] = ("own",)) -> None:
    """Equal up to rounding in every round: float64, and sums that run in different orders."""
    for _ in range(rounds):
        a.play(), b.play()
        for name in names:
            torch.testing.assert_close(a.models(name), b.models(name), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_fedprox_without_pull_is_fedavg(optimizer, sizes):
    settings = {"sizes": sizes, "optimizer": optimizer, "module": mlp(norm=True, dropout=0.2)}
    a, b = Federation.of("fedprox", mu=0.0, **settings), Federation.of("fedavg", **settings)
    assert_same(a, b, rounds=5, names=("own", "received"))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("own_init", [False, True])
@pytest.mark.parametrize("method", [FedAMP(lam=0.0, start="w"), HeurFedAMP(lam=0.0, start="w")], ids=str)
@pytest.mark.many
def test_fedamp_without_pull_started_at_w_is_separate(method, own_init, optimizer, sizes):
    settings = {
        "sizes": sizes,
        "optimizer": optimizer,
        "own_init": own_init,
        "module": mlp(norm=True, dropout=0.2),
    }
    a, b = Federation.of(method, **settings), Federation.of("separate", **settings)
    for _ in range(12):
        a.play(), b.play()
        assert torch.equal(a.models(), b.models())


STARTED_AT_W = [
    FedAMP(start="w", alpha=10.0),
    FedAMP(start="w"),
    FedAMP(start="w", form="gradient", sigma=5.0),
    HeurFedAMP(start="w", alpha=10.0),
]
STARTED_AT_U = [FedAMP(), FedAMP(lam=0.0), FedAMP(form="gradient", sigma=5.0), HeurFedAMP(), HeurFedAMP(lam=0.0)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", STARTED_AT_W + STARTED_AT_U, ids=str)
def test_fedamp_is_not_separate(method, optimizer):
    """After two rounds of two steps every client has moved otherwise than alone: the pull reaches the gradient."""
    settings = {"optimizer": optimizer, "batching": Batching(4, steps=2), "own_init": True}
    a, b = Federation.of(method, **settings).play(2), Federation.of("separate", **settings).play(2)
    xi = a.rounds[-1].diagnostics["xi"]
    assert not torch.allclose(xi, torch.eye(len(xi), dtype=xi.dtype))
    apart = (a.models() - b.models()).abs().amax(1)
    assert (apart > 1e-7).all(), apart


def test_a_stronger_pull_ends_nearer_to_the_cloud_model():
    distances = []
    for lam in (0.0, 1.0, 10.0, 100.0):
        method = FedAMP(start="w", lam=lam, alpha=10.0)
        played = Federation.of(method, own_init=True, optimizer=plain_sgd(0.01), batching=Batching(10, steps=20)).play()
        last = played.rounds[-1].models
        distances.append(float((last["own"].params - last["received"].params).norm()))
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.2 * distances[0]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("lam", "alpha"), [(1.0, 10.0), (0.5, 0.5)])
def test_uniform_fedamp_is_fedprox_ft(lam, alpha, optimizer):
    settings = {"optimizer": optimizer, "module": mlp(norm=True, dropout=0.2)}
    a = Federation.of("fedamp", sigma=math.inf, self_weight="uniform", start="u", lam=lam, alpha=alpha, **settings)
    b = Federation.of("fedprox-ft", mu=lam / alpha, **settings)
    assert_same(a, b, rounds=6, names=("own", "received"))


class HeldControls(Scaffold):
    """SCAFFOLD whose clients never change their controls."""

    def client_update(self, state, message, local):
        state, reply = super().client_update(state, message, local)
        zero = type(reply["dc"]).of(torch.zeros_like(reply["dc"].params))
        return state.replace(rows={"c_i": zero}), {**reply, "dc": zero}


def test_scaffold_without_controls_is_fedavg():
    a = Federation.of(HeldControls(global_step=1.0), optimizer=plain_sgd())
    b = Federation.of("fedavg", optimizer=plain_sgd())
    assert_same(a, b, rounds=6, names=("own", "received"))


@pytest.mark.parametrize("sizes", SIZES)
def test_apfl_at_mixture_one_is_separate(sizes):
    settings = {"sizes": sizes, "optimizer": plain_sgd(), "module": mlp(norm=True, dropout=0.2)}
    a, b = Federation.of(APFL(mixture=1.0), **settings), Federation.of("separate", **settings)
    assert_same(a, b, rounds=6)
    torch.testing.assert_close(a.state.rows["v"].params, b.models(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(a.state.rows["v"].buffers, b.state.rows["w"].buffers, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mixture", [0.0, 0.3])
def test_apfls_global_model_is_unweighted_fedavg(mixture):
    a = Federation.of(APFL(mixture=mixture), optimizer=plain_sgd())
    b = Federation.of("fedavg", optimizer=plain_sgd())
    assert_same(a, b, rounds=6, names=("received",))
    torch.testing.assert_close(a.state.rows["w"].params, b.models(), rtol=1e-9, atol=1e-9)
    if mixture == 0:
        torch.testing.assert_close(a.models("own"), b.models("own"), rtol=1e-9, atol=1e-9)


def test_apfl_averages_without_weights():
    sizes = (4, 4, 4, 40)
    a = Federation.of(APFL(mixture=0.0), sizes=sizes, optimizer=plain_sgd()).play(2)
    expected = a.rounds[0].clients.rows["w"].params.mean(0)
    torch.testing.assert_close(a.models("received")[0], expected, rtol=1e-12, atol=1e-12)


def test_fedavg_weighs_by_samples():
    sizes = (4, 8, 4, 40)
    a = Federation.of("fedavg", sizes=sizes).play(2)
    shares = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
    expected = shares @ a.rounds[0].models["own"].params
    torch.testing.assert_close(a.models("received")[0], expected, rtol=1e-12, atol=1e-12)


def test_scaffolds_control_is_the_mean_of_the_clients():
    """Conservation: c = mean of c_i, with clients of unequal size, absences and a client who comes late."""
    a = Federation.of("scaffold", sizes=(5, 9, 13, 30))
    for present in ([1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 1, 0], [1, 1, 1, 1]):
        a.play(present=torch.tensor(present, dtype=torch.bool))
        _, message = a.method.server_send(a.server, a.k + 1)
        mean = a.state.rows["c_i"].params.mean(0)
        assert mean.abs().max() > 1e-3
        torch.testing.assert_close(message["c"].params[0], mean, rtol=1e-12, atol=1e-12)
    late = a.state.rows["y"][:1]
    server, state = a.server.append(a.method.server_init(late)), a.state.append(a.method.client_init(late))
    _, message = a.method.server_send(server, a.k + 1)
    torch.testing.assert_close(message["c"].params[4], state.rows["c_i"].params.mean(0), rtol=1e-12, atol=1e-12)


def test_scaffolds_control_of_a_client_is_its_mean_gradient():
    """Option II: c_i+ is the mean gradient along the client's own K_i steps; here they are found by autograd."""
    a = Federation.of("scaffold", sizes=(5, 9, 13), batching=Batching(50, epochs=3)).play()
    for i in range(3):
        w = a.rounds[0].models["received"].params[i]
        x, y = (t[a.clients.train[i]] for t in (a.clients.x, a.clients.y))
        gradients = []
        for _ in range(3):
            w = w.clone().requires_grad_()
            output, _ = a.trainer.model(w, torch.empty(0), x, training=True)
            gradients.append(torch.autograd.grad(torch.nn.functional.cross_entropy(output, y), w)[0])
            w = w.detach() - a.trainer.config.optimizer.lr * gradients[-1]
        mean = torch.stack(gradients).mean(0)
        torch.testing.assert_close(a.state.rows["c_i"].params[i], mean, rtol=1e-11, atol=1e-11)


def test_apfls_adaptive_mixture_follows_its_gradient():
    """a -= lr <v - w, gradient at the mixture>, within [0, 1]; the gradient taken by autograd through a."""
    fixed = Federation.of(APFL(mixture=0.4), optimizer=plain_sgd(0.1), own_init=True, batching=Batching(50, steps=1))
    moving = Federation.of(
        APFL(mixture=0.4, adaptive=True), optimizer=plain_sgd(0.1), own_init=True, batching=Batching(50, steps=1)
    )
    w, v = moving.server.shared["w"].params[0], moving.state.rows["v"].params.clone()
    fixed.play(), moving.play()
    for i in range(4):
        a = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
        x, y = (t[moving.clients.train[i]] for t in (moving.clients.x, moving.clients.y))
        output, _ = moving.trainer.model(a * v[i] + (1 - a) * w, torch.empty(0), x, training=True)
        (slope,) = torch.autograd.grad(torch.nn.functional.cross_entropy(output, y), a)
        expected = (0.4 - 0.1 * slope).clamp(0, 1)
        torch.testing.assert_close(moving.state.rows["a"].params[i, 0], expected, rtol=1e-9, atol=1e-12)
    assert (fixed.state.rows["a"].params == 0.4).all()
    long = Federation.of(APFL(mixture=0.9, adaptive=True), optimizer=plain_sgd(3.0), own_init=True).play(3)
    assert ((long.state.rows["a"].params >= 0) & (long.state.rows["a"].params <= 1)).all()


def test_fine_tuned_forms_are_the_same_trajectory_scored_elsewhere():
    for plain, tuned in (("fedavg", "fedavg-ft"), ("fedprox", "fedprox-ft")):
        a, b = Federation.of(plain).play(3), Federation.of(tuned).play(3)
        assert (a.method.scored, b.method.scored) == ("received", "own")
        assert torch.equal(a.models("own"), b.models("own"))
        assert torch.equal(a.models("received"), b.models("received"))
