"""Fetching: what a server does wrong never leaves a file under its final name, and a second try succeeds."""

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import threading
import zipfile
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("pooch")

from fedamp.data.published.catalogue import File, Source
from fedamp.data.published.download import fetch
from fedamp.data.published.status import check
from fedamp.errors import UserError

LABELS = gzip.compress(b"\0\0\x08\x01\0\0\0\x03" + bytes([1, 2, 3]), mtime=0)
PIXELS = gzip.compress(b"\0\0\x08\x03\0\0\0\x01\0\0\0\x64\0\0\0\x64" + bytes(range(100)) * 100, mtime=0)
OTHER = gzip.compress(b"\0\0\x08\x01\0\0\0\x03" + bytes([1, 2, 4]), mtime=0)
TEXT = b"0 48\n"


class Server:
    """Serves `files` by path, and does to a path what `faults` says; `asked` is what it was asked for."""

    def __init__(self):
        self.files, self.faults, self.asked = {}, {}, []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.answer(self)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def answer(self, request):
        path = request.path.lstrip("/")
        self.asked.append(path)
        fault, content = self.faults.get(path), self.files.get(path)
        if fault == "redirect":
            request.send_response(302)
            request.send_header("Location", f"/moved/{path}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if content is None or fault == 404:
            request.send_error(404)
            return
        length = {"breaks off": len(content), "says more": len(content) + 7, "says less": len(content) // 2}
        if fault == "other file":
            content = OTHER
        if fault == "no file":
            content = b"<html>please log in</html>"
        if fault == "too long":
            content += b"more" * 10_000
        request.send_response(200)
        if fault != "no length":
            request.send_header("Content-Length", str(length.get(fault, len(content))))
        if fault == "encoded":
            request.send_header("Content-Encoding", "gzip")
        request.end_headers()
        request.wfile.write(content[: len(content) // 2] if fault == "breaks off" else content)

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def plain(server):
    """A data set of two files, of which one has no known checksum."""
    server.files = {"labels.gz": LABELS, "pixels.gz": PIXELS, "moved/labels.gz": LABELS, "moved/pixels.gz": PIXELS}
    listed = File("labels.gz", "idx", sha256(LABELS), len(LABELS)), File("pixels.gz", "idx")
    return {"some": Source(server.url, listed, "free")}


MEMBERS = {"in/labels.gz": LABELS, "in/sub/pixels.gz": PIXELS, "in/names.txt": TEXT}


def zipped(members):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made.getvalue()


def tarred(members):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/hostname"
            info.size = len(content or b"")
            archive.addfile(info, io.BytesIO(content or b""))
    return made.getvalue()


KINDS = {zipped: "zip", tarred: "tar.gz"}


@pytest.fixture(params=KINDS, ids=KINDS.values())
def pack(request):
    return request.param


@pytest.fixture
def packed(server, pack):
    """The same files and a text as members of an archive that holds more."""
    server.files["some.archive"] = pack({"in/other.txt": b"not wanted"} | MEMBERS)
    listed = (
        File("labels.gz", "idx", sha256(LABELS), len(LABELS)),
        File("sub/pixels.gz", "idx"),
        File("names.txt", "text"),
    )
    return {"some": Source(server.url + "some.archive", listed, "free", archive=KINDS[pack], prefix="in/")}


def found(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fails(folder, sources, message):
    with pytest.raises(ValueError, match=message) as error:
        fetch("some", folder, progress=False, sources=sources)
    assert "\n" not in str(error.value)
    assert not list(folder.rglob(".fetch-*"))
    return str(error.value)


def test_files_are_fetched_once(tmp_path, server, plain, capsys):
    fetch("some", tmp_path, progress=False, sources=plain)
    assert found(tmp_path) == {"some/labels.gz": LABELS, "some/pixels.gz": PIXELS}
    assert server.asked == ["labels.gz", "pixels.gz"]
    assert capsys.readouterr() == ("", "")
    assert check("some", tmp_path, plain) == []
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in (tmp_path / "some").iterdir())
    fetch("some", tmp_path, progress=False, sources=plain)
    assert len(server.asked) == 2


def test_only_what_is_missing_or_wrong_is_fetched(tmp_path, server, plain):
    own = tmp_path / "some"
    own.mkdir()
    (own / "labels.gz").write_bytes(OTHER)
    (own / "pixels").write_bytes(gzip.decompress(PIXELS))  # unpacked, and fine
    fetch("some", tmp_path, progress=False, sources=plain)
    assert server.asked == ["labels.gz"]
    assert found(own) == {"labels.gz": LABELS, "pixels": gzip.decompress(PIXELS)}


def test_unpacked_files_are_read_since_the_checksum_is_of_the_packed_ones(tmp_path, server, plain):
    own = tmp_path / "some"
    own.mkdir()
    (own / "labels").write_bytes(gzip.decompress(LABELS))
    (own / "pixels").write_bytes(gzip.decompress(PIXELS)[:-1])
    assert ["pixels has only 9999 bytes" in fault for fault in check("some", tmp_path, plain)] == [True]
    fetch("some", tmp_path, progress=False, sources=plain)
    assert server.asked == ["pixels.gz"]


@pytest.mark.parametrize("fault", ["redirect", "no length", "encoded"])
def test_what_is_no_fault(tmp_path, server, plain, fault):
    server.faults = {"labels.gz": fault, "pixels.gz": fault}
    fetch("some", tmp_path, progress=False, sources=plain)
    assert found(tmp_path) == {"some/labels.gz": LABELS, "some/pixels.gz": PIXELS}


def summed(file):
    return replace(file, checksum=sha256({"labels.gz": LABELS, "pixels.gz": PIXELS}[file.name]))


@pytest.mark.parametrize("name", ["labels.gz", "pixels.gz"])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("breaks off", "IncompleteRead|bytes arrived"),
        ("says more", "IncompleteRead|bytes arrived"),
        ("says less", "does not match the known hash|damaged gzip"),
        ("other file", "does not match the known hash"),
        ("no file", "does not match the known hash|begins with 3c 68 74 6d"),
        ("too long", "it is longer than|damaged gzip|more bytes"),
        (404, "404"),
    ],
)
def test_after_a_fault_nothing_stands_and_a_second_try_succeeds(tmp_path, server, plain, fault, message, name):
    if name == "pixels.gz" and fault == "other file":
        message, plain = (
            "does not match",
            {"some": replace(plain["some"], files=tuple(map(summed, plain["some"].files)))},
        )
    server.faults = {name: fault}
    said = fails(tmp_path, plain, f"{server.url}{name} could not be fetched .*({message})")
    assert f"try again, or put the files into {tmp_path / 'some'} by hand" in said
    assert f"some/{name}" not in found(tmp_path)
    server.faults = {}
    fetch("some", tmp_path, progress=False, sources=plain)
    assert found(tmp_path) == {"some/labels.gz": LABELS, "some/pixels.gz": PIXELS}


def test_a_fault_leaves_what_was_there(tmp_path, server, plain):
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "labels.gz").write_bytes(OTHER)
    server.faults = {"labels.gz": "breaks off"}
    fails(tmp_path, plain, "could not be fetched")
    assert found(tmp_path) == {"some/labels.gz": OTHER}


def test_no_server(tmp_path, server, plain):
    gone = Server()
    gone.close()
    fails(tmp_path, {"some": replace(plain["some"], url=gone.url)}, f"{gone.url}labels.gz could not be .*refused")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "https://127.0.0.1:1/", "https://nowhere.invalid/"])
