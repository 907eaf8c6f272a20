"""What a registered silo that means harm can send: it is refused, and the server and the others go on."""

import contextlib
import datetime
import hashlib
import json
import threading
import time
from contextlib import contextmanager

import pytest
from flwr.app import Message, RecordDict
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, Status
from flwr.common.serde import metadata_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import ObjectTree
from flwr.server.superlink.linkstate import in_memory_linkstate
from flwr.supercore import date
from flwr.supercore.corestate import in_memory_corestate
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from fedamp.config.reply_limits import Rules
from fedamp.federation.server.grid import LinkGrid
from fedamp.federation.server.lateness import Lateness
from fedamp.federation.server.link import MOST_LISTED, Link
from fedamp.federation.silo import node
from fedamp.federation.wire import objects
from fedamp.federation.wire.messages import UNREADABLE
from federation.provisioned import NAMES
from federation.test_server_door import MOST, echo, folder, question, server, silo, wait_for

__all__ = ["folder"]  # a fixture


def piece(kind, children, body):
    """A piece of a message as it travels, with its hash."""
    content = f"{kind} {','.join(children)} {len(body)}".encode() + b"\x00" + body
    return hashlib.sha256(content).hexdigest(), content


def message_piece(message, children, **changes):
    """The first piece of a reply; `changes` are to what it says about itself."""
    proto = metadata_to_proto(Message(RecordDict(), reply_to=message).metadata)
    proto.message_id = ""
    for name, value in changes.items():
        setattr(proto, name, value)
    return piece("Message", children, ProtoMessage(metadata=proto).SerializeToString())


def records(**named):
    return piece("RecordDict", list(named.values()), json.dumps(named).encode())


def other_question(message):
    content = records()
    return [message_piece(message, [content[0]], reply_to_message_id="f" * 64), content]


def other_sender(message):
    content = records()
    return [message_piece(message, [content[0]], src_node_id=1), content]


def no_message(message):
    return [records()]


def no_content(message):
    return [message_piece(message, [])]


def content_of_another_kind(message):
    content = piece("ConfigRecord", [], b"")
    return [message_piece(message, [content[0]]), content]


def damaged_json(message):
    content = piece("RecordDict", [], b"[" * 100_000)
    return [message_piece(message, [content[0]]), content]


def damaged_record(message):
    inner = piece("ConfigRecord", [], b"\xff\xff\xff")
    content = records(config=inner[0])
    return [message_piece(message, [content[0]]), content, inner]


def deep(message):
    pieces = [records()]
    for _ in range(1200):
        pieces.append(records(a=pieces[-1][0]))
    return [message_piece(message, [pieces[-1][0]]), *pieces]


def array_of_arrays(message):
    """A reply that is small, and whose arrays are, each by itself, small too: together they are 500 MB."""
    about = {"dtype": "float32", "shape": [1], "stype": "numpy.ndarray"}
    chunk = piece("ArrayChunk", [], bytes(5000))
    inner = piece("Array", [chunk[0]], json.dumps({**about, "arraychunk_ids": [0] * 100}).encode())
    outer = piece("Array", [inner[0]], json.dumps({**about, "arraychunk_ids": [0] * 1000}).encode())
    array_record = piece("ArrayRecord", [outer[0]], json.dumps({"w.params": outer[0]}).encode())
    content = records(arrays=array_record[0])
    return [message_piece(message, [content[0]]), content, array_record, outer, inner, chunk]


def sends(line, message, pieces, part=None):
    """Announce a reply by its first piece, with all pieces in a row under it, and send them, or a part of them."""
    reply = Message(RecordDict(), reply_to=message)
    reply.metadata.__dict__["_message_id"] = pieces[0][0]
    tree = ObjectTree(object_id=pieces[0][0], children=[ObjectTree(object_id=name) for name, _ in pieces[1:]])
    missing, session = line.send(reply, tree, 0.0)
    for name, content in pieces if part is None else part:
        if name in missing:
            line.push(message.metadata.run_id, session, name, content)


@contextmanager
def hostile(folder, pieces_for):
    """A silo that answers one message with these pieces."""
    with node.connected(folder / "bundles" / NAMES[1]) as line:

        def act():
            message = wait_for(line)
            sends(line, message, pieces_for(message))

        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        yield line.node
        thread.join(10)


