"""What `federation init` writes, and what `silo check` finds."""

import hashlib
import http.server
import json
import os
import re
import shutil
import ssl
import stat
import subprocess
import sys
import threading
import time
import tomllib
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
x509 = pytest.importorskip("cryptography.x509")

from cryptography.hazmat.primitives.serialization import load_ssh_private_key  # noqa: E402
from flwr.supercore.primitives.asymmetric import public_key_to_bytes  # noqa: E402

from fedamp import __version__  # noqa: E402
from fedamp.config import RunConfig  # noqa: E402
from fedamp.data.silos.raw import RawSilo  # noqa: E402
from fedamp.data.silos.read import read_silo  # noqa: E402
from fedamp.data.silos.schema import make_schema  # noqa: E402
from fedamp.federation import certificates, provision  # noqa: E402
from fedamp.federation.plan import Plan, Rules  # noqa: E402
from fedamp.federation.plan_files import read_federation, read_silo_config  # noqa: E402
from fedamp.federation.processes import ports  # noqa: E402
from fedamp.federation.silo import checkup, guard  # noqa: E402

# Words that occur nowhere else, so that a search through all bytes tells something.
NAMES = ["zebra-clinic", "yak-hospital", "xenops-lab"]
HOSTS = ["fl.example.org", "192.0.2.7"]


def silo_data(path: Path, seed: int = 0, rows: int = 40) -> Path:
    rng = np.random.default_rng(seed)
    np.savez(path, x=rng.normal(size=(rows, 4)).astype(np.float32), y=np.arange(rows) % 3)
    return path


def make_plan(name: str = "trio", **settings) -> Plan:
    rng = np.random.default_rng(0)
    schema = make_schema([RawSilo("any", rng.normal(size=(30, 4)), np.arange(30) % 3)])
    values = {"data": name, "setting": "natural", "clients": 3, "task": "classification", "rounds": 2}
    return Plan(name, RunConfig.of({**values, **settings}), schema)


@pytest.fixture
def federation(tmp_path) -> Path:
    folder = tmp_path / "fed"
    assert provision.init(folder, NAMES, make_plan(), Rules(), HOSTS, 9092, None) == []
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def read_certificate(path: Path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_the_server_has_a_certificate_of_the_authority(federation):
    authority = read_certificate(federation / "ca/ca.crt")
    server = read_certificate(federation / "server/server.crt")
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7", "127.0.0.1"]
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca) == (True, True)
    assert authority.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not server.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    now = datetime.now(UTC)
    assert authority.not_valid_after_utc - now > timedelta(days=3650)
    assert timedelta(days=820) < server.not_valid_after_utc - now <= timedelta(days=825)


def test_tls_accepts_the_names_and_no_others(federation):
    for host, fine in [("fl.example.org", True), ("localhost", True), ("evil.example.org", False)]:
        outcome = handshake(federation / "server", federation / "ca/ca.crt", host)
        assert (outcome is None) == fine, f"{host}: {outcome}"
    other = federation.parent / "other"
    provision.init(other, NAMES, make_plan("other"), Rules(), HOSTS, 9092, None)
    assert "verify failed" in str(handshake(federation / "server", other / "ca/ca.crt", "localhost"))


