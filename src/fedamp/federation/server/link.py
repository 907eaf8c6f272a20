"""Flower's memory while a federation's server runs: which silos may connect, and which messages are on their way.

It lives in this process alone. Nothing of it needs to be kept: keys are in the federation's folder, and what counts of
a round is in the record. So no other program of Flower is started, and there is none that another user could talk to.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from flwr.app import Message
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.proto.message_pb2 import ObjectTree
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
from flwr.supercore.inflatable.inflatable_object import is_valid_sha256_hash, iterate_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager

from fedamp.errors import UserError
from fedamp.federation.silo_keys import as_registered

MOST_LISTED = 1 << 20
"""Bytes of the list of a reply's pieces: some 15,000 of them, and an array's have 5 MiB each."""


class BoundedLinkState(InMemoryLinkState):
    """Flower's memory, in which one reply has no more than `most` bytes, however many pieces it comes in."""

    def __init__(self, *parts: Any, most: int) -> None:
        super().__init__(*parts)
        # Flower takes its two locks in either order, and would wait for itself when half a reply is given up.
        self._lock_object_push_sessions = self.lock
        self.most = most
        self.received: dict[str, int] = {}  # bytes of each reply that is still coming in

    def store_message_and_object_tree(
        self, message: Message, object_tree: ObjectTree, session_id: str
    ) -> tuple[bool, list[str]]:
        """Take a message and the list of its pieces; of a reply, only a list that can be one."""
        with self.lock:
            root = object_tree.object_id
            stored, missing = False, list[str]()
            if not message.metadata.reply_to_message_id or self._is_fair(message, object_tree):
                so_far = self.received.get(self._object_push_session_by_root.get(root, ""), 0)
                stored, missing = super().store_message_and_object_tree(message, object_tree, session_id)
            if stored and missing:
                self.received[session_id] = so_far  # announced again, it may not have more bytes
            else:  # nothing will come
                self._cleanup_push_session(session_id, cleanup_messages=False)
            return stored, missing

    def _is_fair(self, reply: Message, tree: ObjectTree) -> bool:
        """Return whether a list of pieces is of this reply, and neither endless nor another one each time."""
        if tree.object_id != reply.metadata.message_id or tree.ByteSize() > MOST_LISTED:
            return False
        names = [each.object_id for each in iterate_object_tree(tree)]
        again = reply.metadata.message_id in self.message_res_store
        return all(is_valid_sha256_hash(name) and (not again or name in self.object_store) for name in names)

    def store_object(self, run_id: int, session_id: str, object_id: str, object_content: bytes) -> bool:
        """Keep a piece of a reply, unless the reply has become too large."""
        with self.lock:
            size = self.received.get(session_id, 0) + len(object_content)
            if session_id not in self._object_push_sessions or size > self.most:
                return False
            self.received[session_id] = size
            return self.store_own(run_id, session_id, object_id, object_content)

    def store_own(self, run_id: int, session_id: str, object_id: str, object_content: bytes) -> bool:
        """Keep a piece of one of the server's own messages, which may be of any size."""
        return super().store_object(run_id, session_id, object_id, object_content)

    def forget(self, name: str, *replies: str) -> None:
        """Drop a message with its replies, all their pieces, and that some of these were still to come."""
        with self.lock:
            known = self.message_ins_id_to_message_res_id.get(name)
            self.delete_messages({name})
            for root in {name, *replies, *filter(None, [known])}:
                if session := self._object_push_session_by_root.get(root):
                    self._cleanup_push_session(session, cleanup_messages=False)
                self.object_store.delete(root)

    def _cleanup_push_session(self, session_id: str, *, cleanup_messages: bool) -> None:
        self.received.pop(session_id, None)
        super()._cleanup_push_session(session_id, cleanup_messages=cleanup_messages)


class Link:
    """Flower's side of a running federation: one run, and a node for each silo whose key is registered."""

    def __init__(self, most: int) -> None:
        manager, store = NoOpFederationManager(), ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
        self.factory = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, manager, store)
        self.state = BoundedLinkState(manager, store.store(), most=most)
        self.factory.state_instance = self.state
        self.run = self._begin_run()
        self.nodes: dict[str, int] = {}  # by name of the silo

    def _begin_run(self) -> int:
        """Return the number of a run that goes on as long as this process lives."""
        state = self.state
        run = state.create_run(
            fab_id="fedamp",
            fab_version=None,
            fab_hash=None,
            override_config={},
            federation_id=NOOP_FEDERATION_ID,
            federation_config=None,
            flwr_aid=NOOP_FLWR_AID,
            primary_task_type=TaskType.SERVER_APP,
        )
        task = state.get_run_info(run_ids=[run])[0].primary_task_id
        if task is None or state.claim_task(task) is None or not state.activate_task(task):
            raise RuntimeError("Flower did not start a run")
        # Flower gives up a run whose app shows no sign of life. This one lives as long as the process does, even if
        # the machine slept for a while, or its clock was put forward.
        state.task_token_store[task].active_until = datetime.max.replace(tzinfo=UTC)
        # Messages that are made in this process belong to this run.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, SUPERLINK_NODE_ID, task
        return run

    def register(self, name: str, public: bytes) -> None:
        """Let the silo connect that holds the private half of this key, an OpenSSH line."""
        try:
            pem = as_registered(public)
        except UserError as error:
            raise UserError(f"the public key of silo {name} is damaged: {error}") from None
        self.nodes[name] = self.state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, pem, 0, name=name)

    def unregister(self, name: str) -> None:
        """Turn a silo away from now on; one that is not registered is turned away already."""
        node = self.nodes.pop(name, None)
        if node is not None:
            self.state.delete_node(NOOP_FLWR_AID, node)
