"""A federation in one process: Flower's own strategy loop, messages and ClientApps, without sockets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from fedamp.config import Named, RunConfig
from fedamp.config.reply_limits import Rules
from fedamp.data.silos.read import read_silos
from fedamp.data.silos.schema import make_schema
from fedamp.federation.plan import Federation, Member, Plan, SiloConfig
from fedamp.federation.server import attendance, strategy
from fedamp.federation.server.app import serve
from fedamp.federation.server.record import Record
from fedamp.federation.silo.app import House, make_client_app
from fedamp.methods import METHODS
from fedamp.runs.round import Round, play_round
from fedamp.runs.setup import assemble
from fedamp.runs.simulated_faults import draw_present

strategy.FIRST_PAUSE = attendance.RETURNING = 0.01  # nobody waits for a silo in a test
strategy.LONGEST_PAUSE = 0.1

# A message belongs to a run; outside of one, Flower needs these numbers.
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

Tamper = Callable[[int, Message], Message | None]
"""What a test does to the reply of the silo with this number; None loses it."""


def travelled(message: Message) -> Message:
    """Return a message as it comes out at the other end: taken apart into bytes, and put together again."""
    message.metadata.__dict__["_message_id"] = message.object_id
    contents = {identity: part.deflate() for identity, part in get_all_nested_objects(message).items()}
    arrived = inflate_object_from_contents(message.object_id, contents)
    arrived.metadata.__dict__["_message_id"] = message.metadata.message_id
    return arrived


@dataclass
class LocalGrid(Grid):
    """Hands each message to the ClientApp of its silo, and the reply back."""

    apps: dict[int, Callable[[Message, Context], Message]]
    tamper: Tamper = lambda number, reply: reply
    online: Callable[[], Iterable[int]] | None = None
    since: Callable[[int], str] = lambda number: ""  # when a silo was connected
    sent: list[Message] = field(default_factory=list)

    def get_nodes(self):
        here = self.apps if self.online is None else self.online()
        return [
            NodeInfo(node_id=100 + i, public_key=public_key(i), name=f"silo-{i}", last_activated_at=self.since(i))
            for i in here
        ]

    def get_node_ids(self):
        return [node.node_id for node in self.get_nodes()]

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            number = message.metadata.dst_node_id - 100
            arrived = travelled(message)
            self.sent.append(arrived)
            context = Context(1, message.metadata.dst_node_id, {}, RecordDict(), {})
            try:
                reply = self.apps[number](arrived, context)
            except Exception as error:  # as Flower's own runner does
                reply = Message(Error(2, str(error)), reply_to=arrived)
            if message.metadata.message_type == "train":
                reply = self.tamper(number, reply)
            if reply is not None:
                replies.append(travelled(reply))
        return replies

    set_run = create_message = push_messages = pull_messages = None

    @property
    def run(self):
        raise NotImplementedError


LocalGrid.__abstractmethods__ = frozenset()


def public_key(number: int) -> bytes:
    return f"key of silo {number}".encode()


def write_silos(folder: Path, num_silos: int = 3, features: int = 5, classes: int = 3, seed: int = 0) -> Path:
    """Write silos that differ in means, sizes and rules."""
    stream = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(num_silos):
        x = stream.normal(0.2 * i, 1, (24 + 9 * i, features)).astype(np.float32)
        rule = stream.normal(0, 1, (features, classes))
        np.savez(folder / f"silo-{i}.npz", x=x, y=(x @ rule).argmax(1))
    return folder


def plan_of(data: Path, method: str | dict[str, Any] = "fedamp", **settings: Any) -> Plan:
    agreed = METHODS[Named.of(method).name].hands_out_models
    values = {"rounds": 3, "epochs": 2, "batch_size": 7, "model": Named("mlp", {"hidden": 6}), "share_models": agreed}
    config = RunConfig(data=str(data), method=Named.of(method), setting=Named("natural"), **{**values, **settings})
    return Plan("test", config, make_schema(read_silos(data)))


@dataclass
class Local:
    """A federation of silos in one process."""

    folder: Path
    plan: Plan
    data: Path
    rules: Rules = field(default_factory=lambda: Rules(min_silos=1))
    tamper: Tamper = lambda number, reply: reply
    online: Callable[[], Iterable[int]] | None = None
    since: Callable[[int], str] = lambda number: ""
    houses: dict[int, House] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.paths = sorted([*self.data.glob("*.npz"), *self.data.glob("*.csv")])
        for i, path in enumerate(self.paths):
            silo_config = SiloConfig(self.plan, f"silo-{i}", i, "nowhere:1")
            self.houses[i] = House(silo_config, path, self.folder / f"house-{i}")

    @property
    def federation(self) -> Federation:
        members = [Member(f"silo-{i}", i, hashlib.sha256(public_key(i)).hexdigest()) for i in range(len(self.paths))]
        return Federation(self.plan, tuple(members), self.rules)

    def grid(self) -> LocalGrid:
        apps = {i: make_client_app(lambda context, house=house: house) for i, house in self.houses.items()}
        return LocalGrid(apps, self.tamper, self.online, self.since)

    def serve(self, rounds: int | None = None) -> Record:
        federation = self.federation
        if rounds is not None:
            config = replace(self.plan.config, rounds=rounds)
            federation = replace(federation, plan=replace(self.plan, config=config))
        return serve(self.grid(), federation, self.folder / "record")


def engine_rounds(plan: Plan, present: Callable[[int], torch.Tensor] | None = None) -> list[Round]:
    """Return the same federation's rounds as the engine plays them, one client at a time."""
    config = replace(plan.config, engine="loop")
    made = assemble(config)
    server, clients = made.method.server_init(made.w), made.method.client_init(made.w)
    m, rounds = len(made.clients), []
    for k in range(1, config.rounds + 1):
        here = draw_present(config.seed, k, m, config.absent) if present is None else present(k)
        rounds.append(
            play_round(
                made.method, server, clients, k, lambda who, k=k: made.trainer.local(made.clients.take(who), k), here
            )
        )
        server, clients = rounds[-1].server, rounds[-1].clients
    return rounds
