"""Metrics are what their definitions say, and what scikit-learn computes; ties, one class and one sample included."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn import metrics as reference

from fedamp.config.metrics import METRICS, usual_metrics
from fedamp.training import metrics
from fedamp.training.evaluate import worst_if_broken
from fedamp.training.sample_errors import errors_of
from fedamp.training.tasks_and_metrics import CLASSIFICATION, regression, scored_by


def answered(classes, seed, n=None):
    """Outputs in halves, so that many are tied, and targets of all classes."""
    stream = np.random.default_rng(seed)
    n = n or int(stream.integers(8, 60))
    y = np.concatenate([np.arange(classes), stream.integers(0, classes, n - classes)])
    return torch.tensor(stream.integers(-3, 4, (n, classes)) / 2), torch.tensor(y)


@pytest.mark.parametrize("seed", range(20))
def test_two_classes_are_scored_as_the_reference_does(seed):
    output, y = answered(2, seed)
    said, sure = output.argmax(1), output[:, 1] - output[:, 0]
    ours = {name: judge(output, y) for name, judge in metrics.functions("classification", 2, 1).items()}
    theirs = {
        "accuracy": reference.accuracy_score(y, said),
        "balanced-accuracy": reference.balanced_accuracy_score(y, said),
        "f1": reference.f1_score(y, said),
        "auc": reference.roc_auc_score(y, sure),
        "average-precision": reference.average_precision_score(y, sure),
        "log-loss": reference.log_loss(y, output.softmax(1)),
    }
    assert ours == pytest.approx(theirs, abs=1e-12)
    other = {name: judge(output, y) for name, judge in metrics.functions("classification", 2, 0).items()}
    assert other["f1"] == pytest.approx(reference.f1_score(y, said, pos_label=0), abs=1e-12)
    assert other["auc"] == pytest.approx(ours["auc"], abs=1e-12)  # the same curve, from its other end


@pytest.mark.parametrize("seed", range(10))
def test_more_classes_are_scored_as_the_reference_does(seed):
    output, y = answered(4, seed)
    said, sure = output.argmax(1), F.log_softmax(output, -1)
    ours = {name: judge(output, y) for name, judge in metrics.functions("classification", 4, None).items()}
    each = [(y == c, sure[:, c]) for c in range(4)]
    theirs = {
        "accuracy": reference.accuracy_score(y, said),
        "balanced-accuracy": reference.balanced_accuracy_score(y, said),
        "f1": reference.f1_score(y, said, average="macro"),
        "auc": np.mean([reference.roc_auc_score(*pair) for pair in each]),
        "average-precision": np.mean([reference.average_precision_score(*pair) for pair in each]),
        "log-loss": reference.log_loss(y, output.softmax(1)),
    }
    assert ours == pytest.approx(theirs, abs=1e-12)


def test_numbers_are_scored_as_the_reference_does():
    stream = np.random.default_rng(0)
    output, y = torch.tensor(stream.normal(size=(30, 1))), torch.tensor(stream.normal(size=30))
    ours = {name: judge(output, y) for name, judge in metrics.functions("regression", 1, None).items()}
    theirs = {
        "rmse": math.sqrt(reference.mean_squared_error(y, output[:, 0])),
        "mae": reference.mean_absolute_error(y, output[:, 0]),
        "r2": reference.r2_score(y, output[:, 0]),
    }
    assert ours == pytest.approx(theirs, abs=1e-12)
    assert list(ours) == usual_metrics("regression")
    assert list(metrics.functions("classification", 2, 1)) == usual_metrics("classification")


def test_auc_is_how_often_a_positive_sample_ranks_above_a_negative_one():
    output, y = answered(2, 3)
    sure = output[:, 1] - output[:, 0]
    pairs = [(a, b) for a in sure[y == 1].tolist() for b in sure[y == 0].tolist()]
    share = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs) / len(pairs)
    assert metrics.auc(output, y, 1) == pytest.approx(share, abs=1e-15)


def test_auc_of_very_sure_models_has_no_ties_from_rounding():
    output = torch.tensor([[0.0, 60.0], [0.0, 61.0]], dtype=torch.float64)
    assert output.softmax(1)[0, 1] == output.softmax(1)[1, 1] == 1
    assert metrics.auc(output, torch.tensor([0, 1]), 1) == 1


def test_balanced_accuracy_of_balanced_classes_is_accuracy():
    output = answered(3, 1, 30)[0]
    y = torch.arange(30) % 3
    assert metrics.balanced_accuracy(output, y) == pytest.approx(metrics.accuracy(output, y), abs=1e-15)


ONE_CLASS = {"f1": False, "auc": True, "average-precision": True, "accuracy": False, "log-loss": False}


@pytest.mark.parametrize("metric", ONE_CLASS)
@pytest.mark.parametrize("n", [1, 5])
def test_what_one_class_does_not_define_is_nan_whatever_is_answered(metric, n):
    judge = metrics.functions("classification", 2, 1)[metric]
    output = answered(2, 0, 8)[0][:n]
    assert math.isnan(judge(output, torch.ones(n, dtype=torch.long))) == ONE_CLASS[metric]
    assert math.isnan(judge(output, torch.zeros(n, dtype=torch.long))) == (ONE_CLASS[metric] or metric == "f1")


def test_r2_of_one_value_is_not_defined():
    assert math.isnan(metrics.r2(torch.tensor([[1.0]]), torch.tensor([2.0])))
    assert math.isnan(metrics.r2(torch.ones(3, 1), torch.full((3,), 0.1)))


@pytest.mark.parametrize("metric", METRICS)
def test_a_model_that_is_not_finite_has_the_worst_score(metric):
    about, output, y = METRICS[metric], *answered(2, 0)
    task = about.tasks[0]
    output, y = (output[:, :1], output[:, 1]) if task == "regression" else (output, y)
    output[0, 0] = torch.nan
    found = worst_if_broken(metric, metrics.functions(task, 2, 1)[metric], output, y)
    assert found == (0 if about.shares else -math.inf if about.higher_is_better else math.inf)


@pytest.mark.parametrize(
    ("metric", "times"), [("log-loss", 1), ("balanced-accuracy", 1), ("auc", 2), ("accuracy", None), ("mae", None)]
)
@pytest.mark.parametrize("classes", [2, 3])
def test_the_parts_of_single_samples_add_up_to_the_error(metric, times, classes):
    output, y = answered(classes, 5)
    task = regression() if metric == "mae" else CLASSIFICATION
    output, y = (output[:, :1], output[:, 1]) if metric == "mae" else (output, y)
    positive = 1 if classes == 2 else None
    errors = errors_of(scored_by(replace(task, positive=positive), metric, classes), output, y)
    assert len(errors) == len(y)
    if metric == "mae":  # who is the better on more of them: any error that grows with the distance tells
        torch.testing.assert_close(torch.as_tensor(errors), (output[:, 0] - y) ** 2)
        return
    score = metrics.functions("classification", classes, positive)[metric](output, y)
    error = 1 - score if METRICS[metric].higher_is_better else score
    assert float(errors.sum()) == pytest.approx((times or len(y)) * error, abs=1e-12)
