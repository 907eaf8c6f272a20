"""A run by any metric: what decides, who has no score, which class is positive, and a loss and metric of one's own."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

import fedamp
from fedamp.cli.main import app
from fedamp.config.metrics import info
from fedamp.errors import UserError
from fedamp.records.beside_alone import LEVEL, paired_p
from fedamp.records.reading import read_run
from fedamp.report import comparison_table, write_report
from fedamp.training.sample_errors import errors_of
from fedamp.training.tasks_and_metrics import CLASSIFICATION, scored_by

QUICK = {"model": "mlp", "rounds": 3, "epochs": 1, "lr": 0.01}


def rare(clients=4, one_class=(), share=0.25, noise=0.5, size=90, seed=0):
    """Clients of two classes under one rule: (x, y, x_test, y_test); those of `one_class` have no positive sample."""
    stream = np.random.default_rng(seed)
    rule, given = stream.normal(size=4), []
    for i in range(clients):
        x = stream.normal(size=(size, 4))
        score = x @ rule + noise * stream.normal(size=size)
        y = (score > np.quantile(score, 1 - share)).astype(int) * (i not in one_class)
        given.append((x[:-30], y[:-30], x[-30:], y[-30:]))
    return given


@pytest.mark.parametrize("metric", ["balanced-accuracy", "f1", "auc", "log-loss"])
def test_both_ways_of_training_score_alike(metric):
    one, other = (
        fedamp.run(clients=rare(one_class=(1,)), metric=metric, engine=engine, validation=0.3, absent=0.3, **QUICK)
        for engine in ("stacked", "loop")
    )
    np.testing.assert_allclose(one.scores, other.scores, atol=1e-4)
    assert one.summary.best_round == other.summary.best_round
    assert np.isnan(one.scores[:, 1]).all() == (metric in ("f1", "auc"))
    means = np.nanmean(one.scores, axis=1)
    better = np.argmax if info(metric).higher_is_better else np.argmin
    assert one.summary.best_round == better(means) + 1
    assert one.best == pytest.approx(means[better(means)])


def test_every_metric_of_the_models_taken_home_is_in_the_result(tmp_path):
    given = rare(one_class=(1,))
    run = fedamp.run(clients=given, metric="auc", out=tmp_path, method="separate", **QUICK)
    outputs = []
    for i, (_, _, x, y) in enumerate(given):
        with torch.no_grad():
            output = run.client_model(i)(torch.tensor(x, dtype=torch.float32))
        outputs.append((output, y))
        right = (output.argmax(1).numpy() == y).mean()
        assert run.metrics["accuracy"].per_client[i] == pytest.approx(100 * right)
    sure = np.concatenate([(output[:, 1] - output[:, 0]).numpy() for output, _ in outputs])
    assert run.metrics["auc"].pooled == pytest.approx(roc_auc_score(np.concatenate([y for _, y in outputs]), sure))
    assert run.metrics["auc"].mean == pytest.approx(np.nanmean(run.metrics["auc"].per_client))
    np.testing.assert_allclose(run.metrics["auc"].per_client, run.chosen.scores)
    again = fedamp.run(clients=given, metric="auc", out=tmp_path, method="separate", **QUICK)
    assert again.to_dict() == run.to_dict()
    assert math.isnan(again.chosen.scores[1])
    assert json.loads((tmp_path / "result.json").read_text())["metrics"]["auc"]["per_client"][1] is None


def test_who_has_no_score_is_named_and_in_no_mean_and_no_p(tmp_path):
    for method in ("separate", "fedavg"):
        folder = tmp_path / method
        run = fedamp.run(clients=rare(one_class=(2,)), metric="auc", out=folder, method=method, validation=0.3, **QUICK)
        (test, held) = run.warnings[:2]
        assert "ROC AUC is not defined for client 2: its test samples have only one class. It has no score" in test
        assert "its validation samples" in held
        assert "choose another --metric" in test
        assert run.facts.undefined == [2]
        assert run.take_home.mean == pytest.approx(np.nanmean(run.take_home.scores))
    rows = comparison_table([read_run(tmp_path / name) for name in ("separate", "fedavg")])
    assert [row.clients for row in rows] == [3, 3]
    assert {row.without_score for row in rows} == {"client 2"}


def test_nor_on_the_page_beside_what_it_would_have_alone(tmp_path):
    x = np.random.default_rng(0).normal(size=(20, 3))
    given = [(x, x[:, 0], x[:9], x[:9, 0]), (x, x[:, 0], x[:1], x[:1, 0])]
    fedamp.run(clients=given, metric="r2", alone=True, method="fedavg", out=tmp_path / "run", **QUICK)
    page = write_report([tmp_path / "run"]).read_text()
    row = page[page.index('<th scope="row">client 1</th>') :].split("</tr>")[0]
    assert (row.count("undefined"), row.count("not finite")) == (2, 0)


def test_no_client_has_a_score():
    with pytest.raises(UserError, match="ROC AUC is not defined for any client: the test samples of each have only"):
        fedamp.run(clients=rare(clients=2, one_class=(0, 1))[:1] * 2, metric="auc", task="classification", **QUICK)
    x = np.ones((20, 3)) * np.arange(20)[:, None]
    given = [(x, x[:, 0], x[:1], x[:1, 0])] * 2
    with pytest.raises(UserError, match="R2 is not defined for any client: the test samples of each have only one val"):
        fedamp.run(clients=given, metric="r2", **QUICK)


@pytest.mark.parametrize("metric", ["rmse", "mae", "r2"])
def test_numbers(metric):
    stream = np.random.default_rng(0)
    given = []
    for _ in range(3):
        x = stream.normal(size=(60, 4))
        given.append((x[:40], x[:40] @ np.ones(4), x[40:], x[40:] @ np.ones(4)))
    run = fedamp.run(clients=given, metric=metric, validation=0.2, alone=True, **QUICK)
    np.testing.assert_allclose(run.metrics[metric].per_client, run.chosen.scores, rtol=1e-5)
    assert set(run.metrics) == {"rmse", "mae", "r2"}
    assert run.alone.p is not None


def test_the_positive_class_is_the_last_one_or_as_asked_for():
    last = fedamp.run(clients=rare(), metric="f1", **QUICK)
    first = fedamp.run(clients=rare(), metric="f1", positive=0, **QUICK)
    assert (last.facts.positive, first.facts.positive) == ("1", "0")
    assert last.metrics["f1"].pooled != first.metrics["f1"].pooled
    assert first.metrics["f1"].pooled == pytest.approx(last.metrics["accuracy"].pooled / 100, abs=0.3)
    for positive, task, words in (
        ("2", "auto", "choose one of the two classes: '0', '1'"),
        ("1", "regression", "is a"),
    ):
        with pytest.raises(UserError, match=words):
            fedamp.run(clients=rare(), positive=positive, task=task, **QUICK)


def test_the_positive_class_may_be_a_word_from_python():
    words = [
        tuple(np.where(part, "10", "9x") if place % 2 else part for place, part in enumerate(each)) for each in rare()
    ]
    numbers = [tuple(1 - part if place % 2 else part for place, part in enumerate(each)) for each in rare()]
    found = fedamp.run(clients=words, metric="f1", positive="10", **QUICK)  # "10" sorts before "9x"
    same = fedamp.run(clients=numbers, metric="f1", positive=0, **QUICK)
    assert (found.facts.positive, found.facts.labels) == ("10", ["10", "9x"])
    assert found.metrics["f1"].pooled == same.metrics["f1"].pooled
    with pytest.raises(UserError, match="choose one of the two classes: '10', '9x'"):
        fedamp.run(clients=words, positive="1", **QUICK)


def test_a_class_called_no_is_hardly_the_positive_one(tmp_path):
    for name, pair in zip("ab", rare(2), strict=True):
        x, y = np.concatenate(pair[::2]), np.concatenate(pair[1::2])
        rows = [",".join(map(str, [*row, "ja" if sick else "nein"])) for row, sick in zip(x, y, strict=True)]
        (tmp_path / "silos").mkdir(exist_ok=True)
        (tmp_path / "silos" / f"{name}.csv").write_text("\n".join(["p,q,r,s,sick", *rows]))
    data = {"data": str(tmp_path / "silos"), "label": "sick", "metric": "average-precision", **QUICK}
    run = fedamp.run(**data)
    assert run.facts.positive == "nein"
    assert any("the positive class is 'nein', which sorts last; if 'ja' is what" in text for text in run.warnings)
    assert fedamp.run(**data, positive="ja").facts.positive == "ja"
    assert not any("sorts last" in text for text in fedamp.run(**data, positive="nein").warnings)


def test_at_the_shell(tmp_path):
    flags = ["--data", "digits", "--setting", "iid", "--clients", "3", "--rounds", "1", "--epochs", "1", "--out", "run"]
    with CliRunner().isolated_filesystem(tmp_path):
        shown = CliRunner().invoke(app, ["run", *flags, "--metric", "auc"])
        assert "best mean test ROC AUC" in shown.output
        assert "balanced accuracy" in shown.output
        again = CliRunner().invoke(app, ["run", *flags, "--metric", "auc", "--json"])
        assert json.loads(again.output)["metric"] == "auc"
        other = CliRunner().invoke(app, ["run", *flags, "--metric", "f1"])
        assert "metric is 'auc' there and 'f1' here" in str(other.exception) + other.output
        wrong = CliRunner().invoke(app, ["run", *flags, "--metric", "r2"])
        assert "metric is 'r2', but the task is a classification; choose from accuracy" in str(wrong.exception)


# -- worse off than alone ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["auc", "log-loss", "balanced-accuracy"])
def test_a_few_rare_samples_raise_no_alarm(metric):
    """Two models that are equally good: over many clients with three positive samples, next to none is named."""
    task = scored_by(replace(CLASSIFICATION, positive=1), metric, 2)
    stream = torch.Generator().manual_seed(0)
    named, tries = 0, 200
    for client in range(tries):
        y = (torch.arange(100) < 3).long()
        truth = torch.randn(100, generator=stream) + 2 * y
        home, alone = (truth + torch.randn(100, generator=stream) - 2 for _ in range(2))
        pair = [errors_of(task, torch.stack([0 * one, one], 1).double(), y).numpy() for one in (home, alone)]
        named += paired_p(metric, *pair, client) <= LEVEL
    assert named <= 1.6 * LEVEL * tries


def test_a_much_worse_model_is_named_by_auc():
    given = rare(clients=3, share=0.4, noise=0.1, size=400)
    x, y, x_test, y_test = given[2]
    given[2] = (x, 1 - y, x_test, 1 - y_test)  # the opposite rule: what the others make of it is useless
    run = fedamp.run(clients=given, metric="auc", method="fedavg", validation=0.3, alone=True, **{**QUICK, "epochs": 5})
    assert run.alone.worse_off == (2,)
    assert any("client 2 is worse off than alone: AUC 0." in text for text in run.warnings)


# -- a loss and a metric of one's own ------------------------------------------------------------------------------


def sensitivity(outputs, targets):
    return (outputs.argmax(1) == 1)[targets == 1].double().mean()


def focal(output, y):
    return (1 - output.softmax(1).gather(1, y[:, None])[:, 0]) ** 2 * F.cross_entropy(output, y, reduction="none")


OWN = fedamp.Metric("sensitivity", sensitivity, higher_is_better=True, unit="%")


def test_an_own_metric_decides_and_is_recorded(tmp_path):
    run = fedamp.run(clients=rare(one_class=(1,)), metric=OWN, out=tmp_path, validation=0.3, alone=True, **QUICK)
    assert run.summary.metric == "own:higher:sensitivity:%"
    assert math.isnan(run.summary.per_client[1])  # no positive sample: the function's own nan
    assert run.summary.best_round == np.argmax(np.nanmean(run.scores, axis=1)) + 1
    np.testing.assert_allclose(run.metrics[run.summary.metric].per_client, run.chosen.scores)
    (row,) = comparison_table([read_run(tmp_path)])
    assert (row.metric, row.higher, row.clients) == ("own:higher:sensitivity:%", True, 3)
    shown = CliRunner().invoke(app, ["report", str(tmp_path), "--format", "text"])
    assert "best sensitivity, %" in shown.output


def test_an_own_loss_trains_alike_in_both_ways_and_is_another_run(tmp_path):
    rows = {}
    for engine in ("stacked", "loop"):
        run = fedamp.run(clients=rare(), loss=focal, engine=engine, method="fedavg", **QUICK)
        rows[engine] = run.models["own"].params
    torch.testing.assert_close(rows["stacked"], rows["loop"], rtol=0, atol=1e-5)
    scalar = fedamp.run(
        clients=rare(), loss=lambda o, y: focal(o, y).mean(), engine="stacked", method="fedavg", **QUICK
    )
    torch.testing.assert_close(scalar.models["own"].params, rows["loop"], rtol=0, atol=1e-5)
    plain = fedamp.run(clients=rare(), loss=F.cross_entropy, method="fedavg", **QUICK).models["own"].params
    usual = fedamp.run(clients=rare(), method="fedavg", **QUICK).models["own"].params
    torch.testing.assert_close(plain, usual, rtol=0, atol=1e-6)
    assert (usual - rows["loop"]).abs().max() > 1e-3
    fedamp.run(clients=rare(), loss=focal, out=tmp_path, **QUICK)
    with pytest.raises(UserError, match="loss_code"):
        fedamp.run(clients=rare(), loss=F.cross_entropy, out=tmp_path, **QUICK)
    with pytest.raises(UserError, match="loss_code"):
        fedamp.run(clients=rare(), out=tmp_path, **QUICK)


def test_the_shell_says_that_only_python_can_go_on(tmp_path):
    settings = {"data": "digits", "clients": 5, "setting": "iid", **QUICK}
    fedamp.run(metric=OWN, out=tmp_path / "a", observer=lambda line: line["round"] < 1, **settings)
    fedamp.run(loss=F.cross_entropy, out=tmp_path / "b", observer=lambda line: line["round"] < 1, **settings)
    for name, what in (("a", "metric"), ("b", "loss")):
        shown = CliRunner().invoke(app, ["resume", str(tmp_path / name)])
        text = str(shown.exception or "") + shown.output
        assert f"this run has a {what} of its own that was given from Python, and only Python can continue it" in text


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda o, y: 1.0, "the loss returns a float; expected a tensor of shape"),
        (lambda o, y: o, r"the loss returns a tensor of shape \(3, 2\)"),
        (lambda o, y: (o.detach() ** 2).mean(), "does not depend on the outputs"),
        (lambda o, y: o.nonsense, "the loss fails on outputs of shape"),
        ("mse", "loss is 'mse'; expected a function"),
    ],
)
def test_a_loss_that_is_none(loss, words):
    with pytest.raises(UserError, match=words):
        fedamp.run(clients=rare(), loss=loss, **QUICK)


def test_a_scalar_loss_has_no_samples_to_weigh():
    with pytest.raises(UserError, match="one number for a batch, but class_weights is 'balanced'"):
        fedamp.run(clients=rare(), loss=F.cross_entropy, class_weights="balanced", **QUICK)


def test_a_metric_that_is_none():
    for name in ("auc", "a:b", "", 3):
        with pytest.raises(UserError, match="the name of a metric is"):
            fedamp.Metric(name, sensitivity)
    with pytest.raises(UserError, match="expected a function"):
        fedamp.Metric("cost", 3)
    with pytest.raises(UserError, match=r"metric is <function .*>; expected a name, or a fedamp.Metric"):
        fedamp.run(clients=rare(), metric=sensitivity, **QUICK)
    broken = fedamp.Metric("broken", lambda outputs, targets: outputs @ targets)
    with pytest.raises(UserError, match=r"the metric broken fails on outputs of shape \(30, 2\)"):
        fedamp.run(clients=rare(), metric=broken, **QUICK)
    with pytest.raises(UserError, match="unknown metric 'acu'"):
        fedamp.run(clients=rare(), metric="acu", **QUICK)


@pytest.mark.parametrize(
    ("metric", "positives", "told"), [("auc", 60, True), ("auc", 300, False), ("accuracy", 60, False)]
)
def test_a_choice_by_few_samples_is_said_to_be_chance(metric, positives, told):
    """Of 60 positives in 600 samples about a tenth is held out for validation, of 300 about fifty."""
    stream = torch.Generator().manual_seed(0)
    clients = [(torch.randn(300, 3, generator=stream), (torch.arange(300) < positives // 2).long()) for _ in range(2)]
    settings = {"model": "logistic", "method": "separate", "rounds": 1, "epochs": 1, "validation": 0.2}
    result = fedamp.run(clients=clients, metric=metric, **settings)
    assert any("largely chance" in line for line in result.warnings) == told
