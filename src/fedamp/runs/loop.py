"""A run: the visible loop, from a description to a result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedamp import checks
from fedamp.runs.setup import Setup, assemble, given_material, load_material
from fedamp.records.checkpoints import Checkpoint, Pace, Snapshot
from fedamp.data.clients import Clients
from fedamp.data.silos.schema_file import schema_to_json
from fedamp.config.sources import with_silos
from fedamp.config.run_config import GIVEN, is_folder
from fedamp.config import RunConfig
from fedamp.training.process import keep_freed_memory, use_deterministic, use_threads
from fedamp.errors import UserError
from fedamp.training.evaluate import evaluate
from fedamp.data.given import as_clients
from fedamp.runs.identity import inputs_of
from fedamp.training.trainer import Trainer
from fedamp.methods import Local, Method
from fedamp.records.metrics import Summary, counted_clients, finite, score_table, spread, summarise
from fedamp.records.reading import BEST, MODELS
from fedamp.records.folder import RunFolder, read_models
from fedamp.runs.result import Kept, Result
from fedamp.runs.round import Round, draw_present, play_round
from fedamp.rows import Rows, State

Observer = Callable[[Mapping[str, Any]], bool | None]
"""Called with each round's line as soon as it is there, the first models' among them. Once it returns False of a round
that was played, the run ends after it."""


@dataclass(frozen=True)
class Standing:
    """Where a run stands: after round k."""

    k: int
    server: State
    clients: State
    xi: tuple[Tensor, ...] = ()  # of rounds 1 to k, for methods that have it
    best: Mapping[str, Snapshot] = field(default_factory=dict)  # where there is validation: by entry

    def checkpoint(self, how: Mapping[str, Any]) -> Checkpoint:
        """Return it as it is saved."""
        return Checkpoint(self.k, self.server, self.clients, self.weights, how, self.best)

    @property
    def weights(self) -> Tensor | None:
        """All rounds' collaboration weights `(k, m, m)`."""
        return torch.stack(self.xi) if self.xi else None


def play(
    config: RunConfig,
    setup: Setup,
    folder: RunFolder | None = None,
    observer: Observer = lambda line: None,
) -> Result:
    """Play all rounds of a run, and return what came of it.

    A run that was broken off goes on from its folder's last checkpoint and ends as if it never had been; one that is
    there already is read again. Interrupted, or ended by its observer, it leaves a readable folder: every round so far,
    its models, and what it came to.
    """
    if folder is not None and (done := folder.finished(config.to_dict())):
        return _read_again(config, setup, folder, done)
    if setup.w.params.device.type == "cpu":
        keep_freed_memory()
    saved, history = _begin(config, setup, folder)
    if saved is not None:
        setup = _as_before(setup, saved.how)
    try:
        with use_threads(setup.choice.threads), use_deterministic(config.deterministic):
            return _play(config, setup, folder, observer, saved, history)
    except torch.OutOfMemoryError as error:
        # A chunk of clients that does not fit is halved; what is left here are the models of all of them.
        raise UserError(
            f"the models of {len(setup.clients)} clients do not fit into the device's memory "
            f"({str(error).split('.')[0]}); fedamp run --dry-run tells the need. Take fewer clients, or --device cpu"
        ) from None


