"""Precision is part of a run's description; the server's sums stay float64 whatever it is."""

import pytest
import torch

import fedamp
from fedamp import seeds
from fedamp.config import RunConfig
from fedamp.models.flat import FlatModel
from fedamp.models.zoo import cnn_small
from fedamp.records.inputs import Inputs
from fedamp.runs.identity import slug
from fedamp.training.batches import Batching
from fedamp.training.precision import resolve, use_precision
from fedamp.training.stacked.gradients import Gradients
from fedamp.training.tasks import CLASSIFICATION

CPU = torch.device("cpu")


NOTHING = Inputs("", "", "", "")


def test_auto_is_by_device():
    assert resolve("auto", CPU) == "fp32"
    assert resolve("auto", torch.device("cuda")) == "tf32"
    assert resolve("bf16", CPU) == "bf16"


@pytest.mark.parametrize("setting", ["precision", "compile"])
def test_an_unknown_word_is_an_error(setting):
    with pytest.raises(ValueError, match=f"{setting} 'half'"):
        RunConfig.of({setting: "half"})


def test_another_precision_is_another_run():
    assert slug(RunConfig(precision="bf16"), NOTHING) != slug(RunConfig(), NOTHING)


def test_bf16_computes_in_bf16_and_leaves_no_trace():
    a = torch.rand(8, 8)
    with use_precision("bf16", CPU):
        assert (a @ a).dtype == torch.bfloat16
    assert (a @ a).dtype == torch.float32
    with use_precision("fp32", CPU):
        assert (a @ a).dtype == torch.float32


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_a_bf16_run_is_close_and_its_models_are_float32(engine):
    settings = {"clients": 5, "rounds": 2, "model": "cnn-small", "engine": engine}
    plain, short = fedamp.run(**settings), fedamp.run(**settings, precision="bf16")
    assert short.facts.precision == "bf16"
    own = short.models["own"].params
    assert own.dtype == torch.float32
    assert not torch.equal(own, plain.models["own"].params)
    assert abs(short.bmta - plain.bmta) < 10


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile imports what torch itself calls deprecated
def test_compiling_that_fails_does_not_end_a_run(monkeypatch):
    model = FlatModel(cnn_small((8, 8), 3))
    model.compile(True)
    assert model.compiled

    def broken(*args, **kwargs):
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(model._stacked.compiled, "forward", broken)
    model._stacked.compiled._compiled_call_impl = None
    gradients = Gradients(model, CLASSIFICATION)
    row = model.row()
    x, y = torch.randn(2, 4, 8, 8), torch.randint(3, (2, 4))
    arguments = row.params.repeat(2, 1), row.buffers.repeat(2, 1), x, y, torch.zeros((2, 2), dtype=torch.int32), 1
    gradient, _, _ = gradients(*arguments)
    assert not model.compiled
    assert "no compiler here" in gradients.events[0]
    assert "--compile off" in gradients.events[0]
    torch.testing.assert_close(gradient, gradients._vmapped(*arguments)[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("batching", [Batching(4, epochs=3), Batching(4, steps=5), Batching(3, epochs=1)], ids=str)
@pytest.mark.parametrize("size", [1, 3, 4, 5, 9, 13])
def test_a_table_of_batches_holds_the_batches(batching, size):
    table, lengths = batching.table(size, seeds.generator(0, "batches", 1, 2))
    drawn = batching.draw(size, seeds.generator(0, "batches", 1, 2))
    assert lengths == [len(batch) for batch in drawn]
    for row, batch in zip(table, drawn, strict=True):
        assert row[: len(batch)].tolist() == batch.tolist()
