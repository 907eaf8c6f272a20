"""Unpacking: an archive that lies about names, sizes or kinds gives nothing that was not wanted."""

import io
import struct
import tarfile
import zipfile

import pytest

from fedamp.data.published import archives
from fedamp.data.published.archives import BAD_ARCHIVE, unpack
from fedamp.data.published.catalogue import File, Source

WANTED = File("labels", "idx", size=1000)


def source(kind):
    return Source("http://nowhere/", (WANTED,), "free", archive=kind, prefix="in/")


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def tarred(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("pack", "kind"), [(zipped, "zip"), (tarred, "tar.gz")])
def test_a_name_that_begins_like_a_wanted_one_is_not_wanted(tmp_path, pack, kind):
    names = ["in/labels2", "in/labels/evil", "x/../in/labels", "./in/labels", "in//labels"]
    archive = pack(tmp_path / "archive", [*((name, b"evil") for name in names), ("in/labels", b"right")])
    assert unpack(archive, source(kind), [WANTED], tmp_path / "to") == [WANTED]
    assert files(tmp_path / "to") == {"labels": b"right"}


@pytest.mark.parametrize("listed", [10, 500])
def test_a_zip_that_lists_another_size_than_it_has(tmp_path, listed):
    path = zipped(tmp_path / "archive", [("in/labels", bytes(100))])
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")  # the list at the end; the unpacked size stands 24 bytes on
    content[entry + 24 : entry + 28] = struct.pack("<I", listed)
    path.write_bytes(content)
    with pytest.raises(BAD_ARCHIVE):
        unpack(path, source("zip"), [WANTED], tmp_path / "to")
    assert all(len(found) <= listed for found in files(tmp_path / "to").values())


def test_a_tar_that_unpacks_to_more_than_any_data_set(tmp_path, monkeypatch):
    path = tarred(tmp_path / "archive", [("in/other", bytes(20_000)), ("in/labels", b"right")])
    monkeypatch.setattr(archives, "_MOST_UNPACKED", 10_000)
    with pytest.raises(BAD_ARCHIVE, match="it unpacks to more than 10000 bytes"):
        unpack(path, source("tar.gz"), [WANTED], tmp_path / "to")
