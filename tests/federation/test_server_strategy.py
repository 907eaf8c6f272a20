"""Nothing bad gets in: each bad reply is refused by name, counts as absent, and does not touch the state."""

import io
import json
import re
import sys

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict

from fedamp.config import Named
from fedamp.config.reply_limits import Rules
from fedamp.federation.server import attendance, strategy
from fedamp.federation.server.app import serve
from fedamp.federation.silo.app import make_client_app
from fedamp.federation.wire.allowed_metrics import metric_names
from fedamp.models import source_digest
from fedamp.records.reading import read_run
from fedamp.report.page import write_report
from fedamp.runs.simulated_faults import draw_present
from federation.inprocess import Local, engine_rounds, plan_of, write_silos

ROUNDS, BAD = 3, 1


def object_array():
    array = Array(np.zeros(1))
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    array.data = buffer.getvalue()
    return array


def giant():
    """An array whose header claims more than any memory holds."""
    array = Array(np.zeros(3, np.float32))
    array.data = array.data.replace(b"(3,), }                   ", b"(9999999999999999,), }    ")[: len(array.data)]
    return array


def changed(change):
    """Return a tampering that applies `change(arrays, metrics)` to the bad silo's reply in round 2."""

    def tamper(number, reply):
        if number != BAD or reply.metadata.group_id != "2":
            return reply
        arrays = dict(reply.content.array_records["arrays"])
        metrics = dict(reply.content.metric_records["metrics"])
        change(arrays, metrics)
        content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord(metrics)})
        reply.content = content
        return reply

    return tamper


def with_value(value):
    def change(arrays, metrics):
        w = arrays["w.params"].numpy().copy()
        w[3] = value
        arrays["w.params"] = Array(w)

    return change


def put(name, make):
    return lambda arrays, metrics: arrays.update({name: make()})


def tell(name, value):
    return lambda arrays, metrics: metrics.update({name: value})


