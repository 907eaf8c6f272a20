"""Methods with personal parts: their papers' algorithms as plain loops, where they are other methods, what leaves."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedamp.methods import FedALA, FedBN, FedPer, FedRep, make_method
from fedamp.rows import Rows
from fedamp.training.batches import Batching
from fedamp.training.optimizers import Optimizer
from helpers import Federation, mlp, plain_sgd

SIZES = (5, 9, 13, 30)
PRESENT = [[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1]]
OPTIMIZERS = {"adam": (Optimizer("adam", 0.01), torch.optim.Adam), "sgd": (Optimizer("sgd", 0.1), torch.optim.SGD)}
SOME = [Optimizer("adam", 0.01), Optimizer("sgd", 0.05, momentum=0.9, weight_decay=0.01)]
HEAD = {"3.weight", "3.bias"}
NORM = {"1.weight", "1.bias", "1.running_mean", "1.running_var"}


class Loop:
    """A federation of plain modules: `w` is the server's state dict, `own` are the clients'."""

    def __init__(self, a: Federation, kind: type[torch.optim.Optimizer]) -> None:
        self.a, self.kind, self.lr = a, kind, a.trainer.config.optimizer.lr
        self.w = state(mlp(norm=True))
        self.own = [self.w for _ in SIZES]

    def local(self, k: int):
        return self.a.trainer.local(self.a.clients, k)

    def module(self, values) -> nn.Module:
        module = mlp(norm=True)
        module.load_state_dict(values, strict=False)
        return module.train()

    def losses(self, module, batches):
        for batch in batches:
            loss = cross_entropy(module(self.a.clients.x[batch]), self.a.clients.y[batch])
            module.zero_grad()
            loss.backward()
            yield loss

    def train(self, values, batches, names=None):
        """Return where a module ends whose parameters of these names are trained."""
        module = self.module(values)
        some = [value for name, value in module.named_parameters() if names is None or name in names]
        optimizer = self.kind(some, lr=self.lr)
        for _ in self.losses(module, batches):
            optimizer.step()
        return state(module)

    def average(self, who, ends) -> None:
        total = sum(SIZES[i] for i in who)
        self.w = {name: sum(SIZES[i] / total * ends[i][name] for i in who) for name in self.w}


def state(module: nn.Module) -> dict[str, torch.Tensor]:
    values = copy.deepcopy(module.state_dict())
    del values["1.num_batches_tracked"]  # nothing depends on it
    return values


def assert_same(a: Federation, rows: Rows, i: int, expected) -> None:
    got = a.trainer.model.state_dict(rows[slice(i, i + 1)])
    for name, value in expected.items():
        torch.testing.assert_close(
            got[name], value, rtol=1e-9, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}"
        )


def fedper(loop, local, i, start):
    return loop.train(start, local.batches(i))


def fedrep(loop, local, i, start):
    """Two of a round's three epochs are the head's."""
    fitted = loop.train(start, local.again(1, epochs=2).batches(i), HEAD)
    return loop.train(fitted, local.again(0, epochs=1).batches(i), loop.w.keys() - HEAD)


LOOPS = {
    "fedper": (FedPer(), HEAD, fedper),
    "fedrep": (FedRep(head_epochs=2), HEAD, fedrep),
    "fedrep, mostly head": (FedRep(head_epochs=7), HEAD, fedrep),
    "fedbn": (FedBN(), NORM, fedper),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", LOOPS)
def test_as_in_its_paper(name, optimizer):
    method, home, train = LOOPS[name]
    chosen, kind = OPTIMIZERS[optimizer]
    a = Federation.of(method, SIZES, mlp(norm=True), optimizer=chosen, batching=Batching(4, epochs=3))
    loop = Loop(a, kind)
    for k, present in enumerate(PRESENT, start=1):
        a.play(present=torch.tensor(present, dtype=torch.bool))
        who, ends = [i for i in range(4) if present[i]], {}
        for place, i in enumerate(who):
            start = {key: loop.own[i][key] if key in home else loop.w[key] for key in loop.w}
            loop.own[i] = ends[i] = train(loop, loop.local(k), i, start)
            assert_same(a, a.rounds[-1].models["received"], place, start)
            assert_same(a, a.rounds[-1].models["own"], place, ends[i])
        loop.average(who, ends)
        assert_same(a, a.server.shared["w"], 0, {key: value for key, value in loop.w.items() if key not in home})
    assert not torch.allclose(loop.own[0]["3.weight"], loop.own[1]["3.weight"])


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_fedala_as_in_its_paper(optimizer, layers):
    chosen, kind = OPTIMIZERS[optimizer]
    method = FedALA(eta=30.0, layers=layers, first_passes=3)
    a = Federation.of(method, SIZES, mlp(norm=True), optimizer=chosen, batching=Batching(4, epochs=2))
    loop, learned = Loop(a, kind), [False] * 4
    mixed = [name for name, _ in mlp(norm=True).named_parameters() if layers == 2 or name in HEAD]
    weights = [{name: torch.ones_like(loop.w[name]) for name in mixed} for _ in SIZES]
    for k, present in enumerate(PRESENT, start=1):
        a.play(present=torch.tensor(present, dtype=torch.bool))
        who, ends = [i for i in range(4) if present[i]], {}
        for place, i in enumerate(who):
            own, w, start = loop.own[i], loop.w, dict(loop.w)
            if any(not torch.equal(own[name], w[name]) for name in mixed):
                samples = loop.local(k).held_out(0.2)[0]
                for number in range(1, 2 if learned[i] else 4):
                    for batch in samples.again(number, epochs=1).batches(i):
                        module = loop.module({**w, **mixture(own, w, weights[i])})
                        next(loop.losses(module, [batch]))
                        for name, value in module.named_parameters():
                            if name in mixed:
                                slope = value.grad * (w[name] - own[name])
                                weights[i][name] = (weights[i][name] - 30.0 * slope).clamp(0, 1)
                learned[i] = True
                start = {**w, **mixture(own, w, weights[i])}
            loop.own[i] = ends[i] = loop.train(start, loop.local(k).batches(i))
            assert_same(a, a.rounds[-1].models["own"], place, ends[i])
            assert_same(a, a.rounds[-1].models["received"], place, w)
            found = a.trainer.model.state_dict(
                Rows(a.state.rows["a"].params, a.state.rows["w"].buffers)[slice(i, i + 1)]
            )
            for name in mixed:
                torch.testing.assert_close(found[name], weights[i][name], rtol=1e-9, atol=1e-9)
        loop.average(who, ends)
        assert_same(a, a.server.shared["w"], 0, loop.w)
    found = torch.cat([value.flatten() for each in weights for value in each.values()])
    assert (found == 0).any()
    assert ((found > 0) & (found < 1)).any()
    untouched = a.state.rows["a"].params[:, : 0 if layers == 2 else -24]
    assert (untouched == 1).all()


def mixture(own, w, weights):
    return {name: own[name] + (w[name] - own[name]) * weights[name] for name in weights}


def assert_equal(a: Federation, b: Federation, names=("own", "received"), rounds: int = 4) -> None:
    """Bit for bit, with an absent client."""
    for present in PRESENT[:rounds]:
        a.play(present=torch.tensor(present, dtype=torch.bool)), b.play(present=torch.tensor(present, dtype=torch.bool))
        for name in names:
            one, other = a.rounds[-1].models[name], b.rounds[-1].models[name]
            assert torch.equal(one.params, other.params)
            assert torch.equal(one.buffers, other.buffers)


@pytest.mark.parametrize("optimizer", SOME, ids=str)
@pytest.mark.parametrize(
    ("method", "twin", "norm"),
    [(FedPer(head=0), "fedavg", True), (FedBN(), "fedavg", False), (FedALA(eta=0.0), "fedavg-ft", True)],
    ids=str,
)
def test_nothing_at_home_is_fedavg(method, twin, norm, optimizer):
    settings = {"sizes": SIZES, "module": mlp(norm=norm, dropout=0.2), "optimizer": optimizer, "own_init": True}
    if isinstance(method, FedALA):  # with first models of their own clients would learn in the first round already
        settings["own_init"] = False
    assert_equal(Federation.of(method, **settings), Federation.of(twin, **settings))


@pytest.mark.parametrize("optimizer", SOME, ids=str)
@pytest.mark.parametrize("own_init", [False, True])
def test_all_at_home_is_separate(own_init, optimizer):
    settings = {"sizes": SIZES, "module": mlp(norm=True, dropout=0.2), "optimizer": optimizer, "own_init": own_init}
    assert_equal(Federation.of(FedPer(head=2), **settings), Federation.of("separate", **settings), names=("own",))


PARTS = [FedPer(), FedPer(head=2), FedRep(), FedBN()]


def mask(a: Federation):
    return a.method.at_home(a.trainer.local(a.clients, 1))


@pytest.mark.parametrize("method", PARTS, ids=str)
def test_nothing_of_a_personal_part_leaves_a_client(method):
    a = Federation.of(method, SIZES, mlp(norm=True, dropout=0.2), own_init=True).play(2)
    home = mask(a)
    _, message = method.server_send(a.server, 3)
    a.k = 3
    state, reply = method.client_update(a.state, message, a.local_for(torch.arange(4)))
    assert home.params.any()
    assert torch.equal(reply["w"].params[:, home.params], message["w"].params[:, home.params])
    assert torch.equal(reply["w"].buffers[:, home.buffers], message["w"].buffers[:, home.buffers])
    assert (reply["w"].params[:, ~home.params] == state.rows["w"].params[:, ~home.params]).all()
    assert (reply["w"].params[:, ~home.params] != message["w"].params[:, ~home.params]).all()
    assert (state.rows["w"].params[:, home.params] != message["w"].params[:, home.params]).all()
    assert reply.keys() == {"w", "samples"}


@pytest.mark.parametrize("method", PARTS, ids=str)
def test_personal_parts_never_mix(method):
    """What a client gets is the server's outside of its part, and its own inside: as it was when the model came."""
    a = Federation.of(method, SIZES, mlp(norm=True))
    first, home = a.trainer.model.row(), mask(a)
    for present in PRESENT:
        before = a.state.rows["w"]
        here = torch.tensor(present, dtype=torch.bool)
        a.play(present=here)
        got = a.rounds[-1].models["received"]
        assert torch.equal(got.params[:, home.params], before[here].params[:, home.params])
        assert torch.equal(got.buffers[:, home.buffers], before[here].buffers[:, home.buffers])
        server = a.server.shared["w"]
        torch.testing.assert_close(server.params[:, home.params], first.params[:, home.params], rtol=0, atol=1e-14)
        torch.testing.assert_close(server.buffers[:, home.buffers], first.buffers[:, home.buffers], rtol=0, atol=1e-14)
    inside = a.models("received")[:, home.params]
    assert all((inside[i] != inside[j]).any() for i in range(4) for j in range(i))


