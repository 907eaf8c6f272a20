"""A user's module: what it keeps, what it has frozen, what it draws and what it returns."""

import random
import re
from collections import OrderedDict

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fedamp
from fedamp.config import Named, RunConfig
from fedamp.data.given.samples import given_samples
from fedamp.errors import UserError
from fedamp.models.flat_model import FlatModel
from fedamp.runs.setup import assemble
from fedamp.training.evaluate import evaluate
from fedamp.training.tasks_and_metrics import regression

WAYS = ("loop", "stacked")
QUICK = {"method": "fedavg", "rounds": 2, "epochs": 1, "batch_size": 4, "optimizer": "sgd", "lr": 0.05}


def clients(sizes=(12, 12, 9, 7)) -> list:
    g = torch.Generator().manual_seed(0)
    return [(torch.randn(n, 6, generator=g) + i, torch.arange(n) % 3) for i, n in enumerate(sizes)]


def play(module: nn.Module, **settings):
    return fedamp.run(**{"clients": clients(), "model": module, **QUICK, **settings})


def made(kind, *args) -> nn.Module:
    torch.manual_seed(0)
    return kind(*args)


# What a module keeps -----------------------------------------------------------------------------------------------


class Keeps(nn.Module):
    """A linear layer, and something that a pass writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)


class CountsInABuffer(Keeps):
    """In place, as `num_batches_tracked` is."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, x):
        self.seen += 1
        return self.linear(x) * (1 + self.seen)


class RunningMean(Keeps):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6), persistent=False)

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
        return self.linear(x - self.mean)


class LargestYet(Keeps):
    """Moves only where a sample is larger than all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("peak", torch.full((), 12.0), persistent=False)

    def forward(self, x):
        self.peak = torch.maximum(self.peak, x.detach().abs().max())
        return self.linear(x / self.peak)


class FirstSamples(Keeps):
    """Scales by the spread of the first batch that it ever sees."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("spread", torch.zeros(()), persistent=False)

    def forward(self, x):
        if self.spread == 0:
            self.spread.copy_(x.detach().std())
        return self.linear(x / self.spread)


class TensorAttribute(Keeps):
    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(3)

    def forward(self, x):
        out = self.linear(x) + self.last
        self.last = out.detach().mean(0)
        return out


class PythonCounter(Keeps):
    """Warms up: only while it trains, and only in the gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def forward(self, x):
        out = self.linear(x)
        if not self.training:
            return out
        self.step += 1
        share = 1 / (1 + self.step)
        return share * out + (1 - share) * out.detach()


class Teacher(Keeps):
    """A frozen copy that follows slowly."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Linear(6, 3).requires_grad_(False)

    def forward(self, x):
        if self.training:
            self.teacher.weight.data.mul_(0.9).add_(0.1 * self.linear.weight.detach())
        return self.linear(x) + self.teacher(x)


class HiddenState(Keeps):
    """A hidden state from one batch to the next, whose graph goes on and on."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = None

    def forward(self, x):
        out = self.linear(x)
        self.hidden = out.mean(0) if self.hidden is None else out.mean(0) + 0.5 * self.hidden
        return out + self.hidden


class OnlyOnce(Keeps):
    """Works as long as nothing stays of a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.used = False

    def forward(self, x):
        if self.used:
            raise RuntimeError("a second time")
        self.used = True
        return self.linear(x)


