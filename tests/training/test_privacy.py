"""Training with each sample protected: what is released, what one sample can change of it, and what that is counted as.

`revealed` is the gradient times its divisor: what the noise must hide one sample in.
"""

import math
from collections import Counter
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedamp.data.clients import Clients
from fedamp.methods.base import descent
from fedamp.models import unfolded
from fedamp.models.flat_model import FlatModel
from fedamp.models.zoo import cnn_small
from fedamp.privacy.events import Event
from fedamp.privacy.promise import Privacy
from fedamp.rows import Rows
from fedamp.training.batches import Batching
from fedamp.training.config import TrainingConfig
from fedamp.training.optimizers import Optimizer
from fedamp.training.private import sample_gradients
from fedamp.training.trainer import Trainer
from helpers import Federation, data, mlp

ENGINES = ("loop", "stacked")
SIZES = (10, 5, 23, 10)


def promise(z=0.7, clip=0.5, secret=None, clients=4) -> Privacy:
    return Privacy(clip, dict.fromkeys(range(clients), z), secret)


def training(engine="loop", privacy=None, clients=None, module=None, batching=None, optimizer=None, k=3, **more):
    """Return a round's training, and where it starts."""
    model = FlatModel(mlp() if module is None else module)
    clients = data(SIZES) if clients is None else clients
    config = TrainingConfig(
        optimizer or Optimizer("sgd", 1.0), batching or Batching(4, epochs=1), engine=engine, privacy=privacy, **more
    )
    return Trainer(model, config).local(clients, k), model.row().repeat(len(clients))


def gradients(local, start, calls=1) -> Tensor:
    """Return the gradients at the start, `(n, steps * calls, d)`: nothing moves."""
    found = [[] for _ in range(len(start))]

    def record(w: Tensor, grad, who: Tensor) -> Tensor:
        for gradient in [grad(w) for _ in range(calls)]:
            for i, row in zip(who[:, 0].tolist(), gradient, strict=True):
                found[i].append(row)
        return torch.zeros_like(w)

    local.run(start, record, who=torch.arange(len(start))[:, None])
    return torch.stack([torch.stack(rows) for rows in found])


# What is released


