"""Where a run stands after a round: the states of both sides, and what has to be remembered from the rounds before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedamp.config import RunConfig
from fedamp.records.checkpoints import Checkpoint, Snapshot
from fedamp.records.summaries import Line
from fedamp.records.take_home import HeldOut
from fedamp.rows import Rows, State
from fedamp.runs.round import Round
from fedamp.runs.scoring import AT_HOME, at_home, better, with_between, with_choice
from fedamp.runs.setup import Setup
from fedamp.runs.spending import Spent


@dataclass(frozen=True)
class Standing:
    """A run after round k."""

    k: int
    server: State
    clients: State
    xi: tuple[Tensor, ...] = ()  # of rounds 1 to k, for methods that have it
    best: Mapping[str, Snapshot] = field(default_factory=dict)  # if there is validation: by entry, and the choice
    spent: Spent = field(default_factory=Spent)  # of the clients' privacy; the lines tell it again after a stop
    held_out: HeldOut | None = None  # what validation samples have said so far; the lines tell it again after a stop

    @classmethod
    def first(cls, setup: Setup) -> Standing:
        """Return where a run begins: with the first models, before any round."""
        with setup.shard.server():
            server = setup.method.server_init(setup.w)
        return cls(0, server, setup.method.client_init(setup.shard.rows(setup.w)))

    @classmethod
    def saved(cls, checkpoint: Checkpoint, setup: Setup) -> Standing:
        """Return where a run stood when a checkpoint was written."""
        xi = () if checkpoint.xi is None else tuple(checkpoint.xi)
        best = {name: replace(one, models=setup.shard.rows(one.models)) for name, one in checkpoint.best.items()}
        return cls(checkpoint.k, checkpoint.server, setup.shard.state(checkpoint.clients), xi, best)

    def checkpoint(self, setup: Setup) -> Checkpoint:
        """Return the checkpoint that saves it: with the states of all clients, wherever they are."""
        clients, best = setup.shard.all_state(self.clients), self.all_best(setup)
        return Checkpoint(self.k, self.server, clients, self.weights, setup.way, best)

    def all_best(self, setup: Setup) -> dict[str, Snapshot]:
        """Return all clients' best models, wherever they are."""
        whole = setup.shard.all_rows({name: one.models for name, one in self.best.items()})
        return {name: replace(one, models=whole[name]) for name, one in self.best.items()}

    @property
    def weights(self) -> Tensor | None:
        """All rounds' collaboration weights `(k, m, m)`."""
        return torch.stack(self.xi) if self.xi else None

    def models(self, setup: Setup) -> dict[str, Rows]:
        """Return the models of this process's clients: their own, and what the server would send next."""
        with setup.shard.server():
            _, message = setup.method.server_send(self.server, self.k + 1)
        return setup.method.client_models(self.clients, setup.shard.message(message))

    def after(self, played: Round, line: Line, config: RunConfig, setup: Setup) -> Standing:
        """Return where the run stands after one more round, of which this line was written."""
        k, best, said = self.k + 1, self.best, self.held_out
        if said is not None:
            # All clients' models as this round scores them, the absent ones' too.
            models = setup.method.client_models(played.clients, played.sent)
            best = better(config, setup, best, with_between(models), k)
            have = at_home(models, best.get(AT_HOME), played.heard[setup.shard.mine])
            if "received" in have:
                best[AT_HOME] = Snapshot(k, 0.0, have["received"])
            now = said.after(line)
            best, said = with_choice(best, said, now, with_between(have)), now
        xi = (*self.xi, played.diagnostics["xi"].cpu().float()) if "xi" in played.diagnostics else self.xi
        return Standing(k, played.server, played.clients, xi, best, self.spent.after(played.spent), said)
