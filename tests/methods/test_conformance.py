"""What every method must pass. A new method is added to METHODS and comes under this by itself."""

import ast
import inspect
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from fedamp.data.clients import Clients
from fedamp.methods import METHODS, make_method
from fedamp.methods.base import GROUPS
from fedamp.rows import Rows, State
from fedamp.runs.parts import check_optimizer
from fedamp.runs.round import play_round
from fedamp.training.batches import Batching
from fedamp.training.optimizers import Optimizer
from helpers import ALL, Federation, assert_states_equal, data, frozen, mlp

everywhere = pytest.mark.parametrize("name", ALL)
SIZES = (5, 9, 13, 4, 20)


def federation(name: str, **settings) -> Federation:
    """All that can go wrong at once: unequal clients, BatchNorm, Dropout, own first models."""
    given = {"sizes": SIZES, "module": mlp(norm=True, dropout=0.2), "own_init": True, **settings}
    return Federation.of(name, **given)


@everywhere
def test_together_is_one_by_one(name):
    """A stack of n clients is n stacks of height one: what the engine proves holds in a silo."""
    a = federation(name).play(2)
    _, message = a.method.server_send(a.server, 3)
    a.k = 3
    together, reply = a.method.client_update(a.state, message, a.local_for(torch.arange(5)))
    models = a.method.client_models(together, message)
    for i in range(5):
        one = torch.tensor([i])
        mine = {key: rows[one] for key, rows in message.items()}
        alone, answer = a.method.client_update(a.state.take(one), mine, a.local_for(one))
        assert_states_equal(together.take(one), alone, 1e-12)
        for key, rows in answer.items():
            torch.testing.assert_close(rows.params, reply[key].params[one], rtol=1e-12, atol=1e-12)
        for key, rows in a.method.client_models(alone, mine).items():
            torch.testing.assert_close(rows.params, models[key].params[one], rtol=1e-12, atol=1e-12)


@everywhere
def test_a_silo_holds_its_own_data_alone(name):
    """The same update from a Clients of one, with the client's number but nobody else's samples."""
    a = federation(name).play()
    _, message = a.method.server_send(a.server, 2)
    a.k = 2
    two = torch.tensor([2])
    mine = {key: rows[two] for key, rows in message.items()}
    inside, _ = a.method.client_update(a.state.take(two), mine, a.local_for(two))
    positions = a.clients.train[2]
    silo = Clients.of([(a.clients.x[positions], a.clients.y[positions])], numbers=[2])
    outside, _ = a.method.client_update(a.state.take(two), mine, a.trainer.local(silo, 2))
    assert_states_equal(inside, outside)


@everywhere
def test_permuting_clients_permutes_results(name):
    order = torch.tensor([3, 0, 4, 1, 2])
    a, b = federation(name), federation(name)
    b.clients = a.clients.take(order)
    b.server = b.server.take(order)
    b.state = b.state.take(order)
    present = torch.tensor([True, False, True, True, True])
    for _ in range(3):
        a.play(present=present), b.play(present=present[order])
    assert_states_equal(a.server.take(order), b.server, 1e-9)
    assert_states_equal(a.state.take(order), b.state, 1e-9)


@everywhere
def test_states_passed_in_are_unchanged(name):
    a = federation(name).play()
    server, state = a.server, a.state
    before = frozen(server), frozen(state)
    a.play(2)
    assert_states_equal(server, before[0])
    assert_states_equal(state, before[1])
    assert {f.name for f in fields(a.method)} == set(vars(a.method)), "a method's attributes are hyperparameters"


@everywhere
def test_a_round_played_twice_is_the_same(name):
    a = federation(name).play()
    arguments = a.method, a.server, a.state, 2, lambda who: a.trainer.local(a.clients.take(who), 2)
    everyone = torch.ones(5, dtype=torch.bool)
    first, second = (play_round(*arguments, everyone) for _ in range(2))
    assert_states_equal(first.server, second.server)
    assert_states_equal(first.clients, second.clients)


@everywhere
def test_absent_clients_keep_what_they_have(name):
    a = federation(name).play()
    before = frozen(a.state)
    present = torch.tensor([True, False, True, False, True])
    a.play(present=present)
    away = (~present).nonzero()[:, 0]
    assert_states_equal(a.state.take(away), before.take(away))
    assert all(len(rows) == 3 for rows in a.rounds[-1].models.values())
    for rows in a.state.take(present.nonzero()[:, 0]).rows.values():
        assert rows.params.isfinite().all()


