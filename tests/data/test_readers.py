"""Readers of published files: the right bytes come out, and whatever else is given is a one-line ValueError."""

import gzip
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import platformdirs
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from platformdirs.macos import MacOS
from platformdirs.unix import Unix
from platformdirs.windows import Windows

from fedamp import seeds
from fedamp.data import load_data
from fedamp.data.published.catalogue import SOURCES
from fedamp.data.published.folder import data_dir
from fedamp.data.published.formats.cifar import RECORD, read_cifar100
from fedamp.data.published.formats.idx import read_idx
from fedamp.data.published.pictures import LOADERS, load_cifar100, load_emnist, load_fmnist, load_mnist
from fedamp.data.published.status import check, status

KINDS = "images-idx3", "labels-idx1"
fuzz = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def idx(array):
    array = np.asarray(array, np.uint8)
    return bytes([0, 0, 8, array.ndim]) + np.asarray(array.shape, ">u4").tobytes() + array.tobytes()


def header(*shape, kind=8):
    return bytes([0, 0, kind, len(shape)]) + np.asarray(shape, ">u4").tobytes()


def pictures(labels, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (len(labels), 28, 28), np.uint8)


def records(coarse, fine, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (len(fine), RECORD - 2), np.uint8)
    return np.column_stack([np.asarray(coarse, np.uint8), np.asarray(fine, np.uint8), pixels]), pixels


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def write_split(folder, names, labels, x=None, suffix=".gz"):
    x = pictures(labels) if x is None else x
    for kind, array in zip(KINDS, (x, labels), strict=True):
        write(folder, f"{names.format(kind)}{suffix}", idx(array))
    return x


def one_line(error):
    return "\n" not in str(error.value)


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


def only_value_errors(read, path, content):
    path.write_bytes(content)
    try:
        return read(path)
    except ValueError as error:
        message = str(error)
    assert "\n" not in message
    assert path.name in message
    assert "`fedamp data fetch" in message


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


def test_cifar_holds_what_was_written(tmp_path):
    content, pixels = records([0, 19, 7], [99, 0, 42])
    x, fine, coarse = read_cifar100(write(tmp_path, "some.bin", content.tobytes()))
    np.testing.assert_array_equal(x, pixels.reshape(3, 3, 32, 32))
    assert x[1, 2, 0, 31] == content[1, 2 + 2 * 1024 + 31]
    assert (fine.tolist(), coarse.tolist()) == ([99, 0, 42], [0, 19, 7])
    assert {x.dtype, fine.dtype, coarse.dtype} == {np.dtype(np.uint8)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; expected records of 3074 bytes"),
        (bytes(RECORD - 1), "has 3073 bytes; expected records of 3074 bytes and nothing else"),
        (bytes(2 * RECORD + 1), "has 6149 bytes; expected"),
        (records([0, 20], [1, 1])[0].tobytes(), "has coarse label 20 in record 1; expected 0 to 19"),
        (records([0, 1], [100, 1])[0].tobytes(), "has fine label 100 in record 0; expected 0 to 99"),
    ],
)
def test_what_is_no_cifar_file(tmp_path, content, message):
    with pytest.raises(ValueError, match=f"bad.bin {message}.*`fedamp data fetch cifar100`") as error:
        read_cifar100(write(tmp_path, "bad.bin", content))
    assert one_line(error)


@fuzz
@given(st.data())
def test_any_bytes_are_a_cifar_file_or_an_error(tmp_path, data):
    content = bytearray(records([3, 4], [5, 6])[0].tobytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.sampled_from([0, 1, 2, RECORD, RECORD + 1, -1]))] = data.draw(st.integers(0, 255))
    more = data.draw(st.binary(max_size=3))
    found = only_value_errors(read_cifar100, tmp_path / "fuzz", bytes(content) + more)
    assert (found is not None) == (not more and max(content[0], content[RECORD]) < 20 and max(content[1::RECORD]) < 100)
    only_value_errors(read_cifar100, tmp_path / "fuzz", more)


