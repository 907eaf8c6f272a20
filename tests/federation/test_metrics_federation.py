"""A federation by another metric than accuracy decides as the engine does; a silo of one class has no score."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedamp.errors import UserError
from fedamp.federation.configure import configured_for
from fedamp.federation.wire.encoding import RefusedError
from fedamp.federation.wire.reply_form import check_metrics
from fedamp.runs.loop import play
from fedamp.runs.setup import assemble
from federation.inprocess import Local, plan_of


def write_rare(folder, one_class=(2,)):
    """Write silos with a quarter of positive samples; some have none."""
    stream = np.random.default_rng(0)
    folder.mkdir(parents=True)
    rule = stream.normal(0, 1, 5)
    for i in range(4):
        x = stream.normal(0, 1, (60 + 10 * i, 5)).astype(np.float32)
        score = x @ rule + stream.normal(0, 0.5, len(x))
        y = (score > np.quantile(score, 0.75)).astype(np.int64) * (i not in one_class)
        np.savez(folder / f"silo-{i}.npz", x=x, y=y)
    return folder


def engine(plan):
    config = replace(plan.config, engine="loop")
    return play(config, assemble(config))


OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("f1", "balanced-accuracy", "average-precision")]


@pytest.mark.parametrize("metric", ["auc", "log-loss", *OTHERS])
def test_the_result_is_the_engines(tmp_path, metric):
    data = write_rare(tmp_path / "data")
    plan = plan_of(data, "fedamp", rounds=3, validation=0.3, lr=0.05, metric=metric, class_weights="balanced")
    result = engine(plan).to_dict()
    Local(tmp_path, plan, data).serve()
    found = json.loads((tmp_path / "record" / "result.json").read_text())
    for name in ("metric", "best", "best_round", "last", "per_client", "worst", "take_home"):
        assert found[name] == result[name], name
    assert found["facts"].get("undefined") == result["facts"].get("undefined")
    assert found["facts"]["positive"] == result["facts"]["positive"] == "1"
    undefined = metric in ("auc", "f1", "average-precision")
    assert (found["facts"].get("undefined") == [2]) == undefined == (found["per_client"][2] is None)
    assert any("is not defined by the test samples of silo-2" in text for text in found["warnings"]) == undefined
    log = (tmp_path / "house-2" / "log.txt").read_text()
    assert ("no score: the test samples do not define" in log) == undefined


def test_nobody_has_a_score(tmp_path):
    data = write_rare(tmp_path / "data", one_class=(1, 2, 3))
    plan = plan_of(data, "fedamp", rounds=2, metric="auc")
    (data / "silo-0.npz").unlink()  # the only one with two classes
    Local(tmp_path, plan, data).serve()
    found = json.loads((tmp_path / "record" / "result.json").read_text())
    assert (found["best"], found["facts"]["undefined"]) == (None, [0, 1, 2])
    assert "no silo's test samples define ROC AUC" in (tmp_path / "record" / "log.txt").read_text()


def test_a_score_must_be_possible():
    for name, value in (("test.own.auc", 1.2), ("test.own.f1", -0.1), ("test.own.mae", -1.0), ("test.own.r2", -1e13)):
        with pytest.raises(RefusedError, match=f"its metric {name} is"):
            check_metrics({name: value}, [name])
    assert check_metrics({"test.own.r2": -3.0}, ["test.own.r2"]) == {"test.own.r2": -3.0}


def test_a_metric_that_does_not_fit_is_refused_when_the_federation_is_made(tmp_path):
    schema = plan_of(write_rare(tmp_path / "data")).schema
    with pytest.raises(UserError, match="metric is 'rmse', but the task is a classification"):
        configured_for("test", 4, schema, None, {"metric": "rmse"}, [])
    with pytest.raises(UserError, match="positive is '7'; choose one of the two classes: '0', '1'"):
        configured_for("test", 4, schema, None, {"positive": "7"}, [])
