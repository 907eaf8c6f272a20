"""`fedamp data`: where data sets lie, what is there, how to get them, what silos agree on."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedamp.cli.terminal import fail, out, warn
from fedamp.errors import UserError

Flag = typer.Option
data_app = typer.Typer(help="Data sets: where they lie, what is there, how to get them.", no_args_is_help=True)
DataDir = Annotated[Path | None, Flag(help="Where data sets lie; else $FEDAMP_DATA, else your cache folder.")]


@data_app.command("status")
def data_status(data_dir: DataDir = None) -> None:
    """Show which data sets are there."""
    from fedamp.data import published

    folder = published.data_dir(data_dir)
    out.print(f"data folder: {folder}", soft_wrap=True)
    table = Table("data set", "state", "size", "")
    for name, state, size, detail in published.status(folder):
        table.add_row(name, state, f"{size / 1e6:.1f} MB" if size else "", detail)
    out.print(table)


@data_app.command("fetch")
def data_fetch(name: Annotated[str, typer.Argument(help="Data set.")], data_dir: DataDir = None) -> None:
    """Get a data set from its publisher."""
    from fedamp.data import download, published

    folder = published.data_dir(data_dir)
    download.fetch(name, folder, progress=out.is_terminal)
    out.print(f"{name} is in {folder / name}", soft_wrap=True)


@data_app.command("check")
def data_check(
    name: Annotated[str | None, typer.Argument(help="Data set; by default all that are there.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Read every file of a data set and compare checksums."""
    from fedamp.data import published

    folder = published.data_dir(data_dir)
    present = [each for each, state, _, _ in published.status(folder) if state != "missing"]
    faults = []
    for each in [name] if name else present:
        found = published.check(each, folder)
        faults += found
        out.print(f"{each}: {'fine' if not found else f'{len(found)} fault(s)'}")
    if not name and not present:
        out.print(f"there are no data sets in {folder}", soft_wrap=True)
    if faults:
        fail("; ".join(faults))


@data_app.command("schema")
def data_schema(
    folder: Annotated[Path, typer.Argument(help="Folder of silos, or one silo's file.")],
    label: Annotated[str | None, Flag(help="The csv column to predict.")] = None,
    task: Annotated[str, Flag(help="classification or regression; by default by the labels.")] = "auto",
    one: Annotated[bool, Flag("--one", help="The folder is one silo, in several files.")] = False,
    merge: Annotated[list[Path] | None, Flag(help="Other silos' schemas to unite with; can be repeated.")] = None,
    out: Annotated[Path | None, Flag(help="File to write; by default it is printed.")] = None,
) -> None:
    """Write down columns, labels and scaling, so that silos that never meet can agree on them."""
    from fedamp.data.silos import doubts, read, schema, schema_file

    silos = [read.read_silo(folder, label)] if one or folder.is_file() else read.read_silos(folder, label)
    if label is not None and all(silo.columns is None for silo in silos):
        raise UserError(f"label is {label!r}, but npz files have their targets in y; leave it out")
    made = schema.make_schema(silos, task)
    warnings = doubts.silo_doubts(silos, made, task)
    if merge:
        parts, names = [made, *(schema_file.read_schema(path) for path in merge)], [str(folder), *map(str, merge)]
        made = schema.merge_schemas(parts, names)
        warnings += doubts.schema_doubts(parts, names, task)
    for line in dict.fromkeys(warnings):
        warn(line)
    if out is None:
        print(schema_file.schema_to_json(made))
    else:
        schema_file.write_schema(out, made)