@pytest.mark.parametrize(("name", "load"), [("mnist", load_mnist), ("fmnist", load_fmnist)])
@pytest.mark.parametrize("suffix", [".gz", ""])
def test_mnist_is_train_then_test(tmp_path, name, load, suffix):
    x = write_split(tmp_path, "train-{}-ubyte", [0, 9, 4], suffix=suffix)
    more = write_split(tmp_path, "t10k-{}-ubyte", [5, 6], pictures([5, 6], seed=1))
    data = load(tmp_path)
    np.testing.assert_array_equal(data.x, np.concatenate([x, more]))
    assert data.name == name
    assert data.x.dtype == torch.uint8
    assert data.y.tolist() == [0, 9, 4, 5, 6]
    assert (data.train_pool.tolist(), data.test_pool.tolist()) == ([0, 1, 2], [3, 4])
    assert (data.num_classes, data.shift, data.scale, data.note) == (10, 0, 255, "")


def test_the_gzipped_file_comes_first(tmp_path):
    write_split(tmp_path, "train-{}-ubyte", [1, 1], suffix="")
    write_split(tmp_path, "train-{}-ubyte", [2, 2])
    write_split(tmp_path, "t10k-{}-ubyte", [3])
    assert load_mnist(tmp_path).y.tolist() == [2, 2, 3]


def test_cifar100_has_fine_labels_and_a_scale_for_each_channel(tmp_path):
    content, pixels = records([1, 2, 3], [97, 98, 99])
    write(tmp_path, "cifar100/cifar-100-binary/train.bin", content[:2].tobytes())
    write(tmp_path, "cifar100/cifar-100-binary/test.bin", content[2:].tobytes())
    data = load_data("cifar100", tmp_path)
    np.testing.assert_array_equal(data.x, pixels.reshape(3, 3, 32, 32))
    assert data.y.tolist() == [97, 98, 99]
    assert (data.train_pool.tolist(), data.test_pool.tolist()) == ([0, 1], [2])
    assert data.shift == pytest.approx((129.31, 124.06, 112.43), abs=0.01)
    assert data.scale == pytest.approx((68.16, 65.38, 70.43), abs=0.01)


def test_emnist_is_turned_upright(tmp_path):
    x = write_split(tmp_path, "emnist-byclass-train-{}-ubyte", [61, 0])
    more = write_split(tmp_path, "emnist-byclass-test-{}-ubyte", [10, 36, 1])
    data = load_emnist(tmp_path)
    np.testing.assert_array_equal(data.x, np.concatenate([x, more]).swapaxes(1, 2))
    assert data.x.is_contiguous()
    assert (data.train_pool.tolist(), data.test_pool.tolist()) == ([0, 1], [2, 3, 4])
    assert (data.num_classes, data.note) == (62, "")


