"""The paper's experiments, checked on the assignment itself."""

import os
from pathlib import Path

import numpy as np
import pytest

import fedamp
from fedamp.config import RunConfig
from fedamp.config.presets import PRESETS, preset
from fedamp.data.partition import make_setting
from fedamp.methods import METHODS, make_method
from fedamp.models import MODELS
from fedamp.runs.material import load_material

REAL = os.environ.get("FEDAMP_TEST_DATA")
real_data = pytest.mark.skipif(REAL is None, reason="FEDAMP_TEST_DATA is not set: no real data to test with")


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_preset_is_a_description(name, method):
    values = preset(name, method)
    config = RunConfig.of(values)
    assert config.model.name in MODELS
    make_setting(config.setting.name, **config.setting.parameters)
    parameters = dict(config.method.parameters)
    if parameters.get("self_weight") == "oracle":
        assert name.endswith("practical")
        del parameters["self_weight"]
    make_method(method, **parameters)
    assert (config.epochs, config.batch_size) == (10, 100)
    assert config.rounds == (600 if method in ("scaffold", "apfl") else 90)


def test_there_are_twelve():
    assert len(PRESETS) == 12
    with pytest.raises(ValueError, match="paper/emnist-practical"):
        preset("paper/emnist-practicl", "fedamp")


@real_data
def test_emnist_practical_is_what_the_paper_says():
    material = load_material(RunConfig.of(preset("paper/emnist-practical", "fedamp")), Path(REAL))
    clients = material.clients
    assert len(clients) == 62
    assert clients.groups == (0,) * 10 + (1,) * 26 + (2,) * 26
    dominating = [range(10), range(10, 36), range(36, 62)]
    for i, group in enumerate(clients.groups):
        labels = clients.y[clients.train[i]].numpy()
        assert len(labels) == (1000, 700, 400)[group]
        assert np.isin(labels, dominating[group]).sum() == round(0.8 * len(labels))
        assert len(np.unique(labels)) == 62
        test = clients.y[clients.test[i]].numpy()
        assert len(test) == 100
        assert np.isin(test, dominating[group]).sum() == 80
        assert not set(clients.train[i].tolist()) & set(clients.test[i].tolist())
    assert material.facts.shared_samples > 0
    assert "80/20" in material.facts.note


@real_data
@pytest.mark.parametrize("name", PRESETS)
def test_no_other_preset_shares_training_samples(name):
    material = load_material(RunConfig.of(preset(name, "fedamp")), Path(REAL))
    if "emnist" not in name:
        assert material.facts.shared_samples == 0
    sizes = [len(positions) for positions in material.clients.train]
    if name.endswith("practical"):
        assert len(set(sizes)) == (3 if "emnist" in name else 2)
    assert all(len(positions) == 100 for positions in material.clients.test)


@real_data
@pytest.mark.many
@pytest.mark.parametrize("data", ["mnist", "fmnist", "emnist", "cifar100"])
def test_one_epoch_of_the_real_model_runs(data):
    values = {**preset(f"paper/{data}-iid", "fedamp"), "clients": 2, "rounds": 1, "epochs": 1}
    values["setting"] = {**values["setting"], "samples": 100}
    result = fedamp.run(data_dir=REAL, **values)
    assert result.scores.shape == (1, 2)
    assert np.isfinite(result.scores).all()
