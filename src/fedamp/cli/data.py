"""`fedamp data`: where data sets are, which of them you have, how to get them, and what silos agree on."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedamp.cli.terminal import fail, out, warn
from fedamp.errors import UserError

if TYPE_CHECKING:
    from fedamp.data.silos.raw import RawSilo
    from fedamp.data.silos.schema import Schema

Flag = typer.Option
data_app = typer.Typer(
    help="Data sets: which you have, how to get them. Silos: what they agree on.", no_args_is_help=True
)
DataDir = Annotated[Path | None, Flag(help="Where data sets are; by default $FEDAMP_DATA, else your cache folder.")]


@data_app.command("status")
def data_status(data_dir: DataDir = None) -> None:
    """Show which data sets you have."""
    from fedamp.data.published.folder import data_dir as find_data_dir
    from fedamp.data.published.status import status

    folder = find_data_dir(data_dir)
    out.print(f"data folder: {folder}", soft_wrap=True)
    table = Table("data set", "state", "size", "")
    for name, state, size, detail in status(folder):
        table.add_row(name, state, f"{size / 1e6:.1f} MB" if size else "", detail)
    out.print(table)


@data_app.command("fetch")
def data_fetch(name: Annotated[str, typer.Argument(help="Data set.")], data_dir: DataDir = None) -> None:
    """Download a data set from its publisher."""
    from fedamp.data.published.download import fetch
    from fedamp.data.published.folder import data_dir as find_data_dir

    folder = find_data_dir(data_dir)
    fetch(name, folder, progress=out.is_terminal)
    out.print(f"{name} is in {folder / name}", soft_wrap=True)


@data_app.command("check")
def data_check(
    name: Annotated[str | None, typer.Argument(help="Data set; by default all that you have.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Read every file of a data set and compare checksums."""
    from fedamp.data.published.folder import data_dir as find_data_dir
    from fedamp.data.published.status import check, status

    folder = find_data_dir(data_dir)
    present = [each for each, state, _, _ in status(folder) if state != "missing"]
    faults = []
    for each in [name] if name else present:
        found = check(each, folder)
        faults += found
        out.print(f"{each}: {_faults(len(found))}")
    if not name and not present:
        out.print(f"there are no data sets in {folder}", soft_wrap=True)
    if faults:
        fail("; ".join(faults))


def _faults(number: int) -> str:
    return "fine" if not number else "1 fault" if number == 1 else f"{number} faults"


@data_app.command("schema")
def data_schema(
    folder: Annotated[Path, typer.Argument(help="A folder of silos, or one silo's file.")],
    label: Annotated[str | None, Flag(help="The csv column to predict.")] = None,
    silo_column: Annotated[str | None, Flag(help="The column that says whose row it is, in one file of all.")] = None,
    task: Annotated[str, Flag(help="classification or regression; by default as the labels suggest.")] = "auto",
    one: Annotated[bool, Flag("--one", help="The folder is one silo, in several files.")] = False,
    columns: Annotated[list[str] | None, Flag(help="Columns to learn from, say age,sex; by default all.")] = None,
    drop: Annotated[list[str] | None, Flag(help="Columns to leave out, say name,birthday; can be repeated.")] = None,
    keep: Annotated[list[str] | None, Flag(help="Columns that may travel though they look like identifiers.")] = None,
    min_count: Annotated[
        int | None,
        Flag(help="Rows that must share a word before it travels; by default 5."),
    ] = None,
    missing: Annotated[
        str, Flag(help="What becomes of missing cells, the same in all silos: refuse, fill or drop.")
    ] = "refuse",
    indicate_missing: Annotated[
        bool, Flag("--indicate-missing", help="With --missing fill: inputs that say where cells are missing.")
    ] = False,
    encoding: Annotated[str | None, Flag(help="Of text files that are not utf-8, say cp1252.")] = None,
    merge: Annotated[list[Path] | None, Flag(help="Another silo's schema to merge with; can be repeated.")] = None,
    out: Annotated[Path | None, Flag(help="File to write; by default the schema is printed.")] = None,
    yes: Annotated[bool, Flag("--yes", help="Write it without being asked.")] = False,
) -> None:
    """Write down columns, labels and scaling, so that silos that never meet can agree on them."""
    from fedamp import checks
    from fedamp.data.silos.identifiers import check_schemas
    from fedamp.data.silos.leaving import described
    from fedamp.data.silos.read import read_silo, read_silos
    from fedamp.data.silos.schema import MISSING, merge_schemas
    from fedamp.data.silos.schema.missing import READING
    from fedamp.data.silos.schema_file import read_schema, schema_to_json, write_schema
    from fedamp.data.silos.warnings import schema_warnings, silo_warnings

    checks.one_of("missing", missing, MISSING)
    if indicate_missing and missing != "fill":
        raise UserError(f"--indicate-missing needs --missing fill, but missing is {missing!r}")
    dropped, kept, how = names_in(drop), names_in(keep), READING[missing]
    chosen = names_in(columns) or None
    if silo_column is None and (one or folder.is_file()):
        silos = [read_silo(folder, label, dropped, columns=chosen, encoding=encoding, missing=how)]
    else:
        silos = read_silos(
            folder, label, dropped, columns=chosen, encoding=encoding, missing=how, silo_column=silo_column
        )
    if label is not None and all(silo.columns is None for silo in silos):
        raise UserError(f"label is {label!r}, but npz files have their targets in y; leave it out")
    schema = described(silos, task, min_count, dropped, kept, missing, indicate_missing)
    warnings = silo_warnings(silos, schema, task)
    if merge:
        parts, names = [schema, *map(read_schema, merge)], [str(folder), *map(str, merge)]
        check_schemas(parts[1:], names[1:])
        schema = merge_schemas(parts, names)
        warnings += schema_warnings(parts, names, task)
    for line in dict.fromkeys(warnings):
        warn(line)
    if out is None:
        print(schema_to_json(schema))
    elif yes or _agreed(schema, silos, out):
        write_schema(out, schema)


def names_in(given: list[str] | None) -> tuple[str, ...]:
    """Return the columns that a flag names: separated by commas, or one flag after the other."""
    return tuple(part.strip() for each in given or () for part in each.split(",") if part.strip())


def _agreed(schema: "Schema", silos: "Sequence[RawSilo]", path: Path) -> bool:
    """Show what would leave the house, and ask; nobody to ask is a no."""
    from fedamp.data.silos.leaving import listing

    out.print(f"everyone who gets {path} can read:", soft_wrap=True)
    for line in listing(schema, silos):
        out.print(line, soft_wrap=True)
    if not sys.stdin.isatty():
        raise UserError(f"{path} is not written, as there is no terminal to ask at; read the above, then give --yes")
    if not typer.confirm(f"write this to {path}?", default=False):
        out.print("nothing was written")
        raise typer.Exit(1)
    return True
