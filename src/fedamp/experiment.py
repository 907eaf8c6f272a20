"""A run: the visible loop, from a description to a result."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedamp.assembly import Federation, as_clients, assemble
from fedamp.checkpoints import Checkpoint, Pace
from fedamp.chunks import Chunks
from fedamp.clients import Clients
from fedamp.data.schema import Schema
from fedamp.data.schema_json import schema_to_json
from fedamp.data.silos import count_silos
from fedamp.description import Description, is_folder
from fedamp.engine import keep_freed_memory, use_deterministic, use_threads
from fedamp.errors import UserError
from fedamp.evaluate import evaluate
from fedamp.flat import FlatModel
from fedamp.local import Training
from fedamp.methods import Local, Method
from fedamp.metrics import Summary, finite, score_table, spread, summarise
from fedamp.records import RunFolder
from fedamp.rounds import Round, draw_present, play_round
from fedamp.rows import Rows

Observer = Callable[[Mapping[str, Any]], None]
"""Called with each round's line as soon as it is there."""


@dataclass(frozen=True)
class Result:
    """What a run leaves behind."""

    description: Description
    history: list[dict[str, Any]]  # a line for each round, as in rounds.jsonl
    summary: Summary
    models: dict[str, Rows]  # "own", "received": every client's, after the last round
    xi: Tensor | None  # (K, m, m) collaboration weights of each round
    warnings: list[str]
    facts: Mapping[str, Any]
    seconds: float
    method: Method
    model: FlatModel
    schema: Schema | None  # of a user's own silos: columns, labels, scaling
    folder: Path | None

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

    def client_model(self, client: int) -> nn.Module:
        """Return a client's final model as a module of its own, ready to be used."""
        rows = self.models[self.method.scored]
        if not 0 <= client < len(rows):
            raise UserError(f"client is {client}; expected a number from 0 to {len(rows) - 1}")
        module = copy.deepcopy(self.model.module).cpu()
        row = rows[slice(client, client + 1)]
        module.load_state_dict(self.model.state_dict(row))
        return module.eval()

    def __repr__(self) -> str:
        what = "BMTA" if self.summary.metric == "accuracy" else "lowest RMSE"
        clients, rounds = len(self.summary.per_client), self.description.rounds
        return f"Result({self.description.method.name}, {clients} clients, {rounds} rounds, {what} {self.best:.4g})"

    def to_dict(self) -> dict[str, Any]:
        """Return the result in plain values: what `result.json` and `--json` hold; None for what is not finite."""
        told = {
            "method": self.description.method.name,
            "scored": self.method.scored,
            **self.summary.to_dict(),
            "rounds": self.description.rounds,
            "seconds": self.seconds,
            "warnings": self.warnings,
            "facts": dict(self.facts),
        }
        return {name: finite(value) for name, value in told.items()}


class EnoughError(KeyboardInterrupt):
    """What an observer raises that has seen enough: the run ends as by Ctrl-C, and its result is what there is."""


def play(
    description: Description,
    federation: Federation,
    folder: RunFolder | None = None,
    observer: Observer = lambda line: None,
) -> Result:
    """Play all rounds of a run, and return what came of it.

    A run that was broken off goes on from its folder's last checkpoint and ends as if it never had been.
    Interrupted, it leaves a readable folder: every round so far, its models, and what it came to.
    """
    if federation.w.params.device.type == "cpu":
        keep_freed_memory()
    try:
        with use_threads(federation.choice.threads), use_deterministic(description.deterministic):
            return _play(description, federation, folder, observer)
    except torch.OutOfMemoryError as error:
        # A chunk of clients that does not fit is halved; what is left here are the models of all of them.
        raise UserError(
            f"the models of {len(federation.clients)} clients do not fit into the device's memory "
            f"({str(error).split('.')[0]}); fedamp run --dry-run tells the need. Take fewer clients, or --device cpu"
        ) from None