CHANGES = {
    "nan": (with_value(np.nan), "not finite"),
    "inf": (with_value(np.inf), "not finite"),
    "wrong shape": (put("w.params", lambda: Array(np.ones(1, np.float32))), r"shape \(1,\)"),
    "wrong type": (put("w.params", lambda: Array(np.ones(57, np.float64))), "type float64"),
    "wrong key": (put("v.params", lambda: Array(np.ones(3, np.float32))), "unknown v.params"),
    "missing key": (lambda arrays, metrics: arrays.pop("w.params"), "no w.params"),
    "object array": (put("w.params", object_array), "type object"),
    "a giant": (put("w.params", giant), "shape|bytes"),
    "no array at all": (put("w.params", lambda: Array("float32", (57,), "numpy.ndarray", b"zip")), "not a numpy array"),
    "pickled type": (put("w.params", lambda: Array("float32", (57,), "pickle", b"\x80\x04.")), "not a numpy array"),
    "huge norm": (with_value(1e30), "norm of w is 1e\\+30, more than 10 times"),
    "long": (
        lambda arrays, metrics: arrays.update({"w.params": Array(30 * arrays["w.params"].numpy())}),
        "more than 10 times the federation's median",
    ),
    "negative count": (tell("num-examples", -4), "sample count is -4"),
    "no count": (lambda arrays, metrics: metrics.pop("num-examples"), "sample count is None"),
    "fraction": (tell("num-examples", 3.5), "sample count is 3.5"),
    "absurd count": (tell("num-examples", 10**9), "sample count is 1e\\+09, more than 1000 times"),
    "nan count": (tell("num-examples", float("nan")), "sample count is nan"),
    "something else": (tell("patients", 3), "reports patients"),
    "a forged line": (tell("\n2026-01-01 round 99/99: all is well \x1b[31m", 3), "reports 2026-01-01 round 99/99"),
    "accuracy of 5": (tell("test.own.accuracy", 5.0), "test.own.accuracy is 5; expected a number from 0 to 1"),
    "accuracy of nan": (tell("test.own.accuracy", float("nan")), "test.own.accuracy is nan"),
    "an absurd loss": (tell("test.own.loss", 1e300), "test.own.loss is 1e\\+300"),
    "a negative time": (tell("train-seconds", -1.0), "train-seconds is -1"),
    "a list": (tell("train-loss", [1.0, 2.0]), "of type list"),
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What the engine has when the bad silo is away from round 2."""
    data = write_silos(tmp_path_factory.mktemp("expected") / "data")
    plan = plan_of(data, rounds=ROUNDS)
    away = {k: draw_present(0, k, 3, 0.0) for k in range(1, ROUNDS + 1)}
    away[2][BAD] = False
    return engine_rounds(plan, lambda k: away[k])[-1].server


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.many
def test_a_bad_reply_is_refused_by_name_and_counts_as_absent(tmp_path, kind, expected):
    change, words = CHANGES[kind]
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=ROUNDS), data, tamper=changed(change))
    record = local.serve()
    log = (tmp_path / "record" / "log.txt").read_text()
    bad = [line for line in log.splitlines() if "bad reply" in line]
    assert len(bad) == 1
    assert "bad reply from silo-1" in bad[0]
    assert re.search(words, bad[0]), bad[0]
    assert "silo-1 missing since round 2" in log
    assert torch.equal(record.state.method_state.rows["w"].params, expected.rows["w"].params)
    assert record.state.standings[record.keys[BAD]].strikes == 0  # round 3 was fine again


def test_a_weight_of_its_own_making_is_refused(tmp_path):
    """FedAvg weighs by the reply's own count: it must be the one that was reported."""

    def change(arrays, metrics):
        arrays["samples.params"] = Array(np.array([1e6]))

    data = write_silos(tmp_path / "data")
    Local(tmp_path, plan_of(data, "fedavg", rounds=2), data, tamper=changed(change)).serve()
    assert "weights itself by 1e+06 samples" in (tmp_path / "record" / "log.txt").read_text()


@pytest.mark.parametrize(
    ("place", "value", "words"), [(0, 1e30, "norm of w.buffers is 1e+30"), (5, -0.5, "a negative variance")]
)
def test_what_a_model_carries_along_is_checked_too(tmp_path, place, value, words):
    """BatchNorm's statistics are mixed with everybody's: a huge one, or a negative variance, must not get in."""

    def change(arrays, metrics):
        buffers = arrays["w.buffers"].numpy().copy()
        buffers[place] = value
        arrays["w.buffers"] = Array(buffers)

    (tmp_path / "normed_net.py").write_text(
        "from torch import nn\n"
        "def net(input_shape, num_outputs):\n"
        "    norm = nn.BatchNorm1d(4)\n"
        "    return nn.Sequential(nn.Linear(input_shape[0], 4, bias=False), norm, nn.Linear(4, num_outputs))\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        data = write_silos(tmp_path / "data")
        digest = source_digest("normed_net:net")
        plan = plan_of(data, rounds=2, model=Named("normed_net:net"), model_code=digest)
        Local(tmp_path, plan, data, tamper=changed(change)).serve()
    finally:
        sys.path.remove(str(tmp_path))
    assert words in (tmp_path / "record" / "log.txt").read_text()


def test_two_silos_can_not_lift_the_median_alone(tmp_path):
    data = write_silos(tmp_path / "data", num_silos=2)
    Local(tmp_path, plan_of(data, rounds=2), data, tamper=changed(with_value(1e30))).serve()
    assert "norm of w is 1e+30" in (tmp_path / "record" / "log.txt").read_text()


def test_three_bad_replies_in_a_row_set_a_silo_aside_until_the_operator_lets_it_in(tmp_path):
    data = write_silos(tmp_path / "data")
    trained = []

    def tamper(number, reply):
        k = int(reply.metadata.group_id)
        trained.append((k, number))
        if number == BAD and k <= 3:
            return changed(with_value(np.nan))(number, _as_round_two(reply))
        if k == 6 and number == 0:  # the operator's word, while round 6 is being played
            admit = tmp_path / "admit"
            admit.mkdir()
            (admit / "silo-1").touch()
        return reply

    def _as_round_two(reply):
        reply.metadata.__dict__["_group_id"] = "2"
        return reply

    record = Local(tmp_path, plan_of(data, rounds=8), data, tamper=tamper).serve()
    log = (tmp_path / "record" / "log.txt").read_text()
    assert log.count("bad reply from silo-1") == 3
    assert "silo-1 is set aside after 3 bad replies in a row" in log
    assert "silo-1 is let in again" in log
    assert [k for k, number in trained if number == BAD] == [1, 2, 3, 7, 8]
    assert record.state.standings[record.keys[BAD]].accepted == 8


def test_too_few_good_replies_and_the_round_is_played_again(tmp_path):
    data = write_silos(tmp_path / "data")
    lost = iter([True, True])

    def tamper(number, reply):
        return None if number != 0 and reply.metadata.group_id == "2" and next(lost, False) else reply

    plan = plan_of(data, rounds=3)
    record = Local(tmp_path, plan, data, Rules(min_silos=2), tamper=tamper).serve()
    assert "round 2 does not count: 1 of the 2 good replies needed" in (tmp_path / "record" / "log.txt").read_text()
    # Played again from the same states with the same draws: as if nothing had happened.
    assert torch.equal(record.state.method_state.rows["w"].params, engine_rounds(plan)[-1].server.rows["w"].params)


def test_an_error_in_a_silo_is_told_in_a_word_and_no_more(tmp_path):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=2), data)
    secret = tmp_path / "ward-17-patients.npz"
    local.houses[1] = type(local.houses[1])(local.houses[1].config, secret, local.houses[1].folder)
    grid = local.grid()
    replies = []
    ask = grid.send_and_receive
    grid.send_and_receive = lambda messages, timeout=None: replies.extend(got := ask(messages)) or got
    serve(grid, local.federation, tmp_path / "record")
    log = (tmp_path / "record" / "log.txt").read_text()
    assert "silo-1 is not let in: its data can't be read" in log
    sent = "".join(str(reply.content) for reply in replies if reply.has_content())
    assert "ward-17" not in sent + log
    assert "ward-17" in (local.houses[1].folder / "log.txt").read_text()
    assert all(isinstance(reply, Message) and not reply.has_error() for reply in replies)


