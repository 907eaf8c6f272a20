"""Flags from the fields of a run's configuration: name, type, default, choices and help text are given there, once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperOption

from fedamp.config import Named, RunConfig
from fedamp.fields import default_of, explained

WIDEST = 20  # letters that a list of choices may have to be shown in place of a flag's type
KEPT = "flags"  # where a command's context keeps the flags that were given


def takes_fields(names: Mapping[type, Collection[str]]) -> type[TyperCommand]:
    """Return a kind of command that has a flag for each of these fields of dataclasses, in addition to its own.

    The command's function gets them from `given_flags`.
    """

    class FieldsCommand(TyperCommand):
        def __init__(self, *args: Any, params: list[Any] | None = None, **more: Any) -> None:
            flags = [option for kind, mine in names.items() for option in field_options(kind, mine)]
            super().__init__(*args, params=[*flags, *(params or [])], **more)

    return FieldsCommand


def given_flags(context: typer.Context, kind: type = RunConfig) -> dict[str, Any]:
    """Return the flags that were given for fields of a dataclass, by the fields' names."""
    mine = {each.name for each in fields(kind)}
    return {name: value for name, value in context.meta.get(KEPT, {}).items() if name in mine}


def config_fields(leave_out: Collection[str] = (), leave_out_groups: Collection[str] = ()) -> list[str]:
    """Return the fields of a configuration that are flags, without some of them."""
    return [
        name
        for name, about in explained(RunConfig).items()
        if name not in leave_out and about.group not in leave_out_groups
    ]


def field_options(kind: type, names: Collection[str]) -> list[TyperOption]:
    """Return a flag for each of these fields."""
    hints, abouts = get_type_hints(kind), explained(kind)
    defaults = {each.name: default_of(each) for each in fields(kind)}
    return [_option(name, hints[name], defaults[name], abouts[name]) for name in names]


def _option(name: str, hint: Any, default: Any, about: Any) -> TyperOption:
    kind, shown = _kind(hint), default.name if isinstance(default, Named) else default
    choices = "|".join(about.choices)
    return TyperOption(
        param_decls=[name, f"--{name.replace('_', '-')}"],
        type=kind,
        is_flag=kind is bool,
        default=shown if shown != () else None,
        show_default=not (shown is None or shown is False or shown == ()),
        metavar=choices if 0 < len(choices) <= WIDEST else None,
        help=about.meaning,
        rich_help_panel=about.group or None,
        expose_value=False,
        callback=_keep,
    )


def _kind(hint: Any) -> type:
    """Return what a word on the command line is read as; names and lists of numbers are read by the configuration."""
    if isinstance(hint, UnionType):
        (hint,) = [each for each in get_args(hint) if each is not NoneType]
    return hint if hint in (bool, int, float) and get_origin(hint) is None else str


def _keep(context: typer.Context, option: Any, value: Any) -> Any:
    """Note a flag that was given; the configuration itself has the default of one that was not."""
    source = context.get_parameter_source(option.name)
    if source is not None and source.name == "COMMANDLINE":
        context.meta.setdefault(KEPT, {})[option.name] = value
    return value