def test_emnist_of_its_test_split_alone_is_split_and_says_so(tmp_path):
    labels = [3] * 10 + [61] * 5 + [7]
    x = write_split(tmp_path, "emnist-byclass-test-{}-ubyte", labels)
    data = load_emnist(tmp_path)
    np.testing.assert_array_equal(data.x, x.swapaxes(1, 2))
    assert data.x.is_contiguous()
    assert torch.bincount(data.y[data.train_pool], minlength=62)[[3, 61, 7]].tolist() == [8, 4, 1]
    assert sorted(data.train_pool.tolist() + data.test_pool.tolist()) == list(range(16))
    drawn = seeds.generator(0, "emnist split", 61).permutation(np.arange(10, 15))
    assert data.test_pool.tolist()[-1] == drawn[-1]
    assert "test split alone (16 pictures), split 80/20 within each class" in data.note
    assert torch.equal(load_emnist(tmp_path).train_pool, data.train_pool)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train-images-idx3-ubyte.gz": idx(pictures([1]))}, "has 1 pictures and train-labels-.* 2 labels; expected"),
        (
            {"train-images-idx3-ubyte.gz": idx(np.zeros((2, 28, 27)))},
            r"has shape \(2, 28, 27\); expected \(N, 28, 28\)",
        ),
        ({"t10k-images-idx3-ubyte.gz": idx([1, 2])}, r"has shape \(2,\); expected \(N, 28, 28\)"),
        ({"t10k-labels-idx1-ubyte.gz": idx([[[1, 2]]])}, r"has shape \(1, 1, 2\); expected \(N,\)"),
        ({"t10k-labels-idx1-ubyte.gz": idx([1, 10])}, "has label 10; expected 0 to 9"),
        ({"t10k-labels-idx1-ubyte.gz": b"damaged"}, "begins with 64 61 6d 61"),
    ],
)
def test_files_that_do_not_fit_each_other(tmp_path, changes, message):
    for part in ("train", "t10k"):
        write_split(tmp_path / "mnist", part + "-{}-ubyte", [1, 2])
    assert check("mnist", tmp_path, {"mnist": unchecked("mnist")}) == []
    for name, content in changes.items():
        write(tmp_path / "mnist", name, content)
    with pytest.raises(ValueError, match=f"{message}.*`fedamp data fetch mnist`") as error:
        load_mnist(tmp_path / "mnist")
    assert one_line(error)
    faults = check("mnist", tmp_path, {"mnist": unchecked("mnist")})
    assert faults == [str(error.value)]


def unchecked(name):
    return replace(SOURCES[name], files=tuple(replace(f, checksum="", size=0) for f in SOURCES[name].files))


@pytest.mark.parametrize("name", LOADERS)
def test_missing_files_and_what_to_do(tmp_path, name):
    with pytest.raises(
        ValueError, match=f"{name} needs .* in .*{name}, which is not there; `fedamp data fetch {name}`"
    ) as e:
        load_data(name, tmp_path)
    assert "--data-dir (or FEDAMP_DATA)" in str(e.value)
    assert one_line(e)
    assert check(name, tmp_path) == [str(e.value)]


def test_emnist_with_one_of_its_train_files_is_incomplete(tmp_path):
    write_split(tmp_path, "emnist-byclass-test-{}-ubyte", [1, 2])
    write(tmp_path, "emnist-byclass-train-labels-idx1-ubyte", idx([1]))
    with pytest.raises(ValueError, match="emnist needs emnist-byclass-train-images-idx3-ubyte"):
        load_emnist(tmp_path)


def test_a_loader_needs_every_file(tmp_path):
    write_split(tmp_path, "train-{}-ubyte", [1, 2])
    with pytest.raises(ValueError, match="mnist needs t10k-images-idx3-ubyte"):
        load_mnist(tmp_path)
    with pytest.raises(ValueError, match=r"cifar100 needs cifar-100-binary/train\.bin"):
        load_cifar100(tmp_path)


def test_status_tells_what_is_there(tmp_path):
    def states():
        return {name: state for name, state, _, _ in status(tmp_path, {n: unchecked(n) for n in SOURCES})}

    assert set(states().values()) == {"missing"}
    write_split(tmp_path / "mnist", "train-{}-ubyte", [1, 2])
    write_split(tmp_path / "emnist", "emnist-byclass-test-{}-ubyte", [1, 2])
    assert states() == {"mnist": "incomplete", "fmnist": "missing", "emnist": "partial", "cifar100": "missing"}
    write_split(tmp_path / "mnist", "t10k-{}-ubyte", [1, 2], suffix="")
    write(tmp_path / "emnist", "emnist-byclass-train-labels-idx1-ubyte", idx([1]))
    assert states() == {"mnist": "complete", "fmnist": "missing", "emnist": "incomplete", "cifar100": "missing"}
    (tmp_path / "mnist" / "t10k-images-idx3-ubyte").write_bytes(b"")
    assert states()["mnist"] == "incomplete"