def _play(description: Description, federation: Federation, folder: RunFolder | None, observer: Observer) -> Result:
    saved, history = _begin(description, federation, folder)
    if saved is not None:
        federation = _as_before(federation, saved.how)
    method, training, clients = federation.method, federation.training, federation.clients
    xis = [] if saved is None or saved.xi is None else list(saved.xi)

    def record(line: dict[str, Any]) -> None:
        history.append(line)
        if folder is not None:
            folder.add(line)
        observer(line)

    everyone, pace = torch.arange(len(clients)), Pace()
    interrupt: KeyboardInterrupt | None = None
    try:
        if saved is None:
            done, server, state = 0, method.server_init(federation.w), method.client_init(federation.w)
            _, message = method.server_send(server, 1)
            scores = _scores(federation, method.client_models(state, message), everyone)
            record({"round": 0, "events": [], "seconds": 0.0, **scores})
        else:
            done, server, state = saved.k, saved.server, saved.clients
        for k in range(done + 1, description.rounds + 1):
            clock = time.perf_counter()
            present = draw_present(description.seed, k, len(clients), description.absent)
            local_for = partial(_local, training, clients, k)
            checked = description.replies == "checked"
            poisoned = description.poisoned
            played = play_round(method, server, state, k, local_for, present, federation.tamper, checked, poisoned)
            scores = _scores(federation, played.models, present.nonzero()[:, 0])
            line = _line(k, played, training.take_events())
            record({**line, **scores, "seconds": time.perf_counter() - clock})
            # Only now: whenever a run is interrupted, its states are those of a round that is on record.
            done, server, state = k, played.server, played.clients
            xis += [played.diagnostics["xi"].cpu().float()] if "xi" in played.diagnostics else []
            if folder is not None and pace.due():
                with pace.timed():
                    folder.save(Checkpoint(k, server, state, torch.stack(xis) if xis else None, _how(federation)))
    except KeyboardInterrupt as stop:
        interrupt = stop
        if len(history) < 2:  # not even a first round: nothing to sum up
            raise
        if folder is not None:
            folder.save(Checkpoint(done, server, state, torch.stack(xis[:done]) if xis else None, _how(federation)))
    # What the last round made has not been sent to anyone yet: score it as if it were.
    _, message = method.server_send(server, done + 1)
    models = method.client_models(state, message)
    if interrupt is None and "received" in models:
        scores = _scores(federation, {"received": models["received"]}, everyone)
        record({"round": done + 1, "events": [], "seconds": 0.0, **scores})
    warning = [federation.choice.warning] if federation.choice.warning else []
    result = Result(
        description=description,
        history=history,
        summary=_summary(description, federation, history),
        models=models,
        xi=torch.stack(xis[:done]) if xis else None,
        warnings=list(dict.fromkeys([*warning, *(event for line in history for event in line["events"])])),
        facts=federation.facts,
        seconds=sum(line["seconds"] for line in history),
        method=method,
        model=training.model,
        schema=federation.schema,
        folder=None if folder is None else folder.path,
    )
    if folder is not None:
        folder.finish({"finished": interrupt is None, **result.to_dict()}, result.models, result.xi)
    if interrupt is not None and not isinstance(interrupt, EnoughError):
        raise interrupt
    return result


def _begin(
    description: Description, federation: Federation, folder: RunFolder | None
) -> tuple[Checkpoint | None, list[dict[str, Any]]]:
    """Return where to go on, and the lines of the rounds up to there; nothing and none for a new run."""
    if folder is None:
        return None, []
    schema = None if federation.schema is None else schema_to_json(federation.schema)
    saved = folder.begin(description.to_dict(), schema, federation.w.params.device)
    if saved is None:
        return None, []
    if saved.how["device"] != federation.w.params.device.type:
        raise UserError(
            f"{folder.path} was begun on {saved.how['device']}, and would not give the same numbers on "
            f"{federation.w.params.device.type}; give the first --device again, or another folder with --out"
        )
    return saved, folder.lines()


def _as_before(federation: Federation, how: Mapping[str, Any]) -> Federation:
    """Return the federation with the way of training that a checkpoint was made with: the last digits depend on it."""
    torch.set_num_threads(how["threads"])  # `play` puts it back
    training = replace(federation.training, engine=how["engine"], chunks=Chunks(how["chunk"]))
    return replace(federation, training=training)


def _how(federation: Federation) -> dict[str, Any]:
    """Return the way of training, on which the last digits depend."""
    choice = federation.choice
    device = federation.w.params.device.type
    chunk = federation.training.chunks.size
    return {"engine": choice.engine, "chunk": chunk, "threads": choice.threads, "device": device}