def reference(model: FlatModel, row: Rows, x: Tensor, y: Tensor, clip: float) -> Tensor:
    """Return the sum of clipped gradients as one would write it down."""
    total = torch.zeros_like(row.params[0])
    for one, label in zip(x, y, strict=True):
        at = row.params[0].clone().requires_grad_()
        output, _ = model(at, row.buffers[0], one[None], training=True)
        (gradient,) = torch.autograd.grad(cross_entropy(output, label[None]), at)
        total += gradient * min(1.0, clip / float(gradient.norm()))
    return total


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("portion", [None, 1, 200])
def test_the_gradient_is_the_sum_of_clipped_ones_over_the_number_to_be_expected(engine, portion, monkeypatch):
    if portion is not None:
        monkeypatch.setattr(sample_gradients, "VALUES", portion)
    clients = data((12, 12, 12))
    local, start = training(engine, promise(z=0.0, clip=1.4), clients, batching=Batching(5, steps=4))
    found = gradients(local, start)
    streams = local.streams
    for i in range(3):
        stream = streams.draws(i)
        for t in range(4):
            chosen = clients.train[i][torch.from_numpy(stream.random(12) < 5 / 12)]
            x, y = clients.samples(chosen)
            expected = reference(local.trainer.model, start[slice(i, i + 1)], x, y, 1.4) / 5
            torch.testing.assert_close(found[i, t], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_with_convolutions_as_products_the_gradients_are_the_same(engine, monkeypatch):
    clients = Clients(
        torch.rand(24, 8, 8, generator=torch.Generator().manual_seed(0)).double(),
        torch.arange(24) % 3,
        torch.arange(24).split(12),
        (0, 1),
    )
    module = cnn_small((8, 8), 3).double()
    found = {}
    product = Mock(wraps=unfolded.unfolded_conv2d)
    monkeypatch.setattr(unfolded, "unfolded_conv2d", product)
    for devices in ((), ("cpu",)):
        monkeypatch.setattr(sample_gradients, "UNFOLDED", devices)
        local, start = training(engine, promise(), clients, module, Batching(5, steps=3))
        found[devices] = gradients(local, start)
        assert product.called == bool(devices)
    torch.testing.assert_close(found[("cpu",)], found[()], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", ["separate", "fedamp", "scaffold"])
def test_without_noise_and_clipping_and_with_all_samples_it_is_plain_training(engine, method):
    found = []
    for privacy in (None, promise(z=1e-12, clip=1e6)):
        a = Federation.of(method, sizes=SIZES, own_init=True, batching=Batching(30, epochs=3))
        a.trainer = a.trainer.changed(engine=engine, privacy=privacy)
        found.append(a.play(2).models())
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)
    assert not torch.equal(*found)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_noise_has_its_variance_and_is_drawn_anew_for_each_client_step_call_pass_and_round(engine):
    """Exact: the difference to the same training without noise, which has the same minibatches."""
    width, clip, sizes = 500, 0.5, (8, 20, 20)
    g = torch.Generator().manual_seed(0)
    pairs = [(torch.randn(n, width, generator=g).double(), torch.randint(0, 4, (n,), generator=g)) for n in sizes]
    z, noises = {0: 0.5, 1: 1.0, 2: 3.0}, []
    for k in (1, 2):
        parts = []
        for noise in (z, dict.fromkeys(z, 0.0)):
            local, start = training(
                engine,
                Privacy(clip, noise, secret=5),
                Clients.of(pairs),
                nn.Linear(width, 4).double(),
                Batching(10, steps=2),
                k=k,
            )
            start = Rows(torch.zeros_like(start.params), start.buffers)
            parts.append(torch.cat([gradients(one, start, calls=2) for one in (local, local.again(0))], 1))
        noises.append(parts[0] - parts[1])
    expected = torch.tensor([[[z[i] * clip / min(10, n)]] for i, n in enumerate(sizes)])
    scaled = (torch.cat(noises, 1) / expected).flatten(0, 1)
    d = scaled.shape[1]
    assert len(scaled) == 2 * 2 * 2 * 2 * 3  # rounds, passes, steps, calls, clients
    assert (scaled.std(1) - 1).abs().max() < 4.5 / math.sqrt(2 * d)
    assert scaled.mean(1).abs().max() < 4.5 / math.sqrt(d)
    assert ((scaled**4).mean() - 3).abs() < 4.5 * math.sqrt(96 / scaled.numel())
    apart = torch.corrcoef(scaled) - torch.eye(len(scaled))
    assert apart.abs().max() < 5 / math.sqrt(d)


# What one sample can change


class Mixing(nn.Module):
    """A module in which each sample sees the others of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x + 3 * x.mean(0)) * x.norm()


class Plain(nn.Module):
    """A module that vmap can't handle: it looks at a value."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x) if float(x.detach().flatten()[0]) > -1e30 else self.module(-x)


class Drawing(nn.Module):
    """A module with randomness that is not dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x * torch.rand(()))


MODELS = {
    "mlp": (mlp(dropout=0.3), (6,)),
    "cnn-small": (cnn_small((4, 4), 3).double(), (4, 4)),
    "mixing": (Mixing().double(), (6,)),
    "drawing": (Drawing().double(), (6,)),
    "no vmap": (Plain(Mixing().double()), (6,)),
}
STRANGE = {"usual": 1.0, "huge": 1e150, "nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("value", STRANGE)
def test_one_sample_more_changes_what_is_revealed_by_no_more_than_the_clip(engine, name, value):
    module, shape = MODELS[name]
    if engine == "stacked" and name in ("no vmap", "drawing"):
        pytest.skip("it trains one at a time")
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(13, *shape, generator=g, dtype=torch.float64), torch.randint(0, 3, (13,), generator=g)
    x[12] *= STRANGE[value]
    other, clip, changes = (x[:4].clone(), y[:4]), 0.01, []
    for secret in range(6):
        found = []
        for size in (12, 13):
            clients = Clients.of([(x[:size], y[:size]), other])
            local, start = training(
                engine, promise(0.0 if secret % 2 else 1.0, clip, secret), clients, module, Batching(6, steps=1)
            )
            local._known = (12, 12)  # the number is public
            found.append(gradients(local, start)[0] * 6)
        change = float((found[1] - found[0]).norm())
        assert change <= clip * (1 + 1e-9)
        assert torch.isfinite(found[1]).all()
        changes.append(change)
    assert min(changes) == 0, "it was in no minibatch"
    if value == "usual":
        assert max(changes) > 0.1 * clip
    elif value != "huge":
        assert max(changes) < 1e-12 * clip  # rounding, since sums of other lengths are taken


@pytest.mark.parametrize("z", [1e-30, 1.0])
def test_a_gradient_too_long_to_measure_counts_as_none(z):
    parts = [torch.tensor([[[3.0, 4.0], [1e30, 0.0], [math.inf, 0.0], [math.nan, 1.0], [30.0, 40.0], [1.0, 1.0]]])]
    present = torch.tensor([[True, True, True, True, True, False]])
    found = sample_gradients.clipped_sum(parts, present, 10.0 * z)
    expected = torch.tensor([[0.6, 0.8]]) * (min(5.0, 10.0 * z) + 10.0 * z)
    torch.testing.assert_close(found, expected)


# The two ways


@pytest.mark.parametrize(
    "method", ["separate", "fedamp", "apfl", "ditto", "per-fedavg", "fedrep", "scaffold", "autoamp", "ifca", "fedfomo"]
)
def test_stacked_is_the_loop(method):
    models, spent, noise = [], [], []
    for engine in ENGINES:
        a = Federation.of(method, sizes=SIZES, module=mlp(dropout=0.3), own_init=True)
        locals_, local_for = [], a.local_for
        a.trainer = a.trainer.changed(engine=engine, privacy=Privacy(0.5, {i: 0.5 + i / 10 for i in range(4)}))
        a.local_for = lambda who, of=local_for, to=locals_: to.append(of(who)) or to[-1]
        a.play(1).play(1, torch.tensor([True, False, True, True])).play(1)
        models.append(a.models())
        spent.append([local.spent for local in locals_])
        noise.append([local.noise(name) for local in locals_ for name in local.variances])
    torch.testing.assert_close(*models, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(*noise, rtol=1e-9, atol=0)
    assert spent[0] == spent[1]
    assert all(all(clients) for clients in spent[0])


def test_a_client_alone_has_the_noise_and_the_minibatches_that_it_has_among_others():
    clients = data(SIZES)
    local, start = training("stacked", promise(), clients)
    together = local.run(start, descent).params
    for i in range(4):
        alone, _ = training("loop", promise(), clients.take(torch.tensor([i])))
        found = alone.run(start[slice(i, i + 1)], descent)
        torch.testing.assert_close(found.params[0], together[i], rtol=1e-9, atol=1e-9)


def test_a_module_that_vmap_cant_handle_is_trained_sample_by_sample():
    found = []
    for module in (Mixing().double(), Plain(Mixing().double())):
        nn.init.constant_(next(module.parameters()), 0.3)
        torch.nn.init.zeros_(list(module.parameters())[1])
        local, start = training(privacy=promise(), module=module)
        found.append(local.run(start, descent).params)
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
    assert not local.trainer.sample_gradients.by_vmap


class Renormed(nn.Module):
    """A module that shrinks its weights in place, by what it sees: that would show in the row."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.layer.weight.data.mul_(x.detach().abs().max().clamp(max=0.9))
        return self.layer(x)


def test_what_a_pass_writes_into_the_weights_is_forgotten():
    """Else it would leave without noise, and one sample's pass would change another's gradient."""
    local, start = training(privacy=promise(0.0, 1e9), module=Renormed().double(), batching=Batching(30, steps=2))
    before = start.params.clone()

    def stay(w: Tensor, grad) -> Tensor:
        return 0 * grad(w)

    assert torch.equal(local.run(start, stay).params, before)
    local.loss(start)
    assert torch.equal(start.params, before)
    found = gradients(local, start)
    for i in range(4):
        x, y = local.clients.samples(local.clients.train[i])
        expected = reference(local.trainer.model, Rows(before[i : i + 1].clone(), start.buffers[:1]), x, y, 1e9)
        torch.testing.assert_close(found[i, 0], expected / len(y), rtol=1e-9, atol=1e-12)


def test_other_randomness_comes_from_the_secret_and_leaves_the_global_stream_alone():
    found = []
    for secret in (1, 1, 2):
        local, start = training(
            privacy=promise(0.0, secret=secret), module=Drawing().double(), batching=Batching(30, steps=2)
        )
        before = torch.get_rng_state()
        found.append(gradients(local, Rows(torch.full_like(start.params, 0.1), start.buffers)))
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert not torch.equal(found[0][:, 0], found[0][:, 1]), "another one at each step"


@pytest.mark.parametrize("engine", ENGINES)
def test_dropout_drops_differently_for_each_sample_and_alike_for_one_sample(engine):
    """All samples are the same one: what they have of their own is the mask."""
    x, y = torch.ones(40, 6, dtype=torch.float64), torch.zeros(40, dtype=torch.long)
    clients = Clients.of([(x, y), (x, y)])
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)).double()
    same = promise(0.0, 1e9, clients=2), clients, module, Batching(40, steps=2)
    local, start = training(engine, *same)
    found = gradients(local, start, calls=2)  # (2, 4, 21): two steps with two gradients each
    assert torch.equal(found[:, 0], found[:, 1]), "two gradients of one minibatch meet the same masks"
    assert not torch.equal(found[:, 1], found[:, 2])
    assert not torch.equal(found[0], found[1])
    zero = Rows(
        torch.zeros_like(start.params), start.buffers
    )  # all outputs alike: an input's gradient counts its masks
    at_zero = gradients(training(engine, *same)[0], zero)
    kept = at_zero[..., :18].unflatten(-1, (3, 6)) / at_zero[..., 18:, None]
    assert (kept - 1).abs().max() < 4.5 / math.sqrt(40)
    assert kept[0, 0, 0].unique().numel() > 1