@pytest.mark.parametrize("method", PARTS, ids=str)
def test_what_would_be_sent_next_is_scored_as_it_will_be(method):
    """Before a client has trained from a model, its own part is that of its last training: also if it was away."""
    a = Federation.of(method, SIZES, mlp(norm=True)).play().play(present=torch.tensor([True, False, True, True]))
    _, message = method.server_send(a.server, 3)
    before = method.client_models(a.state, message)["received"]
    a.play()
    after = a.rounds[-1].models["received"]
    assert torch.equal(before.params, after.params)
    assert torch.equal(before.buffers, after.buffers)
    _, message = method.server_send(a.server, 4)
    assert not torch.equal(method.client_models(a.state, message)["received"].params, after.params)


@pytest.mark.parametrize(
    ("batching", "head", "body"),
    [
        (Batching(4, epochs=5), 3, 2),
        (Batching(4, epochs=3), 2, 1),
        (Batching(4, epochs=2), 1, 1),
        (Batching(4, epochs=1), 1, 1),
        (Batching(4, steps=7), 3, None),
    ],
    ids=str,
)
def test_fedrep_splits_a_rounds_epochs(batching, head, body, monkeypatch):
    a = Federation.of(FedRep(head_epochs=3), SIZES, batching=batching)
    local, asked = a.trainer.local(a.clients, 1), []
    again = type(local).again

    def watched(self, number=1, **settings):
        asked.append((number, settings["epochs"]))
        return again(self, number, **settings)

    monkeypatch.setattr(type(local), "again", watched)
    a.method.train(a.state.rows["w"], local)
    assert asked == [(1, head), (0, body)]


