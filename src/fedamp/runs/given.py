"""What clients bring from Python in place of a data set's name: samples, data sets, tables; what they leave to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from fedamp.config import RunConfig
from fedamp.config.run_config import GIVEN, column_name
from fedamp.data.given.datasets import array_columns, columns_of
from fedamp.data.given.samples import Given, given_samples, listed_clients
from fedamp.data.given.tables import is_table, silos_of_table, silos_of_tables
from fedamp.data.silos.files.table import Wanted
from fedamp.data.silos.raw import RawSilo
from fedamp.data.silos.read import LABEL
from fedamp.errors import UserError
from fedamp.runs.material import Material, given_material, read_tables, table_material

OF_TABLES = ("label", "schema", "missing", "indicate_missing", "columns", "drop")
"""What is said about tables; samples as (x, y) have no columns."""

NEVER = ("data", "setting", "encoding")
"""What is said about data that fedamp finds by itself."""


Supply = Callable[[RunConfig], Material]
"""From a configuration to what there is to learn from: its seed says what is held out."""


def given_table(values: Mapping[str, Any], table: Any, clients: Any) -> tuple[RunConfig, Supply]:
    """Return configuration and material of one table with the rows of all silos."""
    if not is_table(table):
        raise UserError(
            f"data is a {type(table).__name__}; expected a data set's name, a folder of silos, or a table with "
            "silo_column= (your own samples go into clients=[(x, y), ...])"
        )
    if clients is not None:
        raise UserError("data is a table, whose silo_column says who the clients are; leave clients out")
    _refuse(values, NEVER, "data is a table from Python")
    if "silo_column" not in values:
        raise UserError("data is one table; name the column that says whose row it is with silo_column=")
    return _configured(values, partial(silos_of_table, table))


def given_clients(values: Mapping[str, Any], clients: Any) -> tuple[RunConfig, Supply]:
    """Return configuration and material of clients that bring their samples, each a table of its own or (x, y)."""
    _refuse(values, (*NEVER, "silo_column"), "clients are given with their samples")
    named = listed_clients(clients)
    label = column_name("label", values.get("label")) or LABEL
    pictured = [name for name, part in named.items() if array_columns(part)]
    tables = [name for name, part in named.items() if is_table(part) and name not in pictured]
    if tables:
        if other := [name for name in named if name not in tables]:
            raise UserError(
                f"{tables[0]} is a table and {other[0]} is of type {type(named[other[0]]).__name__}; expected tables "
                "for all clients, or (x, y) for all"
            )
        return _configured(values, partial(silos_of_tables, named))
    of_tables = OF_TABLES[1:] if pictured else OF_TABLES  # pictures have a label
    said = [each for each in of_tables if values.get(each) not in (None, getattr(RunConfig, each), [])]
    _refuse(values, said, "clients are given with their samples, as (x, y)")
    for name in pictured:
        named[name] = columns_of(name, named[name], label)
    # A list has no names: clients are called by their numbers, as ever.
    parts = named if isinstance(clients, Mapping) else list(named.values())
    shape: Any = tuple(parts) if isinstance(clients, tuple) else parts
    samples = lru_cache(maxsize=1)(partial(_samples, shape, values.get("held_out")))
    config = RunConfig.of({**values, "clients": len(named), "data": GIVEN, "setting": GIVEN})
    return config, lambda asked: given_material(samples(asked.seed), asked.task)


def _samples(clients: Any, share: float | None, seed: int) -> Given:
    return given_samples(clients, share, seed, usual_share=RunConfig.held_out)


def _configured(values: Mapping[str, Any], read: Callable[[Wanted], list[RawSilo]]) -> tuple[RunConfig, Supply]:
    """Return configuration and material of tables; how many clients there are is known when they are read."""
    once = lru_cache(maxsize=1)(read)  # a comparison asks again for each method
    asked = RunConfig.of({**values, "clients": 1, "data": GIVEN, "setting": GIVEN})
    silos = read_tables(asked, once)
    return replace(asked, clients=len(silos)), lambda config: table_material(config, once)


def _refuse(values: Mapping[str, Any], names: Sequence[str], why: str) -> None:
    for name in names:
        if name in values:
            raise UserError(f"{name} is {values[name]!r}, but {why}; leave one out")
