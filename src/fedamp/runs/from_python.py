"""`fedamp.run`: a run from Python, with the fields of a configuration as arguments, or with objects of your own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

from torch import nn

from fedamp import checks
from fedamp.config import Named, RunConfig
from fedamp.config.effects import check_effects
from fedamp.config.metrics import Metric
from fedamp.config.run_config import check_protected
from fedamp.config.sources import with_silos
from fedamp.errors import FedampWarning, UserError
from fedamp.methods import Method
from fedamp.ranks.launched import is_leader
from fedamp.ranks.team import team
from fedamp.records.folder import RunFolder
from fedamp.runs.earlier_split import as_begun
from fedamp.runs.given import given_clients, given_table
from fedamp.runs.handed_over import HandedOver
from fedamp.runs.judging import Loss, OwnParts
from fedamp.runs.loop import Observer, ignore
from fedamp.runs.result import Result
from fedamp.runs.watching.progress import Progress
from fedamp.runs.watching.watched import OnRound, Watch

Choice = str | Mapping[str, Any] | Named
"""A name, or a table with a `name` and parameters."""


def run(
    *,
    method: Choice | Method = RunConfig.method.name,
    clients: int | Iterable[Any] | Mapping[str, Any] | None = None,
    model: Choice | nn.Module | Callable[..., nn.Module] = RunConfig.model.name,
    data: str | Any | None = None,
    setting: Choice | None = None,
    rounds: int = RunConfig.rounds,
    epochs: int | None = RunConfig.epochs,
    steps: int | None = RunConfig.steps,
    batch_size: int = RunConfig.batch_size,
    optimizer: str | None = RunConfig.optimizer,
    lr: float | None = RunConfig.lr,
    momentum: float = RunConfig.momentum,
    weight_decay: float = RunConfig.weight_decay,
    task: Literal["auto", "classification", "regression"] = "auto",
    metric: str | Metric = RunConfig.metric,
    positive: str | int | None = RunConfig.positive,
    class_weights: Literal["none", "balanced"] = "none",
    dp_epsilon: float | None = RunConfig.dp_epsilon,
    dp_delta: float | None = None,
    dp_clip: float | None = None,
    dp_noise: float | None = RunConfig.dp_noise,
    loss: Loss | None = None,
    label: str | int | None = RunConfig.label,
    silo_column: str | int | None = RunConfig.silo_column,
    columns: str | Iterable[str | int] = RunConfig.columns,
    drop: str | Iterable[str | int] = RunConfig.drop,
    encoding: str | None = RunConfig.encoding,
    missing: Literal["refuse", "fill", "drop"] = "refuse",
    indicate_missing: bool = RunConfig.indicate_missing,
    held_out: float | None = None,
    label_noise: float = RunConfig.label_noise,
    noisy_clients: Iterable[int] | None = RunConfig.noisy_clients,
    poisoned: Iterable[int] = RunConfig.poisoned,
    attack: Literal["models", "labels"] = "models",
    poison_scale: float = RunConfig.poison_scale,
    replies: Literal["auto", "checked", "any"] = "auto",
    init: Literal["common", "own"] = "common",
    absent: float = RunConfig.absent,
    validation: float = RunConfig.validation,
    take_home: Literal["auto", "scored", "chosen"] = "auto",
    seed: int = RunConfig.seed,
    engine: Literal["auto", "stacked", "loop"] = "auto",
    device: str = RunConfig.device,
    precision: Literal["auto", "fp32", "tf32", "bf16"] = "auto",
    rows: Literal["auto", "device", "host", "disk"] = "auto",
    schema: str | Path | None = None,
    compile: Literal["auto", "on", "off"] = "auto",
    deterministic: bool = RunConfig.deterministic,
    alone: bool = RunConfig.alone,
    then_alone: int = RunConfig.then_alone,
    newcomers: int = RunConfig.newcomers,
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    on_round: OnRound | None = None,
    progress: Progress = "auto",
    track: str | Sequence[str] | None = None,
    observer: Observer = ignore,
) -> Result:
    """Run one experiment and return its result.

    `clients` is the number of clients among whom `data` is split by `setting`; or a list with each client's own
    (x, y), of which the share `held_out` is kept for testing, or (x, y, x_test, y_test): tensors, arrays, tables of
    numbers; or a torch Dataset or DataLoader each. A mapping in place of the list names the clients. With `label`, each
    may be a whole table (pandas, polars, pyarrow, Hugging Face), treated as a csv file of it would be; or `data` is one
    table with `silo_column`. Targets that are words are classes, and so are whole numbers; those of a floating type
    make a regression; `task` decides if that is wrong. `data` may also be a folder with a file for each silo, or one
    file with `silo_column`. `model` and `method` are names, tables with a name and parameters, or objects of your own.
    `metric` is a name, or a `fedamp.Metric` of your own; `loss` is a function of outputs and targets that gives the
    loss of each sample, or one number. Parts of a module that are in eval mode (a frozen BatchNorm) stay in it, unless
    all of it is. The other arguments are the fields of `fedamp.RunConfig`, whose help explains them.
    `out` is a folder to write the record to: a run that is finished there is read again, one that was interrupted
    continues, and a folder of another run, of other data or of another model is an error that says what differs.
    `on_round` is called after each round with a `fedamp.RoundLine`, and ends the run by returning False: the result is
    then that of the rounds so far, and the same call continues it in its folder. `progress` is a bar in a terminal and
    a line that updates in a notebook; True insists on it, False leaves it out. `track` names trackers that show the run
    elsewhere: "tensorboard", "mlflow", "wandb". `observer` is called with the raw lines of rounds.jsonl, those of the
    first and of the last models among them. The result's warnings are `fedamp.FedampWarning`s too. In a script that
    torchrun has started, all processes play the run together, and each gets its result; the first one writes and shows.
    """
    team()  # before anything is looked at: if one of several processes finds a mistake and ends, the others notice
    values: dict[str, Any] = {
        name: value
        for name, value in {
            "data": data,
            "setting": setting,
            "rounds": rounds,
            "epochs": epochs,
            "steps": steps,
            "batch_size": batch_size,
            "optimizer": optimizer,
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "task": task,
            "metric": metric,
            "loss": loss,
            "positive": positive,
            "class_weights": class_weights,
            "dp_epsilon": dp_epsilon,
            "dp_delta": dp_delta,
            "dp_clip": dp_clip,
            "dp_noise": dp_noise,
            "label": label,
            "silo_column": silo_column,
            "columns": columns,
            "drop": drop,
            "encoding": encoding,
            "missing": missing,
            "indicate_missing": indicate_missing,
            "held_out": held_out,
            "label_noise": label_noise,
            "noisy_clients": noisy_clients,
            "poisoned": poisoned,
            "attack": attack,
            "poison_scale": poison_scale,
            "replies": replies,
            "init": init,
            "absent": absent,
            "validation": validation,
            "take_home": take_home,
            "seed": seed,
            "engine": engine,
            "device": device,
            "precision": precision,
            "rows": rows,
            "schema": schema,
            "compile": compile,
            "deterministic": deterministic,
            "alone": alone,
            "then_alone": then_alone,
            "newcomers": newcomers,
        }.items()
        if value is not None
    }
    config, given = described(values, clients, model, method, data_dir)
    check_effects([config])
    result = _run(config, given, out, Watch(on_round, progress, track, observer))
    for each in result.warnings if is_leader() else ():
        warnings.warn(each, FedampWarning, stacklevel=2)
    return result


def described(
    values: dict[str, Any],
    clients: int | Iterable[Any] | Mapping[str, Any] | None,
    model: Choice | nn.Module | Callable[..., nn.Module],
    method: Choice | Method,
    data_dir: str | Path | None,
) -> tuple[RunConfig, HandedOver]:
    """Return the configuration of a run from Python, and what was handed over for it.

    `values` are fields of a configuration, of which `data` may be a table and `metric` an object, and perhaps a `loss`.
    """
    check_protected(values)
    values, own = _with_own_parts(values)
    values, table = _with_named_data(values)
    values = checks.plain(values)
    if isinstance(values.get("schema"), Path):
        values["schema"] = str(values["schema"])
    samples = own_model = own_method = None
    if isinstance(model, str | Mapping | Named):
        values["model"] = model
    elif not callable(model):  # a module is callable, too
        raise UserError(f"model is {model!r}; expected a name, a module, or a function that builds one")
    else:
        own_model, values["model"] = model, getattr(model, "__name__", type(model).__name__)
    if isinstance(method, Method):
        own_method = method
        values["method"] = {"name": type(method).__name__.lower(), **vars(method)}
    else:
        values["method"] = method
    if table is not None:
        config, samples = given_table(values, table, clients)
    elif clients is not None and not isinstance(clients, int | Integral):
        config, samples = given_clients(values, clients)
    else:
        config = RunConfig.of(with_silos(values if clients is None else {**values, "clients": clients}))
    methods = {} if own_method is None else {config.method.name: own_method}
    return config, HandedOver(None if data_dir is None else Path(data_dir), samples, own_model, methods, own)


def _with_own_parts(values: Mapping[str, Any]) -> tuple[dict[str, Any], OwnParts]:
    """Return a configuration's values, and the loss and the metric that are not chosen by name."""
    named = {name: value for name, value in values.items() if name not in ("loss", "metric")}
    loss, metric = values.get("loss"), values.get("metric", RunConfig.metric)
    if loss is not None and not callable(loss):
        raise UserError(f"loss is {loss!r}; expected a function of outputs and targets, or None for the task's own")
    if not isinstance(metric, str | Metric):
        raise UserError(f"metric is {metric!r}; expected a name, or a fedamp.Metric(name, function, higher_is_better)")
    if isinstance(metric, str):
        named["metric"] = metric
    own = OwnParts(loss, metric if isinstance(metric, Metric) else None)
    return {**named, **own.described()}, own


def _with_named_data(values: Mapping[str, Any]) -> tuple[dict[str, Any], Any | None]:
    """Return a configuration's values, and the data if it is not named but a table."""
    data = values.get("data")
    if isinstance(data, Path):
        return {**values, "data": f"{data}/" if data.is_dir() else str(data)}, None
    if data is None or isinstance(data, str):
        return dict(values), None
    return {name: value for name, value in values.items() if name != "data"}, data


def _run(config: RunConfig, given: HandedOver, out: str | Path | None, watch: Watch) -> Result:
    material, folder = given.material(config), None
    if out is not None:
        material, inputs = as_begun(config, material, given.inputs(config, material), Path(out))
        folder = RunFolder(Path(out), inputs)
    return watch.play(config, given.assemble(config, material), folder)
