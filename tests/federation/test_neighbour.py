"""What another user of the same machine can do to a silo or to the server: look, and find nothing to hold on to."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from federation.provisioned import NAMES
from federation.test_processes import Command, federation  # noqa: F401

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="needs Linux's /proc"),
    pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process as another user"),
]
NOBODY = 65534

# A program of another user: it tries what a user of Flower's own programs could do, and says what came of it.
ATTACK = """
import json, os, ssl, sys, urllib.error, urllib.request
ports, pids, paths = json.loads(sys.argv[1])
context = ssl._create_unverified_context()
found = {"uid": os.getuid(), "read": [], "answers": {}, "secrets": []}
for port in ports:
    for scheme in ("https", "http"):
        for path in ("v1/runtime/acquire-task", "v1/control/start-run", "v1/control/register-node",
                     "v1/runtime/pull-messages", "v1/fleet/pull-messages", "v1/fleet/push-messages"):
            request = urllib.request.Request(f"{scheme}://127.0.0.1:{port}/{path}", data=b"", method="POST",
                                             headers={"Content-Type": "application/protobuf"})
            try:
                status = urllib.request.urlopen(request, timeout=10, context=context).status
            except urllib.error.HTTPError as error:
                status = error.code
            except OSError:
                status = None
            found["answers"][f"{scheme} {port} {path}"] = status
for pid in pids:
    words = open(f"/proc/{pid}/cmdline").read()
    found["secrets"] += [word for word in words.split(chr(0)) if "token" in word or "secret" in word]
    try:
        open(f"/proc/{pid}/environ").read()
        found["read"].append(f"environ of {pid}")
    except PermissionError:
        pass
for path in paths:
    try:
        open(path).read()
        found["read"].append(path)
    except PermissionError:
        pass
print(json.dumps(found))
"""


def of_folder(folder: Path) -> list[int]:
    """Return the processes that have to do with a folder."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            try:
                if str(folder).encode() in (place / "cmdline").read_bytes():
                    found.append(int(place.name))
            except OSError:
                continue
    return found


def listening_ports(pids: list[int]) -> set[int]:
    """Return the TCP ports on which these processes listen."""
    sockets = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            if match := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(link) if link.is_symlink() else ""):
                sockets.add(match[1])
    lines = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()]
    return {
        int(line[1].rpartition(":")[2], 16)
        for line in lines
        if len(line) > 9 and line[3] == "0A" and line[9] in sockets
    }


def attack(ports: set[int], pids: list[int], paths: list[Path]) -> dict:
    told = json.dumps([sorted(ports), pids, [str(path) for path in paths]])
    done = subprocess.run(
        ["/usr/bin/env", "-i", _python(), "-c", ATTACK, told],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _python() -> str:
    """Return a Python that every user can run."""
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if Path(path).exists():
            return path
    pytest.skip("no python3 that another user can run")


def test_a_neighbour_can_neither_read_nor_answer(federation, tmp_path):  # noqa: F811
    """Before, a neighbour of a silo got its task from Flower's program, read u, and answered -3 u in its name."""
    bundle = federation / "bundles" / NAMES[0]
    with (
        Command(tmp_path / "up.txt", "federation", "up", federation) as up,
        Command(tmp_path / "silo.txt", "silo", "up", bundle, "--data", tmp_path / "own.npz"),
    ):
        assert up.shows(f"{NAMES[0]} is here for the first time"), up.text
        silo = [pid for pid in of_folder(bundle) if pid != up.process.pid]
        assert len(silo) >= 2
        assert listening_ports(silo) == set()  # there is nobody to ask for a task
        address = json.loads((federation / "server/address.json").read_text())
        assert listening_ports([up.process.pid]) == {address["port"]}
        secrets = [bundle / "key", federation / "server/server.key", federation / "ca/ca.key", bundle / "run/node.toml"]
        found = attack({address["port"]}, [*silo, up.process.pid], secrets)
        assert found["uid"] == NOBODY
        assert found["read"] == []
        assert found["secrets"] == []
        for what, status in found["answers"].items():
            wanted = {None, 400} if what.startswith("http ") else {401} if "fleet" in what else {404}
            assert status in wanted, what
    assert "round 1" not in up.text  # and the silo is still the only one who came
