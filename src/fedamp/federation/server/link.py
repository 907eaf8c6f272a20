"""Flower's memory while a federation's server runs: which silos may connect, and which messages are on their way.

It lives in this process alone. Nothing of it needs to be kept: keys are in the federation's folder, and what counts of
a round is in the record. So no other program of Flower is started, and there is none that another user could talk to.
"""

from __future__ import annotations

from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager

from fedamp.errors import UserError


class BoundedLinkState(InMemoryLinkState):
    """Flower's memory, in which one reply has no more than `most` bytes, however many pieces it comes in."""

    def __init__(self, *parts: Any, most: int) -> None:
        super().__init__(*parts)
        self.most = most
        self.received: dict[str, int] = {}  # bytes of each reply that is still coming in

    def store_object(self, run_id: int, session_id: str, object_id: str, object_content: bytes) -> bool:
        """Keep a piece of a reply, unless the reply has become too large."""
        size = self.received.get(session_id, 0) + len(object_content)
        if session_id not in self._object_push_sessions or size > self.most:
            return False
        self.received[session_id] = size
        return self.store_own(run_id, session_id, object_id, object_content)

    def store_own(self, run_id: int, session_id: str, object_id: str, object_content: bytes) -> bool:
        """Keep a piece of one of the server's own messages, which may be of any size."""
        return super().store_object(run_id, session_id, object_id, object_content)

    def forget_session(self, root: str) -> None:
        """Forget that pieces of a message were still to come: it is whole, another silo having sent the same ones."""
        session = self._object_push_session_by_root.get(root)
        if session is not None:
            self._cleanup_push_session(session, cleanup_messages=False)

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
        # Flower gives up a run whose app shows no sign of life.
        self.pulse = HeartbeatSender(lambda: state.acknowledge_task_heartbeat(task))
        self.pulse.start()
        # Messages that are made in this process belong to this run.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, SUPERLINK_NODE_ID, task
        return run

    def register(self, name: str, public: bytes) -> None:
        """Let the silo connect that holds the private half of this key, an OpenSSH line."""
        try:
            key = serialization.load_ssh_public_key(public)
        except (ValueError, UnsupportedAlgorithm):
            raise UserError(f"the public key of silo {name} is damaged; expected the line that `init` wrote") from None
        pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.nodes[name] = self.state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, pem, 0, name=name)

    def unregister(self, name: str) -> None:
        """Turn a silo away from now on; one that is not registered is turned away already."""
        node = self.nodes.pop(name, None)
        if node is not None:
            self.state.delete_node(NOOP_FLWR_AID, node)

    def close(self) -> None:
        """End the run's sign of life."""
        if self.pulse.is_running:
            self.pulse.stop()
