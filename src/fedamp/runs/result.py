"""The result of a run, and which of its models the clients take home."""

from __future__ import annotations

import copy
import warnings as python_warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fedamp import checks
from fedamp.config import RunConfig
from fedamp.config.metrics import info
from fedamp.data.silos.read import LABEL
from fedamp.data.silos.schema import Schema
from fedamp.errors import FedampWarning, UserError
from fedamp.methods import Method
from fedamp.methods.alone_beside import ALONE
from fedamp.models.flat_model import FlatModel
from fedamp.records.beside_alone import BesideAlone
from fedamp.records.client_names import client_number, client_title
from fedamp.records.facts import Facts
from fedamp.records.last_state import LastState
from fedamp.records.metric_scores import Scored
from fedamp.records.newcomers import Newcomer, Newcomers
from fedamp.records.privacy import Promised, epsilon_now
from fedamp.records.summaries import Summary, finite, in_unit, kept_scores, score_table
from fedamp.records.take_home import CHOSEN, SCORED, TakeHome
from fedamp.records.then_alone import ThenAlone
from fedamp.rows import Rows
from fedamp.runs.in_use.prediction import Prediction
from fedamp.runs.in_use.predictor import Predictor

LAST = "the last round: no round was validated, and choosing one by its test score would flatter the model"
BY_MEAN = "the round with the best mean validation score"  # as earlier versions chose
VALIDATED = "the round with the best validation score: on all held-out samples together"
CHOSEN_BY = (
    "own, received, the midpoint between them, or own that went on alone, and the round, that do best on all held-out "
    "samples together"
)