def test_without_a_connection_the_cause_is_told_without_its_wrapping(tmp_path, url):
    listed = (File("labels.gz", "idx", sha256(LABELS), len(LABELS)),)
    with pytest.raises(UserError, match=r"could not be fetched \(no connection: [^:<>]+\); try again") as error:
        fetch("some", tmp_path, progress=False, sources={"some": Source(url, listed, "free")})
    assert "Pool" not in str(error.value)


def test_an_archive_gives_the_wanted_members_alone(tmp_path, server, packed):
    fetch("some", tmp_path, progress=False, sources=packed)
    assert found(tmp_path) == {"some/labels.gz": LABELS, "some/sub/pixels.gz": PIXELS, "some/names.txt": TEXT}
    (tmp_path / "some" / "names.txt").unlink()  # not worth an archive
    fetch("some", tmp_path, progress=False, sources=packed)
    assert server.asked == ["some.archive"]


def test_members_that_are_there_are_left_alone(tmp_path, server, packed):
    (tmp_path / "some").mkdir()
    kept = tmp_path / "some" / "labels.gz"
    kept.write_bytes(LABELS)
    before = kept.stat()
    fetch("some", tmp_path, progress=False, sources=packed)
    assert kept.stat().st_mtime_ns == before.st_mtime_ns
    assert kept.stat().st_ino == before.st_ino
    assert found(tmp_path)["some/sub/pixels.gz"] == PIXELS


def test_an_archive_with_a_wrong_checksum(tmp_path, server, packed):
    wrong = {"some": replace(packed["some"], checksum="md5:" + "0" * 32)}
    fails(tmp_path, wrong, "some.archive could not be fetched .MD5 hash .* does not match the known hash")
    assert found(tmp_path) == {}
    md5 = hashlib.md5(server.files["some.archive"]).hexdigest()
    fetch("some", tmp_path, progress=False, sources={"some": replace(packed["some"], checksum=f"md5:{md5}")})
    assert len(found(tmp_path)) == 3


