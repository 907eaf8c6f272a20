"""The idx format: the right bytes come out, and whatever else is given is an error in one line."""

import gzip

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from published_files import fuzz, header, idx, one_line, only_value_errors, write

from fedamp.data.published.formats.cifar import read_cifar100
from fedamp.data.published.formats.idx import read_idx


@pytest.mark.parametrize("name", ["some.gz", "some", "plain-in-spite-of-its-name.gz"])
@pytest.mark.parametrize("array", [[3], [0, 255, 7], np.arange(24).reshape(4, 3, 2)])
def test_idx_holds_what_was_written(tmp_path, name, array):
    path = write(tmp_path, name, idx(array))
    if name.startswith("plain"):
        path.write_bytes(idx(array))
    found = read_idx(path)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, array)
    torch.from_numpy(found)  # warns, an error here, where it is not to be written to


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; expected an idx file"),
        (b"\0\0\x08", "begins with 00 00 08; expected an idx file"),
        (b"<html>", "begins with 3c 68 74 6d; expected an idx file"),
        (header(2, kind=0x0D) + b"ab", "of type 0x0d; expected 0x08, unsigned bytes"),
        (header(1, 2) + b"ab", r"of 2 dimensions; expected 1 \(labels\) or 3 \(pictures\)"),
        (header() + b"ab", "of 0 dimensions; expected"),
        (header(1, 2, 3)[:-1], "ends within its header; expected 3 dimensions of 4 bytes"),
        (header(0), r"has dimensions \(0,\); expected each to be 1 or more"),
        (header(2, 0, 2), r"has dimensions \(2, 0, 2\)"),
        (header(2, 2, 2) + b"7bytes!", r"has only 7 bytes after its header; expected 8 by dimensions \(2, 2, 2\)"),
        (header(3) + b"four", r"has more bytes after its header; expected 3 by dimensions \(3,\)"),
        (header(2**31 + 1) + b"ab", "promises 2147483649 bytes by .*; expected 2147483648 at most"),
        (header(2**32 - 1, 2**32 - 1, 2**32 - 1), "promises .* expected 2147483648 at most"),
        (header(2**31) + b"ab", "has only 2 bytes after its header; expected 2147483648"),
    ],
)
def test_what_is_no_idx_file(tmp_path, content, message, packed):
    path = write(tmp_path, "bad.gz" if packed else "bad", content)
    with pytest.raises(ValueError, match=f"bad.*{message}.*`fedamp data fetch NAME` downloads it again") as error:
        read_idx(path)
    assert one_line(error)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda packed: packed[:-1], "ended before the end-of-stream marker"),
        (lambda packed: packed[:12], "ended before"),
        (lambda packed: packed[:2], "ended before|Compressed file ended"),
        (lambda packed: packed[:3] + b"\xff" * 20, "."),
        (lambda packed: packed[:-8] + b"\0" * 8, "CRC check failed"),
        (lambda packed: packed + b"more", "Not a gzipped file"),
        (lambda packed: packed[:10] + b"\xff" * 10, "invalid block type|invalid"),
        (lambda packed: packed[:2] + b"\x07" + packed[3:], "Unknown compression method"),
    ],
)
def test_damaged_gzip(tmp_path, damage, message):
    path = tmp_path / "bad.gz"
    path.write_bytes(damage(gzip.compress(idx(np.arange(200)), mtime=0)))
    with pytest.raises(ValueError, match=f"bad.gz is damaged gzip .*({message}).*data fetch mnist") as error:
        read_idx(path, "mnist")
    assert one_line(error)


def test_a_gzip_bomb_is_not_unpacked(tmp_path, monkeypatch):
    path = write(tmp_path, "bomb.gz", header(3) + bytes(50_000_000))
    read, real = [], gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda self, size=-1: read.append(size) or real(self, size))
    with pytest.raises(ValueError, match="has more bytes after its header; expected 3"):
        read_idx(path)
    assert sum(read) <= 4 + 4 + 4
    assert min(read) > 0


@pytest.mark.parametrize("read", [read_idx, read_cifar100])
def test_a_file_that_cannot_be_opened(tmp_path, read):
    for path, why in ((tmp_path, "Is a directory|Permission"), (tmp_path / "none.gz", "No such file")):
        with pytest.raises(ValueError, match=f"{path.name} can't be read .({why})") as error:
            read(path)
        assert one_line(error)


@fuzz
@given(st.binary(max_size=80))
@example(b"\x1f\x8b")
def test_any_bytes_are_an_idx_file_or_an_error(tmp_path, content):
    for made in (content, gzip.compress(content), b"\x1f\x8b\x08" + content, header(2, 2, 2) + content):
        only_value_errors(read_idx, tmp_path / "fuzz", made)


@fuzz
@given(st.data())
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_mutated_idx_file_is_read_or_an_error(tmp_path, pack, data):
    content = bytearray(pack(idx(np.arange(60).reshape(5, 4, 3))))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    found = only_value_errors(
        read_idx, tmp_path / "fuzz", bytes(content[:cut] if data.draw(st.booleans()) else content)
    )
    assert found is None or found.size <= 60
