"""What there is to learn from: a data set split among clients, a folder of silos, or samples given from Python."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from fedamp import checks
from fedamp.config import RunConfig
from fedamp.config.run_config import is_folder
from fedamp.data import DATA, load_data
from fedamp.data.clients import Clients
from fedamp.data.given.samples import Given
from fedamp.data.partition import make_setting
from fedamp.data.silos.extremes import extreme_warnings
from fedamp.data.silos.files.table import Wanted
from fedamp.data.silos.one_line import listed
from fedamp.data.silos.raw import RawSilo
from fedamp.data.silos.read import count_silos, read_silos, wanted_of
from fedamp.data.silos.row_digests import row_digests, silos_digest
from fedamp.data.silos.schema import Schema, apply_schema, check_agreed, make_schema, open_to_newcomers, schema_notes
from fedamp.data.silos.schema.missing import READING, with_kinds_of
from fedamp.data.silos.schema_file import read_schema, schema_to_json
from fedamp.data.silos.targets import guess_task
from fedamp.data.silos.warnings import constant_warnings, identifier_warnings, silo_warnings, task_warnings
from fedamp.errors import UserError
from fedamp.records.facts import Facts
from fedamp.runs.newcomers.newcomer import SETTING, kept_out
from fedamp.training.tasks_and_metrics import CLASSIFICATION, Task, regression

MOST_CLASSES = 1000
"""For samples that were handed over: labels below this may be larger than the number of samples."""


@dataclass(frozen=True)
class Material:
    """What there is to learn from."""

    clients: Clients
    num_outputs: int
    task: Task
    facts: Facts = Facts()
    schema: Schema | None = None  # of a user's own silos
    warnings: tuple[str, ...] = ()  # what was guessed, or may not be intended
    newcomers: Clients | None = None  # silos that are kept out of the run and of its schema, and join afterwards
    newcomer_names: tuple[str, ...] = ()
    everyone: str | None = None  # then a digest of all silos, which does not depend on who is kept out

    @property
    def labels(self) -> Sequence[str] | None:
        """The names of the classes in order, if they have names."""
        return self.facts.labels if self.schema is None else self.schema.labels


def load_material(config: RunConfig, data_dir: Path | None = None) -> Material:
    """Return the clients of a described run: a data set split by a setting, or a folder's silos as they are."""
    if config.setting.name == "federation":
        raise UserError(
            f"{config.data!r} is a federation over real machines, whose data nobody has in one place; "
            "`fedamp federation up` continues it"
        )
    if config.setting.name == SETTING:
        run, name = (config.setting.parameters.get(key) for key in ("run", "silo"))
        raise UserError(f"this is the record of {name!r}, which joined the run {run}; `fedamp join` continues it")
    if is_folder(config.data):
        return _silos(config)
    _check_known(config.data)
    dataset = _load_once(config.data, data_dir)
    _check_named(config)
    setting = make_setting(config.setting.name, **config.setting.parameters)
    pools = dataset.train_pool.numpy(), dataset.test_pool.numpy()
    assignment = setting.assign(dataset.y.numpy(), *pools, config.clients, config.seed)
    clients = Clients(
        dataset.x,
        dataset.y,
        train=tuple(torch.from_numpy(positions) for positions in assignment.train),
        numbers=tuple(range(config.clients)),
        test=tuple(torch.from_numpy(positions) for positions in assignment.test),
        groups=assignment.groups,
        shift=_per_channel(dataset.shift, dataset.x),
        scale=_per_channel(dataset.scale, dataset.x),
    )
    facts = Facts(shared_samples=assignment.shared, shared_test_samples=assignment.shared_test, note=dataset.note)
    return Material(clients, dataset.num_classes, CLASSIFICATION, facts, warnings=_beside(config.data))


def _check_known(name: str) -> None:
    """Raise unless this is a data set; it is not a folder, or it would be read as silos."""
    try:
        checks.one_of("data set", name, DATA)
    except UserError as error:
        raise UserError(f"{error}; or give a folder of silos (there is no folder {name!r} here)") from None


def _check_named(config: RunConfig) -> None:
    """Refuse what is for a user's own silos: with a data set it would be ignored silently."""
    why = {
        "label": "which has labels of its own",
        "schema": "which needs none",
        **dict.fromkeys(("silo_column", "columns", "drop"), "which has no columns"),
        "encoding": "which has no text",
        "held_out": "which has test samples of its own (--validation holds out training samples)",
        "missing": "of which nothing is missing",
        "indicate_missing": "of which nothing is missing",
    }
    for name, reason in why.items():
        if (value := getattr(config, name)) != getattr(RunConfig, name):
            raise UserError(f"{name} is {value!r}, but the data is {config.data}, {reason}; leave it out")
    if config.task == "regression":
        raise UserError(f"task is 'regression', but {config.data} has classes to predict; leave it out")


