"""Precision is part of a run's description; the server's sums stay float64 whatever it is."""

import pytest
import torch

import fedamp
from fedamp.config import RunConfig
from fedamp.records.inputs import Inputs
from fedamp.runs import setup
from fedamp.runs.identity import slug
from fedamp.training.precision import resolve, use_precision

CPU = torch.device("cpu")


NOTHING = Inputs("", "", "", "")


def test_auto_is_by_device(monkeypatch):
    assert resolve("auto", CPU) == resolve("auto", CPU, pictures=True) == "fp32"
    assert resolve("auto", torch.device("cuda")) == "tf32"
    assert resolve("bf16", CPU) == "bf16"
    for able, expected in ((True, "bf16"), (False, "tf32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda able=able, **_: able)
        assert resolve("auto", torch.device("cuda"), pictures=True) == expected


@pytest.mark.parametrize(
    ("settings", "pictures"),
    [({"model": "cnn-small"}, True), ({}, False), ({"model": "cnn-small", "dp_noise": 1.0}, False)],
)
def test_nets_of_convolutions_tell_pictures_unless_samples_are_protected(monkeypatch, settings, pictures):
    asked = []
    monkeypatch.setattr(setup, "resolve", lambda *given: asked.append(given[2]) or "fp32")
    setup.assemble(RunConfig(clients=3, setting="iid", rounds=1, method="fedavg", **settings))
    assert asked == [pictures]


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
    plain, short = (fedamp.run(**settings, precision=precision) for precision in ("fp32", "bf16"))
    assert short.facts.precision == "bf16"
    own = short.models["own"].params
    assert own.dtype == torch.float32
    assert not torch.equal(own, plain.models["own"].params)
    assert abs(short.bmta - plain.bmta) < 10
