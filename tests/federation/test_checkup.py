"""What `silo check` finds before a silo goes online."""

import errno
import gzip
import http.server
import json
import os
import re
import ssl
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from fedamp.config import RunConfig
from fedamp.config.reply_limits import Rules
from fedamp.data.silos.read import read_silo
from fedamp.data.silos.schema import make_schema
from fedamp.errors import UserError
from fedamp.federation import provision
from fedamp.federation.plan import Plan
from fedamp.federation.processes import ports
from fedamp.federation.silo import checkup
from federation.provisioned import NAMES, make_plan, mode, silo_data


def test_a_silo_finds_its_faults_before_it_goes_online(fedamp_command, federation, tmp_path):
    bundle = federation / "bundles" / NAMES[0]
    data = silo_data(tmp_path / "own.npz")

    def faults(path=data) -> dict[str, str]:
        return {found.what: found.fault for found in checkup.check(bundle, path, offline=True) if found.fault}

    assert faults() == {}
    assert "there is no file or folder" in faults(tmp_path / "gone.npz")["data"]
    other = tmp_path / "other.npz"
    np.savez(other, x=np.zeros((9, 5), np.float32), y=np.arange(9) % 3)
    assert "shape (5,)" in faults(other)["data"]
    np.savez(other, x=np.zeros((1, 4), np.float32), y=np.zeros(1, int))
    assert "held" in faults(other)["model"]
    np.savez(other, x=np.arange(16, dtype=np.float32).reshape(4, 4), y=np.arange(4) % 3)
    assert "too few training samples" in faults(other)["model"]
    with pytest.raises(UserError, match="too few training samples"):  # what `silo up` begins with
        checkup.check_quickly(bundle, other)

    (bundle / "key").chmod(0o644)
    notes = {found.what: found.note for found in checkup.check(bundle, data, offline=True)}
    assert "others could read it (mode 644)" in notes["key"]
    assert mode(bundle / "key") == 0o600

    key = (bundle / "key").read_bytes()
    (bundle / "key").write_bytes(key[:200])
    assert "damaged" in faults()["key"]
    (bundle / "key").write_bytes(key)

    plan = json.loads((bundle / "silo.json").read_text())
    (bundle / "silo.json").write_text(json.dumps({**plan, "description": {**plan["description"], "version": "9.9"}}))
    assert "version" not in faults()  # the protocol counts, not the version
    (bundle / "silo.json").write_text(json.dumps(plan))

    (bundle / "ca.crt").unlink()
    assert "has no ca.crt" in faults()["bundle"]
    code, out, err = fedamp_command("silo", "check", bundle, "--data", data, "--offline")
    assert code == 2
    assert "fault" in out
    assert err == "fedamp: 1 fault: not ready yet\n"


@pytest.mark.parametrize("kind", ["csv.gz", "tsv", "parquet"])
def test_a_silo_has_its_table_in_any_kind_of_file(tmp_path, kind):
    text = "id;age;crp;died\n" + "".join(f"{i};{20 + i};{i},5;{i % 2}\n" for i in range(30))
    agreed = tmp_path / "agreed.csv"
    agreed.write_text(text)
    raw = read_silo(agreed, "died", ["id"])
    schema = make_schema([raw])
    config = RunConfig(data="test", setting="natural", clients=2, model="logistic", label="died", rounds=1)
    data = tmp_path / f"own.{kind}"
    if kind == "parquet":
        rows = {"crp": raw.x[:, 1], "age": raw.x[:, 0], "id": ["x"] * 30, "died": raw.y}
        parquet.write_table(pa.table(rows), data)
    else:
        data.write_bytes(gzip.compress(text.encode()) if kind == "csv.gz" else text.replace(";", "\t").encode())
    provision.init(tmp_path / "fed", ["a", "b"], Plan("test", config, schema), Rules(), ["localhost"], 9092, None)
    found = list(checkup.check(tmp_path / "fed" / "bundles" / "a", data, offline=True))
    assert [each.fault for each in found if each.fault] == []
    assert "30 rows" in next(each.note for each in found if each.what == "data")


def test_a_disk_without_room_for_models_is_told(federation, tmp_path, monkeypatch):
    bundle, data = federation / "bundles" / NAMES[0], silo_data(tmp_path / "own.npz")

    def disk() -> checkup.Finding:
        return next(found for found in checkup.check(bundle, data, offline=True) if found.what == "disk")

    assert "MB are free" in disk().note
    assert not [path for path in bundle.iterdir() if path.name.startswith("tmp")]
    with monkeypatch.context() as patch:
        patch.setattr(checkup.shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000))
        assert re.search(r"has 0\.0 MB free, and rounds need 1\.\d MB: 20 models of", disk().fault)
    monkeypatch.setattr(checkup.tempfile, "TemporaryFile", unwritable)
    assert "can't be written (No space left on device)" in disk().fault


def unwritable(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_server_that_is_away_or_another_is_told(tmp_path):
    port = ports.free_port()
    for name in ("fed", "other"):
        provision.init(tmp_path / name, NAMES, make_plan(name), Rules(), ["localhost"], port, None)
    bundle = tmp_path / "fed/bundles" / NAMES[0]
    data = silo_data(tmp_path / "own.npz")

    def server() -> checkup.Finding:
        return list(checkup.check(bundle, data))[-1]

    assert "can't be reached" in server().fault
    with listening(tmp_path / "other/server", port):
        assert "is not the federation's server" in server().fault
    with listening(tmp_path / "fed/server", port):
        assert server() == checkup.Finding("server", note=f"localhost:{port} answers, and is the right server")
    for ahead, words in ((30, ""), (-30, "s ahead of the server's"), (900, "s behind the server's")):
        with listening(tmp_path / "fed/server", port, ahead):
            fault = server().fault
            assert (words in fault and "NTP" in fault) if words else not fault


class listening:  # noqa: N801
    """A server with a federation's certificate, whose clock may be wrong."""

    def __init__(self, server: Path, port: int, ahead: float = 0.0) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_error(403)

            def date_time_string(self, timestamp=None) -> str:
                return super().date_time_string(time.time() + ahead)

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server / "server.crt", server / "server.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.server.handle_error = lambda *_: None  # a client that hangs up is what is tested

    def __enter__(self) -> None:
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)