def handshake(server: Path, authority: Path, host: str) -> Exception | None:
    """Let a client and a server shake hands in memory; return what the client has to object."""
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepting.load_cert_chain(server / "server.crt", server / "server.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = accepting.wrap_bio(to_server, to_client, server_side=True)
    ours = ssl.create_default_context(cafile=str(authority)).wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(10):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return error
    return None


def test_secrets_are_the_owners_alone(federation):
    secret = [federation / "ca/ca.key", federation / "server/server.key"]
    secret += [federation / "bundles" / name / "key" for name in NAMES]
    secret += [federation / "bundles" / f"{name}.zip" for name in NAMES]
    assert {path: mode(path) for path in secret} == dict.fromkeys(secret, 0o600)
    folders = [federation, federation / "ca", federation / "server", federation / "bundles"]
    folders += [federation / "bundles" / name for name in NAMES]
    assert {path: mode(path) for path in folders} == dict.fromkeys(folders, 0o700)
    # No private key lies anywhere else.
    found = [path for path in federation.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert sorted(found) == sorted(path for path in secret if path.suffix != ".zip")


def test_a_secret_is_never_open_not_even_for_a_moment(tmp_path, monkeypatch):
    created = {}
    real = os.open

    def watched(path, flags, mode=0o777, **more):
        if flags & os.O_CREAT:
            created[Path(path).name] = (mode, bool(flags & os.O_EXCL))
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", watched)
    before = os.umask(0)
    try:
        provision.init(tmp_path / "fed", NAMES, make_plan(), Rules(), HOSTS, 9092, None)
    finally:
        os.umask(before)
    assert {created[name] for name in ("ca.key", "server.key", "key", f"{NAMES[0]}.zip")} == {(0o600, True)}


def test_a_bundle_holds_nothing_of_the_others(federation):
    foreign_secrets = [(federation / "ca/ca.key").read_bytes(), (federation / "server/server.key").read_bytes()]
    members = {member.name: member for member in read_federation(federation).members}
    for name in NAMES:
        bundle = federation / "bundles" / name
        with zipfile.ZipFile(federation / "bundles" / f"{name}.zip") as archive:
            contents = {entry: archive.read(entry) for entry in archive.namelist()}
        contents |= {str(path): path.read_bytes() for path in bundle.rglob("*") if path.is_file()}
        text = b"\n".join([*contents.values(), *(entry.encode() for entry in contents)]).replace(
            str(federation).encode(), b""
        )
        assert name.encode() in text
        words = [secret.splitlines()[1] for secret in foreign_secrets]
        for other in set(NAMES) - {name}:
            words += [other.encode(), members[other].key.encode()]
            words += (federation / "bundles" / other / "key").read_bytes().splitlines()[3:5]
            words += (federation / "bundles" / other / "key.pub").read_bytes().split()[1:2]
        assert [word for word in words if word in text] == []


def test_the_bundle_is_a_silos_whole_side(federation, tmp_path):
    target = tmp_path / "elsewhere"
    with zipfile.ZipFile(federation / "bundles" / f"{NAMES[1]}.zip") as archive:
        archive.extractall(target)
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    assert stat.S_IMODE(modes[f"{NAMES[1]}/key"]) == 0o600
    assert stat.S_IMODE(modes[f"{NAMES[1]}/start.sh"]) == 0o755
    assert stat.S_ISDIR(modes[f"{NAMES[1]}/"])
    bundle = target / NAMES[1]
    silo_config = read_silo_config(bundle)
    assert (silo_config.name, silo_config.number, silo_config.server) == (NAMES[1], 1, "fl.example.org:9092")
    assert silo_config.plan == read_federation(federation).plan
    names = {path.name for path in bundle.iterdir()}
    assert names == {
        *("silo.json", "schema.json", "ca.crt", "key", "key.pub", "code", "start.sh", "fedamp-silo.service"),
        "README.md",
    }
    assert (bundle / "ca.crt").read_bytes() == (federation / "ca/ca.crt").read_bytes()


def test_members_are_known_by_their_keys(federation):
    for number, (name, member) in enumerate(zip(NAMES, read_federation(federation).members, strict=True)):
        public = (federation / "server/keys" / f"{name}.pub").read_bytes()
        assert public.startswith(b"ecdsa-sha2-nistp384 ")
        assert (member.name, member.number, member.key) == (name, number, certificates.key_digest(public))
        private = load_ssh_private_key((federation / "bundles" / name / "key").read_bytes(), None)
        assert private.curve.name == "secp384r1"
        # As Flower turns a private key into what its server gets to see.

        assert hashlib.sha256(public_key_to_bytes(private.public_key())).hexdigest() == member.key


@pytest.mark.parametrize(
    "name", ["", "a b", "../up", "a/b", ".hidden", "-flag", "a\nb", "é", "x" * 65, "a.zip", "a;rm", "a.", "$(id)"]
)
def test_names_that_are_no_file_names_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        provision.init(tmp_path / "fed", ["fine", "good", name], make_plan(), Rules(), HOSTS, 9092, None)
    assert not (tmp_path / "fed").exists()


def test_a_name_twice_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'CLINIC' is there twice"):
        provision.init(tmp_path / "fed", ["clinic", "CLINIC"], make_plan(), Rules(), HOSTS, 9092, None)


def test_two_silos_are_warned_and_one_is_refused(tmp_path):
    warnings = provision.init(tmp_path / "two", NAMES[:2], make_plan(), Rules(), HOSTS, 9092, None)
    assert len(warnings) == 1
    assert "each can compute the other's model" in warnings[0]
    with pytest.raises(ValueError, match="a federation needs two or more"):
        provision.init(tmp_path / "one", NAMES[:1], make_plan(), Rules(), HOSTS, 9092, None)


def test_a_folder_with_something_in_it_is_not_touched(tmp_path):
    (tmp_path / "fed").mkdir()
    provision.init(tmp_path / "fed", NAMES, make_plan(), Rules(), HOSTS, 9092, None)  # an empty one will do
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match="not empty"):
        provision.init(tmp_path / "fed", NAMES, make_plan(), Rules(), HOSTS, 9092, None)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_failure_leaves_nothing_behind(tmp_path):
    with pytest.raises(ValueError, match="there is no"):
        provision.init(tmp_path / "fed", NAMES, make_plan(), Rules(), HOSTS, 9092, tmp_path / "missing.py")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("hosts", "word"), [(["a b"], "'a b'"), (["https://x"], "'https://x'"), (["-x"], "'-x'")])
