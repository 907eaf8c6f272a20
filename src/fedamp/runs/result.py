"""What a run leaves behind, and which of its models are taken home."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fedamp.config import RunConfig
from fedamp.data.silos.schema import Schema
from fedamp.errors import UserError
from fedamp.methods import Method
from fedamp.models.flat import FlatModel
from fedamp.records.metrics import Summary, finite, score_table
from fedamp.rows import Rows

LAST = "the last round: none was validated, and to choose one by its test score would flatter it"
VALIDATED = "the round with the best mean validation score"


@dataclass(frozen=True)
class Kept:
    """All clients' models after one round, and how good exactly these are on the clients' test samples.

    In a round's line a client that was absent, or whose reply was not received, has the score of another model.
    """

    round: int
    models: Rows = field(repr=False)
    scores: list[float]  # of each client: accuracy in percent, or root mean squared error
    validation: float | None = None  # their mean validation score, in the same unit, by which they were chosen

    @property
    def why(self) -> str:
        """Why this round was taken."""
        return LAST if self.validation is None else VALIDATED

    def to_dict(self) -> dict[str, Any]:
        """Return all but the models, in plain values."""
        return {"round": self.round, "scores": self.scores, "validation": self.validation}

    @classmethod
    def of(cls, models: Rows, told: Mapping[str, Any]) -> Kept:
        """Return what `to_dict` told, with the models themselves."""
        scores = [math.inf if score is None else score for score in told["scores"]]
        return cls(told["round"], models, scores, told["validation"])


@dataclass(frozen=True)
class Result:
    """What a run leaves behind."""

    config: RunConfig
    history: list[dict[str, Any]]  # a line for each round, as in rounds.jsonl
    summary: Summary
    last_models: Mapping[str, Kept]  # "own", "received": every client's, after the last round that was played
    xi: Tensor | None  # (K, m, m) collaboration weights of each round
    warnings: list[str]
    facts: Mapping[str, Any]
    seconds: float
    method: Method
    model: FlatModel
    schema: Schema | None  # of a user's own silos: columns, labels, scaling
    folder: Path | None
    best_models: Mapping[str, Kept] = field(default_factory=dict)  # the same of the best validated rounds

    @property
    def bmta(self) -> float:
        """Best mean test accuracy over the rounds, in percent."""
        if self.summary.metric != "accuracy":
            raise AttributeError("a regression has no accuracy, so no BMTA; `best` is its lowest mean error")
        return self.summary.best

    @property
    def best(self) -> float:
        """The best, over the rounds, of the mean over the clients: accuracy in percent, or the lowest error."""
        return self.summary.best

    @property
    def scores(self) -> NDArray[np.float64]:
        """Every client's test score after every round, `(K, m)`, of the models that count.

        Accuracies in percent, or for regression root mean squared errors.
        """
        table = score_table(self.history, self.method.scored, self.summary.metric)
        return 100 * table if self.summary.metric == "accuracy" else table

    @property
    def models(self) -> dict[str, Rows]:
        """Every client's models after the last round that was played, by entry: "own", "received"."""
        return {entry: kept.models for entry, kept in self.last_models.items()}

    @property
    def chosen(self) -> Kept:
        """The models that clients take home: of the best validated round, or of the last where none was validated.

        Never by test: the best of many rounds by test would be given a score that it does not have on new samples.
        """
        return self.best_models.get(self.method.scored, self.last_models[self.method.scored])

    def client_model(self, client: int) -> nn.Module:
        """Return the model that a client takes home (see `chosen`) as a module of its own, ready to be used."""
        rows = self.chosen.models
        if not 0 <= client < len(rows):
            raise UserError(f"client is {client}; expected a number from 0 to {len(rows) - 1}")
        module = copy.deepcopy(self.model.module).cpu()
        module.load_state_dict(self.model.state_dict(rows[slice(client, client + 1)]))
        return module.eval()

    def __repr__(self) -> str:
        what = "BMTA" if self.summary.metric == "accuracy" else "lowest RMSE"
        clients, rounds = len(self.summary.per_client), len(self.scores)
        return f"Result({self.config.method.name}, {clients} clients, {rounds} rounds, {what} {self.best:.4g})"

    def to_dict(self) -> dict[str, Any]:
        """Return the result in plain values: what `result.json` and `--json` hold; None for what is not finite."""
        told = {
            "method": self.config.method.name,
            "scored": self.method.scored,
            **self.summary.to_dict(),
            "rounds": self.config.rounds,
            "seconds": self.seconds,
            "warnings": self.warnings,
            "facts": dict(self.facts),
            # Of each stack of models that is kept: after which round it was made, and its own test scores.
            "models": {entry: kept.to_dict() for entry, kept in self.last_models.items()},
            "best_models": {entry: kept.to_dict() for entry, kept in self.best_models.items()},
        }
        return {name: finite(value) for name, value in told.items()}