STATEFUL = {
    CountsInABuffer: "buffer 'seen'",
    RunningMean: "buffer 'mean'",
    LargestYet: "buffer 'peak'",
    FirstSamples: "buffer 'spread'",
    TensorAttribute: "attribute 'last'",
    PythonCounter: "attribute 'step'",
    Teacher: "parameter 'teacher.weight'",
    HiddenState: "attribute 'hidden'",
    OnlyOnce: "attribute 'used'",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", STATEFUL, ids=lambda kind: kind.__name__)
def test_what_would_pass_from_client_to_client_is_refused_by_name(kind, way):
    with pytest.raises(UserError, match=re.escape(STATEFUL[kind])) as caught:
        play(made(kind), engine=way)
    assert "persistent=True" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_it_is_refused_where_there_is_one_client_too():
    with pytest.raises(UserError, match="buffer 'mean'"):
        play(made(RunningMean), clients=clients((12,)), method="separate")


class OwnMean(Keeps):
    """The cure: the same running mean, of each client's own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    forward = RunningMean.forward


def test_the_cure_that_is_told_works():
    loop, stacked = (play(made(OwnMean), method="separate", engine=way) for way in WAYS)
    torch.testing.assert_close(stacked.models["own"].buffers, loop.models["own"].buffers, rtol=1e-4, atol=1e-5)
    assert len(loop.models["own"].buffers.unique(dim=0)) == len(clients())
    alone = play(made(OwnMean), clients=clients()[:1], method="separate", engine="loop")
    torch.testing.assert_close(alone.models["own"].buffers[0], loop.models["own"].buffers[0])


class Masked(Keeps):
    """A constant, a lazy cache, and notes of the last pass: nothing of it is state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0]), persistent=False)
        self.register_buffer("cache", None, persistent=False)
        self.seen, self.calls = None, 0

    def forward(self, x):
        if self.cache is None or len(self.cache) != len(x):
            self.cache = torch.ones(len(x), 1)
        self.calls += 1
        self.seen = out = self.linear(x * self.mask) * self.cache  # with its graph, which no copy can take
        return out


@pytest.mark.parametrize("way", WAYS)
def test_constants_caches_and_notes_are_no_state(way):
    plain = made(nn.Linear, 6, 3)
    mask = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    given = [(x * mask, y) for x, y in clients()]
    masked, expected = play(made(Masked), engine=way), play(plain, clients=given, engine=way)
    assert masked.models["own"].buffers.shape[1] == 0
    torch.testing.assert_close(masked.models["own"].params, expected.models["own"].params)
    mine = masked.client_model(0)
    assert (mine.seen, mine.calls, mine.cache) == (None, 0, None)
    assert torch.equal(mine.mask, mask)


def test_whatever_a_pass_writes_is_gone_after_it():
    """Where the trial before a run saw nothing, a pass still depends on its row and its input alone."""
    for kind in (CountsInABuffer, RunningMean, LargestYet, FirstSamples, TensorAttribute, PythonCounter):
        model = FlatModel(made(kind))
        row, x = model.row(), torch.randn(4, 6)
        first = model(row.params[0], row.buffers[0], x, training=True)[0]
        model(row.params[0], row.buffers[0], 5 * x, training=True)
        assert torch.equal(model(row.params[0], row.buffers[0], x, training=True)[0], first), kind


class Positive(Keeps):
    """Writes into its own weights."""

    def forward(self, x):
        self.linear.weight.data.clamp_(min=0)
        return self.linear(x)


def test_a_score_changes_no_model():
    model = FlatModel(made(Positive))
    rows = model.row()
    before = rows.params.clone()
    model(rows.params[0], rows.buffers[0], torch.randn(4, 6), training=False)
    assert torch.equal(rows.params, before)


def test_a_module_that_can_not_be_copied_is_refused_in_one_line():
    module = made(Masked)
    module(torch.randn(2, 6))  # keeps its output, with the graph
    with pytest.raises(UserError, match=r"the model Masked can't be copied .* detach what it keeps"):
        play(module)


@pytest.mark.parametrize("way", WAYS)
def test_a_training_step_that_fails_is_told_before_anything_runs(way):
    words = [(torch.arange(3 * n).view(n, 3) % 9, torch.arange(n) % 3) for n in (8, 9)]
    module = nn.Sequential(nn.Embedding(9, 4, max_norm=0.5), nn.Flatten(), nn.Linear(12, 3))
    with pytest.raises(UserError, match=r"a training step of Sequential fails on inputs of shape \(2, 3\): .*inplace"):
        play(module, clients=words, engine=way)


@pytest.mark.parametrize("kind", [torch.float64, torch.float16])
def test_a_model_of_another_float_type_is_told_its_cure(kind):
    module = nn.Linear(6, 3).to(kind)
    words = rf"the model Linear is of {kind}, but models train in torch.float32, .*: model\.to\(torch\.float32\)"
    with pytest.raises(UserError, match=words):
        play(module, clients=[(x.double(), y) for x, y in clients()])
    play(module.to(torch.float32), clients=[(x.double(), y) for x, y in clients()])


# What a user has frozen --------------------------------------------------------------------------------------------