def test_a_host_that_is_none_is_refused(tmp_path, hosts, word):
    with pytest.raises(ValueError, match=f"host is {word}"):
        provision.init(tmp_path / "fed", NAMES, make_plan(), Rules(), hosts, 9092, None)


def test_add_gives_a_new_silo_the_next_number(federation):
    before = read_federation(federation).members
    bundle = (federation / "bundles" / f"{NAMES[0]}.zip").read_bytes()
    provision.add(federation, ["wombat-institute"])
    after = read_federation(federation).members
    assert after[:3] == before
    assert (after[3].name, after[3].number) == ("wombat-institute", 3)
    assert after[3].key == certificates.key_digest((federation / "server/keys/wombat-institute.pub").read_bytes())
    silo_config = read_silo_config(federation / "bundles/wombat-institute")
    assert (silo_config.number, silo_config.server) == (3, "fl.example.org:9092")
    assert (federation / "bundles" / f"{NAMES[0]}.zip").read_bytes() == bundle
    with pytest.raises(ValueError, match="'zebra-clinic' is there twice"):
        provision.add(federation, ["zebra-clinic"])
    assert read_federation(federation).members == after


def test_nginx_lets_in_what_a_silo_calls_and_nothing_else(federation):
    text = (federation / "server/nginx.conf").read_text()
    assert "listen 9092 ssl;" in text
    assert "proxy_pass https://127.0.0.1:9093/v1/fleet/$1;" in text
    assert "client_max_body_size 16m;" in text
    assert re.search(r"location / \{\s*return 403;\s*\}", text)
    (allowed,) = re.findall(r"location ~ (\^\S+\$) \{", text)
    from flwr.supernode import fleet_http_client

    called = set(re.findall(r'path="(/v1/\S+?)"', Path(fleet_http_client.__file__).read_text()))
    joining = {"/v1/fleet/register-node", "/v1/fleet/unregister-node"}  # of silos without a key of the federation
    assert {path for path in called if re.fullmatch(allowed, path)} == called - joining
    for path in ["/v1/control/start-run", "/v1/runtime/acquire-task", "/health", "/docs", "/v1/fleet/../control/x"]:
        assert not re.fullmatch(allowed, path)