@pytest.mark.parametrize("evil", ["../evil", "../../evil", "/tmp/evil", "in/../../evil", "in/../labels.gz"])
def test_a_malicious_member_goes_nowhere(tmp_path, server, packed, pack, evil):
    server.files["some.archive"] = pack({evil: b"evil"} | MEMBERS | {f"{evil}2": b"evil"})
    fetch("some", tmp_path / "data", progress=False, sources=packed)
    assert found(tmp_path) == {f"data/some/{name[3:]}": content for name, content in MEMBERS.items()}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"in/labels.gz": LABELS, "in/names.txt": TEXT}, "its archive lacks sub/pixels.gz"),
        ({"labels.gz": LABELS, "../in/sub/pixels.gz": PIXELS}, "lacks labels.gz, sub/pixels.gz"),
        (MEMBERS | {"in/labels.gz": OTHER}, "not the file that was published: labels.gz has sha256"),
        (MEMBERS | {"in/sub/pixels.gz": b"damaged"}, "not the file that was published: sub/pixels.gz begins with"),
        (MEMBERS | {"in/labels.gz": bytes(9000)}, r"labels.gz would have 9000 bytes, expected \d+ at most"),
        (MEMBERS | {"in/names.txt": bytes(2 << 20)}, "names.txt would have 2097152 bytes, expected 1048576 at most"),
    ],
)
def test_archives_that_lack_or_lie(tmp_path, server, packed, pack, members, message):
    good = server.files["some.archive"]
    server.files["some.archive"] = pack(members)
    fails(tmp_path, packed, message)
    assert not any(found(tmp_path)[name] != MEMBERS[f"in/{name[5:]}"] for name in found(tmp_path))
    server.files["some.archive"] = good
    fetch("some", tmp_path, progress=False, sources=packed)
    assert found(tmp_path) == {f"some/{name[3:]}": content for name, content in MEMBERS.items()}


@pytest.mark.parametrize("fault", ["breaks off", "says more", "says less", "other file", "no file", 404])
def test_an_archive_that_comes_damaged(tmp_path, server, packed, fault):
    server.faults = {"some.archive": fault}
    fails(tmp_path, packed, "some.archive could not be fetched")
    assert found(tmp_path) == {}
    server.faults = {}
    fetch("some", tmp_path, progress=False, sources=packed)
    assert len(found(tmp_path)) == 3


def test_archives_damaged_anywhere(tmp_path, server, packed):
    good = server.files["some.archive"]
    for position in range(0, len(good), 17):
        content = bytearray(good)
        content[position] ^= 0x55
        server.files["some.archive"] = bytes(content)
        with suppress(ValueError):
            fetch("some", tmp_path / str(position), progress=False, sources=packed)
        wrong = {n: c for n, c in found(tmp_path / str(position)).items() if c != MEMBERS.get(f"in/{n[5:]}")}
        assert wrong == {}


@pytest.mark.parametrize("pack", [tarred], indirect=True)
def test_a_link_is_not_followed(tmp_path, server, packed):
    server.files["some.archive"] = tarred(MEMBERS | {"in/labels.gz": None})
    fails(tmp_path, packed, "lacks labels.gz")


def test_an_archive_that_is_too_long(tmp_path, server, packed):
    fails(tmp_path, {"some": replace(packed["some"], limit=100)}, "it is longer than the 100 bytes allowed")


def test_a_folder_that_cannot_be_made(tmp_path, server, plain):
    (tmp_path / "some").write_text("a file")
    fails(tmp_path, plain, "some can't be written to .File exists.; make room or give another folder")


def test_an_unknown_name(tmp_path):
    with pytest.raises(ValueError, match="unknown data set 'some'; choose from cifar100, emnist, fmnist, mnist"):
        fetch("some", tmp_path, progress=False)


def test_progress_is_shown_where_asked(tmp_path, plain, capsys):
    fetch("some", tmp_path, progress=True, sources=plain)
    said = capsys.readouterr()
    assert "labels.gz" in said.err
    assert said.out == ""


def test_without_pooch(tmp_path, plain, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ValueError, match="`pip install pooch`"):
        fetch("some", tmp_path, progress=False, sources=plain)


def test_importing_data_imports_nothing_that_goes_online():
    imports = "import sys, fedamp.data, fedamp.data.published.download"
    code = f"{imports}; print(*{{'pooch', 'requests', 'urllib3', 'platformdirs'}} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == []
