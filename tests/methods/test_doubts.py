"""A run that makes no sense gets a word before its first round: cause and cure, wherever it is started."""

import pytest
import torch
from torch import nn

import fedamp
from fedamp.config import Named, RunConfig
from fedamp.errors import FedampWarning
from fedamp.federation.plan import SiloConfig
from fedamp.federation.silo.round import open_silo
from fedamp.methods import METHODS, FedAvgFT, FedRep, Separate
from fedamp.runs.setup import assemble
from fedamp.training.batches import Batching
from federation.inprocess import plan_of, write_silos
from helpers import Federation

QUICK = ["--clients", 5, "--rounds", 1, "--epochs", 1]
DOUBTS = {
    ("fedbn", "cnn-small"): "fedbn keeps the normalisations of every client's model at home; this model has none, "
    "so this is fedavg. Choose a model with BatchNorm (cnn-small with model.norm=true, resnet18), or fedavg",
    ("fedper", "logistic"): "fedper keeps the last layer of every client's model at home; that is all of this "
    "model, so this is separate. Choose a model with more layers (mlp, cnn-small), another `head`, or separate",
    ("fedrep", "logistic"): "fedrep keeps the last layer of every client's model at home; that is all",
    ("fedala", "logistic"): "fedala mixes the last layer of every client's model with the global one and takes over "
    "the others as they are, and this model has no others. Choose a model with more layers (mlp, cnn-small)",
}


@pytest.mark.parametrize(("method", "model"), DOUBTS)
def test_a_run_that_makes_no_sense_gets_a_word(fedamp_command, method, model):
    given = ["run", "--method", method, "--model", model, *QUICK]
    code, _, err = fedamp_command(*given, "--out", "here")
    assert code == 0
    assert err.count("warning: ") == 1
    assert f"warning: {DOUBTS[method, model]}" in err
    assert f"warning: {DOUBTS[method, model]}" in fedamp_command(*given, "--out", "here")[2], "it is in the record"
    assert f"warning: {DOUBTS[method, model]}" in fedamp_command(*given, "--dry-run")[2]


def test_it_comes_before_the_rounds(fedamp_command, monkeypatch):
    def play(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedamp.runs.watching.watched.play_tracked", play)
    code, _, err = fedamp_command("run", "--method", "fedbn", *QUICK)
    assert code != 0
    assert "so this is fedavg" in err


@pytest.mark.parametrize("method", METHODS)
def test_no_word_where_the_model_fits(method):
    config = RunConfig(method=Named(method), model=Named("cnn-small", {"norm": True}), clients=5)
    assert assemble(config).warnings == ()


def test_a_head_of_no_layers_gets_a_word():
    (said,) = assemble(RunConfig(method=Named("fedper", {"head": 0}), clients=5)).warnings
    assert "the last 0 layers of every client's model at home; this model has none, so this is fedavg-ft. " in said
    assert said.endswith(", or fedavg-ft"), "its clients keep what they trained"
    (said,) = assemble(RunConfig(method=Named("fedrep", {"head": 2}), clients=5)).warnings
    assert "the last 2 layers of every client's model at home; that is all of this model, so this is separate" in said


def test_from_python_it_is_a_warning():
    with pytest.warns(FedampWarning, match="so this is fedavg"):
        fedamp.run(method="fedbn", clients=5, rounds=1, epochs=1)


def test_a_silo_hears_it_too(tmp_path):
    data = write_silos(tmp_path / "data")
    plan = plan_of(data, "fedper", model=Named("logistic"))
    silo = open_silo(SiloConfig(plan, "silo-0", 0, "nowhere:1"), sorted(data.glob("*.npz"))[0], tmp_path / "house")
    assert any("so this is separate" in each for each in silo.setup.warnings)


def test_what_is_said_of_fedrep_is_so():
    """With all layers at home, or none, there is nothing to take turns with."""
    for head, twin in ((2, Separate()), (0, FedAvgFT())):
        a, b = (
            Federation.of(method, sizes=(5, 9, 13), batching=Batching(4, epochs=5))
            for method in (FedRep(head=head), twin)
        )
        for _ in range(3):
            a.play(), b.play()
            assert torch.equal(a.models("own"), b.models("own"))


def test_statistics_alone_are_a_part_that_stays_at_home():
    module = nn.Sequential(nn.Linear(6, 7), nn.BatchNorm1d(7, affine=False), nn.Linear(7, 3)).double()
    a = Federation.of("fedbn", module=module)
    a.k = 1
    assert a.method.doubts(a.local_for(torch.arange(4))) == []