# Minibatches that are empty, and parts


@pytest.mark.parametrize("engine", ENGINES)
def test_an_empty_minibatch_is_a_step_of_pure_noise(engine):
    clients = data((30, 30))
    quiet, start = training(engine, promise(0.0, clients=2), clients, batching=Batching(1, steps=25))
    empty = [not row.any() for row in gradients(quiet, start).flatten(0, 1)]
    assert 5 < sum(empty) < 40, "50 with a chance of (29/30)^30 each"
    noisy, _ = training(engine, promise(1.0, clients=2), clients, batching=Batching(1, steps=25))
    assert gradients(noisy, start).all()
    assert noisy.spent == [Counter({Event(1 / 30, 1.0): 25})] * 2


@pytest.mark.parametrize("engine", ENGINES)
def test_the_parts_of_a_minibatch_make_up_all_of_it(engine):
    local, start = training(engine, promise(0.0), data((30, 30)), batching=Batching(10, steps=3))
    seen = []

    def record(w: Tensor, grad) -> Tensor:
        whole, halves = grad(w), [grad(w, part=(i, 2)) for i in (1, 2)]
        thirds = [grad(w, part=(i, 3)) for i in (1, 2, 3)]
        torch.testing.assert_close(sum(halves) / 2, whole, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(sum(thirds) / 3, whole, rtol=1e-9, atol=1e-12)
        seen.append((whole - halves[0]).abs().max())
        return torch.zeros_like(w)

    local.run(start, record)
    assert max(seen) > 0
    with pytest.raises(ValueError, match=r"part is \(3, 2\); expected"):
        local.run(start, lambda w, grad: grad(w, part=(3, 2)))


def silo_rows(size: int) -> Clients:
    g = torch.Generator().manual_seed(4)
    x, y = torch.randn(60, 6, generator=g, dtype=torch.float64), torch.randint(0, 3, (60,), generator=g)
    return replace(Clients.of([(x[:size], y[:size])]), digests=tuple(bytes([i]) * 16 for i in range(size)))


@pytest.mark.parametrize("make", [lambda size: data((size,)), silo_rows], ids=["by index", "by content"])
def test_one_sample_more_changes_no_other_samples_part(make):
    one = torch.ones(1, 1)
    for size in (4, 5, 9, 50):
        sides = []
        for count in (size, size + 1):
            clients = make(60)
            clients = replace(clients, train=(clients.train[0][:count],))
            local, _ = training(privacy=promise(), clients=clients)
            halves = [local.part(one * which) for which in (1, 2)]
            apart = [*halves, *local.held_out(0.3)]
            sides.append([set(part.clients.train[0].tolist()) for part in apart])
            for first, second in (apart[:2], apart[2:]):
                assert not set(first.clients.train[0].tolist()) & set(second.clients.train[0].tolist())
                assert sum(len(part.clients.train[0]) for part in (first, second)) == count
                assert int(first.sizes + second.sizes) == count
            assert [int(part.sizes) for part in halves] == [count // 2, count - count // 2]
        for few, more in zip(*sides, strict=True):
            assert few <= more
            assert more - few <= {size}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_part_with_no_samples_is_noise_with_the_rate_that_is_known(engine):
    local, start = training(engine, promise(), data((4, 4)), batching=Batching(1, steps=5))
    none = local._on((local.clients.train[0][:0], local.clients.train[1]), (2, 2))
    none.run(start, descent)
    assert local.spent[0] == local.spent[1] == Counter({Event(0.5, 0.7): 5})
    assert none.loss(start).shape == (2, 1)


# What is counted


def counted(ask, **settings):
    """Return what a client of 10 samples in minibatches of 4 spends."""
    local, start = training(privacy=promise(z=0.8), clients=data((10, 10)), **settings)
    ask(local, start)
    assert local.spent[0] == local.spent[1]
    return {(event.rate, round(event.noise, 12)): count for event, count in local.spent[0].items()}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_spent(engine):
    def asks(*parts):
        def direction(w, grad):
            return sum(grad(w, part=part) for part in parts)

        return lambda local, w: local.run(w, direction)

    root = round(0.8 / math.sqrt(2), 12)
    assert counted(lambda local, w: local.run(w, descent), engine=engine) == {(0.4, 0.8): 3}
    assert counted(asks((1, 1), (1, 1)), engine=engine) == {(0.4, root): 3}
    assert counted(asks((1, 2), (2, 2)), engine=engine) == {(0.4, 0.8): 3}
    assert counted(asks((1, 3), (2, 3), (3, 3), (3, 3)), engine=engine) == {(0.4, root): 3}
    assert counted(lambda local, w: local.run(w, lambda w, grad: w), engine=engine) == {}
    assert counted(lambda local, w: local.again(2, epochs=4).run(w, descent), engine=engine) == {(0.4, 0.8): 12}
    half = torch.ones(2, 1)
    assert counted(lambda local, w: local.part(half).run(w, descent), engine=engine) == {(0.8, 0.8): 1}
    assert counted(lambda local, w: local.loss(w), engine=engine) == {(0.4, 0.8): 2}
    assert counted(lambda local, w: local.held_out(0.2)[1].loss(w), engine=engine) == {(1.0, 0.8): 1}

    def several(local, w):
        local.run(w, descent)
        local.again(1).run(w, descent)
        local.part(half).run(w, descent)
        local.at_home().run(w, descent)
        local.at_home().loss(w)

    assert counted(several, engine=engine) == {(0.4, 0.8): 6, (0.8, 0.8): 1}


def test_methods_spend_what_they_ask_for():
    steps = 3
    for method, expected in {
        "separate": {0.5: steps},
        "apfl": {0.5 / math.sqrt(2): steps},
        "ditto": {0.5: 2 * steps},
        "fedamp": {0.5: steps},
    }.items():
        a = Federation.of(method, sizes=(10, 10))
        a.trainer = a.trainer.changed(privacy=promise(z=0.5))
        local = a.local_for(torch.arange(2))
        _, message = a.method.server_send(a.server, 1)
        a.method.client_update(a.state, message, local)
        assert local.spent[0] == {Event(0.4, noise): count for noise, count in expected.items()}, method


def test_a_chunk_that_did_not_fit_is_counted_once():
    local, start = training("stacked", promise())
    whole, _ = training("stacked", promise())
    expected = whole.run(start, descent)
    fails = iter([False, False, True])  # after some steps
    real = local.trainer.sample_gradients.clipped_sum

    def out_of_memory(*arguments):
        if next(fails, False):
            raise torch.OutOfMemoryError
        return real(*arguments)

    local.trainer.sample_gradients.clipped_sum = out_of_memory
    found = local.run(start, descent)
    torch.testing.assert_close(found.params, expected.params, rtol=1e-9, atol=1e-9)
    assert local.spent == whole.spent
    assert "did not fit" in local.trainer.take_events()[0]


def test_at_home_it_is_plain_training():
    plain, start = training()
    private, _ = training(privacy=promise(secret=9))
    home = private.at_home()
    assert torch.equal(home.run(start, descent).params, plain.run(start, descent).params)
    assert torch.equal(home.loss(start), plain.loss(start))
    assert not any(private.spent)
    assert not home.noise().any()
    assert torch.equal(home.part(torch.ones(4, 1)).sizes, plain.part(torch.ones(4, 1)).sizes)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_secret_changes_minibatches_and_noise_and_one_secret_repeats_them(engine):
    found = {}
    for secret in (None, 1, 1 << 100, 1):
        for z in (0.0, 1.0):
            local, start = training(engine, promise(z, secret=secret))
            found.setdefault((secret, z), []).append(local.run(start, descent).params)
    for z in (0.0, 1.0):
        assert torch.equal(*found[1, z])
        assert not torch.equal(found[1, z][0], found[None, z][0])
        assert not torch.equal(found[1, z][0], found[1 << 100, z][0])
    noises = [found[secret, 1.0][0] - found[secret, 0.0][0] for secret in (None, 1, 1 << 100)]
    assert torch.corrcoef(torch.stack(noises).flatten(1)).triu(1).abs().max() < 0.4