def test_fedala_learns_each_client_for_itself():
    """In one stack: one that has learned before, one that learns for the first time, one whose models are equal."""
    a = Federation.of(FedALA(eta=20.0, first_passes=4), SIZES[1:], mlp(norm=True), optimizer=plain_sgd()).play(2)
    w = a.server.shared["w"]
    fresh, apart = a.method.client_init(w), a.method.client_init(Rows(w.params + 0.3, w.buffers))
    a.state = a.state.put(torch.tensor([1]), fresh).put(torch.tensor([2]), apart)
    _, message = a.method.server_send(a.server, 3)
    a.k = 3
    together, _ = a.method.client_update(a.state, message, a.local_for(torch.arange(3)))
    for i in range(3):
        one = torch.tensor([i])
        mine = {name: rows[one] for name, rows in message.items()}
        alone, _ = a.method.client_update(a.state.take(one), mine, a.local_for(one))
        for name, rows in alone.rows.items():
            torch.testing.assert_close(together.rows[name].params[one], rows.params, rtol=1e-12, atol=1e-12)
    assert together.rows["learned"].params[:, 0].tolist() == [1, 0, 1]
    assert (together.rows["a"].params[1] == 1).all()
    for i in (0, 2):
        assert (together.rows["a"].params[i] != a.state.rows["a"].params[i]).any()


@pytest.mark.parametrize("method", ["fedper", "fedrep"])
@pytest.mark.parametrize("given", [{"head": -1}, {"head": 1.5}])
def test_a_head_is_a_number_of_layers(method, given):
    with pytest.raises(ValueError, match=r"head is .* expected a whole number of 0 or more"):
        make_method(method, **given)


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("fedrep", {"head_epochs": 0}, "head_epochs is 0; expected a whole number of 1 or more"),
        ("fedala", {"layers": 0}, "layers is 0; expected a whole number of 1 or more"),
        ("fedala", {"first_passes": 0}, "first_passes is 0"),
        ("fedala", {"eta": -1}, "eta is -1; expected a finite number of 0 or more"),
    ],
)
def test_other_values_are_checked(method, given, message):
    with pytest.raises(ValueError, match=message):
        make_method(method, **given)