@everywhere
def test_absent_clients_do_not_speak(name):
    """What the present clients and the server get does not depend on an absent client's data."""
    present = torch.tensor([True, True, False, True, True])
    a = federation(name).play(2, present=present)
    other = data(SIZES, seed=99)
    pairs = [(c.x[c.train[i]], c.y[c.train[i]]) for i in range(5) for c in ([other] if i == 2 else [a.clients])]
    b = federation(name, clients=Clients.of(pairs)).play(2, present=present)
    assert_states_equal(a.server, b.server)
    assert_states_equal(a.state, b.state)


@everywhere
def test_an_absent_clients_last_row_stays_a_message_where_it_should(name):
    """Those that keep rows go on listening to a client who is away; the others average the present ones only."""
    a, b = federation(name).play(), federation(name).play()
    changed = {key: Rows(rows.params.clone(), rows.buffers) for key, rows in b.server.rows.items()}
    for rows in changed.values():
        rows.params[2] += 1.0
    b.server = b.server.replace(rows=changed)
    present = torch.tensor([True, True, False, True, True])
    a.play(present=present), b.play(present=present)
    listens = not torch.equal(
        a.state.rows[next(iter(a.state.rows))].params, b.state.rows[next(iter(b.state.rows))].params
    )
    assert listens == (name in ("fedamp", "heurfedamp", "mr-mtl", "pfedgraph", "fedfomo"))


@everywhere
def test_a_late_client_gets_a_row(name):
    a = federation(name, clients=data(SIZES).take(torch.arange(4)), sizes=SIZES[:4]).play(2)
    late = a.trainer.model.row()
    a.server = a.server.append(a.method.server_init(late))
    a.state = a.state.append(a.method.client_init(late))
    a.clients = data(SIZES)
    a.play(2)
    assert a.server.num_clients == a.state.num_clients == 5
    for rows in a.rounds[-1].models.values():
        assert len(rows) == 5
        assert rows.finite().all()
    assert not torch.equal(a.models("own")[4], late.params[0])
    for pairs in a.server.pairs.values():
        assert pairs.shape == (5, 5)


STARTED_AT_W = [("fedamp", {"start": "w"}), ("heurfedamp", {"start": "w"})]


@pytest.mark.parametrize(("name", "hyperparameters"), [*((name, {}) for name in ALL), *STARTED_AT_W])
def test_who_remembers_nothing_can_lose_it(name, hyperparameters):
    """Other rows in a client's memory change reply or state exactly for the methods that say so."""
    a = federation(make_method(name, **hyperparameters)).play(3)
    _, message = a.method.server_send(a.server, 4)
    a.k = 4
    other = {key: Rows(rows.params + 0.1, rows.buffers + 0.1) for key, rows in a.state.rows.items()}
    state, reply = a.method.client_update(a.state, message, a.local_for(torch.arange(5)))
    changed, answer = a.method.client_update(a.state.replace(rows=other), message, a.local_for(torch.arange(5)))
    replies = [torch.equal(reply[key].params, answer[key].params) for key in reply]
    states = [torch.equal(rows.params, changed.rows[key].params) for key, rows in state.rows.items()]
    assert a.method.remembers == (not all(replies + states))


@everywhere
def test_who_begins_anew_starts_at_what_is_sent(name):
    a = federation(name).play(3)
    _, message = a.method.server_send(a.server, 4)
    anew = a.method.client_anew(a.trainer.model.row().repeat(5), message)
    assert {key: rows.params.shape for key, rows in anew.rows.items()} == {
        key: rows.params.shape for key, rows in a.state.rows.items()
    }
    models = a.method.client_models(anew, message)
    assert "received" not in models or torch.equal(models["own"].params, models["received"].params)


@everywhere
def test_who_leaves_has_no_weight_in_any_mixture(name):
    """Whatever the row of the one who left, the others get the same; and weights still sum to one."""
    a, b = federation(name).play(3), federation(name).play(3)
    changed = {key: Rows(rows.params.clone(), rows.buffers) for key, rows in b.server.rows.items()}
    for rows in changed.values():
        rows.params[2] += 1.0
    stay = torch.tensor([0, 1, 3, 4])
    a.server = a.method.server_leave(a.server, stay)
    b.server = b.method.server_leave(b.server.replace(rows=changed), stay)
    assert_states_equal(a.server, b.server)
    after, message = a.method.server_send(a.server, 4)
    assert after.num_clients == 4
    assert all(len(rows) == 4 and rows.params.isfinite().all() for rows in message.values())
    for pairs in after.pairs.values():
        torch.testing.assert_close(pairs.sum(1), torch.ones(4, dtype=pairs.dtype))
    a.state, a.clients = a.state.take(stay), a.clients.take(stay)
    assert all(rows.finite().all() for rows in a.play(2).rounds[-1].models.values())


