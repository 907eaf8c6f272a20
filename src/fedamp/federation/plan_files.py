"""The files that carry a plan from one side to the other, read with every field checked.

DIR/federation.json   on the server: the plan, its rules, and who is who
DIR/schema.json       columns, labels and scaling
BUNDLE/silo.json      in a silo: the plan, its own name and number, and the server's address; nothing about the others
BUNDLE/schema.json    the same schema

Types and missing fields are checked by pydantic, strictly: no string is taken for a number. Which values are allowed is
checked by `Rules`, `SiloConfig`, `Federation` and `RunConfig`, since they come from flags too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from fedamp.config import RunConfig
from fedamp.config.reply_limits import Rules
from fedamp.data.silos.schema_file import read_schema, write_schema
from fedamp.errors import UserError
from fedamp.federation.plan import Federation, Member, Plan, SiloConfig
from fedamp.files import read_json, write_whole

FEDERATION, SILO, SCHEMA = "federation.json", "silo.json", "schema.json"
FORMAT = 1
EXPECTED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "dict_type": "an object",
    "dataclass_type": "an object",
    "tuple_type": "a list",
}
"""Pydantic's kinds of errors, as what was expected in their place."""


class FederationFile(BaseModel):
    """What federation.json holds. Other fields are ignored; rules that are not there have their defaults."""

    model_config = ConfigDict(strict=True)

    format: int = FORMAT
    name: str
    description: dict[str, Any]  # of the run: see `RunConfig`
    silos: tuple[Member, ...]
    rules: Rules


class SiloFile(BaseModel):
    """What silo.json holds. Other fields are ignored."""

    model_config = ConfigDict(strict=True)

    format: int = FORMAT
    federation: str
    name: str
    number: int
    server: str
    description: dict[str, Any]


def write_federation(folder: Path, federation: Federation) -> None:
    """Write federation.json and schema.json."""
    plan = federation.plan
    content = FederationFile(
        name=plan.name, description=plan.config.to_dict(), silos=federation.members, rules=federation.rules
    )
    _write(folder / FEDERATION, content)
    write_schema(folder / SCHEMA, plan.schema)


def write_silo_config(folder: Path, silo_config: SiloConfig) -> None:
    """Write silo.json and schema.json."""
    plan = silo_config.plan
    content = SiloFile(
        federation=plan.name,
        name=silo_config.name,
        number=silo_config.number,
        server=silo_config.server,
        description=plan.config.to_dict(),
    )
    _write(folder / SILO, content)
    write_schema(folder / SCHEMA, plan.schema)


def read_federation(folder: Path) -> Federation:
    """Return the federation that `fedamp federation init` wrote to a folder."""
    path = folder / FEDERATION
    text, schema = _read(path, "a federation; make one with: fedamp federation init"), read_schema(folder / SCHEMA)
    with _named(path, "correct it, or restore it from a backup"):
        content = FederationFile.model_validate_json(text)
        plan = Plan(content.name, RunConfig.of(content.description), schema)
        return Federation(plan, content.silos, content.rules)


def read_silo_config(folder: Path) -> SiloConfig:
    """Return the silo's side of a federation from its bundle."""
    path = folder / SILO
    text, schema = _read(path, "a silo's bundle; ask the federation's operator for one"), read_schema(folder / SCHEMA)
    with _named(path, "unpack the bundle again"):
        content = SiloFile.model_validate_json(text)
        plan = Plan(content.federation, RunConfig.of(content.description), schema)
        return SiloConfig(plan, content.name, content.number, content.server)


def _write(path: Path, content: BaseModel) -> None:
    values = content.model_dump()
    for silo in values.get("silos", ()):
        if not silo["removed"]:
            del silo["removed"]  # as files have always been, as long as nobody is removed
    write_whole(path, (json.dumps(values, indent=2) + "\n").encode())


def _read(path: Path, what: str) -> str:
    """Return a file's text, which is JSON of a known format."""
    value = read_json(path)
    if value is None:
        raise UserError(f"{path.parent} has no {path.name}, so it is not {what}")
    if value.get("format") != FORMAT:
        raise UserError(
            f"{path}: format is {value.get('format')!r}; this version of fedamp reads {FORMAT}; install the version "
            "that wrote it"
        )
    return json.dumps(value)


@contextmanager
def _named(path: Path, cure: str) -> Iterator[None]:
    """Name the file in every error about its contents, and say what to do."""
    try:
        yield
    except ValidationError as error:
        raise UserError(f"{path}: {_fault(error)}; {cure}") from None
    except (UserError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path}: {error}; {cure}") from None


def _fault(error: ValidationError) -> str:
    """Return the first fault of a file's contents: the field, its value, and what was expected."""
    first, more = error.errors()[0], error.error_count() - 1
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    if first["type"] == "missing":
        text = f"{field} is missing"
    elif first["type"] == "value_error":
        text = f"in {field}, {first['ctx']['error']}"
    else:
        value = repr(first["input"])
        expected = EXPECTED.get(first["type"], first["msg"].removeprefix("Input should be "))
        text = f"{field} is {value if len(value) < 60 else value[:57] + '...'}; expected {expected}"
    return text + (f" (and {more} more faults)" if more > 1 else " (and one more fault)" if more else "")
