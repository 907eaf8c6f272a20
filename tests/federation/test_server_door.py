"""The server's door and what goes through it: a real one, with TLS, on the loopback interface."""

import contextlib
import http.client
import socket
import ssl
import threading
import time
from contextlib import contextmanager

import httpx
import pytest
import torch
from cryptography.hazmat.primitives import serialization
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedamp.config.reply_limits import Rules
from fedamp.federation import provision
from fedamp.federation.processes import ports
from fedamp.federation.processes.waiting import wait_until
from fedamp.federation.server import fleet
from fedamp.federation.server.grid import LinkGrid
from fedamp.federation.server.lateness import Lateness
from fedamp.federation.server.link import Link
from fedamp.federation.silo import node
from fedamp.federation.wire import objects
from fedamp.federation.wire.encoding import RefusedError
from fedamp.federation.wire.messages import UNREADABLE, check_willing
from fedamp.rows import Rows
from federation.provisioned import NAMES, make_plan

MOST = objects.most_bytes({"w": Rows(torch.zeros(1, 1000), torch.zeros(1, 0))})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("door") / "fed"
    provision.init(made, NAMES, make_plan(), Rules(), ["localhost"], ports.free_port(), None)
    return made


@contextmanager
def server(folder, silos=NAMES, **rules):
    """Yield the grid of a server that answers on its port, and the port."""
    port = provision.address.read_address(folder).port
    link = Link(MOST)
    for name in silos:
        link.register(name, (folder / f"server/keys/{name}.pub").read_bytes())
    with fleet.listening(link, "127.0.0.1", port, folder / "server", folder / "server/run/server.log"):
        yield LinkGrid(link, Lateness(Rules(min_silos=1, **rules))), port


def question(grid, value=1.0, size=1000):
    content = {"arrays": ArrayRecord({"w.params": Array(torch.full((size,), value).numpy())})}
    record = RecordDict({**content, "config": ConfigRecord({"x": 1})})
    return [Message(record, dst_node_id=each, message_type="train", ttl=600) for each in grid.get_node_ids()]


def echo(message):
    array = message.content["arrays"]["w.params"].numpy()
    return Message(RecordDict({"arrays": ArrayRecord({"w.params": Array(2 * array)})}), reply_to=message)


@contextmanager
def silo(folder, name, act=echo):
    """A silo that answers in a thread as long as the block lasts."""
    over = threading.Event()

    with node.connected(folder / "bundles" / name) as line:

        def loop():
            while not over.is_set():
                message = line.fetch()
                if message is None:
                    time.sleep(0.01)
                elif (reply := act(message)) is not None:
                    try:
                        line.answer(reply, 0.0)
                    except Exception as error:  # the server refuses what it refuses
                        refused.append(error)

        refused = []
        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        try:
            yield refused
        finally:
            over.set()
            thread.join(10)


def call(folder, port, method, path, body=b""):
    context = ssl.create_default_context(cafile=str(folder / "server/ca.crt"))
    connection = http.client.HTTPSConnection("localhost", port, timeout=20, context=context)
    try:
        connection.request(method, path, body, {"Content-Type": "application/protobuf"})
        return connection.getresponse().status
    finally:
        connection.close()


@contextmanager
def signed_calls(folder, name, port):
    """Yield the calls of a silo, and its public key as Flower knows it."""
    private = serialization.load_ssh_private_key((folder / "bundles" / name / "key").read_bytes(), None)
    signed = [NodeAuthHttpInterceptor(private, private.public_key())]
    authority = (folder / "server/ca.crt").read_bytes()
    with FleetHttpClient.from_server_address(f"localhost:{port}", False, authority, interceptors=signed) as calls:
        yield calls, ActivateNodeRequest(public_key=public_key_to_bytes(private.public_key()), heartbeat_interval=30)


def test_messages_and_replies_arrive_as_they_were_sent(folder):
    with server(folder) as (grid, _), silo(folder, NAMES[0]), silo(folder, NAMES[1]):
        for value in (1.0, 3.0):
            replies = list(grid.send_and_receive(question(grid, value), timeout=20))
            assert len(replies) == 2
            for reply in replies:
                assert (reply.content["arrays"]["w.params"].numpy() == 2 * value).all()
        # Nothing of it stays in memory.
        state = grid.link.state
        assert not grid.open
        assert len(state.object_store) == 0
        assert not state.message_ins_store
        assert not state.message_res_store
        assert not state.received


