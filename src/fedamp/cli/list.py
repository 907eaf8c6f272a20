"""`fedamp list`: what there is to choose from, and what each parameter of a choice means."""

from typing import Annotated

import typer
from rich.text import Text

from fedamp import checks
from fedamp.cli.terminal import out


def list_command(
    kind: Annotated[str, typer.Argument(help="methods, data, settings, models, attention or presets.")],
    name: Annotated[
        str | None, typer.Argument(help="One of them, to explain its parameters; or a group of methods, like clusters.")
    ] = None,
) -> None:
    """Show what there is to choose from, with parameters and defaults; or explain one choice."""
    from fedamp.cli.choices import KINDS, entries
    from fedamp.methods import in_group

    checks.one_of("list", kind, [*KINDS, "presets"])
    if kind == "methods" and (name is None or in_group(name)):
        _methods(name)
        return
    found = entries(kind)
    if name is not None:
        checks.one_of(kind.removesuffix("s"), name, [each for each, _, _ in found])
    for each, parameters, about in found:
        if name not in (None, each):
            continue
        if kind == "methods":
            _method(each)
        else:
            out.print(Text.assemble((each, "bold"), f"  {about}"), soft_wrap=True)
        if name is not None:
            _explain(kind, name)
        elif parameters:
            out.print(f"    {parameters}", soft_wrap=True)


def _methods(only: str | None) -> None:
    """Print all methods group by group, or those of one group: what each does, its parameters, and when to use it."""
    from fedamp.cli.choices import entries
    from fedamp.cli.method_words import by_group
    from fedamp.methods import in_group
    from fedamp.methods.base import GROUPS

    chosen = [(group, some) for group, some in by_group().items() if only is None or some[0].name in in_group(only)]
    parameters = {name: text for name, text, _ in entries("methods")}
    for number, (group, methods) in enumerate(chosen):
        if number:
            out.print()
        out.print(Text(group.capitalize(), "bold"))
        out.print(GROUPS[group], soft_wrap=True)
        for each in methods:
            out.print(Text.assemble("  ", (each.name, "bold"), f"  {each.what}"), soft_wrap=True)
            if parameters[each.name]:
                out.print(f"      {parameters[each.name]}", soft_wrap=True)
            out.print(f"      when: {each.when}", soft_wrap=True)


def _method(name: str) -> None:
    """Print all that there is to say about a method but its parameters."""
    from fedamp.cli.method_words import in_words

    one = in_words(name)
    out.print(Text.assemble((one.name, "bold"), f"  {one.what}"), soft_wrap=True)
    known = {
        "": one.equation,
        "when to use it: ": one.when,
        "group: ": one.group,
        "scored at: ": one.scored,
        "optimiser: ": one.trained,
        "source: ": one.source,
    }
    for what, text in known.items():
        if text:
            out.print(f"  {what}{text}", soft_wrap=True)


def _explain(kind: str, name: str) -> None:
    """Print each parameter with its default, meaning, unit, range and source."""
    from fedamp.cli.choices import KINDS, explain

    if kind not in KINDS:
        return
    for each in explain(kind, name):
        out.print(Text.assemble("  ", (each.name, "bold"), f" = {each.default}"), soft_wrap=True)
        known = {"": each.meaning, "unit: ": each.unit, "range: ": each.range, "source: ": each.source}
        for what, text in known.items():
            if text:
                out.print(f"      {what}{text}", soft_wrap=True)
