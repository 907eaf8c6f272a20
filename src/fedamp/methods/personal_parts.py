"""A part of each model stays at home: all else is FedAvg's. What FedPer, FedRep and FedBN share.

    w_i^{k+1} = local training from (w^k outside P, w_i^k in P);  w^{k+1} = sum_i (n_i / n) w_i^{k+1}, outside P

Symbols: P the personal columns of a model, w the global model, w_i the client's. Nothing in P leaves it: there a
reply has what was sent, which is what everyone began with. So the server needs to know nothing of layers.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch

from fedamp.methods.base import Local
from fedamp.methods.fedavg import FedAvg
from fedamp.rows import Columns, Message, Rows, State


@dataclass(frozen=True)
class PersonalParts(FedAvg):
    """FedAvg in which each client keeps some columns to itself."""

    group: ClassVar[str] = "personal parts"
    scored: ClassVar[str] = "own"
    anew: ClassVar[str] = "the part of its model that stays at home begins as everyone's did at first"

    @property
    def remembers(self) -> bool:
        """Each client has its personal columns, and nobody else does."""
        return True

    @abstractmethod
    def at_home(self, local: Local) -> Columns:
        """Return the personal columns, P."""

    @abstractmethod
    def in_words(self) -> tuple[str, str]:
        """Return which part stays at home, and what to choose if a model has no such part or no other."""

    def doubts(self, local: Local) -> list[str]:
        """Return a warning if nothing of this model stays at home, or all of it."""
        home, (part, cure), name = self.at_home(local), self.in_words(), type(self).__name__.lower()
        twin = "fedavg" if self.scored == "received" else "fedavg-ft"
        share, other = ("that is all of this model", "separate") if home.params.all() else ("this model has none", twin)
        if (home.params.any() or home.buffers.any()) and not home.params.all():
            return []
        return [f"{name} keeps {part} of every client's model at home; {share}, so this is {other}. {cure}, or {other}"]

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """Send everyone the global model; the round tells a client whether it has trained from it already."""
        state, message = super().server_send(state, k)
        return state, {**message, "round": _round(message["w"], k)}

    def client_init(self, w: Rows) -> State:
        """Keep the client's model, where its last training started and in which round, and which columns are its own.

        The last are known once there is data to train on.
        """
        nothing = Rows(torch.zeros_like(w.params, dtype=torch.bool), torch.zeros_like(w.buffers, dtype=torch.bool))
        return State(len(w), rows={"w": w, "start": w, "at_home": nothing, "round": _round(w, 0)})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Train from the global model with the client's own columns; reply with the others."""
        home = self.at_home(local)
        start = message["w"].put_columns(home, state.rows["w"])
        trained, reply = super().client_update(state, {"w": start}, local)
        mask = Rows(home.params.expand_as(start.params), home.buffers.expand_as(start.buffers))
        kept = {"start": start, "at_home": mask, "round": message["round"]}
        return trained.replace(rows=kept), {**reply, "w": reply["w"].put_columns(home, message["w"])}

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """Score the client's model, and the global one with the client's own columns as they were when it came."""
        rows, home = state.rows, state.rows["at_home"]
        now = message["w"].put_columns(Columns(home.params, home.buffers), rows["w"])
        trained = rows["round"].params == message["round"].params  # from this very message
        params = torch.where(trained, rows["start"].params, now.params)
        return {"own": rows["w"], "received": Rows(params, torch.where(trained, rows["start"].buffers, now.buffers))}


def _round(w: Rows, k: int) -> Rows:
    return Rows.of(w.params.new_full((len(w), 1), k))


def last(layers: int) -> str:
    """Return a head in words."""
    return "the last layer" if layers == 1 else f"the last {layers} layers"