def test_only_the_calls_of_a_silo_exist_and_they_need_a_registered_key(folder):
    with server(folder, [NAMES[0]]) as (grid, port):
        assert call(folder, port, "GET", "/health") == 200
        for path in ("/", "/docs", "/openapi.json", "/v1/control/list-runs", "/v1/control/start-run"):
            assert call(folder, port, "GET", path) == 404
            assert call(folder, port, "POST", path) == 404
        for path in ("/v1/runtime/acquire-task", "/v1/runtime/push-messages", "/v1/fleet/register-node"):
            assert call(folder, port, "POST", path) == 404
        for path in fleet.CALLS:
            assert call(folder, port, "POST", f"/v1/fleet/{path}") == 401
            assert call(folder, port, "GET", f"/v1/fleet/{path}") == 404
        stranger = signed_calls(folder, NAMES[1], port)  # whose key is not registered
        with stranger as (calls, who), pytest.raises(httpx.HTTPStatusError, match="412"):
            calls.ActivateNode(who)
        with silo(folder, NAMES[0]):
            assert len(list(grid.get_nodes())) == 1


def test_a_removed_silo_is_turned_away_at_once(folder):
    with server(folder) as (grid, port), signed_calls(folder, NAMES[0], port) as (calls, who):
        mine = PullMessagesRequest(node=Node(node_id=calls.ActivateNode(who).node_id))
        assert list(grid.get_node_ids()) == [mine.node.node_id]
        assert not calls.PullMessages(mine).messages_list
        grid.link.unregister(NAMES[0])
        assert list(grid.get_node_ids()) == []
        with pytest.raises(httpx.HTTPStatusError, match="401"):
            calls.PullMessages(mine)
        with pytest.raises(httpx.HTTPStatusError, match="412"):
            calls.ActivateNode(who)


def test_a_request_that_is_too_large_is_ended(folder, monkeypatch):
    with server(folder) as (_, port):
        try:
            status = call(folder, port, "POST", "/v1/fleet/push-object", bytes(fleet.MOST + 1))
        except (ConnectionError, http.client.HTTPException, ssl.SSLError):
            status = 0  # hung up on
        assert status != 200
        assert call(folder, port, "GET", "/health") == 200


