"""A silo that dies while it sends its reply: the server goes on without it."""

import inspect
from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import http_grid

from fedamp.federation.server.half_sent import bound_the_wait


@pytest.fixture
def reply(monkeypatch):
    """A reply to message "asked", as the server's app hears of it."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    message = Message(RecordDict({"config": ConfigRecord({"x": 1})}), dst_node_id=1, message_type="train")
    message.metadata.__dict__["_message_id"] = message.object_id
    message.metadata.__dict__["_reply_to_message_id"] = "asked"
    return message


def test_the_rest_of_a_reply_is_not_waited_for_longer_than_the_rules_say(reply, monkeypatch):
    monkeypatch.setattr(http_grid, "pull_objects", pull_objects)
    bound_the_wait(0.5)
    tries = []

    def never_there(request):
        tries.append(request.object_id)
        return PullObjectResponse(object_found=True, object_available=False)

    shown = message_to_proto(reply)
    listing = PullAppMessagesResponse(messages_list=[shown], message_object_trees=[get_object_tree(reply)])
    grid = http_grid.HttpGrid(token="none")
    grid._run = SimpleNamespace(run_id=1)
    grid._client = SimpleNamespace(PullMessages=lambda request: listing, PullObject=never_there)
    (answer,) = grid.pull_messages(["asked"])
    assert tries
    assert answer.has_error()
    assert answer.metadata.reply_to_message_id == "asked"


def test_flower_alone_would_wait_for_hours():
    """Should this fail, then Flower has changed, and the bound may no longer be needed."""
    assert inspect.signature(pull_objects).parameters["max_time"].default > 3600
