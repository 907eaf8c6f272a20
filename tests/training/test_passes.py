"""What a method can ask of a round's training besides one pass: more of them, parts of samples, some columns alone."""

import pytest
import torch

from fedamp.methods.base import descent, proximal
from fedamp.training.batches import Batching
from fedamp.training.local import part_of
from fedamp.training.optimizers import Optimizer
from helpers import Federation, mlp

SIZES = (5, 9, 13, 3, 20)
ENGINES = ("stacked", "loop")
OPTIMIZERS = [Optimizer("adam", 0.01), Optimizer("sgd", 0.05, momentum=0.9, weight_decay=0.1)]


def training(engine="loop", **settings):
    """Return a round's training of five clients, and where it starts."""
    given = {"sizes": SIZES, "module": mlp(norm=True, dropout=0.2), "own_init": True, **settings}
    a = Federation.of("separate", **given)
    return a.trainer.changed(engine=engine).local(a.clients, 3), a.state.rows["w"]


def params(rows):
    return rows.params


def both(ask, **settings):
    """Return what both engines say."""
    found = []
    for engine in ENGINES:
        local, w = training(engine, **settings)
        found.append(ask(local, w))
    return found


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_stacked_passes_are_the_loops(optimizer):
    def ask(local, w):
        first = local.again(1, epochs=2, only=local.head()).run(w, descent)
        second = local.again(2, lr=0.02).run(first, proximal, anchor=w.params, strength=w.params.new_full((5, 1), 0.3))
        kept, held = local.held_out(0.3)
        return torch.cat([second.params, kept.run(second, descent).params, held.loss(second)], 1)

    stacked, loop = both(ask, optimizer=optimizer)
    torch.testing.assert_close(stacked, loop, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_pass_0_is_the_run_itself_and_every_other_draws_anew(engine):
    local, w = training(engine)
    ran = local.run(w, descent).params
    passes = [local.again(number).run(w, descent).params for number in (0, 1, 2)]
    assert torch.equal(ran, passes[0])
    assert not torch.equal(passes[0], passes[1])
    assert not torch.equal(passes[1], passes[2])
    assert torch.equal(local.again(1).run(w, descent).params, passes[1]), "drawn by number, not by who came before"


def test_a_pass_draws_every_sample_once():
    local, _ = training()
    for i, size in enumerate(SIZES):
        drawn = [torch.cat(local.again(number).batches(i)) for number in (0, 1, 2)]
        assert [sorted(one.tolist()) for one in drawn] == [sorted(local.clients.train[i].tolist())] * 3
        if size > 4:
            assert len({tuple(one.tolist()) for one in drawn}) == 3


def test_another_round_has_other_batches_in_the_same_pass():
    a = Federation.of("separate", sizes=SIZES)
    one, other = (a.trainer.local(a.clients, k).again(1) for k in (1, 2))
    assert not torch.equal(torch.cat(one.batches(4)), torch.cat(other.batches(4)))


def test_epochs_optimizer_and_rate_are_the_passs_own():
    local, w = training(optimizer=Optimizer("adam", 0.01), batching=Batching(4, steps=3))
    other = local.again(0, epochs=2, optimizer="sgd", lr=0.5)
    assert other.steps[:, 0].tolist() == [2 * Batching(4, epochs=1).num_steps(size) for size in SIZES]
    assert (other.lr, local.lr) == (0.5, 0.01)
    assert local.steps.unique().tolist() == [3]
    plain = Federation.of(
        "separate", sizes=SIZES, module=mlp(norm=True, dropout=0.2), own_init=True, optimizer=Optimizer("sgd", 0.5),
        batching=Batching(4, epochs=2),
    )  # fmt: skip
    assert torch.equal(other.run(w, descent).params, plain.trainer.local(plain.clients, 3).run(w, descent).params)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
@pytest.mark.parametrize("which", ["head", "norm"])
def test_only_these_columns_move(engine, optimizer, which):
    local, w = training(engine, optimizer=optimizer)
    columns = getattr(local, which)()
    ended = local.again(1, only=columns).run(w, proximal, anchor=w.params + 1, strength=w.params.new_full((5, 1), 9.0))
    assert torch.equal(ended.params[:, ~columns.params], w.params[:, ~columns.params])
    assert (ended.params[:, columns.params] != w.params[:, columns.params]).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_held_out_is_not_trained_on(engine):
    local, w = training(engine)
    kept, held = local.held_out(0.25)
    for i, size in enumerate(SIZES):
        mine, away = set(kept.clients.train[i].tolist()), set(held.clients.train[i].tolist())
        if size < 4:
            assert mine == away == set(local.clients.train[i].tolist())
        else:
            assert not mine & away
            assert mine | away == set(local.clients.train[i].tolist())
            assert len(away) == max(2, round(0.25 * size))
    assert kept.sizes[:, 0].tolist() == [3, 7, 10, 3, 15]
    before = kept.run(w, descent)
    for i in (0, 4):
        local.clients.x[held.clients.train[i]] = 100.0
    assert torch.equal(kept.run(w, descent).params, before.params)
    assert (held.loss(w) != kept.loss(w)).any()


@pytest.mark.parametrize(("share", "held"), [(1.0, [3, 7, 11, 3, 18]), (0.0, [2, 2, 2, 3, 2])])
def test_two_samples_are_left_to_train_on_and_two_to_compare_by(share, held):
    local, _ = training()
    kept, away = local.held_out(share)
    assert away.sizes[:, 0].tolist() == held
    assert kept.sizes[:, 0].tolist() == [size if size < 4 else size - n for size, n in zip(SIZES, held, strict=True)]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pass_of_a_pass_moves_all_columns_again(engine):
    """The epochs, the optimiser and the rate that were given stay; the number and `only` are each pass's own."""
    local, w = training(engine)
    nested = local.again(1, epochs=2, lr=0.02, only=local.head()).again(2)
    assert nested.only is None
    assert torch.equal(nested.run(w, descent).params, local.again(2, epochs=2, lr=0.02).run(w, descent).params)


def test_the_same_samples_are_held_out_in_every_round():
    a = Federation.of("separate", sizes=SIZES)
    first, later = (a.trainer.local(a.clients, k).held_out(0.3)[1].clients.train for k in (1, 7))
    assert all(torch.equal(one, other) for one, other in zip(first, later, strict=True))


def test_parts_of_a_minibatch_are_all_of_it_cut():
    for length in range(1, 30):
        for p in (1, 2, 3):
            cut = [range(length)[part_of(length, (i, p))] for i in range(1, p + 1)]
            if length < 2 * p:
                assert cut == [range(length)] * p
            else:
                assert [each for one in cut for each in one] == list(range(length))
                assert min(map(len, cut)) >= 2
    with pytest.raises(ValueError, match=r"part is \(3, 2\)"):
        part_of(8, (3, 2))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradients_of_the_parts_have_the_wholes_mean(weighted):
    """Without BatchNorm, whose statistics are of the samples that a pass sees."""
    found = []
    for engine in ENGINES:
        a = Federation.of("separate", sizes=(8, 8, 6), module=mlp(), batching=Batching(8, steps=1))
        if weighted:
            a.clients = type(a.clients)(
                a.clients.x, a.clients.y, a.clients.train, a.clients.numbers,
                class_weights=torch.tensor([[1.0, 2, 3], [0.5, 1, 1], [1, 1, 1]], dtype=torch.float64),
            )  # fmt: skip
        seen = {}

        def look(w, grad, seen=seen):
            whole = grad(w)
            seen.setdefault("parts", []).append(grad(w, part=(1, 2)) + grad(w, part=(2, 2)) - 2 * whole)
            seen.setdefault("first", []).append(grad(w, part=(1, 2)))
            return whole

        local = a.trainer.changed(engine=engine).local(a.clients, 1)
        local.run(a.state.rows["w"], look)
        apart = torch.cat(seen["parts"])
        if not weighted:  # a weighted loss is divided by the weights of the samples that it is of
            torch.testing.assert_close(apart, torch.zeros_like(apart), rtol=0, atol=1e-12)
        found.append(torch.cat(seen["first"]))
        for i in range(3):
            half, module = local.batches(i)[0][: len(local.batches(i)[0]) // 2], mlp()
            weight = a.clients.class_weights[i] if weighted else None
            loss = torch.nn.functional.cross_entropy(module(a.clients.x[half]), a.clients.y[half], weight=weight)
            expected = torch.cat([each.reshape(-1) for each in torch.autograd.grad(loss, list(module.parameters()))])
            torch.testing.assert_close(found[-1][i], expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)
