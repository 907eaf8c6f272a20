"""What the readers share: a limit to what they read, and what an error advises."""

import gzip
from typing import BinaryIO

MOST_BYTES = 2 << 30  # EMNIST's train pictures are 0.55e9; what promises more than 2 GiB is not one of these files
_CHUNK = 1 << 20


def advice(name: str) -> str:
    """Return what to do about a file of a data set that can't be read, as the end of an error."""
    return f"; `fedamp data fetch {name}` downloads it again, `fedamp data check` looks at all files"


def read_at_most(file: BinaryIO | gzip.GzipFile, limit: int) -> bytearray:
    """Return a file's next bytes, to its end or to the limit."""
    content = bytearray()
    while len(content) < limit:
        chunk = file.read(min(_CHUNK, limit - len(content)))
        if not chunk:
            break
        content += chunk
    return content