@dataclass(frozen=True)
class Kept:
    """All clients' models after one round, with the test scores of exactly these models.

    In a round's line, a client that was absent, or whose reply was refused, has the score of another model.
    """

    round: int
    models: Rows = field(repr=False)
    scores: list[float]  # of each client, as it is shown: accuracy in percent, say; nan where it is not defined
    # The validation score by which they were chosen: an accuracy from 0 to 1, or the negative of an error.
    validation: float | None = None
    why: str = LAST  # this round's models were chosen

    def to_dict(self) -> dict[str, Any]:
        """Return all but the models, as plain values."""
        return {"round": self.round, "scores": self.scores, "validation": self.validation, "why": self.why}

    @classmethod
    def of(cls, models: Rows, values: Mapping[str, Any], metric: str, undefined: Sequence[int]) -> Kept:
        """Return models together with the plain values that `to_dict` gave; `undefined` are clients without a score."""
        validation = values["validation"]
        why = values.get("why", LAST if validation is None else BY_MEAN)
        return cls(values["round"], models, kept_scores(values["scores"], metric, undefined), validation, why)


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
    method: Method | None  # None if it was a user's own, and the run was loaded from its folder
    scored: str  # the entry of the models that the method is scored by
    model: FlatModel | None  # None if its code was not there when the run was loaded
    schema: Schema | None  # of the user's own silos: columns, labels, scaling
    folder: Path | None
    best_models: Mapping[str, Kept] = field(default_factory=dict)  # the same after the best validated rounds
    take_home: TakeHome | None = None  # if there is validation: what held-out samples choose for the clients
    taken: Rows | None = field(default=None, repr=False)  # and the models that they choose
    then_alone: ThenAlone | None = None  # what came of going on alone after the last round, if that was asked for
    alone: BesideAlone | None = None  # what clients would have had alone, if that was trained beside the method
    # All usual metrics of the `chosen` models on test samples, by name; empty if an earlier version wrote the record.
    metrics: Mapping[str, Scored] = field(default_factory=dict)
    no_model: str = ""  # why there is no model, if there is none
    newcomers: Newcomers | None = None  # what clients get that were kept out and joined afterwards
    joined: Newcomer | None = None  # of a newcomer's own run (`fedamp.join`): what it gets
    last_state: LastState | None = field(default=None, repr=False)  # for newcomers, if there is no folder

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
        return in_unit(score_table(self.history, self.scored, self.summary.metric), self.summary.metric)

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
        return self.taken_home()[1]

    def taken_home(self, rule: str | None = None) -> tuple[str, Kept]:
        """Return the entry of the models that clients take home, and these models, by a rule.

        "scored", "chosen" (see `fedamp.records.take_home`), or "alone" for those that were trained alone; by default
        what the run says.
        """
        home = self.take_home
        if rule is None:
            rule = SCORED if home is None or self.taken is None else home.rule
        checks.one_of("take_home", rule, (SCORED, CHOSEN, ALONE))
        where = "this run" if self.folder is None else self.folder
        if rule == CHOSEN:
            if home is None or self.taken is None:
                raise UserError(
                    f"{where} has no choice of what clients take home: no samples were held out, or an earlier version "
                    "wrote it; run it with --validation, say 0.2, or take those that are scored (--take-home scored)"
                )
            pooled = home.held_out[home.entry].score
            about = info(self.summary.metric)
            by = pooled / about.factor if about.higher_is_better else -pooled / about.factor
            return home.entry, Kept(home.round, self.taken, home.scores, by, CHOSEN_BY)
        entry = ALONE if rule == ALONE else self.scored
        if entry not in self.last_models:
            raise UserError(f"{where} has no models trained alone; run it with --alone, or --method separate")
        return entry, self.best_models.get(entry, self.last_models[entry])

    @property
    def epsilon(self) -> list[float | None] | None:
        """What each client's single samples have spent in all rounds, at the delta in `facts`; None if not known.

        `privacy` says it in words.
        """
        return epsilon_now(self.history)

    @property
    def privacy(self) -> str | None:
        """What was spent of the privacy of single samples, in words; None if they were not protected."""
        if self.facts.privacy is None:
            return None
        return Promised.of(self.facts.privacy).words(self.epsilon, self.facts.names)

    @property
    def finished(self) -> bool:
        """Whether all rounds were played."""
        return self.last_models[self.scored].round >= self.config.rounds

    def client_number(self, client: int | str | None) -> int:
        """Return the number of a client that is given by its name or its number; one alone need not be."""
        if client is None and len(self.chosen.models) == 1:
            return 0
        return client_number(client, self.facts.names, len(self.last_models[self.scored].models))

    def client_model(self, client: int | str, take_home: str | None = None) -> nn.Module:
        """Return the model that a client takes home (see `chosen`), as a separate module that is ready for use."""
        number = self.client_number(client)
        if self.model is None:
            raise UserError(self.no_model)
        rows = self.taken_home(take_home)[1].models
        module = copy.deepcopy(self.model.module).cpu()
        module.load_state_dict(self.model.state_dict(rows[slice(number, number + 1)]))
        return module.eval()

    def xi_of(self, client: int | str) -> Tensor:
        """Return whom a client listened to: its row of the collaboration weights in each round, `(K, m)`."""
        if self.xi is None:
            raise UserError(f"the method {self.config.method.name} has no collaboration weights between clients")
        return self.xi[:, self.client_number(client)]

    def predictor(self, client: int | str | None, take_home: str | None = None) -> Predictor:
        """Return a client's model with what it takes to ask it: how rows are encoded, what its outputs mean."""
        facts, number = self.facts, self.client_number(client)
        return Predictor(
            module=self.client_model(number, take_home),
            whose=client_title(number, facts.names),
            task=facts.task or "classification",
            input_shape=tuple(facts.input_shape or ()),
            schema=self.schema,
            label=self.config.label or LABEL,
            shift=tuple(facts.shift or ()),
            scale=tuple(facts.scale or ()),
            precision=facts.precision or "fp32",
            encoding=self.config.encoding,
            labels=None if facts.labels is None else tuple(facts.labels),
        )

    def predict(
        self,
        data: Any,
        client: int | str | None = None,
        take_home: str | None = None,
        id: str | None = None,
        encoding: str | None = None,
    ) -> Prediction:
        """Return what a client's model says of new rows: labels and probabilities, or values.

        `data` is the path of a table (csv, parquet) or an npz file, a DataFrame, a mapping of columns, an array or a
        tensor; a column of labels is not needed, and ignored. Rows are encoded, filled and scaled as in training. `id`
        names a column that identifies rows. The only client of a run need not be named. Words that the model never saw
        are told in a warning.
        """
        said = self.predictor(client, take_home).predict(data, id, encoding)
        for line in said.warnings:
            python_warnings.warn(line, FedampWarning, stacklevel=2)
        return said

    def export(
        self,
        client: int | str,
        out: str | Path | None = None,
        take_home: str | None = None,
        format: str = "safetensors",
    ) -> list[Path]:
        """Write a client's model as safetensors, ONNX or both, with a JSON of how to use it; return the files.

        `out` is a file, by its name without ending, or a folder; by default the run's own folder.
        """
        from fedamp.runs.in_use.export import export  # it loads runs, of which this is one

        where = Path() if self.folder is None else self.folder
        target = None if out is None else Path(out)
        return export(self, self.client_number(client), where, target, take_home, format)

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
            "scored": self.scored,
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
        if self.epsilon is not None:
            values["epsilon"] = self.epsilon
        if self.alone is not None:
            values["alone"] = self.alone.to_dict()
        if self.metrics:
            values["metrics"] = {name: each.to_dict() for name, each in self.metrics.items()}
        for name in ("then_alone", "newcomers", "joined"):
            if (found := getattr(self, name)) is not None:
                values[name] = found.to_dict()
        return {name: finite(value) for name, value in values.items()}
