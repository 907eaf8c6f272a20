"""What is there of the published data sets, and whether it is right. Nothing here goes online."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from fedamp import checks
from fedamp.data.published.catalogue import SOURCES, File, Source
from fedamp.data.published.folder import locate
from fedamp.data.published.formats.cifar import read_cifar100
from fedamp.data.published.formats.common import advice
from fedamp.data.published.formats.idx import read_idx
from fedamp.data.published.pictures import LOADERS
from fedamp.errors import UserError


class Status(NamedTuple):
    """What is there of a data set."""

    name: str
    state: Literal["complete", "partial", "missing", "incomplete"]
    size: int  # bytes of its files
    detail: str  # in words, for people


def status(folder: Path, sources: Mapping[str, Source] = SOURCES) -> list[Status]:
    """Return what a data folder has of each data set, by names and sizes: quick, nothing is read."""
    return [_status(name, source, folder / name) for name, source in sources.items()]


def _status(name: str, source: Source, folder: Path) -> Status:
    needed = [file for file in source.files if file.needed]
    found = {file.name: _size(locate(folder, file.name)) for file in source.files}
    size = sum(found.values())
    absent = [file.name for file in needed if not found[file.name]]
    wrong = [
        f"{file.name} has {found[file.name]} bytes, expected {file.size}"
        for file in needed
        if file.size and found[file.name] not in (0, file.size) and locate(folder, file.name) == folder / file.name
    ]
    if len(absent) == len(needed):
        return Status(name, "missing", size, f"`fedamp data fetch {name}` gets it")
    if wrong:
        return Status(name, "incomplete", size, f"{'; '.join(wrong)}{advice(name)}")
    if not absent:
        return Status(name, "complete", size, source.licence.partition(";")[0])
    if name == "emnist" and absent == [file.name for file in needed if "-train-" in file.name]:
        return Status(name, "partial", size, "only the test split, which will be split 80/20 within each class")
    return Status(name, "incomplete", size, f"{', '.join(absent)} missing; `fedamp data fetch {name}` gets the rest")


def _size(path: Path | None) -> int:
    try:
        return path.stat().st_size if path and path.is_file() else 0
    except OSError:
        return 0


def check(name: str, folder: Path, sources: Mapping[str, Source] = SOURCES) -> list[str]:
    """Return the faults of a data set in a data folder, none if all is well: every file is hashed and read.

    A file that has no known checksum, or was unpacked, is only read.
    """
    checks.one_of("data set", name, sources)
    own = folder / name
    faults = []
    for file in sources[name].files:
        path = locate(own, file.name)
        if path is not None and (fault := file_fault(name, file, path)):
            faults.append(fault)
    if faults or name not in LOADERS:
        return faults
    try:
        LOADERS[name](own)  # missing files, and faults between them: numbers of pictures and labels
    except UserError as error:
        return [str(error)]
    return []


def file_fault(name: str, file: File, path: Path) -> str:
    """Return what is wrong with a copy of a published file, "" if nothing: its checksum, else its content."""
    try:
        if file.checksum and path.name == Path(file.name).name:
            # A copy with the right checksum need not be read, and one with a wrong checksum isn't worth reading.
            algorithm, _, expected = file.checksum.partition(":")
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, algorithm).hexdigest()
            if digest != expected:
                return f"{path} has {algorithm} {digest}; expected {expected}{advice(name)}"
        elif file.kind == "text":
            _read_text(path, file.limit, name)
        elif file.kind == "idx":
            read_idx(path, name)
        else:
            read_cifar100(path, name)
    except OSError as error:
        return f"{path} can't be read ({error.strerror or error}){advice(name)}"
    except UserError as error:
        return str(error)
    return ""


def _read_text(path: Path, limit: int, name: str) -> None:
    with path.open("rb") as stream:
        content = stream.read(limit + 1)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text ({error}){advice(name)}") from None
    if not text.strip() or len(content) > limit:
        raise UserError(f"{path} has {len(content)} bytes or more; expected text of 1 to {limit}{advice(name)}")
