"""The door to the outside: nginx, with the configuration that `init` writes, in front of the real server."""

import os
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request

import pytest

from fedamp.config.reply_limits import Rules
from fedamp.federation import provision
from fedamp.federation.processes import launch, ports
from fedamp.federation.processes.waiting import wait_until
from fedamp.federation.server import fleet
from fedamp.federation.server.link import Link
from fedamp.federation.server.place import HERE, place_of
from fedamp.federation.silo import node
from federation.provisioned import NAMES, make_plan

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("nginx") and not shutil.which("/usr/sbin/nginx"), reason="no nginx here"),
]

# An address of the loopback interface that is none of the names under which a server is its own neighbour.
HOST = "127.0.0.2"


def answer(url: str, authority: str, method: str) -> int:
    """Return the HTTP status."""
    context = ssl.create_default_context(cafile=authority)
    request = urllib.request.Request(url, data=b"" if method == "POST" else None, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def test_only_what_a_silo_calls_is_let_through(tmp_path):
    folder, port = tmp_path / "fed", ports.free_port()
    provision.init(folder, NAMES, make_plan(), Rules(), [HOST], port, None)
    written = (folder / "server/nginx.conf").read_text()
    assert f"listen {port} ssl" in written
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; pid {tmp_path}/nginx.pid; error_log {tmp_path}/error.log; events {{}}\n"
        f"http {{ access_log off; client_body_temp_path {tmp_path}/body; proxy_temp_path {tmp_path}/proxy;\n"
        + written.replace(f"listen {port} ssl", f"listen {HOST}:{port} ssl")
        + "}\n"
    )
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    command = [nginx, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
    tried = subprocess.run([*command, "-t"], capture_output=True, text=True, timeout=30)
    assert tried.returncode == 0, tried.stderr
    authority = str(folder / "server/ca.crt")
    place, link = place_of(folder, HERE), Link(1 << 20)
    with (
        fleet.listening(link, place.host, place.port, place.server, place.log),
        launch.running(command, dict(os.environ), tmp_path / "nginx.log"),
    ):
        url = f"https://{HOST}:{port}"
        direct = f"https://127.0.0.1:{place.port}"
        assert wait_until(lambda: _up(url, authority), 20)
        assert answer(f"{direct}/health", authority, "GET") == 200
        for path in ("/health", "/", "/docs", "/v1/control/list-runs", "/v1/runtime/push-messages", "/v1/fleet/"):
            assert answer(url + path, authority, "GET") == 403, path
            assert answer(url + path, authority, "POST") == 403, path
        for path in ("register-node", "pull-messages/../../control/list-runs", "%2e%2e/control/list-runs"):
            assert answer(f"{url}/v1/fleet/{path}", authority, "POST") == 403, path
        # A silo's own call comes through to Flower, which asks for its key.
        assert answer(f"{url}/v1/fleet/pull-messages", authority, "POST") not in (403, 404, 502)
        assert answer(f"{url}/v1/fleet/pull-messages", authority, "GET") == 403
        # And so a silo connects, with its bundle as it is, where it is told to knock.
        link.register(NAMES[0], (folder / f"server/keys/{NAMES[0]}.pub").read_bytes())
        with node.connected(folder / "bundles" / NAMES[0]) as line:
            assert link.nodes[NAMES[0]] == line.node
            assert line.fetch() is None


def _up(url: str, authority: str) -> bool:
    try:
        return answer(url + "/", authority, "GET") == 403
    except OSError:
        return False