@pytest.mark.parametrize(
    ("name", "rounds"),
    [("fedamp", 1), ("heurfedamp", 1), ("autoamp", 2), ("mr-mtl", 1), ("pfedgraph", 1), ("fedfomo", 1)],
)
def test_after_a_removal_all_is_as_if_it_had_never_been_there(name, rounds):
    """As long as nothing was mixed, clients do not depend on each other: then four are five without the third."""
    stay = torch.tensor([0, 1, 3, 4])
    a = federation(name, own_init=False).play(rounds)
    b = federation(name, own_init=False, clients=data(SIZES).take(stay)).play(rounds)
    left = a.method.server_leave(a.server, stay)
    assert_states_equal(State(4, left.rows), State(4, b.server.rows), 1e-9)
    for one, other in zip(
        *(f.method.server_send(s, rounds + 1)[1].values() for f, s in ((a, left), (b, b.server))), strict=True
    ):
        torch.testing.assert_close(one.params, other.params, rtol=1e-9, atol=1e-9)


def test_scaffolds_control_is_the_mean_of_all_after_one_has_left():
    stay = torch.tensor([0, 1, 3, 4])
    a = federation("scaffold").play(3)
    a.server, a.clients = a.method.server_leave(a.server, stay), a.clients.take(stay)
    _, message = a.method.server_send(a.server, 4)
    a.state = a.method.client_anew(a.trainer.model.row().repeat(4), message)
    a.play(2, present=torch.tensor([True, False, True, True]))
    total = a.server.shared["sum_c"].params
    torch.testing.assert_close(a.state.rows["c_i"].params.sum(0, keepdim=True), total, rtol=1e-9, atol=1e-12)


@everywhere
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_dtypes_hold(name, dtype):
    clients = data(SIZES)
    clients = Clients(clients.x.to(dtype), clients.y, clients.train, clients.numbers)
    a = federation(name, module=mlp(norm=True, dropout=0.2).to(dtype), clients=clients)
    shapes = {key: (rows.params.shape, rows.params.dtype) for key, rows in a.state.rows.items()}
    a.play(2, present=torch.tensor([True, False, True, True, True]))
    assert {key: (rows.params.shape, rows.params.dtype) for key, rows in a.state.rows.items()} == shapes
    d, b = a.trainer.model.num_params, a.trainer.model.num_buffers
    assert b > 0
    for rows in a.rounds[-1].models.values():
        assert rows.params.shape == (4, d)
        assert rows.buffers.shape == (4, b)
        assert rows.params.dtype == rows.buffers.dtype == dtype
    _, message = a.method.server_send(a.server, 3)
    assert all(len(rows) == 5 for rows in message.values())


@everywhere
def test_batchnorm_statistics_are_trained_and_usable(name):
    a = federation(name, own_init=False, optimizer=Optimizer(METHODS[name].optimizer, 0.01)).play(3)
    start = a.trainer.model.row().buffers[0]
    model, own = a.trainer.model, a.rounds[-1].models["own"]
    for i in range(5):
        assert not torch.equal(own.buffers[i], start)
        output, after = model(own.params[i], own.buffers[i], a.clients.x[a.clients.train[i]], training=False)
        assert output.isfinite().all()
        torch.testing.assert_close(after.round(), own.buffers[i].round())


@everywhere
def test_one_client_alone(name):
    a = federation(name, sizes=(7,), clients=data((7,))).play(3)
    assert a.models("own").isfinite().all()


@everywhere
def test_the_scored_entry_exists(name):
    a = federation(name).play()
    assert a.method.scored in a.rounds[-1].models
    scored = "received" if name in ("fedavg", "fedprox", "fedbn", "autoamp", "ifca", "cfl") else "own"
    assert a.method.scored == scored


@everywhere
def test_default_optimizer_is_accepted(name):
    check_optimizer(make_method(name), Optimizer(METHODS[name].optimizer, METHODS[name].lr))