def tuned(requires_grad: bool, dropout: bool = False) -> nn.Module:
    """Return a module whose BatchNorm was put to rest, as one does before fine-tuning."""
    torch.manual_seed(0)
    drop = [nn.Dropout(0.5)] if dropout else []
    module = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), *drop, nn.Linear(5, 3))
    module[1].running_mean += 0.3
    module[1].eval().requires_grad_(requires_grad)
    return module


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_a_frozen_batchnorm_keeps_its_statistics(way, requires_grad):
    """Side by side where its weights train, under vmap where they do not, and one at a time."""
    module = tuned(requires_grad)
    result = play(module, clients=clients((10,) * 4), engine=way)  # as many test samples each: scored at once, too
    assert FlatModel(module).side_by_side == requires_grad
    assert torch.equal(result.models["own"].buffers, FlatModel(module).row().buffers.expand(4, -1))
    assert not torch.equal(result.models["own"].params, FlatModel(module).row().params.expand(4, -1))


def test_a_frozen_batchnorm_trains_as_in_a_plain_loop():
    module = tuned(True, dropout=False)
    (x, y), *_ = clients()
    given = {"clients": [(x, y, x, y)], "method": "separate", "rounds": 1, "batch_size": 100}
    result = play(tuned(True), **given)
    loss = F.cross_entropy(module(x), y)  # as it was given: the norm in eval mode, all else in train mode
    loss.backward()
    expected = torch.cat([(p - 0.05 * p.grad).detach().flatten() for p in module.parameters()])
    torch.testing.assert_close(result.models["own"].params[0], expected)


@pytest.mark.parametrize("way", WAYS)
def test_dropout_that_was_put_to_rest_drops_nothing(way):
    module = tuned(True, dropout=True)
    module[2].eval()
    results = [
        play(m, rounds=1, engine=way)
        for m in (module, nn.Sequential(*[m for m in module if type(m) is not nn.Dropout]))
    ]
    torch.testing.assert_close(results[0].models["own"].params, results[1].models["own"].params)


def test_a_module_in_eval_mode_as_a_whole_trains_as_a_whole():
    """As after loading weights: nobody means to train in eval mode."""
    module = tuned(True).train()
    given, loaded = play(module), play(module.eval())
    assert torch.equal(given.models["own"].params, loaded.models["own"].params)
    assert torch.equal(given.models["own"].buffers, loaded.models["own"].buffers)
    assert not torch.equal(given.models["own"].buffers[0], FlatModel(module).row().buffers[0])


def test_a_compiled_pass_leaves_a_frozen_batchnorm_alone(monkeypatch):
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: None)  # the compiler itself needs a GPU's tools
    model = FlatModel(tuned(True))
    model.compile(True)
    rows = model.row().repeat(2)
    _, after = model.stacked(rows.params, rows.buffers, torch.randn(2, 4, 6), training=True)
    assert torch.equal(after, rows.buffers)


# What it draws -----------------------------------------------------------------------------------------------------


class MonteCarlo(Keeps):
    """Drops when it is scored, too."""

    def forward(self, x):
        return self.linear(F.dropout(x, 0.5, training=True))


class Noisy(Keeps):
    def forward(self, x):
        return self.linear(x + torch.randn_like(x))


class PythonNoise(Keeps):
    def forward(self, x):
        return self.linear(x * random.random() + float(np.random.rand()))


RANDOM = (MonteCarlo, Noisy, PythonNoise)


def scores(result) -> torch.Tensor:
    return torch.tensor([line["test"]["own"]["loss"] for line in result.history if "own" in line["test"]])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", RANDOM)
def test_scores_of_a_random_model_come_from_coordinates(kind, way):
    module = made(kind)
    first, second = (play(module, engine=way) for _ in range(2))  # nobody seeds anything in between
    assert torch.equal(scores(first), scores(second))
    assert torch.equal(first.models["own"].params, second.models["own"].params)


@pytest.mark.parametrize("kind", RANDOM)
def test_nobodys_stream_moves(kind):
    module = made(kind)
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    expected = torch.rand(3), random.random(), np.random.rand()
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    play(module)
    assert torch.equal(torch.rand(3), expected[0])
    assert (random.random(), np.random.rand()) == expected[1:]


