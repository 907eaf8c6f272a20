"""A silo's half: its own data, its own memory, and one round at a time. It knows nothing of Flower.

What leaves the silo is what `Silo.play` and `Silo.look` return: the method's reply, the sample count, and the metrics
that `metric_names` lists. Nothing else does: a model that is trained alone stays at home, and so do its scores. A silo
that protects its samples (`privacy`) sends no metric that is computed from them: all scores and losses stay at home.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedamp.data.silos.leaving import MIN_COUNT
from fedamp.federation.plan import SiloConfig, disagreement
from fedamp.federation.silo import alone, diary, kept_models
from fedamp.federation.silo.kept_replies import Answer, KeptReplies
from fedamp.federation.silo.kept_setup import DataError, kept_setup
from fedamp.federation.silo.known_rows import FILE, KnownRows
from fedamp.federation.silo.memory import Memory
from fedamp.federation.silo.privacy_ledger import PrivacyLedger
from fedamp.federation.silo.unwilling import UnwillingError
from fedamp.federation.wire import reply_form
from fedamp.federation.wire.allowed_metrics import DATA_CHANGED, NOT_PROTECTED, metric_names
from fedamp.federation.wire.phrases import LOST_MEMORY, OLDER_SERVER
from fedamp.files import read_json, write_json, write_whole
from fedamp.privacy.promise import Privacy
from fedamp.records.summaries import finite
from fedamp.records.take_home import CHOSEN, ENTRIES, HeldOut
from fedamp.rows import Message, Rows, State
from fedamp.runs.in_use import export
from fedamp.runs.material import outputs_of
from fedamp.runs.scoring import with_between
from fedamp.runs.setup import Setup
from fedamp.training.evaluate import evaluate
from fedamp.training.torch_switches import use_threads
from fedamp.training.trainer import Trainer

MEMORY = "memory"  # of a silo's folder: what it remembers between rounds


@dataclass(frozen=True)
class Silo:
    """A silo that is ready: its data read, its model built."""

    config: SiloConfig
    setup: Setup  # of one client: this silo
    memory: Memory
    models: Path  # where the silo's models are put for its own use
    rows: KnownRows  # what the silo had to learn from so far
    privacy: PrivacyLedger | None = None  # by which its samples are protected; None: they are not

    @property
    def samples(self) -> int:
        """Training samples."""
        return len(self.setup.clients.train[0])

    def templates(self) -> tuple[Message, Message]:
        """Return a message and a reply with the right names, shapes and types."""
        return reply_form.templates(self.setup.method, self.setup.w)

    def heed(self, life: str, serial: int) -> None:
        """Refuse a message that is older than one that was acted on: the server has given it up.

        Or its record was restored from an older copy: told the newest number, it goes on from there.
        """
        newest = self.memory.newest(life)
        if serial < newest:
            raise UnwillingError("it got an old message", "an old message arrived and was ignored", newest)
        self.memory.note(life, serial)

    def play(
        self, k: int, accepted: int, message: Message, anew: bool = False, asked: str | None = None
    ) -> tuple[Message, dict[str, float]]:
        """Answer round k's message, from the state that the server accepted last; return the reply and the metrics.

        A private silo that has answered the message with the digest `asked` before does not train: the same reply
        leaves again, and its state becomes what it was then.
        """
        message = self.here(message)
        with use_threads(self.setup.choice.threads):
            answer = self.answered(asked) or self._train(k, accepted, message, anew, asked)
            models = self._models(answer.state, message)
            metrics = {**answer.metrics, **(scores := self._scores("", models))}
        self.memory.save(k, answer.state, began_from=accepted)
        self._keep(models, scores, {entry: k - 1 if entry == "received" else k for entry in models})
        kept_models.keep_round(self.models, k, models)
        self._keep_best(k, scores)
        diary.note_round(self.models.parent, k, self.setup.trainer.task.metric, metrics)
        return answer.reply, self._leaving(metrics)

    def answered(self, asked: str | None) -> Answer | None:
        """Return the answer to the message with this digest, if it was given before and is kept."""
        if self.privacy is None or asked is None:
            return None
        found = KeptReplies(self.privacy).find(asked)
        if found is None:
            return None
        state = alone.joined(self, State(1, self.here(found.state.rows)))
        return replace(found, state=state, reply=self.here(found.reply))

    def _train(self, k: int, accepted: int, message: Message, anew: bool, asked: str | None) -> Answer:
        """Train for round k, and pay for it."""
        forgot = {"forgot": 1.0} if self.forgot(accepted) else {}
        state = self.state(accepted, message, anew)
        first = self._scores("first.", self._models(state, message)) if accepted == 0 and not anew else {}
        clock = time.perf_counter()
        local = self._trainer().local(self.setup.clients, k)
        state, reply = self.setup.method.client_update(state, message, local)
        seconds = time.perf_counter() - clock
        losses = {"train-loss" + (f"-{name}" if name else ""): float(loss) for name, loss in local.losses.items()}
        metrics = {**self._counts(), "train-seconds": seconds, **losses, **first, **forgot}
        answer = Answer(state, reply, metrics)
        if self.privacy is not None:
            KeptReplies(self.privacy).pay(k, local.spent[0], asked, answer)
        return answer

    def look(self, k: int, accepted: int, message: Message, anew: bool = False) -> dict[str, float]:
        """Take what the server sends after the last round, k: keep the models, and return their scores.

        The silo may have missed rounds since the one that was accepted last: only its own models are of that one.
        """
        message = self.here(message)
        models = self.setup.method.client_models(self.state(accepted, message, anew), message)
        if self.forgot(accepted):  # its own models are lost, and what was received is no substitute
            models = {entry: rows for entry, rows in models.items() if entry == "received"}
        with use_threads(self.setup.choice.threads):
            scores = self._scores("", models)
        self._keep(models, scores, {entry: k if entry == "received" else accepted for entry in models})
        received = {name: score for name, score in scores.items() if ".received." in name}  # the others are known
        self._keep_best(k + 1, received)
        metric = self.setup.trainer.task.metric
        diary.note_round(self.models.parent, k + 1, metric, {**self._counts(), **received}, ended=True)
        return self._leaving({**self._counts(), **scores})

    def _trainer(self) -> Trainer:
        """Return what a round is trained with; a private one draws minibatches and noise that nobody can foresee.

        Never from the plan's seed, which the server knows: it could draw the same noise, and subtract it.
        """
        if self.privacy is None:
            return self.setup.trainer
        promise = self.privacy.account().promise
        noise = {self.config.number: promise.noise}
        return self.setup.trainer.changed(privacy=Privacy(promise.clip, noise, secret=secrets.randbits(128)))

    def _keep_best(self, k: int, scores: Mapping[str, float]) -> None:
        """Keep the model that does best on the silo's own validation samples; those for testing never choose."""
        if held_out := self.setup.clients.validation:
            method, metric = self.setup.method, self.setup.trainer.task.metric
            kept_models.keep_best(self.models, k, scores, HeldOut((len(held_out[0]),), metric, method.scored))

    def _leaving(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return the metrics that the server may know."""
        allowed = NOT_PROTECTED if self.privacy is not None else metric_names(self.setup.trainer.task.metric)
        return {name: value for name, value in metrics.items() if name in allowed}

    def take(self, choice: Mapping[str, Any]) -> None:
        """Keep the models that held-out samples have chosen for all silos so far: an `entry` of a `round`.

        The server tells it after the round in which it became the choice, when this silo still has these models; one
        that missed that round takes its last ones, by which it was counted. If newer ones have taken their place (the
        federation has ended, and goes on now), what was kept before stays.
        """
        if choice.get("entry") not in ENTRIES or not isinstance(choice.get("round"), int):  # it becomes a file's name
            raise UnwillingError("it can't use the server's message", f"the server chose {choice!r}: no such models")
        source, target = self.models / choice["entry"], self.models / CHOSEN
        details = read_json(source.with_suffix(".json"))
        kept = (read_json(target.with_suffix(".json")) or {}).get(CHOSEN)
        if details is None or kept == choice or details["score"]["round"] > choice["round"]:
            return
        write_whole(target.with_suffix(".safetensors"), source.with_suffix(".safetensors").read_bytes())
        write_json(target.with_suffix(".json"), {**details, CHOSEN: choice})

    def _models(self, state: State, message: Message) -> dict[str, Rows]:
        """Return what is scored and kept after a round; with validation samples, the midpoint too."""
        models = self.setup.method.client_models(state, message)
        return with_between(models) if self.setup.clients.validation else models

    def _counts(self) -> dict[str, float]:
        clients = self.setup.clients
        counts: dict[str, float] = {"num-examples": self.samples, "num-test": len(clients.test[0])}
        if clients.validation:
            counts["num-validation"] = len(clients.validation[0])
        if changed := self.rows.changed_in():  # again in each round: a reply may be lost
            counts[DATA_CHANGED] = changed
        return counts

    def forgot(self, accepted: int) -> bool:
        """Return whether the state after the round that the server accepted last is gone."""
        return accepted > 0 and not self.memory.has(accepted)

    def state(self, accepted: int, message: Message, anew: bool = False) -> State:
        """Return the state after the round that the server accepted last, 0 for none.

        If it is gone, the silo begins anew from what the server sends: always where the method never trains from what
        it kept, else when the server's operator has readmitted the silo.
        """
        method = self.setup.method
        state = self.memory.load(accepted) if accepted else None
        if state is not None:
            return alone.joined(self, State(1, self.here(state.rows)))
        if accepted and method.remembers and not anew:
            kept = self.memory.rounds()
            raise UnwillingError(
                OLDER_SERVER if kept and min(kept) > accepted else LOST_MEMORY,
                f"the server continues from round {accepted}, but the rounds kept in {self.memory.folder} are: "
                f"{self.memory.listed()}; restore the folder from a backup, or let the operator of the server begin "
                f"anew with this silo: fedamp federation readmit FOLDER {self.config.name}",
            )
        if accepted or anew:
            return alone.carried_over(self, method.client_anew(self.setup.w, message))
        return method.client_init(self.setup.w)

    def here(self, message: Mapping[str, Rows]) -> dict[str, Rows]:
        """Return rows on the silo's device."""
        device = self.setup.w.params.device
        return {name: rows.to(device) for name, rows in message.items()}

    def _scores(self, first: str, models: Mapping[str, Rows]) -> dict[str, float]:
        trainer, clients, scores = self.setup.trainer, self.setup.clients, {}
        for on in ("test", "validation"):
            if not getattr(clients, on):
                continue
            for entry, rows in models.items():
                score = evaluate(trainer, clients, rows, on)
                if not score.metric.isnan():  # what this silo's samples do not define is not sent
                    scores[f"{first}{on}.{entry}.{trainer.task.metric}"] = float(score.metric)
                scores[f"{first}{on}.{entry}.loss"] = float(score.loss)
        return scores

    def _keep(self, models: Mapping[str, Rows], scores: Mapping[str, float], made: Mapping[str, int]) -> None:
        """Put the models where the silo can use them.

        That is: state dicts that torch loads, how to build and feed them, their scores, and the round that made them:
        what was received in a round was made by the round before.
        """
        self.models.mkdir(parents=True, exist_ok=True)
        flat, plan = self.setup.trainer.model, self.config.plan
        shape, outputs = plan.schema.input_shape, outputs_of(plan.schema)[0]
        how = export.how_to_build(plan.config, flat.module, shape, outputs)
        metric = self.setup.trainer.task.metric
        for entry, row in models.items():
            score = {
                "metric": metric,
                "test": finite(scores.get(f"test.{entry}.{metric}")),
                "round": made[entry],
            }
            if f"validation.{entry}.{metric}" in scores:
                score["validation"] = finite(scores[f"validation.{entry}.{metric}"])
            details = {
                **how,
                **export.how_to_encode(plan.schema),
                "silo": self.config.name,
                "entry": entry,
                "score": score,
            }
            export.write_model(self.models / f"{entry}.safetensors", flat, row, details)


def open_silo(
    silo_config: SiloConfig,
    data: Path,
    folder: Path,
    theirs: Mapping[str, Any] | None = None,
    trains_alone: bool = False,
    private: bool = False,
) -> Silo:
    """Return the silo of a bundle with its own data; `theirs` is the server's side of the agreement, if it is known.

    Whether it also trains a model alone is the silo's own affair: what leaves it is the same, only later. One that is
    `private` protects its samples, as its privacy ledger says.
    """
    here = silo_config.plan.told()
    if difference := disagreement(silo_config.plan.agreed(), here):
        raise UnwillingError(
            "its installation does not fit the plan",
            f"this installation does not fit the plan of the bundle: {difference}",
        )
    if theirs is not None and (difference := disagreement(theirs, here)):
        seen_from_there = disagreement(here, theirs)
        raise UnwillingError(f"its plan differs: {seen_from_there}", f"the server's plan differs: {difference}")
    try:
        setup = kept_setup(silo_config, data, trains_alone, private)
    except DataError as error:
        raise UnwillingError("its data can't be read", f"the data in {data} can't be used: {error}") from None
    ledger = PrivacyLedger(folder) if private else None
    silo = Silo(silo_config, setup, Memory(folder / MEMORY), folder / "models", KnownRows(folder / FILE), ledger)
    if silo.samples < MIN_COUNT:  # a model of so few tells what they hold, as means of so few do
        raise UnwillingError(
            "it has too few samples to train on",
            f"too few training samples in {data}: {silo.samples}; expected at least {MIN_COUNT}, as a model of fewer "
            "tells what they hold; if a file is only half written, the silo goes on when it is whole",
        )
    return silo
