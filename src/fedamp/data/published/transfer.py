"""One file from a URL, no longer than it may be, and all of it; pooch checks its checksum."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedamp.errors import UserError

TIMEOUT = 30.0  # seconds without an answer, not for the whole download
_CHUNK = 1 << 16


def retrieve(url: str, checksum: str, limit: int, folder: Path, progress: bool) -> Path:
    """Download a file to a folder and return where it is; a fault is a TransferError."""
    try:
        import pooch  # type: ignore[import, unused-ignore]
    except ImportError:
        raise UserError("fetching data needs the package pooch, which is not installed; `pip install pooch`") from None
    import requests  # type: ignore[import, unused-ignore]
    import urllib3  # type: ignore[import, unused-ignore]

    pooch.get_logger().setLevel(logging.WARNING)  # it would announce each file, twice
    file = url.rpartition("/")[2]
    try:
        downloader = Download(limit, progress)
        return Path(pooch.retrieve(url, checksum or None, fname=file, path=folder, downloader=downloader))
    except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
        raise TransferError(_cause(error) if isinstance(error, requests.ConnectionError) else str(error)) from None


def _cause(error: BaseException) -> str:
    """Return why there is no connection: what lies below the texts that requests and urllib3 wrap around it."""
    below = [getattr(error, "reason", None), *error.args, error.__cause__]
    inner = next((each for each in below if isinstance(each, BaseException)), None)
    if inner is not None:
        return _cause(inner)
    return f"no connection: {getattr(error, 'strerror', None) or error}"


class TransferError(Exception):
    """A file did not arrive, or not as it was published; the text says why."""


@dataclass(frozen=True)
class Download:
    """Write what a URL sends to a file, as pooch asks of a downloader: at most `limit` bytes, and all of them."""

    limit: int
    progress: bool

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        """Download `url` to `output_file`; a fault is an error of requests or urllib3, or a ValueError."""
        import requests  # type: ignore[import, unused-ignore]

        # NIST refuses clients without a name. If compressed again on the way, the length would say nothing.
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
                        raise ValueError(f"it is longer than the {self.limit} bytes allowed")
                    target.write(chunk)
                    advance(len(chunk))
            if length is not None and received != length:  # urllib3 checks this itself from version 2 on
                raise ValueError(f"{received} bytes arrived, {length} were announced")


@contextmanager
def _bar(shown: bool, url: str, length: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar that grows with the download, and yield the function that advances it."""
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