FORMS = [
    *(no_message, no_content, content_of_another_kind, damaged_json, damaged_record, array_of_arrays),
    pytest.param(deep, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("pieces_for", FORMS)
def test_a_reply_of_any_form_ends_neither_the_round_nor_the_server(folder, pieces_for):
    with server(folder) as (grid, _), silo(folder, NAMES[0]), hostile(folder, pieces_for) as bad:
        replies = {reply.metadata.src_node_id: reply for reply in grid.send_and_receive(question(grid), timeout=40)}
        assert len(replies) == 2
        (good,) = [reply for reply in replies.values() if not reply.has_error()]
        (refused,) = [reply for reply in replies.values() if reply.has_error()]
        assert good.metadata.src_node_id != bad
        assert refused.error.code == UNREADABLE
        assert len(grid.link.state.object_store) == 0
        assert not grid.open


@pytest.mark.parametrize("pieces_for", [other_question, other_sender])
def test_a_reply_is_from_whom_it_came_and_to_what_was_asked_whatever_it_says(folder, pieces_for):
    with server(folder) as (grid, _), hostile(folder, pieces_for) as bad:
        (message,) = question(grid)
        (reply,) = grid.send_and_receive([message], timeout=40)
        assert reply.metadata.src_node_id == bad
        assert reply.metadata.reply_to_message_id == message.metadata.message_id


def test_a_silo_that_announces_without_end_fills_no_memory(folder):
    with server(folder) as (grid, _), node.connected(folder / "bundles" / NAMES[0]) as line:
        grid.push_messages(question(grid))
        reply, state = echo(wait_for(line)), grid.link.state
        objects.in_pieces(reply)
        tree = get_object_tree(reply)
        missing, _ = line.send(reply, tree, 0.0)
        known = len(state.object_store)
        assert line.send(reply, tree, 0.0)[0] == missing  # again, after a connection that broke off: no harm
        for index in range(5):
            other = [ObjectTree(object_id=hashlib.sha256(bytes([index, each])).hexdigest()) for each in range(9)]
            assert not line.send(reply, ObjectTree(object_id=tree.object_id, children=other), 0.0)[0]
            assert not line.send(reply, ObjectTree(object_id=other[0].object_id, children=other), 0.0)[0]
        assert len(state.object_store) == known
        assert len(state._object_push_sessions) == 1
        # Nor does a reply to nothing, nor a list that is longer than any reply needs.
        stray = Message(RecordDict(), reply_to=reply)
        stray.metadata.__dict__["_src_node_id"] = line.node
        assert not line.send(stray, ObjectTree(object_id="f" * 64), 0.0)[0]
        assert len(state._object_push_sessions) == 1


def test_a_list_of_pieces_has_an_end(folder):
    with server(folder) as (grid, _), node.connected(folder / "bundles" / NAMES[0]) as line:
        grid.push_messages(question(grid))
        reply = echo(wait_for(line))
        objects.in_pieces(reply)
        known = len(grid.link.state.object_store)
        names = [ObjectTree(object_id=f"{index:064x}") for index in range(MOST_LISTED // 64)]
        assert not line.send(reply, ObjectTree(object_id=reply.metadata.message_id, children=names), 0.0)[0]
        assert len(grid.link.state.object_store) == known


def test_a_silo_announcing_again_may_not_send_more_bytes(folder):
    with server(folder) as (grid, _), node.connected(folder / "bundles" / NAMES[0]) as line:
        grid.push_messages(question(grid))
        message = wait_for(line)
        chunks = [piece("ArrayChunk", [], bytes([index]) * (MOST // 3)) for index in range(9)]
        pieces = [message_piece(message, [name for name, _ in chunks]), *chunks]
        for part in (pieces[:3], pieces[3:6], pieces[6:]):
            with contextlib.suppress(ObjectPushError):
                sends(line, message, pieces, part)
        assert sum(len(entry.content) for entry in grid.link.state.object_store.store.values()) <= MOST


@pytest.mark.slow
def test_a_silo_that_fetches_and_never_answers_leaves_one_message(folder):
    with server(folder, late_after=0.1) as (grid, _), node.connected(folder / "bundles" / NAMES[0]) as line:
        for value in (1.0, 2.0, 3.0):
            messages = question(grid, value)
            fetched = threading.Thread(target=wait_to_receive, args=[line], daemon=True)
            fetched.start()
            assert list(grid.send_and_receive(messages, timeout=1.5)) == []
            fetched.join(10)
        assert len(grid.open) == len(grid.late) == 1
        assert len(grid.link.state.message_ins_store) == 1


def wait_to_receive(line):
    """Fetch a message, and not confirm it."""
    while line.receive() is None:
        time.sleep(0.01)


def test_the_run_outlives_a_machine_that_slept(monkeypatch):
    """A suspended machine, or a clock that was put right: the server must go on, not wait for ever."""
    link = Link(MOST)
    node_id = link.state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, b"key", 0)
    later = date.now() + datetime.timedelta(days=2)
    for module in (in_memory_corestate, in_memory_linkstate):
        monkeypatch.setattr(module, "now", lambda: later)
    link.state.activate_node(node_id, 30)
    assert link.state.get_run_status({link.run})[link.run].status == Status.RUNNING
    grid = LinkGrid(link, Lateness(Rules()))
    message = Message(RecordDict(), dst_node_id=node_id, message_type="train", ttl=1e6)
    assert len(grid.push_messages([message])) == 1


def test_giving_up_half_a_reply_while_another_is_announced_blocks_nobody():
    link = Link(MOST)
    state = link.state
    session = state.start_session(link.run)
    state.preregister_object_tree(ObjectTree(object_id="a" * 64), session)
    state._object_push_sessions[session].expires_at = date.now()
    holds = threading.Event()

    def announce():
        with state.lock:
            holds.set()
            time.sleep(0.5)
            state.start_session(link.run)

    def give_up():
        holds.wait(5)
        state.get_object(link.run, "a" * 64)

    threads = [threading.Thread(target=each, daemon=True) for each in (announce, give_up)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)