def _beside(data: str) -> tuple[str, ...]:
    """Return a warning if a folder of silos has a data set's name, and may be what was meant."""
    try:
        silos = count_silos(Path(data))
    except UserError:  # no such folder, or none of silos: the data set's own files, perhaps
        return ()
    return (f"data is the data set {data}; the folder of the same name, with {silos} silos, is ./{data}",)


# A comparison assembles one data set again and again: the last one stays at hand.
_load_once = functools.lru_cache(maxsize=1)(load_data)


@functools.lru_cache(maxsize=1)
def _read_once(
    path: Path,
    label: str | None,
    drop: tuple[str, ...],
    columns: tuple[str, ...],
    encoding: str | None,
    missing: str,
    silo_column: str | None,
    stamps: tuple[int, ...],
) -> list[RawSilo]:
    chosen = columns or None
    return read_silos(path, label, drop, columns=chosen, encoding=encoding, missing=missing, silo_column=silo_column)


def _silos(config: RunConfig) -> Material:
    folder = Path(config.data)
    files = sorted(folder.rglob("*")) if folder.is_dir() else [folder] if folder.is_file() else []
    stamps = tuple(path.stat().st_mtime_ns for path in files if path.exists())  # a link may lead nowhere
    agreed = _agreed(config)
    label = config.label or (agreed.label if agreed else None)
    missing = READING[config.missing if agreed is None else agreed.missing]
    drop = _dropped(config, agreed)
    how = (config.columns, config.encoding, missing, config.silo_column)
    silos = _read_once(folder.absolute(), label, drop, *how, stamps)
    return _of_silos(config, silos, agreed)


def table_material(config: RunConfig, read: Callable[[Wanted], list[RawSilo]]) -> Material:
    """Return what there is to learn from tables that were handed over: exactly what their files would give."""
    return _of_silos(config, read_tables(config, read), _agreed(config))


def read_tables(config: RunConfig, read: Callable[[Wanted], list[RawSilo]]) -> list[RawSilo]:
    """Return the silos of tables that were handed over."""
    agreed = _agreed(config)
    label = config.label or (agreed.label if agreed else None)
    missing = READING[config.missing if agreed is None else agreed.missing]
    return read(wanted_of(label, _dropped(config, agreed), config.columns or None, None, missing, config.silo_column))


def _dropped(config: RunConfig, agreed: Schema | None) -> tuple[str, ...]:
    """Return the columns to leave out; one that the schema leaves out may say whose row it is here."""
    dropped = () if agreed is None else agreed.dropped
    return (*(column for column in dropped if column != config.silo_column), *config.drop)


def _agreed(config: RunConfig) -> Schema | None:
    """Return the schema that the silos agreed on, if there is one."""
    agreed = None if config.schema is None else read_schema(Path(config.schema))
    if agreed is not None:
        check_agreed(agreed, config.task, config.label, config.missing, config.indicate_missing)
    return agreed


def _of_silos(config: RunConfig, silos: Sequence[RawSilo], agreed: Schema | None) -> Material:
    """Return silos as clients, under the schema that they agreed on, or that is made of them."""
    _check_tables(config, silos)
    out = kept_out(config, len(silos))
    numbers = [number for number in range(len(silos)) if number not in out]
    late, silos = [silos[number] for number in out], [silos[number] for number in numbers]
    # Over all rows, before any are held out: a federation agrees on its schema before anyone splits anything.
    schema = agreed or make_schema(silos, config.task, missing=config.missing, indicate=config.indicate_missing)
    material = silo_material(config, silos, schema, numbers)
    if late:
        newcomers = silo_material(config, late, open_to_newcomers(schema), out).clients
        everyone = silos_digest([*silos, *late], "" if agreed is None else schema_to_json(agreed))
        material = replace(
            material, newcomers=newcomers, newcomer_names=tuple(silo.name for silo in late), everyone=everyone
        )
    task = config.task if agreed is None else agreed.task
    noticed = silo_warnings(silos, schema, task)
    if agreed is None:  # whoever agreed on a schema was asked about such columns, and it scales by other rows
        noticed += [*identifier_warnings(silos), *extreme_warnings(silos, schema)]
    return replace(material, warnings=(*_left_out(silos), *noticed, *material.warnings))


def _check_tables(config: RunConfig, silos: Sequence[RawSilo]) -> None:
    """Refuse columns that no silo has: a slip in their names would be ignored silently."""
    if config.label is not None and all(silo.columns is None for silo in silos):
        raise UserError(f"label is {config.label!r}, but npz files have their targets in y; leave it out")
    for name in ("columns", "drop"):
        if (value := getattr(config, name)) and all(silo.columns is None for silo in silos):
            raise UserError(f"{name} is {','.join(value)!r}, but no silo has columns; leave it out")
    known = {column for silo in silos for column in (*(silo.columns or ()), *silo.dropped)}
    for column in config.drop:
        checks.one_of("column to drop", column, known)