@pytest.mark.parametrize("kind", RANDOM)
def test_a_clients_scores_do_not_depend_on_its_neighbours(kind):
    made_of = RunConfig(clients=4, data="given", setting=Named("given"), engine="loop")
    setup = assemble(made_of, given_samples(clients(), 0.2, 0).clients, made(kind))
    training, everyone, w = setup.trainer, setup.clients, setup.w
    together = evaluate(training, everyone, w).loss
    for i in range(4):
        one = torch.tensor([i])
        assert evaluate(training, everyone.take(one), w[one]).loss == together[i]
    assert len(together.unique()) == 4


@pytest.mark.parametrize("kind", RANDOM)
@pytest.mark.parametrize("equal", [True, False])
def test_both_ways_draw_the_same(kind, equal):
    given = clients((10, 10, 10) if equal else (10, 14, 9))  # as many test samples each, or not
    module = made(kind)
    loop, stacked = (play(module, clients=given, engine=way) for way in WAYS)
    torch.testing.assert_close(scores(stacked), scores(loop), rtol=1e-5, atol=1e-6)
    assert stacked.facts.engine == ("stacked" if kind is MonteCarlo else "loop")


def test_a_resumed_run_of_a_random_model_scores_as_an_uninterrupted_one(tmp_path):
    class StopError(KeyboardInterrupt):
        pass

    def stop(line):
        if line["round"] == 1:
            raise StopError

    whole = play(made(MonteCarlo), rounds=3)
    with pytest.raises(StopError):
        play(made(MonteCarlo), rounds=3, out=tmp_path, observer=stop)
    torch.rand(3)
    assert torch.equal(scores(play(made(MonteCarlo), rounds=3, out=tmp_path)), scores(whole))


# What it returns ---------------------------------------------------------------------------------------------------


def numbers(sizes=(4, 4, 4)) -> list:
    """Clients of as many samples as a wrong model has outputs: there, torch broadcasts."""
    g = torch.Generator().manual_seed(0)
    return [(torch.randn(n, 6, generator=g), torch.randn(n, generator=g)) * 2 for n in sizes]


@pytest.mark.parametrize("outputs", [2, 3, 4])
@pytest.mark.parametrize("way", WAYS)
def test_a_regression_with_several_outputs_is_refused(way, outputs):
    with pytest.raises(UserError, match=rf"\(2, {outputs}\) for 2 samples; expected \(2, 1\): one number, for a regr"):
        play(nn.Linear(6, outputs), clients=numbers(), task="regression", engine=way)


def test_a_classification_may_have_outputs_to_spare():
    assert play(nn.Linear(6, 5)).summary.metric == "accuracy"


@pytest.mark.parametrize("shape", [(4, 4), (4,), (4, 2), (1, 4), (1, 1), (4, 1, 1)])
def test_a_regression_broadcasts_nothing(shape):
    task, y = regression(), torch.randn(4)
    for judge in (task.loss, task.tally, task.losses):
        with pytest.raises(UserError, match="one number for each"):
            judge(torch.randn(shape), y)
    with pytest.raises(UserError, match="one number for each"):
        task.stacked_loss(torch.randn(2, *shape), torch.randn(2, 4))
    assert task.losses(torch.ones(4, 1), torch.zeros(4)).tolist() == [1, 1, 1, 1]
    assert task.stacked_loss(torch.ones(2, 4, 1), torch.zeros(2, 4)).tolist() == [1, 1]


class Returns(Keeps):
    """What comes back is not a tensor: always, or while it trains, as with auxiliary outputs."""

    def __init__(self, wrap, always: bool = True) -> None:
        super().__init__()
        self.wrap, self.always = wrap, always

    def forward(self, x):
        out = self.linear(x)
        return self.wrap(out) if self.training or self.always else out


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("always", [True, False])
@pytest.mark.parametrize(
    ("wrap", "words"),
    [
        (lambda out: (out, out), "a tuple of 2"),
        (lambda out: [out], "a list of 1"),
        (lambda out: {"logits": out, "loss": None}, "a dict with 'logits', 'loss'"),
        (lambda out: OrderedDict(logits=out), "a OrderedDict with 'logits'"),
        (lambda out: None, "None"),
    ],
)
def test_a_model_that_returns_no_tensor_is_refused_in_one_line(wrap, words, always, way):
    with pytest.raises(UserError, match=f"the model Returns returns {words}; expected one tensor") as caught:
        play(Returns(wrap, always), engine=way)
    assert ".logits" in str(caught.value)
    assert "\n" not in str(caught.value)