def _summary(description: Description, federation: Federation, history: list[dict[str, Any]]) -> Summary:
    metric = federation.training.task.metric
    table = score_table(history, federation.method.scored, metric)
    if not len(table):  # interrupted before a first aggregate was scored
        table = score_table(history, "own", metric)
    # What a poisoned client gets is nobody's concern: it enters no mean.
    counted = [number not in description.poisoned for number in range(len(federation.clients))]
    return summarise(table, metric, counted)


def _local(training: Training, clients: Clients, k: int, who: Tensor) -> Local:
    return training.local(clients.take(who), k)


def _scores(federation: Federation, models: Mapping[str, Rows], who: Tensor) -> dict[str, Any]:
    """Return accuracy and loss on what is held out, for each of the models; None for a client who is not here."""
    clients, scores = federation.clients, {}
    for on in ("test", "validation"):
        if getattr(clients, on):
            here = clients.take(who)
            scored = {name: evaluate(federation.training, here, rows, on) for name, rows in models.items()}
            scores[on] = {
                name: {
                    federation.training.task.metric: spread(
                        score.metric.tolist(), who.tolist(), len(clients), broken="inf"
                    ),
                    "loss": spread(score.loss.tolist(), who.tolist(), len(clients)),
                }
                for name, score in scored.items()
            }
    return scores


def _line(k: int, played: Round, events: list[str]) -> dict[str, Any]:
    who = played.present.nonzero()[:, 0]
    line: dict[str, Any] = {"round": k, "present": played.present.tolist()}
    if played.refused:
        line["refused"] = {str(client): why for client, why in played.refused.items()}
    for name, loss in played.losses.items():
        line["train_loss" + (f"_{name}" if name else "")] = spread(loss.tolist(), who.tolist(), len(played.present))
    for name, value in played.diagnostics.items():
        if isinstance(value, Tensor) and value.ndim == 1:
            line[name] = finite(value.tolist())
        elif isinstance(value, float):
            line[name] = finite(value)
    return {**line, "events": [*played.diagnostics["events"], *events]}


def natural(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with what a folder of silos decides by itself: who the clients are, and their data."""
    data = values.get("data", "")
    if not (isinstance(data, str) and data and is_folder(data)):
        return dict(values)
    if values.get("clients") is not None:
        raise UserError(f"clients is {values['clients']}, but {data} is a folder of silos: they are the clients")
    if "setting" in values:
        raise UserError(f"setting is {values['setting']!r}, but {data} is a folder of silos: they are the partition")
    return {**values, "setting": "natural", "clients": count_silos(Path(data))}


def run(
    *,
    method: str | Mapping[str, Any] | Method = "fedamp",
    clients: int | Sequence[Sequence[Any]] | None = None,
    model: str | Mapping[str, Any] | nn.Module | Callable[..., nn.Module] = "mlp",
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    observer: Observer = lambda line: None,
    **settings: Any,
) -> Result:
    """Run one experiment and return its result.

    `clients` is a number of clients among whom `data` is split by `setting`, or a list with each client's own
    (x, y), of which the share `held_out` is kept for testing, or (x, y, x_test, y_test). `data` may also be a folder
    with a csv or npz file for each silo. `model` and `method` are names,
    tables with a name and parameters, or objects of your own. The other settings are those of `Description`.
    `out` is a folder to write the record to.
    """
    values: dict[str, Any] = dict(settings)
    own_clients = own_model = own_method = None
    if isinstance(clients, int):
        values["clients"] = clients
    elif clients is not None:
        own_clients = as_clients(clients, values.get("held_out", 0.2), values.get("seed", 0))
        values |= {"clients": len(own_clients), "data": "given", "setting": "given"}
    if isinstance(model, str | Mapping):
        values["model"] = model
    else:
        own_model, values["model"] = model, getattr(model, "__name__", type(model).__name__)
    if isinstance(method, Method):
        own_method = method
        values["method"] = {"name": type(method).__name__.lower(), **vars(method)}
    else:
        values["method"] = method
    description = Description.of(natural(values))
    where = None if data_dir is None else Path(data_dir)
    federation = assemble(description, own_clients, own_model, own_method, where)
    return play(description, federation, None if out is None else RunFolder(Path(out)), observer)
