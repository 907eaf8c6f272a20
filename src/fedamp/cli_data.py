"""`fedamp data`: where data sets lie, what is there, how to get them, what silos agree on."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedamp.errors import UserError
from fedamp.terminal import fail, out, warn

Flag = typer.Option
data_app = typer.Typer(help="Data sets: where they lie, what is there, how to get them.", no_args_is_help=True)
DataDir = Annotated[Path | None, Flag(help="Where data sets lie; else $FEDAMP_DATA, else your cache folder.")]


@data_app.command("status")
def data_status(data_dir: DataDir = None) -> None:
    """Show which data sets are there."""
    from fedamp.data import files

    folder = files.data_dir(data_dir)
    out.print(f"data folder: {folder}", soft_wrap=True)
    table = Table("data set", "state", "size", "")
    for name, state, size, detail in files.status(folder):
        table.add_row(name, state, f"{size / 1e6:.1f} MB" if size else "", detail)
    out.print(table)


@data_app.command("fetch")
def data_fetch(name: Annotated[str, typer.Argument(help="Data set.")], data_dir: DataDir = None) -> None:
    """Get a data set from its publisher."""
    from fedamp.data import fetch, files

    folder = files.data_dir(data_dir)
    fetch.fetch(name, folder, progress=out.is_terminal)
    out.print(f"{name} is in {folder / name}", soft_wrap=True)


@data_app.command("check")
def data_check(
    name: Annotated[str | None, typer.Argument(help="Data set; by default all that are there.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Read every file of a data set and compare checksums."""
    from fedamp.data import files

    folder = files.data_dir(data_dir)
    present = [each for each, state, _, _ in files.status(folder) if state != "missing"]
    faults = []
    for each in [name] if name else present:
        found = files.check(each, folder)
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
    from fedamp.data import doubts, schema, schema_json, silos

    read = [silos.read_silo(folder, label)] if one or folder.is_file() else silos.read_silos(folder, label)
    if label is not None and all(silo.columns is None for silo in read):
        raise UserError(f"label is {label!r}, but npz files have their targets in y; leave it out")
    made = schema.make_schema(read, task)
    told = doubts.silo_doubts(read, made, task)
    if merge:
        parts, names = [made, *(schema_json.read_schema(path) for path in merge)], [str(folder), *map(str, merge)]
        made = schema.merge_schemas(parts, names)
        told += doubts.schema_doubts(parts, names, task)
    for line in dict.fromkeys(told):
        warn(line)
    if out is None:
        print(schema_json.schema_to_json(made))
    else:
        schema_json.write_schema(out, made)
