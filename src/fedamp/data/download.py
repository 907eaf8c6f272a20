"""Getting the published data sets from their publishers: the only file here that goes online.

What is fetched lies in a temporary folder next to its place until it has been checked, and is then renamed. So
a half file is never taken for a whole one, and a download that broke off begins anew.
"""

from __future__ import annotations

import gzip
import logging
import lzma
import os
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from fedamp import checks
from fedamp.data.formats.idx import advice
from fedamp.data.pictures import locate
from fedamp.data.published import SOURCES, File, Source, file_fault
from fedamp.errors import UserError

TIMEOUT = 30.0  # seconds without an answer, not for the whole
_CHUNK = 1 << 16
_MOST_UNPACKED = 4 << 30  # of a whole tar archive: CIFAR-100's has 0.2e9
_BAD_ARCHIVE = (
    *(zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, RuntimeError, ValueError),
)
Member = tuple[str, int, Callable[[], IO[bytes]]]  # name, size, how to open it


def fetch(name: str, folder: Path, progress: bool = False, sources: Mapping[str, Source] = SOURCES) -> None:
    """Get the files of a data set into its folder in a data folder; those that are there and right are left alone.

    An archive is not fetched for the sake of a text with names of labels, which nothing here reads.
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
    found = []
    try:
        with _members(archive, source) as members:
            for member, size, content in members:
                for file in wanted:
                    # The name of a member is compared, never used: where it goes, our own list says.
                    if member == source.prefix + file.name and file not in found:
                        found.append(file)
                        _unpack(file, size, content, temporary / file.name)
                if len(found) == len(wanted):
                    break
    except _BAD_ARCHIVE as error:
        raise _not_fetched(source.url, f"its archive is damaged: {error}", own) from None
    lacking = [file.name for file in wanted if file.needed and file not in found]
    if lacking:
        raise _not_fetched(source.url, f"its archive is without {', '.join(lacking)}", own)
    for file in found:
        _check_and_place(name, file, temporary / file.name, own, source.url)


@contextmanager
def _members(archive: Path, source: Source) -> Iterator[Iterator[Member]]:
    """Open an archive and go through the plain files in it."""
    if source.archive == "zip":
        with zipfile.ZipFile(archive) as zipped:
            yield ((info.filename, info.file_size, partial(zipped.open, info)) for info in zipped.infolist())
    else:
        with tarfile.open(archive, "r:gz") as tar:
            yield _tar_members(tar)


def _tar_members(tar: tarfile.TarFile) -> Iterator[Member]:
    for info in tar:
        if info.offset_data + info.size > _MOST_UNPACKED:
            raise UserError(f"it unpacks to more than {_MOST_UNPACKED} bytes")
        if info.isreg():  # not a link, which could stand for any file of this machine
            yield info.name, info.size, partial(_open_tarred, tar, info)


def _open_tarred(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    stream = tar.extractfile(info)
    if stream is None:
        raise UserError(f"{info.name} is no plain file")
    return stream


def _unpack(file: File, size: int, content: Callable[[], IO[bytes]], to: Path) -> None:
    if size > file.limit:
        raise UserError(f"{file.name} would have {size} bytes, expected {file.limit} at most")
    to.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with content() as stream, to.open("wb") as target:
        while chunk := stream.read(_CHUNK):
            written += len(chunk)
            if written > size:  # a zip's list may lie about what the member comes to
                raise UserError(f"{file.name} has more bytes than the {size} that are listed")
            target.write(chunk)
    if written < size:
        raise UserError(f"{file.name} has {written} bytes, {size} are listed")


def _check_and_place(name: str, file: File, path: Path, own: Path, url: str) -> None:
    if fault := file_fault(name, file, path):
        cause = fault.removesuffix(advice(name)).replace(str(path), file.name)
        raise _not_fetched(url, f"not the file that was published: {cause}", own)
    path.chmod(0o644)  # pooch's temporary files are its user's alone, and a data folder may be shared
    place = own / file.name
    place.parent.mkdir(parents=True, exist_ok=True)
    os.replace(path, place)


def _retrieve(url: str, checksum: str, limit: int, temporary: Path, own: Path, progress: bool) -> Path:
    """Download a file to the temporary folder; pooch sees to its checksum."""
    try:
        import pooch  # type: ignore[import, unused-ignore]
    except ImportError:
        raise UserError("fetching data needs the package pooch, which is not there; `pip install pooch`") from None
    import requests  # type: ignore[import, unused-ignore]
    import urllib3  # type: ignore[import, unused-ignore]

    pooch.get_logger().setLevel(logging.WARNING)  # it would tell of each file, and of it twice
    file = url.rpartition("/")[2]
    try:
        downloader = Download(limit, progress)
        return Path(pooch.retrieve(url, checksum or None, fname=file, path=temporary, downloader=downloader))
    except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
        raise _not_fetched(url, str(error), own) from None


def _not_fetched(url: str, cause: str, own: Path) -> UserError:
    return UserError(
        f"{url} could not be fetched ({' '.join(cause.split())}); try again, or put the files into {own} by hand"
    )


@dataclass(frozen=True)
class Download:
    """Write what a URL sends to a file, as pooch asks of a downloader: at most `limit` bytes, and all of them."""

    limit: int
    progress: bool

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        """Download `url` to `output_file`; a fault is an error of requests or urllib3, or a ValueError."""
        import requests  # type: ignore[import, unused-ignore]

        # NIST refuses clients of no name. Packed once more on the way, the length would say nothing.
        headers = {"User-Agent": "fedamp", "Accept-Encoding": "identity"}
        with requests.get(url, stream=True, timeout=TIMEOUT, headers=headers) as response:
            response.raise_for_status()
            stated = response.headers.get("Content-Length", "")
            length = int(stated) if stated.isascii() and stated.isdigit() else None
            received = 0
            chunks = response.raw.stream(_CHUNK, decode_content=False)  # a server may call a .gz file "encoded"
            with open(output_file, "wb") as target, _bar(self.progress, url, length) as advance:
                for chunk in chunks:
                    received += len(chunk)
                    if received > self.limit:
                        raise UserError(f"more than {self.limit} bytes came, which is too long for it")
                    target.write(chunk)
                    advance(len(chunk))
            if length is not None and received != length:  # urllib3 sees to it from version 2 on
                raise UserError(f"{received} bytes came, {length} were announced")


@contextmanager
def _bar(shown: bool, url: str, length: int | None) -> Iterator[Any]:
    """Show a line that grows with the download and give what moves it on."""
    if not shown:
        yield lambda size: None
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TransferSpeedColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(url.rpartition("/")[2], total=length)
        yield lambda size: bar.advance(task, size)
