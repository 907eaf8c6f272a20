"""Scores are what counting by hand gives, in both ways of evaluating."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from fedamp.records.summaries import score_table, summarise, worse_off
from fedamp.training import evaluate as evaluating
from fedamp.training.evaluate import evaluate
from fedamp.training.sample_errors import sample_errors
from helpers import Federation, mlp


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("tests", [[8, 8, 8], [8, 3, 5], [3, 8, 3]])
def test_scores_by_hand(engine, tests):
    a = Federation.of("separate", sizes=(20, 30, 25), module=mlp(norm=True, dropout=0.3)).play(2)
    clients = replace(a.clients, test=tuple(p[:n] for p, n in zip(a.clients.train, tests, strict=True)))
    training, rows = a.trainer.changed(engine=engine, chunk=2), a.rounds[-1].models["own"]
    scores = evaluate(training, clients, rows)
    module = mlp(norm=True, dropout=0.3).eval()
    for i in range(3):
        module.load_state_dict(training.model.state_dict(rows[slice(i, i + 1)]))
        x, y = a.clients.x[clients.test[i]], a.clients.y[clients.test[i]]
        with torch.no_grad():
            output = module(x)
        assert scores.metric[i] == pytest.approx((output.argmax(1) == y).double().mean().item())
        assert scores.loss[i] == pytest.approx(F.cross_entropy(output, y).item())


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_the_errors_of_single_samples_make_the_score(engine):
    a = Federation.of("separate", sizes=(20, 30, 25), module=mlp(norm=True, dropout=0.3)).play(2)
    clients = replace(a.clients, test=tuple(p[:n] for p, n in zip(a.clients.train, (8, 3, 5), strict=True)))
    training, rows = a.trainer.changed(engine=engine, chunk=2), a.rounds[-1].models["own"]
    errors = sample_errors(training, clients, rows)
    assert [len(each) for each in errors] == [8, 3, 5]
    assert [1 - each.mean().item() for each in errors] == pytest.approx(
        evaluate(training, clients, rows).metric.tolist()
    )


def test_clients_with_as_many_samples_are_scored_at_once(monkeypatch):
    passes, plain = [], evaluating.outputs
    monkeypatch.setattr(
        evaluating, "outputs", lambda trainer, rows, *more: passes.append(len(rows)) or plain(trainer, rows, *more)
    )
    a = Federation.of("separate", sizes=(20, 30, 25, 25)).play(1)
    clients = replace(a.clients, test=tuple(p[:n] for p, n in zip(a.clients.train, (3, 8, 3, 3), strict=True)))
    evaluate(a.trainer.changed(engine="stacked"), clients, a.rounds[-1].models["own"])
    assert passes == [3, 1]


def test_no_samples_to_score_on():
    a = Federation.of("separate")
    with pytest.raises(ValueError, match="not every client has test samples"):
        evaluate(a.trainer, a.clients, a.state.rows["w"])


def line(k, own=None, received=None):
    scores = {name: {"accuracy": value} for name, value in (("own", own), ("received", received)) if value}
    return {"round": k, "test": scores}


LINES = [
    line(0, own=[0.1, 0.1], received=[0.1, 0.1]),
    line(1, own=[0.5, None], received=[0.1, None]),
    line(2, own=[0.9, 0.3], received=[0.4, 0.2]),
    line(3, received=[0.6, 0.8]),
]


def test_own_is_counted_at_its_round_and_absent_clients_keep_their_last_value():
    assert score_table(LINES, "own").tolist() == [[0.5, 0.1], [0.9, 0.3]]


def test_received_is_counted_at_the_round_that_made_it():
    assert score_table(LINES, "received").tolist() == [[0.4, 0.2], [0.6, 0.8]]


def test_summary_by_hand():
    summary = summarise(score_table(LINES, "received"))
    assert summary.best == pytest.approx(70)
    assert summary.best_round == 2
    assert summary.per_client == pytest.approx([60, 80])
    assert summary.worst == pytest.approx(60)
    assert summary.tenth == pytest.approx(62)
    assert summarise(score_table(LINES, "own")).last == pytest.approx(60)


def test_worse_off():
    assert worse_off([50, 60, 70], [50, 61, 10]) == 1
