"""What is there of the published data sets, and what is wrong with it."""

import pytest
from published_files import idx, unchecked, write, write_split

from fedamp.data.published.catalogue import SOURCES
from fedamp.data.published.pictures import LOADERS
from fedamp.data.published.status import check, status


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
