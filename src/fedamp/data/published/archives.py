"""Members of a downloaded archive, unpacked without trusting their names, their sizes or their kinds.

pooch's Unzip and Untar are not used, since they can't guarantee this:
- They unpack every member whose normalised name *begins* with a wanted one, under the archive's own name for it. Here a
  name is compared and never used: our own list says where a file goes.
- They set no limit on what a member, or a whole archive, unpacks to.
- Untar lists the whole archive first, however much that unpacks, and makes links; in Python 3.11 it passes no filter to
  `tarfile`, so that `../` and absolute names lead outside.
"""

import gzip
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from fedamp.data.published.catalogue import File, Source
from fedamp.errors import UserError

BAD_ARCHIVE = (  # whatever a damaged archive makes the standard library raise
    *(zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, RuntimeError, ValueError),
)
_CHUNK = 1 << 16
_MOST_UNPACKED = 4 << 30  # of a whole tar archive: CIFAR-100's has 0.2e9
Member = tuple[str, int, Callable[[], IO[bytes]]]  # name, size, how to open it


def unpack(archive: Path, source: Source, wanted: Sequence[File], to: Path) -> list[File]:
    """Unpack the wanted files that an archive holds into a folder, and return them; a fault is one of BAD_ARCHIVE."""
    found: list[File] = []
    with _members(archive, source) as members:
        for member, size, content in members:
            for file in wanted:
                if member == source.prefix + file.name and file not in found:
                    found.append(file)
                    _unpack_one(file, size, content, to / file.name)
            if len(found) == len(wanted):
                break
    return found


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
        if info.isreg():  # not a link, which could point to any file on this machine
            yield info.name, info.size, partial(_open_tarred, tar, info)


def _open_tarred(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    stream = tar.extractfile(info)
    if stream is None:
        raise UserError(f"{info.name} is not a plain file")
    return stream


def _unpack_one(file: File, size: int, content: Callable[[], IO[bytes]], to: Path) -> None:
    if size > file.limit:
        raise UserError(f"{file.name} would have {size} bytes, expected {file.limit} at most")
    to.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with content() as stream, to.open("wb") as target:
        while chunk := stream.read(_CHUNK):
            written += len(chunk)
            if written > size:  # a zip's list may lie about a member's size
                raise UserError(f"{file.name} has more bytes than the {size} that are listed")
            target.write(chunk)
    if written < size:
        raise UserError(f"{file.name} has {written} bytes, {size} are listed")
