"""The result of a run, and which of its models the clients take home."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fedamp.config import RunConfig
from fedamp.config.metrics import info
from fedamp.data.silos.schema import Schema
from fedamp.errors import UserError
from fedamp.methods import Method
from fedamp.models.flat_model import FlatModel
from fedamp.records.beside_alone import BesideAlone
from fedamp.records.facts import Facts
from fedamp.records.metric_scores import Scored
from fedamp.records.summaries import Summary, finite, in_unit, recorded_score, score_table
from fedamp.records.take_home import CHOSEN, TakeHome
from fedamp.rows import Rows

LAST = "the last round: no round was validated, and choosing one by its test score would flatter the model"
VALIDATED = "the round with the best mean validation score"
POOLED = "own, received or the midpoint between them, and the round, that do best on all held-out samples together"


@dataclass(frozen=True)
class Kept:
    """All clients' models after one round, with the test scores of exactly these models.

    In a round's line, a client that was absent, or whose reply was refused, has the score of another model.
    """

    round: int
    models: Rows = field(repr=False)
    scores: list[float]  # of each client, as it is shown: accuracy in percent, say; nan where it is not defined
    # The mean validation score by which they were chosen: an accuracy from 0 to 1, or the negative of an error.
    validation: float | None = None
    pooled: bool = False  # whether that is the score on all clients' held-out samples together

    @property
    def why(self) -> str:
        """Why this round was chosen."""
        return LAST if self.validation is None else POOLED if self.pooled else VALIDATED

    def to_dict(self) -> dict[str, Any]:
        """Return all but the models, as plain values."""
        return {"round": self.round, "scores": self.scores, "validation": self.validation}

    @classmethod
    def of(cls, models: Rows, values: Mapping[str, Any], metric: str = "rmse", undefined: Sequence[int] = ()) -> Kept:
        """Return models together with the plain values that `to_dict` gave; `undefined` are clients without a score."""
        worst = recorded_score("inf", metric)
        scores = [
            math.nan if i in undefined else worst if score is None else score
            for i, score in enumerate(values["scores"])
        ]
        return cls(values["round"], models, scores, values["validation"])


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    config: RunConfig
    history: list[dict[str, Any]]  # a line for each round, as in rounds.jsonl
    summary: Summary
    last_models: Mapping[str, Kept]  # "own", "received": every client's, after the last round played
    xi: Tensor | None  # (K, m, m) collaboration weights of each round
    warnings: list[str]
    facts: Facts  # about data, model and way of training
    seconds: float
    method: Method
    model: FlatModel
    schema: Schema | None  # of the user's own silos: columns, labels, scaling
    folder: Path | None
    best_models: Mapping[str, Kept] = field(default_factory=dict)  # the same after the best validated rounds
    take_home: TakeHome | None = None  # if there is validation: what held-out samples choose for the clients
    taken: Rows | None = field(default=None, repr=False)  # and the models that they choose
    alone: BesideAlone | None = None  # what clients would have had alone, if that was trained beside the method
    # All usual metrics of the `chosen` models on test samples, by name; empty if an earlier version wrote the record.
    metrics: Mapping[str, Scored] = field(default_factory=dict)

    @property
    def bmta(self) -> float:
        """Best mean test accuracy over the rounds, in percent."""
        if self.summary.metric != "accuracy":
            words = info(self.summary.metric).best_mean
            raise AttributeError(f"this run is not scored by accuracy, hence has no BMTA; `best` is its {words}")
        return self.summary.best

    @property
    def best(self) -> float:
        """The best, over the rounds, of the mean over the clients: accuracy in percent, or the lowest error."""
        return self.summary.best

    @property
    def scores(self) -> NDArray[np.float64]:
        """Every client's test score after every round, `(K, m)`, of the models that count.

        Accuracies in percent, or for regression root mean squared errors; nan for a client without a score.
        """
        return in_unit(score_table(self.history, self.method.scored, self.summary.metric), self.summary.metric)

    @property
    def models(self) -> dict[str, Rows]:
        """Every client's models after the last round played, by entry: "own", "received"."""
        return {entry: kept.models for entry, kept in self.last_models.items()}

    @property
    def chosen(self) -> Kept:
        """The models that clients take home: those of the best validated round, or of the last without validation.

        They are at the method's `scored` entry, or at the one that held-out samples choose (`take_home`). Never by
        test: the best of many rounds by test would carry a score that it does not reach on new samples.
        """
        home = self.take_home
        if home is not None and home.rule == CHOSEN and self.taken is not None:
            pooled = home.held_out[home.entry].score
            about = info(self.summary.metric)
            by = pooled / about.factor if about.higher_is_better else -pooled / about.factor
            return Kept(home.round, self.taken, home.scores, by, pooled=True)
        return self.best_models.get(self.method.scored, self.last_models[self.method.scored])

    def client_model(self, client: int) -> nn.Module:
        """Return the model that a client takes home (see `chosen`), as a separate module that is ready for use."""
        rows = self.chosen.models
        if not 0 <= client < len(rows):
            raise UserError(f"client is {client}; expected a number from 0 to {len(rows) - 1}")
        module = copy.deepcopy(self.model.module).cpu()
        module.load_state_dict(self.model.state_dict(rows[slice(client, client + 1)]))
        return module.eval()

    def __repr__(self) -> str:
        about = info(self.summary.metric)
        what = "BMTA" if about.name == "accuracy" else f"{'best' if about.higher_is_better else 'lowest'} {about.short}"
        counts = {"client": len(self.summary.per_client), "round": len(self.scores)}
        sizes = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items())
        return f"Result({self.config.method.name}, {sizes}, {what} {self.best:.4g})"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values, as in `result.json` and `--json`; None for what is not finite."""
        values = {
            "method": self.config.method.name,
            "scored": self.method.scored,
            **self.summary.to_dict(),
            "rounds": self.config.rounds,
            "seconds": self.seconds,
            "warnings": self.warnings,
            "facts": self.facts.to_dict(),
            # For each stack of models that is kept: the round that made it, and its own test scores.
            "models": {entry: kept.to_dict() for entry, kept in self.last_models.items()},
            "best_models": {entry: kept.to_dict() for entry, kept in self.best_models.items()},
            **({} if self.take_home is None else {"take_home": self.take_home.to_dict()}),
        }
        if self.alone is not None:
            values["alone"] = self.alone.to_dict()
        if self.metrics:
            values["metrics"] = {name: each.to_dict() for name, each in self.metrics.items()}
        return {name: finite(value) for name, value in values.items()}
