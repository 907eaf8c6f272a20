"""Rows travel unchanged, and no bytes from elsewhere do more than be refused."""

import io

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import given, settings
from hypothesis import strategies as st

from fedamp.config.reply_limits import Rules
from fedamp.federation.wire.encoding import RefusedError, decode, decode_array, encode
from fedamp.federation.wire.messages import check_willing
from fedamp.federation.wire.reply_form import check_noise, check_samples, templates
from fedamp.methods import METHODS, make_method
from fedamp.rows import Rows
from fedamp.runs.reply_checks import outliers

LIKE = torch.zeros(5)


def message(dtype=torch.float32):
    g = torch.Generator().manual_seed(0)
    u = Rows(torch.randn(1, 5, generator=g).to(dtype), torch.randn(1, 2, generator=g).to(dtype))
    return {"u": u, "strength": Rows.of(torch.full((1, 1), 0.25, dtype=dtype))}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_what_arrives_is_what_was_sent(dtype):
    sent = message(dtype)
    arrived = decode(encode(sent), sent)
    assert arrived.keys() == sent.keys()
    for name in sent:
        assert torch.equal(arrived[name].params, sent[name].params)
        assert torch.equal(arrived[name].buffers, sent[name].buffers)
        assert arrived[name].params.dtype == dtype


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_method_shows_what_its_messages_look_like(method):
    """The templates come from a training of no steps; real replies have the same names, shapes and types."""
    made, w = make_method(method), message()["u"]
    sent, reply = templates(made, w)
    for name, rows in {**sent, **reply}.items():
        assert len(rows) == 1, name
        assert rows.params.dtype in (torch.float32, torch.float64)
    assert decode(encode(reply), reply).keys() == reply.keys()


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_bytes_that_are_no_array_are_refused(data):
    with pytest.raises(RefusedError):
        decode_array("w", Array("float32", (5,), "numpy.ndarray", data), LIKE)


@given(st.integers(0, 200), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_an_array_with_one_byte_changed_is_read_or_refused(position, value):
    buffer = io.BytesIO()
    np.save(buffer, np.arange(5, dtype=np.float32))
    data = bytearray(buffer.getvalue())
    data[position % len(data)] = value
    read, words = LIKE, ""
    try:
        read = decode_array("w", Array("float32", (5,), "numpy.ndarray", bytes(data)), LIKE)
    except RefusedError as error:
        words = str(error)
    assert "\n" not in words
    assert read.shape == (5,)
    assert read.isfinite().all()


def test_the_array_is_the_receivers_own():
    """A tensor over the message's memory could be changed under our feet, and could not be written to."""
    array = Array(np.arange(5, dtype=np.float32))
    read = decode_array("w", array, LIKE)
    read += 1
    assert np.array_equal(array.numpy(), np.arange(5))


def test_names_from_elsewhere_can_not_steer_the_operators_terminal():
    record = ArrayRecord({"\x1b[2Jgone\nround 9/9: all is well": Array(np.zeros(5, np.float32))})
    with pytest.raises(RefusedError) as error:
        decode(record, message())
    assert "\x1b" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("count", [0, -1, 2.5, float("nan"), float("inf"), True, None, "7", 1 << 50])
def test_sample_counts_that_can_not_be(count):
    with pytest.raises(RefusedError, match="sample count"):
        check_samples(count)


@pytest.mark.parametrize("noise", [-1e-9, float("nan"), float("inf")])
def test_noise_that_can_not_be(noise):
    def reply(value):
        return {"noise": Rows.of(torch.tensor([[value]], dtype=torch.float64))}

    with pytest.raises(RefusedError, match="expected a variance"):
        check_noise(reply(noise))
    check_noise(reply(0.0))
    check_noise({"w": reply(noise)["noise"]})


def test_noise_may_be_anything_beside_the_others():
    """Most clients have none, and one whose promise is strict has much: it is heard less, and not refused."""
    assert (
        outliers({who: {"w": 1.0, "noise": 0.0} for who in "abc"} | {"d": {"w": 1.0, "noise": 1e9}}, {}, Rules()) == {}
    )


def test_the_median_is_of_now_and_of_before():
    rules = Rules(norm_factor=10)
    lengths = {"a": {"w": 1.0}, "b": {"w": 30.0}}
    assert outliers(lengths, {}, rules) == {"b": outliers(lengths, {}, rules)["b"]}
    assert outliers(lengths, {"a": {"w": 29.0}, "b": {"w": 31.0}}, rules) == {}
    assert outliers({"a": {"w": 30.0}}, {}, rules) == {}
    assert set(outliers({"a": {"w": 30.0}}, {"first": {"w": 1.0}}, rules)) == {"a"}


def test_a_lost_connection_is_told_in_our_words(monkeypatch):
    for name in ("_run_id", "_node_id", "_task_id"):  # a message belongs to a run
        monkeypatch.setattr(TaskIdentity, name, 1)
    asked = Message(RecordDict(), dst_node_id=1, message_type="train")
    reply = Message(Error(ErrorCode.NODE_UNAVAILABLE, "the destination node failed to report"), reply_to=asked)
    with pytest.raises(RefusedError, match="its connection was lost"):
        check_willing(reply)