def test_the_scripts_and_the_app_are_valid(federation):
    for script in [federation / "server/start.sh", federation / "bundles" / NAMES[0] / "start.sh"]:
        assert mode(script) == 0o755
        subprocess.run(["sh", "-n", script], check=True, timeout=10)
    app = federation / "server/app"
    settings = tomllib.loads((app / "pyproject.toml").read_text())
    assert settings["project"]["dependencies"] == []
    assert settings["tool"]["flwr"]["app"]["components"] == {
        "serverapp": "fedamp_app.server_app:app",
        "clientapp": "fedamp_app.client_app:app",
    }
    for source in app.rglob("*.py"):
        compile(source.read_text(), source, "exec")
    assert "$" not in (federation / "README.md").read_text()
    assert __version__ in (federation / "README.md").read_text()


def test_a_model_of_ones_own_travels_with_the_bundles(fedamp_command, tmp_path):
    (tmp_path / "traveling_net.py").write_text(
        "from torch import nn\n\n\ndef small(input_shape, num_outputs):\n"
        "    return nn.Linear(input_shape[0], num_outputs)\n"
    )
    data = silo_data(tmp_path / "own.npz")
    assert fedamp_command("data", "schema", data, "--out", "s.json")[0] == 0
    code, out, err = fedamp_command(
        *("federation", "init", "fed", "--silos", ",".join(NAMES), "--schema", "s.json"),
        *("--model", "traveling_net:small", "--method", "fedavg", "--rounds", "4", "--strikes", "5"),
    )
    assert (code, err) == (0, "")
    assert f"{NAMES[0]}.zip" in out
    assert "PRIVATE" not in out
    federation = read_federation(Path("fed"))
    assert federation.plan.config.model.name == "traveling_net:small"
    assert federation.plan.config.model_code is not None
    assert (federation.plan.config.rounds, federation.rules.strikes) == (4, 5)
    for place in ["fed/server/code", f"fed/bundles/{NAMES[0]}/code"]:
        assert Path(place, "traveling_net.py").exists()
    assert fedamp_command("silo", "check", f"fed/bundles/{NAMES[0]}", "--data", data, "--offline")[0] == 0


def test_init_unites_schemas(fedamp_command, tmp_path):
    for i in range(3):
        silo_data(tmp_path / f"{i}.npz", seed=i, rows=30 + i)
        fedamp_command("data", "schema", tmp_path / f"{i}.npz", "--out", f"{i}.json")
    given = [word for i in range(3) for word in ("--schema", f"{i}.json")]
    code, _, err = fedamp_command("federation", "init", "fed", "--silos", "a,b,c", *given)
    assert (code, err) == (0, "")
    assert read_federation(Path("fed")).plan.schema.count == 30 + 31 + 32
    assert json.loads(Path("fed/server/address.json").read_text())["listen"] == 9092  # loopback: nothing before it


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--silos", "a"], "a federation needs two"),
        (["--silos", "a,b/c"], "'b/c'"),
        (["--silos", "a,b", "--method", "fedmagic"], "fedmagic"),
        (["--silos", "a,b", "--model", "hugenet"], "hugenet"),
        (["--silos", "a,b", "--task", "regression"], "regression"),
        (["--silos", "a,b", "--set", "method.wrong=1"], "wrong"),
        (["--silos", "a,b", "--min-silos", "0"], "min_silos"),
        (["--silos", "a,b", "--min-silos", "3"], "min_silos is 3"),
        (["--silos", "a,b", "--name", 'x"y'], "--name"),
        (["--silos", "a,b", "--port", "99999"], "99999"),
        (["--silos", "a,b", "--optimizer", "rmsprop"], "rmsprop"),
    ],
)
def test_a_mistake_is_one_line_and_no_folder(fedamp_command, tmp_path, flags, word):
    silo_data(tmp_path / "own.npz")
    fedamp_command("data", "schema", tmp_path / "own.npz", "--out", "s.json")
    code, _, err = fedamp_command("federation", "init", "fed", "--schema", "s.json", *flags)
    assert code == 2
    assert word in err
    assert len(err.splitlines()) == 1
    assert not Path("fed").exists()


