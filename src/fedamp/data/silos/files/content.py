"""A text file's bytes as utf-8: unpacked if they are gzipped, and from whatever encoding they are in."""

from __future__ import annotations

import codecs
import contextlib
import difflib
import gzip
import zlib
from encodings.aliases import aliases
from pathlib import Path

from fedamp.errors import UserError

MOST_UNPACKED = 8 * 2**30  # bytes: a small gzip file can unpack to more than any memory holds
STEP = 2**24
USUAL = ("cp1252", "latin-1", "utf-16", "cp1250", "cp1251", "mac-roman", "shift-jis", "gb18030")
MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def file_bytes(path: Path) -> bytes:
    """Return what is in a file; a gzipped one is unpacked, up to a bound."""
    if path.suffix.lower() != ".gz":
        return path.read_bytes()
    parts, size = [], 0
    try:
        with gzip.open(path) as file:
            while part := file.read(STEP):
                parts.append(part)
                size += len(part)
                if size > MOST_UNPACKED:
                    raise UserError(f"it unpacks to more than {MOST_UNPACKED / 2**30:g} GiB; split it into parts")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"not a readable gzip file ({error}); pack it again") from error
    return b"".join(parts)


def as_utf8(content: bytes, encoding: str | None = None) -> bytes:
    """Return a text in utf-8, without a mark at its beginning; `encoding` is for what has no mark and is not utf-8.

    One flag is for all files, and some of them may be utf-8. So bytes beyond ASCII that are valid utf-8 are utf-8: in
    another encoding they would hardly be by chance, and read otherwise they would be other letters.
    """
    for mark, marked in MARKS.items():
        if content.startswith(mark):
            return _recoded(content[len(mark) :], marked)
    if encoding is None or codecs.lookup(check_encoding(encoding)).name == "utf-8":
        return content
    return content if not content.isascii() and _is_utf8(content) else _recoded(content, encoding)


def check_encoding(name: str) -> str:
    """Return the name of an encoding of text; another is an error that suggests one."""
    try:
        with contextlib.suppress(UnicodeError):
            b" ".decode(name)
    except (LookupError, ValueError):
        near = difflib.get_close_matches(name.lower(), [*USUAL, *aliases], n=1, cutoff=0.5)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise UserError(f"unknown encoding {name!r}{hint}; say cp1252, latin-1 or utf-16") from None
    return name


def check_utf8(content: bytes) -> None:
    """Raise unless a text is utf-8; the error names the line, and the flag for other encodings."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"line {_line(content, error.start)} is not text in utf-8 (byte 0x{content[error.start]:02x}); name the "
            "file's encoding, say --encoding cp1252 (encoding= in Python), or save it as utf-8"
        ) from error


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _recoded(content: bytes, encoding: str) -> bytes:
    try:
        return content.decode(encoding).encode()
    except UnicodeError as error:
        start = error.start if isinstance(error, UnicodeDecodeError) else 0
        raise UserError(
            f"line {_line(content, start)} is not text in {encoding}; name the encoding that the file was saved with, "
            "or save it as utf-8"
        ) from error


def _line(content: bytes, place: int) -> int:
    return 1 + content.count(b"\n", 0, place)