def _left_out(silos: Sequence[RawSilo]) -> list[str]:
    """Return how many rows were left out, as a cell is missing in them."""
    which = [f"{silo.left_out} of {len(silo) + silo.left_out} in {silo.name}" for silo in silos if silo.left_out]
    more = f" and in {len(which) - 5} more silos" if len(which) > 5 else ""
    return [f"rows with a missing cell are left out: {', '.join(which[:5])}{more}"] if which else []


def silo_material(config: RunConfig, silos: Sequence[RawSilo], schema: Schema, numbers: Sequence[int]) -> Material:
    """Return silos' rows under an agreed schema, each with its share held out; a silo has only its own."""
    silos = [with_kinds_of(schema, silo) for silo in silos]  # a row is held out whatever else its file lacks
    clients = Clients.of([apply_schema(schema, silo) for silo in silos], numbers)
    clients = replace(clients, digests=tuple(digest for silo in silos for digest in row_digests(silo)))
    names = [silo.name for silo in silos]
    clients = clients.hold_out(config.held_out, config.seed, "test", names)
    facts = Facts(names=names, note="; ".join(schema_notes(schema, silos)))
    num_outputs, task = outputs_of(schema)
    warnings = (*constant_warnings(silos, schema), *_uneven(clients, silos, config.held_out))
    return Material(clients, num_outputs, task, facts, schema, warnings)


def _uneven(clients: Clients, silos: Sequence[RawSilo], share: float) -> list[str]:
    """Return which silos hold out a share that chance alone does not explain: few of their rows differ."""
    lines = []
    for silo, test in zip(silos, clients.test, strict=True):
        expected, rows = share * len(silo), len(silo)
        if abs(len(test) - expected) > 1 + 4 * math.sqrt(expected * (1 - share)):
            lines.append(
                f"{len(test)} of {rows} rows of silo {silo.name!r} are held out for testing, not {expected:.0f}: rows "
                "with the same inputs stay together, and few of them differ; try another --seed"
            )
    return lines


def outputs_of(schema: Schema) -> tuple[int, Task]:
    """Return how many outputs a model under this schema has, and what it learns."""
    if schema.labels is None:
        return 1, regression(schema.target_scale, schema.target_shift)
    return len(schema.labels), CLASSIFICATION


def _per_channel(value: float | Sequence[float], x: Tensor) -> Tensor:
    """Return a shift or scale that broadcasts over samples: one number, or one per channel."""
    tensor = torch.as_tensor(value, dtype=torch.get_default_dtype())
    return tensor.reshape(-1, *[1] * (x.ndim - 2)) if tensor.ndim else tensor


def given_material(given: Given, asked: str) -> Material:
    """Return what there is to learn from samples that were handed over; the task depends on the targets' type."""
    clients, labels = given.clients, given.labels
    facts = Facts(
        names=None if given.names is None else list(given.names), labels=None if labels is None else [*labels]
    )
    if labels is not None and asked == "regression":
        raise UserError(f"task is 'regression', but the targets are words, {listed(labels)}; leave it out")
    targets = clients.y.cpu().numpy()
    task = guess_task([targets]) if asked == "auto" else asked
    warnings = tuple(task_warnings([targets], asked))
    if task == "regression":
        numbers = clients.y.to(torch.get_default_dtype())
        return Material(replace(clients, y=numbers), 1, regression(), facts, warnings=warnings)
    _check_class_numbers(clients)
    classes = clients.y.long()
    if classes.min() == classes.max():
        warnings += (f"all targets are {int(classes[0])}, so there is nothing to learn; look at y",)
    return Material(replace(clients, y=classes), int(classes.max()) + 1, CLASSIFICATION, facts, warnings=warnings)


def _check_class_numbers(clients: Clients) -> None:
    """Raise if targets do not number classes from 0: cut to whole numbers they would be other classes."""
    cure = "expected classes numbered from 0, or task='regression' for amounts"
    for place, number in enumerate(clients.numbers):
        y = clients.y[torch.cat([part[place] for part in (clients.train, clients.test) if part])]
        wrong = y[(y < 0) | (y != y.round())] if y.is_floating_point() else y[y < 0]
        if len(wrong):
            raise UserError(f"client {number} has the label {wrong[0].item()}; {cure}")
    largest, samples = int(clients.y.max()), len(clients.y)
    if largest >= max(samples, MOST_CLASSES):
        raise UserError(f"the largest label is {largest}, but there are {samples} samples in all; {cure}")