def test_status_sees_a_wrong_size_and_check_a_wrong_checksum(tmp_path):
    for part in ("train", "t10k"):
        write_split(tmp_path / "mnist", part + "-{}-ubyte", [1, 2])
    found = status(tmp_path)[0]
    assert (found.name, found.state) == ("mnist", "incomplete")
    assert found.size == sum(path.stat().st_size for path in (tmp_path / "mnist").iterdir())
    assert "bytes, expected 9912422" in found.detail
    faults = check("mnist", tmp_path)
    assert len(faults) == 4
    assert "train-images-idx3-ubyte.gz has sha256 " in faults[0]
    assert "expected 440fcabf73cc" in faults[0]


def test_names_of_labels_are_checked_but_not_needed(tmp_path):
    write_split(tmp_path / "emnist", "emnist-byclass-test-{}-ubyte", [1, 2])
    sources = {"emnist": unchecked("emnist")}
    assert check("emnist", tmp_path, sources) == []
    for content, message in (
        (b"\xff\xfe", "is not text"),
        (b" \n", "expected text of 1 to 1048576"),
        (bytes(2**21), ""),
    ):
        write(tmp_path / "emnist", "emnist-byclass-mapping.txt", content)
        (fault,) = check("emnist", tmp_path, sources)
        assert "mapping.txt" in fault
        assert message in fault
    write(tmp_path / "emnist", "emnist-byclass-mapping.txt", b"0 48\n")
    assert check("emnist", tmp_path, sources) == []


def test_check_of_an_unknown_name(tmp_path):
    with pytest.raises(ValueError, match=r"unknown data set 'mnits' \(did you mean 'mnist'\?\)"):
        check("mnits", tmp_path)


def test_every_source_says_what_it_is():
    assert set(SOURCES) == set(LOADERS)
    for source in SOURCES.values():
        assert source.url.endswith("/") != bool(source.archive)
        assert "cite" in source.licence
        assert all(file.checksum.startswith(("sha256:", "md5:")) for file in source.files if file.needed)


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, "/home/u/.cache/fedamp"),
        ("linux", {"XDG_CACHE_HOME": "/cache"}, "/cache/fedamp"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/u/.cache/fedamp"),
        ("darwin", {}, "/home/u/Library/Caches/fedamp"),
        ("darwin", {"XDG_CACHE_HOME": "/cache"}, "/home/u/Library/Caches/fedamp"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/fedamp"),
        ("win32", {}, "/home/u/AppData/Local/fedamp"),
        ("linux", {"FEDAMP_DATA": "/data", "XDG_CACHE_HOME": "/cache"}, "/data"),
        ("linux", {"FEDAMP_DATA": "~/data"}, "/home/u/data"),
        ("linux", {"FEDAMP_DATA": ""}, "/home/u/.cache/fedamp"),
    ],
)
def test_where_data_lies(monkeypatch, platform, environment, expected):
    for name in ("FEDAMP_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (environment | {"HOME": "/home/u"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(platformdirs, "PlatformDirs", {"linux": Unix, "darwin": MacOS, "win32": Windows}[platform])
    # Windows is asked for this folder, which it has whether or not the variable is set.
    local = {"CSIDL_LOCAL_APPDATA": environment.get("LOCALAPPDATA", "/home/u/AppData/Local")}
    monkeypatch.setattr(platformdirs.windows, "get_win_folder", local.__getitem__)
    assert data_dir() == Path(expected)
    assert data_dir(Path("/given")) == Path("/given")
    assert data_dir(Path("~/given")) == Path("/home/u/given")


def test_digits_need_no_folder(monkeypatch, tmp_path):
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as where no home is known
    monkeypatch.delenv("FEDAMP_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert load_data("digits", tmp_path / "none").name == "digits"
    assert load_data("digits").name == "digits"
    with pytest.raises(
        ValueError, match=r"no folder for data sets \(.*home.*\); name one with --data-dir or FEDAMP_DATA"
    ):
        load_data("mnist")