def test_a_stranger_is_not_listened_to_for_long(folder):
    """What comes without a registered key is read before it is refused: so it must be short."""
    with server(folder) as (_, port):
        for size, statuses in ((fleet.OF_STRANGERS // 2, {401, 422, 400}), (2 * fleet.OF_STRANGERS, {0, 500})):
            try:
                status = call(folder, port, "POST", "/v1/fleet/push-object", bytes(size))
            except (ConnectionError, http.client.HTTPException, ssl.SSLError):
                status = 0  # hung up on
            assert status in statuses, size


def test_connections_without_end_keep_nobody_out(folder, monkeypatch):
    """Each is an open file of the server's process: a stranger must not use them up."""
    monkeypatch.setattr(fleet, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(fleet, "IDLE", 1)
    context = ssl.create_default_context(cafile=str(folder / "server/ca.crt"))
    with server(folder) as (grid, port), contextlib.ExitStack() as stack:
        mute = []
        for _ in range(24):
            plain = stack.enter_context(socket.create_connection(("localhost", port), 20))
            mute.append(stack.enter_context(context.wrap_socket(plain, server_hostname="localhost")))
        for each in mute:  # hung up on: at once, or after a second of silence
            each.settimeout(20)
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                assert each.recv(1) == b""
        with silo(folder, NAMES[0]):
            assert len(list(grid.send_and_receive(question(grid), timeout=20))) == 1


def bomb(message):
    """A small reply that becomes a large one: its array names its only chunk ten thousand times."""
    reply = Message(
        RecordDict({"arrays": ArrayRecord({"w.params": Array(torch.zeros(100).numpy())})}), reply_to=message
    )
    array = reply.content["arrays"]["w.params"]
    head, _, body = array.deflate().partition(b"\x00")
    larger = body.replace(b'"arraychunk_ids": [0]', b'"arraychunk_ids": [' + b"0, " * 9999 + b"0]")
    assert larger != body
    array.deflate = lambda: head.rpartition(b" ")[0] + f" {len(larger)}".encode() + b"\x00" + larger
    return reply


def test_a_reply_that_would_be_too_large_is_refused_before_it_is_put_together(folder):
    with server(folder) as (grid, _), silo(folder, NAMES[0], bomb):
        (reply,) = grid.send_and_receive(question(grid), timeout=20)
        assert reply.error.code == UNREADABLE
        assert "expected" in reply.error.reason
        check_willing(reply)  # it is bad, not absent


def test_a_reply_with_too_many_bytes_is_not_even_taken(folder):
    def large(message):
        array = Array(torch.arange(MOST // 4 + 100).numpy())
        return Message(RecordDict({"arrays": ArrayRecord({"w.params": array})}), reply_to=message)

    with server(folder) as (grid, _), silo(folder, NAMES[0], large) as refused:
        asked = grid.push_messages(question(grid))
        assert wait_until(lambda: refused or grid.pull_messages(asked), 30)
        assert [type(error) for error in refused] == [ObjectPushError]
        assert sum(len(entry.content) for entry in grid.link.state.object_store.store.values()) <= MOST


def test_half_a_reply_is_not_waited_for_beyond_the_timeout(folder):
    """A silo that dies while it sends does not hold up the others."""
    with server(folder) as (grid, _), node.connected(folder / "bundles" / NAMES[0]) as line:
        messages = question(grid)
        dies = threading.Thread(target=lambda: line.send(*half(wait_for(line)), 0.0))
        dies.start()
        began = time.monotonic()
        assert list(grid.send_and_receive(messages, timeout=1.5)) == []
        assert time.monotonic() - began < 10
        dies.join(10)


def wait_for(line):
    while (message := line.fetch()) is None:
        time.sleep(0.01)
    return message


def half(message):
    """A reply with the list of its pieces, none of which is sent."""
    reply = echo(message)
    objects.in_pieces(reply)
    return reply, get_object_tree(reply)


def test_who_is_late_does_not_hold_up_the_others_and_comes_back(folder):
    slow = threading.Event()

    def waits(message):
        slow.wait(20)
        return echo(message)

    with (
        server(folder, late_after=0.3) as (grid, _),
        silo(folder, NAMES[0]),
        silo(folder, NAMES[1]),
        silo(folder, NAMES[2], waits),
    ):
        slow.set()
        assert len(list(grid.send_and_receive(question(grid), timeout=20))) == 3
        slow.clear()
        began = time.monotonic()
        assert len(list(grid.send_and_receive(question(grid), timeout=20))) == 2
        assert time.monotonic() - began < 15
        assert len(grid.late) == 1
        slow.set()  # its answer comes too late: it is not counted, but it is known how long it took
        late = next(iter(grid.open.values())).node
        end = time.monotonic() + 10
        while grid.late and time.monotonic() < end:
            grid._look_for_late_ones()
        assert not grid.late
        assert grid.lateness.usual[late] > 0.3
        assert len(list(grid.send_and_receive(question(grid), timeout=20))) == 3


def test_how_long_a_first_contact_takes_says_nothing_about_a_round(folder):
    """Who has answered a question within a second still gets the whole timeout for its first round."""
    with server(folder) as (grid, _), silo(folder, NAMES[0]):
        (message,) = question(grid)
        content, to = message.content, message.metadata.dst_node_id
        assert len(grid.send_and_receive([Message(content, to, "query", ttl=600)], timeout=20)) == 1
        assert grid.lateness.usual == {}
        assert len(grid.send_and_receive(question(grid), timeout=20)) == 1
        assert list(grid.lateness.usual) == [to]


def test_a_message_that_nobody_fetched_is_taken_back(folder):
    with server(folder) as (grid, _), node.connected(folder / "bundles" / NAMES[0]) as line:
        assert list(grid.send_and_receive(question(grid), timeout=0.2)) == []
        assert line.fetch() is None
        assert len(grid.link.state.object_store) == 0


def test_a_damaged_public_key_is_named():
    with pytest.raises(ValueError, match="the public key of silo a is damaged"):
        Link(MOST).register("a", b"no key")


def test_pieces_that_are_no_message_are_refused():
    Link(MOST)  # messages belong to a run
    asked = Message(RecordDict(), dst_node_id=1, message_type="train")
    announced = Message(RecordDict(), reply_to=asked)
    announced.metadata.__dict__["_message_id"] = "a"
    with pytest.raises(RefusedError, match="damaged"):
        objects.put_together(announced, {"a": b"Array ,99 3\x00{}{"}, MOST)


def test_two_links_know_different_runs():
    assert Link(MOST).run != Link(MOST).run