def test_a_silo_finds_its_faults_before_it_goes_online(fedamp_command, federation, tmp_path):
    bundle = federation / "bundles" / NAMES[0]
    data = silo_data(tmp_path / "own.npz")

    def faults(path=data) -> dict[str, str]:
        return {found.what: found.fault for found in checkup.check(bundle, path, offline=True) if found.fault}

    assert faults() == {}
    assert "there is no silo" in faults(tmp_path / "gone.npz")["data"]
    other = tmp_path / "other.npz"
    np.savez(other, x=np.zeros((9, 5), np.float32), y=np.arange(9) % 3)
    assert "shape (5,)" in faults(other)["data"]
    np.savez(other, x=np.zeros((1, 4), np.float32), y=np.zeros(1, int))
    assert "held" in faults(other)["model"]

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
    assert "version is '9.9' there" in faults()["version"]
    (bundle / "silo.json").write_text(json.dumps(plan))

    (bundle / "ca.crt").unlink()
    assert "lacks ca.crt" in faults()["bundle"]
    code, out, err = fedamp_command("silo", "check", bundle, "--data", data, "--offline")
    assert code == 2
    assert "fault" in out
    assert err == "fedamp: 1 fault(s): not ready yet\n"


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
        assert server() == checkup.Finding("server", note=f"localhost:{port} answers, and it is the right one")
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


def test_admit_is_for_members(fedamp_command, federation):
    assert fedamp_command("federation", "admit", federation, NAMES[1])[0] == 0
    assert (federation / "admit" / NAMES[1]).exists()
    code, _, err = fedamp_command("federation", "admit", federation, "stranger")
    assert code == 2
    assert "has no silo 'stranger'" in err


def test_status_shows_who_is_in(fedamp_command, federation):
    code, out, _ = fedamp_command("federation", "status", federation)
    assert (code, out) == (0, "the server is not up\nno round has been played yet\n")
    silo = {"name": NAMES[0], "number": 0, "state": "missing", "since": 3, "strikes": 1, "reason": "NaN", "samples": 7}
    said = {"state": "running", "round": 4, "rounds": 9, "updated": "2030-01-01T00:00:00", "silos": [silo]}
    (federation / "record").mkdir()
    (federation / "record/status.json").write_text(json.dumps(said))
    code, out, _ = fedamp_command("federation", "status", federation)
    assert "running: round 4 of 9" in out
    assert re.search(rf"{NAMES[0]}\W+missing\W+3\W+7\W+1\W+NaN", out)
    assert fedamp_command("federation", "stop", federation)[1] == "the server is not up\n"
    assert "is not a federation" in fedamp_command("federation", "status", "elsewhere")[2]


def test_digits_of_three_silos(tmp_path):
    from fedamp.federation.demo import write_digits

    read = [read_silo(path) for path in write_digits(tmp_path / "digits")]
    assert [silo.name for silo in read] == ["hospital-a", "hospital-b", "hospital-c"]
    assert {silo.x.shape[1:] for silo in read} == {(8, 8)}
    assert all(len(np.unique(silo.y)) == 10 for silo in read)


def test_a_bundle_whose_programs_can_not_run_is_not_connected(tmp_path):
    """Else Flower would find its own program further on, and run the app that the server sends."""
    folder = tmp_path / "bin"
    guard.write_programs(folder)
    flower = Path(sys.executable).parent
    path = guard.guarded_path(folder, os.pathsep.join([str(flower), "/usr/bin", "/bin"]))
    assert path.split(os.pathsep)[0] == str(folder)
    assert str(flower) not in path.split(os.pathsep)
    (folder / guard.OURS).chmod(0o600)  # as on a file system without programs
    with pytest.raises(ValueError, match="can't be run"):
        guard.guarded_path(folder, str(flower))
    (folder / guard.OURS).write_text("#!/bin/sh\necho something else\n")
    (folder / guard.OURS).chmod(0o700)
    with pytest.raises(ValueError, match="something else"):
        guard.guarded_path(folder, "/usr/bin:/bin")
    with pytest.raises(ValueError, match="move the bundle"):
        guard.guarded_path(tmp_path / "a:b", "/usr/bin")


