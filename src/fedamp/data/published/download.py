"""Getting the published data sets from their publishers: with `transfer`, the only place here that goes online.

What is fetched lies in a temporary folder next to its place until it has been checked, and is then renamed. So
a half file is never taken for a whole one, and a download that broke off begins again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedamp import checks
from fedamp.data.published.archives import BAD_ARCHIVE, unpack
from fedamp.data.published.catalogue import SOURCES, File, Source
from fedamp.data.published.folder import locate
from fedamp.data.published.formats.common import advice
from fedamp.data.published.status import file_fault
from fedamp.data.published.transfer import TransferError, retrieve
from fedamp.errors import UserError


def fetch(name: str, folder: Path, progress: bool = False, sources: Mapping[str, Source] = SOURCES) -> None:
    """Get the files of a data set into its folder in a data folder; those that are there and right are left alone.

    An archive is not fetched just for a text with the names of labels, which nothing here reads.
    """
    checks.one_of("data set", name, sources)
    source, own = sources[name], folder / name
    wanted = [file for file in source.files if not _is_right(name, file, own)]
    if not any(file.needed or not source.archive for file in wanted):
        return
    try:
        own.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=own, prefix=".fetch-") as temporary:
            if source.archive:
                _fetch_archive(name, source, wanted, own, Path(temporary), progress)
            else:
                _fetch_files(name, source, wanted, own, Path(temporary), progress)
    except OSError as error:
        raise UserError(
            f"{own} can't be written to ({error.strerror or error}); make room or give another folder with --data-dir"
        ) from None


def _is_right(name: str, file: File, own: Path) -> bool:
    path = locate(own, file.name)
    return path is not None and not file_fault(name, file, path)


def _fetch_files(name: str, source: Source, wanted: Sequence[File], own: Path, temporary: Path, progress: bool) -> None:
    for file in wanted:
        url = source.url + file.name
        path = _retrieve(url, file.checksum, file.limit, temporary, own, progress)
        _check_and_place(name, file, path, own, url)


def _fetch_archive(
    name: str, source: Source, wanted: Sequence[File], own: Path, temporary: Path, progress: bool
) -> None:
    archive = _retrieve(source.url, source.checksum, source.limit, temporary, own, progress)
    try:
        found = unpack(archive, source, wanted, temporary)
    except BAD_ARCHIVE as error:
        raise _not_fetched(source.url, f"its archive is damaged: {error}", own) from None
    missing = [file.name for file in wanted if file.needed and file not in found]
    if missing:
        raise _not_fetched(source.url, f"its archive lacks {', '.join(missing)}", own)
    for file in found:
        _check_and_place(name, file, temporary / file.name, own, source.url)


def _check_and_place(name: str, file: File, path: Path, own: Path, url: str) -> None:
    if fault := file_fault(name, file, path):
        cause = fault.removesuffix(advice(name)).replace(str(path), file.name)
        raise _not_fetched(url, f"not the file that was published: {cause}", own)
    path.chmod(0o644)  # pooch's temporary files are its user's alone, and a data folder may be shared
    place = own / file.name
    place.parent.mkdir(parents=True, exist_ok=True)
    os.replace(path, place)


def _retrieve(url: str, checksum: str, limit: int, temporary: Path, own: Path, progress: bool) -> Path:
    try:
        return retrieve(url, checksum, limit, temporary, progress)
    except TransferError as error:
        raise _not_fetched(url, str(error), own) from None


def _not_fetched(url: str, cause: str, own: Path) -> UserError:
    return UserError(
        f"{url} could not be fetched ({' '.join(cause.split())}); try again, or put the files into {own} by hand"
    )