def _play(
    config: RunConfig,
    setup: Setup,
    folder: RunFolder | None,
    observer: Observer,
    saved: Checkpoint | None,
    history: list[dict[str, Any]],
) -> Result:
    method, training, clients = setup.method, setup.training, setup.clients
    everyone, pace, going_on = torch.arange(len(clients)), Pace(), True
    interrupt: KeyboardInterrupt | None = None

    def record(line: dict[str, Any]) -> None:
        history.append(line)
        if folder is not None:
            folder.add(line)

    if saved is None:
        at = Standing(0, method.server_init(setup.w), method.client_init(setup.w))
        record({"round": 0, "events": [], "seconds": 0.0, **_scores(setup, _models(method, at), everyone)})
        observer(history[-1])
    else:
        xi = () if saved.xi is None else tuple(saved.xi)
        at = Standing(saved.k, saved.server, saved.clients, xi, saved.best)
    try:
        while going_on and at.k < config.rounds:
            clock, k = time.perf_counter(), at.k + 1
            present = draw_present(config.seed, k, len(clients), config.absent)
            local_for = partial(_local, training, clients, k)
            poisoned = config.poisoned
            checked = config.replies == "checked" or (config.replies == "auto" and bool(poisoned))
            played = play_round(
                method, at.server, at.clients, k, local_for, present, setup.tamper, checked, poisoned
            )
            scores = _scores(setup, played.models, present.nonzero()[:, 0])
            line = {**_line(k, played, training.take_events()), **scores, "seconds": time.perf_counter() - clock}
            record(line)
            # Only now, and at once: whenever a run is interrupted, it stands after a round that is on record.
            at = _next(config, setup, at, played)
            going_on = observer(line) is not False
            if folder is not None and pace.due():
                with pace.timed():
                    folder.save(at.checkpoint(_how(setup)))
    except KeyboardInterrupt as stop:
        interrupt = stop
        if at.k == 0:  # not even a first round: nothing to sum up
            raise
        _forget_after(at.k, history, folder)
    finished = at.k == config.rounds
    if folder is not None and not finished:
        folder.save(at.checkpoint(_how(setup)))
    # What the last round made has not been sent to anyone yet: score it as if it were.
    models = _models(method, at)
    if "received" in models:
        scores = _scores(setup, {"received": models["received"]}, everyone)
        record({"round": at.k + 1, "events": [], "seconds": 0.0, **scores})
        if clients.validation:
            last = {"received": models["received"]}
            at = replace(at, best=_better(config, setup, at.best, last, at.k + 1))
        if interrupt is None:
            observer(history[-1])
    warning = [*setup.warnings, *([setup.choice.warning] if setup.choice.warning else [])]
    result = Result(
        config=config,
        history=history,
        summary=_summary(config, setup, history),
        last_models={entry: _kept(setup, at.k, rows) for entry, rows in models.items()},
        xi=at.weights,
        warnings=list(dict.fromkeys([*warning, *(event for line in history for event in line["events"])])),
        facts=setup.facts,
        seconds=sum(line["seconds"] for line in history),
        method=method,
        model=training.model,
        schema=setup.schema,
        folder=None if folder is None else folder.path,
        best_models={entry: _kept(setup, best.round, best.models, best.score) for entry, best in at.best.items()},
    )
    if folder is not None:
        best = {entry: kept.models for entry, kept in result.best_models.items()}
        folder.finish({"finished": finished, **result.to_dict()}, models, result.xi, best)
    if interrupt is not None:
        raise interrupt
    return result


def _kept(setup: Setup, k: int, models: Rows, validation: float | None = None) -> Kept:
    """Return models of round k with their own test scores."""
    task = setup.training.task
    scores = evaluate(setup.training, setup.clients, models).metric * (
        100 if task.metric == "accuracy" else 1
    )
    return Kept(k, models, scores.tolist(), validation)


def _models(method: Method, at: Standing) -> dict[str, Rows]:
    """Return all clients' models after a round: their own, and what the server would send next."""
    _, message = method.server_send(at.server, at.k + 1)
    return method.client_models(at.clients, message)


def _next(config: RunConfig, setup: Setup, at: Standing, played: Round) -> Standing:
    """Return where a run stands after one more round."""
    k, best = at.k + 1, at.best
    if setup.clients.validation:
        # All clients' models as this round scores them, the absent ones' too.
        _, message = setup.method.server_send(at.server, k)
        models = setup.method.client_models(played.clients, message)
        best = _better(config, setup, best, models, k)
    xi = (*at.xi, played.diagnostics["xi"].cpu().float()) if "xi" in played.diagnostics else at.xi
    return Standing(k, played.server, played.clients, xi, best)


def _better(
    config: RunConfig, setup: Setup, best: Mapping[str, Snapshot], models: Mapping[str, Rows], k: int
) -> dict[str, Snapshot]:
    """Return the best validated models of each entry, now that round k is played; of equally good ones the earlier.

    Each stack is scored itself: in a round's line an absent client has the score of another model. What is received in
    round k was made by the round before; what was there before the first is nobody's result.
    """
    kept, task = dict(best), setup.training.task
    counted = torch.tensor(counted_clients(len(setup.clients), config.poisoned))
    for entry, rows in models.items():
        made = k - 1 if entry == "received" else k
        mean = float(evaluate(setup.training, setup.clients, rows, "validation").metric[counted].mean())
        score = mean if task.higher_is_better else -mean
        if made > 0 and math.isfinite(score) and (entry not in kept or score > kept[entry].score):
            kept[entry] = Snapshot(made, score, rows)
    return kept


def _forget_after(k: int, history: list[dict[str, Any]], folder: RunFolder | None) -> None:
    """Take the line of a round that was scored, and then broken off, out of the record: its models are not kept."""
    if history[-1]["round"] > k:
        history[:] = [line for line in history if line["round"] <= k]
        if folder is not None:
            folder.rewrite(history)


def _read_again(config: RunConfig, setup: Setup, folder: RunFolder, done: Mapping[str, Any]) -> Result:
    """Return the result of a run that came to its end in this folder."""
    history, xi = folder.lines(), folder.read().xi()
    models = read_models(folder.path / MODELS)
    best = read_models(folder.path / BEST) if (folder.path / BEST).exists() else {}
    return Result(
        config=config,
        history=history,
        summary=_summary(config, setup, history),
        last_models={entry: Kept.of(rows, done["models"][entry]) for entry, rows in models.items()},
        xi=None if xi is None else torch.from_numpy(xi),
        warnings=list(done["warnings"]),
        facts=done["facts"],
        seconds=done["seconds"],
        method=setup.method,
        model=setup.training.model,
        schema=setup.schema,
        folder=folder.path,
        best_models={entry: Kept.of(rows, done["best_models"][entry]) for entry, rows in best.items()},
    )


