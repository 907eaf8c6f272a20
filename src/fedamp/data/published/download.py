"""Downloading the published data sets from their publishers: with `transfer`, the only module here that goes online.

What is fetched stays in a temporary folder next to its destination until it has been checked, and is then moved. So
half a file is never taken for a whole one, and a download that was interrupted begins again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    """Get the files of a data set into its folder in a data folder; correct ones that are there are left alone.

    An archive is not fetched just for a text file with the names of labels, which nothing here reads.
    """
    checks.one_of("data set", name, sources)
    source, own = sources[name], folder / name
    wanted = [file for file in source.files if not _is_right(name, file, own)]
    if not any(file.needed or not source.archive for file in wanted):
        return
    try:
        own.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=own, prefix=".fetch-") as temporary:
            job = _Fetch(name, source, own, Path(temporary), progress)
            if source.archive:
                job.get_archive(wanted)
            else:
                job.get_files(wanted)
    except OSError as error:
        raise UserError(
            f"{own} can't be written to ({error.strerror or error}); make room or give another folder with --data-dir"
        ) from None


def _is_right(name: str, file: File, own: Path) -> bool:
    path = locate(own, file.name)
    return path is not None and not file_fault(name, file, path)


@dataclass(frozen=True)
class _Fetch:
    """A data set on its way: from its publisher to the temporary folder, and, once checked, to its own."""

    name: str
    source: Source
    own: Path
    temporary: Path
    progress: bool

    def get_files(self, wanted: Sequence[File]) -> None:
        for file in wanted:
            url = self.source.url + file.name
            self._check_and_place(file, self._retrieve(url, file.checksum, file.limit), url)

    def get_archive(self, wanted: Sequence[File]) -> None:
        url = self.source.url
        archive = self._retrieve(url, self.source.checksum, self.source.limit)
        try:
            found = unpack(archive, self.source, wanted, self.temporary)
        except BAD_ARCHIVE as error:
            raise self._not_fetched(url, f"its archive is damaged: {error}") from None
        missing = [file.name for file in wanted if file.needed and file not in found]
        if missing:
            raise self._not_fetched(url, f"its archive lacks {', '.join(missing)}")
        for file in found:
            self._check_and_place(file, self.temporary / file.name, url)

    def _retrieve(self, url: str, checksum: str, limit: int) -> Path:
        try:
            return retrieve(url, checksum, limit, self.temporary, self.progress)
        except TransferError as error:
            raise self._not_fetched(url, str(error)) from None

    def _check_and_place(self, file: File, path: Path, url: str) -> None:
        if fault := file_fault(self.name, file, path):
            cause = fault.removesuffix(advice(self.name)).replace(str(path), file.name)
            raise self._not_fetched(url, f"not the file that was published: {cause}")
        path.chmod(0o644)  # only their owner can read pooch's temporary files, and a data folder may be shared
        place = self.own / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, place)

    def _not_fetched(self, url: str, cause: str) -> UserError:
        cause = " ".join(cause.split())
        return UserError(f"{url} could not be fetched ({cause}); try again, or put the files into {self.own} by hand")
