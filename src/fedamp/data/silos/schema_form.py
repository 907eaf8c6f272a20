"""The form of a schema file: which fields it has, and which values each may have by itself.

`Schema` says how the fields must fit together. This is the one module that loads pydantic.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError

from fedamp.data.silos.one_line import brief, listed
from fedamp.data.silos.schema.definition import Missing, Schema, Task
from fedamp.errors import UserError

# A list of JSON becomes a tuple; what is in it is checked as strictly as everything else.
Texts = Annotated[tuple[str, ...], Field(min_length=1), Strict(False)]
Names = Annotated[tuple[str, ...], Strict(False)]
Count = Annotated[int, Field(ge=1)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1), Strict(False)]
Numbers = Annotated[tuple[float, ...], Strict(False)]
Spread = Annotated[float, Field(ge=0)]
Spreads = Annotated[tuple[Spread, ...], Strict(False)]


class SchemaForm(BaseModel):
    """The fields of schema.json; a description is what an error says was expected."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    task: Task = Field(description="classification or regression")
    columns: Texts | None = Field(description="a list of strings, at least one, or null for arrays")
    input_shape: Counts = Field(description="a list of whole numbers of 1 or more, at least one")
    labels: Texts | None = Field(description="a list of strings, at least one, or null for regression")
    shift: Numbers = Field(description="a list of finite numbers")
    spread: Spreads = Field(description="a list of finite numbers of 0 or more")
    categories: dict[str, Texts] = Field(description="an object that gives each column of words its list of strings")
    target_shift: float = Field(description="a finite number")
    target_spread: Spread = Field(description="a finite number of 0 or more")
    pictures: bool = Field(description="true or false")
    count: int = Field(ge=1, description="a whole number of 1 or more")
    label: str | None = Field(default=None, description="a string, or null for arrays")  # older files lack it
    dropped: Names = Field(default=(), description="a list of strings")  # these three only if there are any
    others: Names = Field(default=(), description="a list of strings")
    kept: Names = Field(default=(), description="a list of strings")
    dates: Names = Field(default=(), description="a list of strings")  # these five only in version 2
    missing: Missing = Field(default="refuse", description="refuse, fill or drop")
    indicate: bool = Field(default=False, description="true or false")
    missing_cells: dict[str, Count] = Field(default={}, description="an object that gives columns whole numbers")
    word_counts: dict[str, Counts] = Field(
        default={}, description="an object that gives each column of words its list of whole numbers"
    )
    version: int = Field(description="a whole number")


def schema_of(values: dict[str, Any]) -> Schema:
    """Return the schema that a JSON object holds; the first fault of its fields is an error in one line."""
    try:
        form = SchemaForm.model_validate(values)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise UserError(_sentence(faults[0]["type"], faults[0]["loc"], faults[0]["input"])) from None
    return Schema(**{name: getattr(form, name) for name in SchemaForm.model_fields})


def _sentence(kind: str, place: tuple[int | str, ...], value: object) -> str:
    """Return a fault in words: the field, its value, what was expected."""
    name, *inside = place
    if kind == "extra_forbidden":
        return f"field {brief(name)} is unknown; expected {listed(SchemaForm.model_fields, most=24)}"
    expected = SchemaForm.model_fields[str(name)].description
    if kind == "missing":
        return f"field {name!r} is missing; expected {expected}"
    where = f"{name}{''.join(f'[{brief(part)}]' for part in inside)}"
    return f"field {where!r} is {brief(value)}; expected {expected}"
