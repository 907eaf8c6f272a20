"""A model trained alone beside a method is Separate's, and the method does not notice it."""

import pytest
import torch

from fedamp.errors import UserError
from fedamp.methods import METHODS, Separate, make_method
from fedamp.methods.alone_beside import ALONE, AloneBeside, without_alone
from fedamp.rows import Rows, State
from helpers import ALL, SOME_AT_ONCE, Federation, assert_states_equal, mlp, plain_sgd

everywhere = pytest.mark.parametrize("name", SOME_AT_ONCE)
PRESENT = [[True, True, False, True], [True, False, True, True], [False, True, True, False], [True, True, True, True]]


def federation(method) -> Federation:
    """All that can go wrong at once: unequal clients, BatchNorm, Dropout, own first models."""
    given = {"sizes": (5, 9, 13, 20), "module": mlp(norm=True, dropout=0.2), "own_init": True}
    return Federation.of(method, optimizer=plain_sgd(), **given)


def play(method) -> Federation:
    made = federation(method)
    for present in PRESENT:
        made.play(present=torch.tensor(present))
    return made


def test_it_is_separate_to_the_last_bit_with_absent_clients_too():
    separate = play(Separate())
    for name in ALL:
        beside = play(AloneBeside(make_method(name)))
        rows, wanted = beside.state.rows[ALONE], separate.state.rows["w"]
        assert torch.equal(rows.params, wanted.params), name
        assert torch.equal(rows.buffers, wanted.buffers), name
        assert torch.equal(beside.models(ALONE), separate.models("own"))
        assert torch.equal(beside.rounds[-1].losses[ALONE], separate.rounds[-1].losses[""])


@everywhere
def test_the_method_does_not_notice_it(name):
    bare, beside = play(make_method(name)), play(AloneBeside(make_method(name)))
    assert_states_equal(bare.server, beside.server)
    mine = {key: rows for key, rows in beside.state.rows.items() if key != ALONE}
    assert_states_equal(bare.state, State(4, mine, beside.state.pairs, beside.state.shared))
    for one, two in zip(bare.rounds, beside.rounds, strict=True):
        assert set(two.models) == {*one.models, ALONE}
        assert set(two.losses) == {*one.losses, ALONE}
        assert all(torch.equal(two.models[key].params, rows.params) for key, rows in one.models.items())
        assert all(torch.equal(two.losses[key], loss) for key, loss in one.losses.items())
        assert one.diagnostics["events"] == two.diagnostics["events"]


@everywhere
def test_messages_and_replies_are_the_methods(name):
    method = make_method(name)
    made = [federation(each).play() for each in (method, AloneBeside(method))]
    sent = [each.method.server_send(each.server, 2)[1] for each in made]
    replies = [
        each.method.client_update(each.state, message, each.local_for(torch.arange(4)))[1]
        for each, message in zip(made, sent, strict=True)
    ]
    for one, two in (sent, replies):
        assert one.keys() == two.keys()
        assert all(torch.equal(one[key].params, two[key].params) for key in one)
        assert all(torch.equal(one[key].buffers, two[key].buffers) for key in one)


@everywhere
def test_it_counts_and_is_trained_as_the_method_is(name):
    beside, kind = AloneBeside(make_method(name)), METHODS[name]
    for fact in ("scored", "optimizer", "lr", "plain_sgd_only", "answers", "changes"):
        assert getattr(beside, fact) == getattr(kind, fact)
    assert without_alone(beside) == without_alone(make_method(name)) == make_method(name)


def test_a_method_with_such_rows_of_its_own_is_refused():
    class Taken(Separate):
        def client_init(self, w: Rows) -> State:
            return State(len(w), rows={"w": w, ALONE: w})

    with pytest.raises(UserError, match=r"Taken has rows named 'alone'.*rename"):
        federation(AloneBeside(Taken()))