NOISE = ("noise.params", "noise.buffers")  # how much of it privacy has put into the model: one number


def test_what_leaves_a_silo_is_written_down(tmp_path):
    data = write_silos(tmp_path / "data")
    seen = set()

    def look(number, reply):
        seen.update(reply.content.keys())
        seen.update(reply.content.array_records["arrays"].keys())
        seen.update(reply.content.metric_records["metrics"].keys())
        return reply

    Local(tmp_path, plan_of(data, rounds=2, validation=0.2), data, tamper=look).serve()
    assert seen - set(metric_names("accuracy")) == {"arrays", "metrics", "w.params", "w.buffers", *NOISE}


def test_a_failing_round_is_told_once_and_the_pause_grows(tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(strategy.time, "sleep", pauses.append)
    monkeypatch.setattr(strategy, "FIRST_PAUSE", 3.0)
    monkeypatch.setattr(strategy, "LONGEST_PAUSE", 300.0)
    data = write_silos(tmp_path / "data")
    lost = iter(range(4))

    def tamper(number, reply):
        if number == 1 and reply.metadata.group_id == "2" and next(lost, None) is not None:
            return None
        return reply

    Local(tmp_path, plan_of(data, rounds=2), data, Rules(min_silos=3), tamper=tamper).serve()
    assert (tmp_path / "record" / "log.txt").read_text().count("does not count") == 1
    assert pauses == [3.0, 6.0, 12.0, 24.0]


def test_a_log_that_can_not_be_written_is_not_told_to_the_server(tmp_path):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=2), data, Rules(min_silos=2))
    (local.houses[1].folder / "log.txt").mkdir(parents=True)
    assert local.serve().state.standings[local.federation.members[1].key].accepted == 2

    def gone(context):
        raise FileNotFoundError(2, "no such file", "/secret/ward-17")

    grid = local.grid()
    reply = make_client_app(gone)(grid_message(grid, local), Context(1, 100, {}, RecordDict(), {}))
    assert "ward-17" not in str(reply.content)


def grid_message(grid, local):
    serve(grid, local.federation, local.folder / "another")
    return grid.sent[0]


def test_a_silo_that_never_answers_the_first_question_costs_ever_less(tmp_path, monkeypatch):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=6), data, Rules(min_silos=2))
    grid = local.grid()
    ask, asked = grid.send_and_receive, []

    def deaf(messages, timeout=None):
        asked.extend(m for m in messages if m.metadata.dst_node_id == 102)
        return ask([m for m in messages if m.metadata.dst_node_id != 102])

    grid.send_and_receive = deaf
    clock = iter(range(0, 10_000, 1))
    monkeypatch.setattr(attendance.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(attendance, "ASK_AGAIN", 2.0)
    serve(grid, local.federation, tmp_path / "record")
    assert 1 <= len(asked) <= 3
    status = json.loads((tmp_path / "record" / "status.json").read_text())
    assert status["silos"][2]["state"] == "not let in"
    assert "no answer within" in status["silos"][2]["reason"]
    assert read_run(tmp_path / "record").result["best"] is not None
    write_report([tmp_path / "record"])  # a silo that never came has no size


def test_a_silo_that_was_never_accepted_enters_no_mean(tmp_path):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=3), data, tamper=lambda i, reply: None if i == 2 else reply)
    local.serve()
    result = read_run(tmp_path / "record").result
    assert result["best"] is not None
    assert result["per_client"][2] is None