@pytest.mark.parametrize("name", ["scaffold", "apfl", "pfedme"])
@pytest.mark.parametrize(
    "optimizer", [Optimizer("adam"), Optimizer("sgd", momentum=0.9), Optimizer("sgd", weight_decay=1)]
)
def test_methods_of_plain_sgd_refuse_others(name, optimizer):
    with pytest.raises(ValueError, match="plain SGD"):
        check_optimizer(make_method(name), optimizer)


@everywhere
def test_losses_that_are_not_finite_get_a_word(name):
    a = federation(name)
    a.clients.x[a.clients.train[1][0]] = torch.nan
    a.play()
    events = " ".join(a.rounds[-1].diagnostics["events"])
    assert "the training loss of client 1 is not finite" in events
    assert "Lower the learning rate" in events
    if name != "separate":  # nothing of a client is seen there but its loss
        assert "the model of client 1 is not finite" in events


@everywhere
def test_who_sends_what_is_not_finite_counts_as_absent(name):
    """And goes on from its last state, once its data is mended."""
    a, b = federation(name).play(), federation(name).play()
    a.clients.x[a.clients.train[1]] = torch.nan  # all of them: some methods train on a part
    others = torch.tensor([True, False, True, True, True])
    a.play(), b.play(present=others)
    assert_states_equal(a.server, b.server)
    here = others.nonzero()[:, 0]
    heard = name == "separate"  # which sends nothing: whatever it trained, it keeps
    same = here if heard else torch.arange(5)
    assert_states_equal(a.state.take(same), b.state.take(same))
    a.clients.x.nan_to_num_()
    a.play()
    assert a.models("own")[here].isfinite().all()
    assert a.models("own")[1].isfinite().all() != heard


@everywhere
def test_where_nothing_that_is_sent_is_finite_the_server_keeps_what_it_has(name):
    a = federation(name).play()
    before = frozen(a.server)
    a.clients.x[:] = torch.nan
    a.play()
    kept = {
        key: before.shared[key] for key in before.shared.keys() & {"w", "x", "sum_c", "w0", "w1"}
    }  # models, not facts
    assert before.rows or kept or name == "separate"
    assert_states_equal(State(5, a.server.rows), State(5, before.rows))
    assert_states_equal(State(5, shared={key: a.server.shared[key] for key in kept}), State(5, shared=kept))


@everywhere
def test_no_word_where_nothing_is_wrong(name):
    assert federation(name).play(2).rounds[-1].diagnostics["events"] == []


def test_unknown_method_lists_them_all():
    with pytest.raises(ValueError, match=r"did you mean 'fedamp'\?") as error:
        make_method("fedamb")
    assert all(name in str(error.value) for name in METHODS)
    assert len(METHODS) == 24


def test_unknown_hyperparameter_lists_the_known():
    with pytest.raises(ValueError, match=r"unknown hyperparameter 'nu' of fedprox.*choose from mu"):
        make_method("fedprox", nu=1)
    with pytest.raises(ValueError, match="no hyperparameters"):
        make_method("separate", mu=1)


def code_lines(path: Path) -> int:
    """Count lines of code: no blank lines, comments, docstrings or imports; a field with its explanation is one."""
    tree = ast.parse(path.read_text())
    left_out: set[int] = set()
    for node in ast.walk(tree):
        string = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if string or isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, node.end_lineno + 1))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call) and node.value.func.id == "about":
            left_out.update(range(node.lineno + 1, node.end_lineno + 1))
        elif isinstance(node, ast.AnnAssign) and node.target.id in ("group", "when"):  # words about the method
            left_out.update(range(node.lineno, node.end_lineno + 1))
    lines = enumerate(path.read_text().splitlines(), start=1)
    return sum(1 for i, line in lines if i not in left_out and line.strip() and not line.strip().startswith("#"))


@everywhere
def test_method_files_stay_short(name):
    path = Path(inspect.getfile(METHODS[name]))
    assert code_lines(path) < 80


@everywhere
def test_every_method_says_which_kind_it_is_and_when_to_use_it(name):
    kind = METHODS[name]
    assert kind.group in GROUPS
    assert kind.when.endswith(".")
    assert "\n" not in kind.when
    assert len(kind.when) < 110


@everywhere
def test_long_batches_and_many_epochs(name):
    a = federation(name, batching=Batching(1000, epochs=2)).play()
    assert a.models("own").isfinite().all()