def test_a_colon_in_a_bundles_path_is_told_by_check(federation, tmp_path, fedamp_command):
    odd = tmp_path / "a:b"
    shutil.copytree(federation / "bundles" / NAMES[0], odd)
    data = silo_data(tmp_path / "own.npz")
    code, out, err = fedamp_command("silo", "check", odd, "--data", data, "--offline")
    assert code == 2
    assert "move the bundle" in out + err
    code, _, err = fedamp_command("silo", "up", odd, "--data", data)
    assert (code, err.count("\n")) == (2, 1)


def test_the_label_comes_with_the_schema(fedamp_command, tmp_path):
    for name in "ab":
        rows = "".join(f"{i},{i % 3},{'yes' if i % 2 else 'no'}\n" for i in range(20))
        (tmp_path / f"{name}.csv").write_text("age,ward,outcome\n" + rows)
        fedamp_command("data", "schema", f"{name}.csv", "--label", "outcome", "--out", f"{name}.json")
    flags = ["--schema", "a.json", "--schema", "b.json", "--silos", "a,b"]
    code, _, err = fedamp_command("federation", "init", "wrong", *flags, "--label", "outcom")
    assert (code, "the schema predicts 'outcome'" in err) == (2, True)
    code, _, err = fedamp_command("federation", "init", "fed", *flags)
    assert code == 0, err
    silo_config = read_silo_config(tmp_path / "fed/bundles/a")
    assert silo_config.plan.config.label == "outcome"
    assert read_federation(tmp_path / "fed").rules.min_silos == 2
    assert fedamp_command("silo", "check", "fed/bundles/a", "--data", "a.csv", "--offline")[0] == 0


def test_code_that_does_not_come_along_whole_is_told_at_init(fedamp_command, tmp_path):
    (tmp_path / "outer_layers.py").write_text("from torch import nn\nlayer = nn.Linear\n")
    (tmp_path / "outer_net.py").write_text(
        "from outer_layers import layer\ndef small(input_shape, num_outputs):\n"
        "    return layer(input_shape[0], num_outputs)\n"
    )
    fedamp_command("data", "schema", silo_data(tmp_path / "own.npz"), "--out", "s.json")
    flags = ["--schema", "s.json", "--silos", "a,b", "--model", "outer_net:small"]
    code, _, err = fedamp_command("federation", "init", "fed", *flags)
    assert code == 2
    assert "outer_layers" in err
    assert "--code" in err
    assert not (tmp_path / "fed").exists()


@pytest.mark.parametrize("change", [{"rules": []}, {"silos": 3}, {"description": []}])
def test_a_damaged_federation_is_one_line(federation, fedamp_command, change):
    path = federation / "federation.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    code, _, err = fedamp_command("federation", "status", federation)
    assert (code, err.count("\n")) == (2, 1), err


def test_a_reason_from_elsewhere_can_not_break_the_status(federation, fedamp_command):
    (federation / "record").mkdir()
    silo = {"name": "a", "state": "missing", "since": 2, "samples": 3, "strikes": 1, "reason": "[/red] gone [link=x]"}
    (federation / "record/status.json").write_text(
        json.dumps({"state": "running", "round": 1, "rounds": 2, "updated": "now", "silos": [silo]})
    )
    code, out, err = fedamp_command("federation", "status", federation)
    assert code == 0, err
    assert "[/red]" in out


@pytest.mark.parametrize("port", ["0", "-1", "99999"])
def test_a_port_that_is_none_is_one_line(federation, fedamp_command, port):
    code, _, err = fedamp_command("federation", "up", federation, "--port", port)
    assert (code, "from 1 to 65535" in err) == (2, True)


def test_a_folder_that_can_not_be_made_is_one_line(fedamp_command, tmp_path):
    fedamp_command("data", "schema", silo_data(tmp_path / "own.npz"), "--out", "s.json")
    for folder in ("/proc/x/fed", 'a"b/fed', "a%b"):
        code, _, err = fedamp_command("federation", "init", folder, "--schema", "s.json", "--silos", "a,b")
        assert (code, err.count("\n")) == (2, 2 if "warning" in err else 1), err