def _begin(
    config: RunConfig, setup: Setup, folder: RunFolder | None
) -> tuple[Checkpoint | None, list[dict[str, Any]]]:
    """Return where to go on, and the lines of the rounds up to there; nothing and none for a new run."""
    if folder is None:
        return None, []
    schema = None if setup.schema is None else schema_to_json(setup.schema)
    saved = folder.begin(config.to_dict(), schema, setup.w.params.device)
    return (None, []) if saved is None else (saved, folder.lines())


def _as_before(setup: Setup, how: Mapping[str, Any]) -> Setup:
    """Return the federation with the way of training that a checkpoint was made with: the last digits depend on it."""
    training = setup.training.changed(engine=how["engine"], chunk=how["chunk"])
    choice = replace(setup.choice, engine=how["engine"], chunk=how["chunk"], threads=how["threads"])
    facts = {**setup.facts, "engine": choice.engine, "threads": choice.threads}
    return replace(setup, training=training, choice=choice, facts=facts)


def _how(setup: Setup) -> dict[str, Any]:
    """Return the way of training, on which the last digits depend."""
    choice = setup.choice
    device = setup.w.params.device.type
    chunk = setup.training.chunks.size
    return {"engine": choice.engine, "chunk": chunk, "threads": choice.threads, "device": device}


def _summary(config: RunConfig, setup: Setup, history: list[dict[str, Any]]) -> Summary:
    metric = setup.training.task.metric
    table = score_table(history, setup.method.scored, metric)
    return summarise(table, metric, counted_clients(len(setup.clients), config.poisoned))


def _local(training: Trainer, clients: Clients, k: int, who: Tensor) -> Local:
    return training.local(clients.take(who), k)


def _scores(setup: Setup, models: Mapping[str, Rows], who: Tensor) -> dict[str, Any]:
    """Return accuracy and loss on what is held out, for each of the models; None for a client who is not here."""
    clients, scores = setup.clients, {}
    for on in ("test", "validation"):
        if getattr(clients, on):
            here = clients.take(who)
            scored = {name: evaluate(setup.training, here, rows, on) for name, rows in models.items()}
            scores[on] = {
                name: {
                    setup.training.task.metric: spread(
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


def run(
    *,
    method: str | Mapping[str, Any] | Method = "fedamp",
    clients: int | Iterable[Sequence[Any]] | None = None,
    model: str | Mapping[str, Any] | nn.Module | Callable[..., nn.Module] = "mlp",
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    observer: Observer = lambda line: None,
    **settings: Any,
) -> Result:
    """Run one experiment and return its result.

    `clients` is a number of clients among whom `data` is split by `setting`, or a list with each client's own
    (x, y), of which the share `held_out` is kept for testing, or (x, y, x_test, y_test); these are tensors, arrays,
    tables of numbers. Targets of a floating type are a regression, whole numbers are classes; `task` decides where
    that is wrong. `data` may also be a folder with a csv or npz file for each silo. `model` and `method` are names,
    tables with a name and parameters, or objects of your own. Parts of a module that are in eval mode (a frozen
    BatchNorm) stay in it, unless all of it is. The other settings are those of `Description`.
    `out` is a folder to write the record to: a run that is there already is read again, one that was broken off goes
    on, and a folder of another run, of other data or of another model is an error that says what differs. `observer`
    is called with each round's line, and ends the run by returning False.
    """
    values: dict[str, Any] = checks.plain(settings)
    own_clients = own_model = own_method = None
    if isinstance(clients, int | Integral):
        values["clients"] = clients
    elif clients is not None:
        for name in ("data", "setting", "label", "schema"):
            if values.get(name) is not None:
                raise UserError(f"{name} is {values[name]!r}, but clients are given with their samples; leave one out")
        own_clients = as_clients(
            clients, values.get("held_out"), values.get("seed", 0), usual_share=RunConfig.held_out
        )
        values |= {"clients": len(own_clients), "data": GIVEN, "setting": GIVEN}
    if isinstance(model, str | Mapping):
        values["model"] = model
    else:
        own_model, values["model"] = model, getattr(model, "__name__", type(model).__name__)
    if isinstance(method, Method):
        own_method = method
        values["method"] = {"name": type(method).__name__.lower(), **vars(method)}
    else:
        values["method"] = method
    config = RunConfig.of(with_silos(values))
    if own_clients is None:
        material = load_material(config, None if data_dir is None else Path(data_dir))
    else:
        material = given_material(own_clients, config.task)
    setup = assemble(config, material, own_model, own_method)
    folder = None
    if out is not None:
        folder = RunFolder(Path(out), inputs_of(config, material, own_model, own_method))
    return play(config, setup, folder, observer)
