"""Clients that workers train side by side end where they end one after another, to the bit."""

import threading
from collections import Counter
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedamp.errors import UserError
from fedamp.methods.base import descent, proximal
from fedamp.models.flat_model import FlatModel
from fedamp.privacy.promise import Privacy
from fedamp.rows import Rows
from fedamp.training import stacked_or_loop
from fedamp.training.batches import Batching
from fedamp.training.config import TrainingConfig
from fedamp.training.optimizers import Optimizer
from fedamp.training.side_workers import side_by_side, workers_for
from fedamp.training.stacked_or_loop import choose_engine
from fedamp.training.torch_switches import use_threads
from fedamp.training.trainer import Trainer
from helpers import Federation, assert_states_equal, data, mlp

SIZES = (9, 30, 5, 17, 12)


class Attends(nn.Module):
    """An attention whose dropout is reached only inside a function of torch, beside a dropout of its own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.attention = nn.MultiheadAttention(6, 2, dropout=0.4, batch_first=True)
        self.out = nn.Linear(6, 3)
        self.double()

    def forward(self, x):
        x = x[:, None].expand(-1, 3, -1)
        return self.out(F.dropout(self.attention(x, x, x)[0].mean(1), 0.3, self.training))


class Draws(nn.Module):
    """A module that draws from torch's global stream."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.out = nn.Linear(6, 3).double()

    def forward(self, x):
        return self.out(x + torch.randn_like(x))


def clipped() -> Privacy:
    return Privacy(0.5, dict.fromkeys(range(len(SIZES)), 0.7))


def trained(module, workers, direction=descent, **settings):
    """Return where five clients end, and the record of their round."""
    model, clients = FlatModel(module), data(SIZES)
    clients = replace(clients, x=clients.x.to(model.dtype))
    config = TrainingConfig(Optimizer("adam", 0.05), Batching(4, epochs=3), seed=4, workers=workers, **settings)
    trainer = Trainer(model, config)
    local, start = trainer.local(clients, 2), model.row().repeat(len(clients))
    context = {"anchor": start.params + 0.1, "strength": start.params.new_full((5, 1), 0.3)}
    ended = local.run(start, direction, **(context if direction is proximal else {}))
    return ended, local, trainer


@pytest.mark.parametrize("direction", [descent, proximal, lambda w, grad: grad(w) + grad(w / 2)])
@pytest.mark.parametrize("module", [mlp(norm=True), mlp(dropout=0.5), Attends()])
def test_workers_give_the_bits_of_one_after_another(module, direction):
    with use_threads(1):
        alone, one, _ = trained(module, 1, direction)
        beside, several, trainer = trained(module, 3, direction)
    assert not trainer.one_at_a_time
    assert torch.equal(alone.params, beside.params)
    assert torch.equal(alone.buffers, beside.buffers)
    assert torch.equal(one.losses[""], several.losses[""])


def test_private_clients_spend_once_and_get_the_same_noise():
    alone, one, _ = trained(mlp(), 1, privacy=clipped())
    beside, several, _ = trained(mlp(), 3, privacy=clipped())
    assert torch.equal(alone.params, beside.params)
    assert one.spent == several.spent != [Counter()] * len(SIZES)
    assert torch.equal(one.noise(), several.noise())


def test_autocast_is_in_every_worker():
    plain, _, _ = trained(mlp().float(), 1)
    alone, _, _ = trained(mlp().float(), 1, precision="bf16")
    beside, _, _ = trained(mlp().float(), 3, precision="bf16")
    assert torch.equal(alone.params, beside.params)
    assert not torch.equal(alone.params, plain.params)


@pytest.mark.parametrize("privacy", [None, clipped()])
def test_who_draws_from_a_global_stream_trains_alone_with_a_stream_of_its_own(privacy):
    module, before = Draws(), torch.get_rng_state()
    alone, one, _ = trained(module, 1, privacy=privacy)
    beside, several, trainer = trained(module, 3, privacy=privacy)
    assert trainer.one_at_a_time
    assert torch.equal(alone.params, beside.params)
    assert one.spent == several.spent
    assert torch.equal(torch.get_rng_state(), before)


def test_absent_clients_and_several_rounds():
    def played(workers):
        federation = Federation.of("scaffold", SIZES, mlp(norm=True))
        federation.trainer = federation.trainer.changed(workers=workers)
        for present in ((1, 1, 1, 1, 1), (0, 1, 0, 1, 1), (0, 0, 1, 0, 0)):
            federation.play(present=torch.tensor(present, dtype=torch.bool))
        return federation

    one, several = played(1), played(3)
    assert_states_equal(one.server, several.server)
    assert_states_equal(one.state, several.state)


class Fails(nn.Module):
    """A module that one client's samples break."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 3).double()

    def forward(self, x):
        if x.mean() > 0.8:
            raise UserError("this sample is broken")
        return self.out(x)


def test_the_error_of_a_client_reaches_the_caller_and_ends_the_others():
    threads = threading.active_count()
    with pytest.raises(UserError, match="this sample is broken"):
        trained(Fails(), 3)
    assert threading.active_count() == threads


def test_an_interrupt_ends_all_workers_before_it_is_raised(monkeypatch):
    stop, begun, seen = threading.Event(), threading.Event(), []

    def work(job: int) -> None:
        begun.set()
        stop.wait(20)
        seen.append(job)

    def interrupted(*args, **kwargs):
        assert begun.wait(20)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr("fedamp.training.side_workers.wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        side_by_side(range(10), [work, work], stop)
    assert 1 <= len(seen) <= 2  # what was begun has ended, and nothing else was begun


def test_each_worker_has_one_thread_and_the_caller_keeps_its_own():
    found = []
    with use_threads(2):
        work = lambda job: found.append(torch.get_num_threads())  # noqa: E731
        side_by_side(range(4), [work, work], threading.Event())
        assert torch.get_num_threads() == 2
    assert found == [1] * 4


def test_largest_clients_begin_first():
    begun = []
    side_by_side([3, 1, 2], [begun.append], threading.Event())
    assert begun == [3, 1, 2]
    assert workers_for([50] * 8, 4, 8) == 4
    assert workers_for([50] * 8, 4, 2) == 1  # what fits the memory would leave half of the cores idle
    assert workers_for([50] * 2, 16, 8) == 1
    assert workers_for([500, *[10] * 20], 2, 8) == 1
    assert workers_for([50], 1, 8) == 1


def chosen(module, sizes, requested="loop", processes=1):
    model, clients = FlatModel(module), data(sizes)
    trainer = Trainer(model, TrainingConfig(Optimizer(), Batching(4, epochs=1)))
    with use_threads(2):
        return choose_engine(requested, trainer, clients, model.row().repeat(len(sizes)), processes)


def test_the_rule(monkeypatch):
    assert chosen(mlp(), [8] * 6).workers == 1  # a small model: the time goes to Python, which has one thread
    monkeypatch.setattr(stacked_or_loop, "SMALL", 10)
    assert chosen(mlp(), [8] * 6).workers == 2
    assert chosen(mlp(), [8] * 6, "stacked").workers == 1
    assert chosen(mlp(), [8]).workers == 1
    assert chosen(mlp(), [400, 8, 8]).workers == 1
    assert chosen(mlp(), [8] * 8, processes=2).workers == 2
    assert chosen(mlp(), [8] * 2, processes=2).workers == 1
    drawing = chosen(Draws(), [8] * 6)
    assert drawing.workers == 1
    assert "one at a time" in drawing.why


def test_a_twin_shares_values_and_nothing_that_a_pass_changes():
    model = FlatModel(mlp(norm=True))
    twin, row = model.twin(), Rows(model.row().params + 1, model.row().buffers)
    values = dict(model.module.named_parameters())
    assert all(values[name] is value for name, value in twin.module.named_parameters())
    x = data((6,)).x
    one, other = (each(row.params[0], row.buffers[0], x, training=True) for each in (model, twin))
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])
    assert all(a is not b for a, b in zip(model.module.modules(), twin.module.modules(), strict=True))
