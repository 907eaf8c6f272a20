"""A page behind a secret: who gets it, and that nobody else learns anything."""

import contextlib
import http.client
import re
import socket
import threading

import pytest

from fedamp.errors import UserError
from fedamp.federation.watch import serving
from fedamp.federation.watch.serving import Resource, Watcher
from fedamp.federation.watch.tokens import read_token

TOKEN = "a-token-that-nobody-guesses"
RESOURCES = {
    "": Resource("text/html", lambda: b"the page"),
    "metrics": Resource("text/plain", lambda: b"the metrics"),
}


@contextlib.contextmanager
def served(token):
    with Watcher(RESOURCES, token=token) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)


@pytest.fixture
def watcher():
    with served(TOKEN) as server:
        yield server


def ask(watcher, path, method="GET", host=None, **headers):
    """Return the status, the body and the headers of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", watcher.port, timeout=10)
    try:
        connection.putrequest(method, path, skip_host=True)
        for each in [f"127.0.0.1:{watcher.port}"] if host is None else host:
            connection.putheader("Host", each)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.headers)
    finally:
        connection.close()


def test_whoever_has_the_address_gets_the_page(watcher):
    secret = re.fullmatch(rf"http://127\.0\.0\.1:{watcher.port}/([\w-]{{43}})/", watcher.address).group(1)
    status, body, headers = ask(watcher, f"/{secret}/")
    assert (status, body) == (200, b"the page")
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    policy = dict(each.strip().partition(" ")[::2] for each in headers["Content-Security-Policy"].split(";"))
    assert (policy["default-src"], policy["script-src"]) == ("'none'", "'self'")
    assert "Server" not in headers
    assert not [name for name in headers if name.startswith("Access-Control")]
    assert ask(watcher, f"/{secret}/", host=[f"localhost:{watcher.port}"])[0] == 200
    assert ask(watcher, f"/{secret}/", Origin=f"http://127.0.0.1:{watcher.port}")[0] == 200
    assert ask(watcher, f"/{secret}/metrics")[1] == b"the metrics"


def test_each_server_has_its_own_secret():
    with Watcher(RESOURCES) as one, Watcher(RESOURCES) as other:
        assert one.secret != other.secret


@pytest.mark.parametrize(
    "path", ["/", "/{secret}", "/{secret}x/", "/x{secret}/", "/{secret}/no", "/{secret}/../", "/{secret}//", "/metrics",
             "/metrics/", "/{secret}/page.css", "/é/", "/%00/", "http://127.0.0.1/{secret}/"],
)  # fmt: skip
def test_every_other_path_is_nothing(watcher, path):
    raw = path.format(secret=watcher.secret).encode("latin-1")
    with socket.create_connection(("127.0.0.1", watcher.port), timeout=10) as connection:
        connection.sendall(b"GET " + raw + b" HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % watcher.port)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1] in (b"404", b"400")
    assert body == b""
    assert watcher.secret.encode() not in answer


@pytest.mark.parametrize(
    "hosts", [[], ["evil.example"], ["evil.example:{port}"], ["127.0.0.1"], ["localhost:1"],
              ["127.0.0.1:{port}.evil.example"], ["127.0.0.1:{port}", "evil.example"], ["0.0.0.0:{port}"],
              ["127.0.0.2:{port}"]],
)  # fmt: skip
def test_another_name_for_this_address_is_refused(watcher, hosts):
    hosts = [host.format(port=watcher.port) for host in hosts]
    assert ask(watcher, f"/{watcher.secret}/", host=hosts)[:2] == (404, b"")
    assert ask(watcher, "/metrics", host=hosts, Authorization=f"Bearer {TOKEN}")[:2] == (404, b"")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"},
    ],
)
def test_another_page_is_refused(watcher, headers):
    assert ask(watcher, f"/{watcher.secret}/", **headers)[:2] == (404, b"")


@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "NONSENSE"])
def test_only_get_is_answered(watcher, method):
    status, body, _ = ask(watcher, f"/{watcher.secret}/", method)
    assert (status, body) == (405, b"")


def test_metrics_for_whoever_has_the_token(watcher):
    assert ask(watcher, "/metrics", Authorization=f"Bearer {TOKEN}")[:2] == (200, b"the metrics")
    for given in (f"Basic {TOKEN}", "Bearer ", "Bearer x", TOKEN, f"Bearer {watcher.secret}", "Bearer é"):
        assert ask(watcher, "/metrics", Authorization=given.encode("latin-1"))[:2] == (404, b"")
    with served(None) as without:
        assert ask(without, "/metrics", Authorization="Bearer None")[:2] == (404, b"")


def test_secrets_are_compared_in_constant_time(watcher, monkeypatch):
    compared = []
    real = serving.hmac.compare_digest
    monkeypatch.setattr(serving.hmac, "compare_digest", lambda a, b: compared.append(b) or real(a, b))
    ask(watcher, "/guess/")
    ask(watcher, "/metrics", Authorization="Bearer guess")
    assert compared == [watcher.secret.encode(), TOKEN.encode()]


def test_many_who_say_nothing_do_not_fill_the_process(watcher):
    before = threading.active_count()
    silent = [socket.create_connection(("127.0.0.1", watcher.port), timeout=10) for _ in range(2 * serving.MOST)]
    try:
        silent[-1].settimeout(10)
        assert silent[-1].recv(1) == b""  # turned away
        assert threading.active_count() - before <= serving.MOST
    finally:
        for each in silent:
            each.close()


def test_a_port_that_is_taken_or_none_is_one_line(watcher):
    with pytest.raises(UserError, match="give another --port"):
        Watcher(RESOURCES, watcher.port)
    with pytest.raises(UserError, match="from 1 to 65535"):
        Watcher(RESOURCES, 70000)


def test_a_token_is_made_for_its_owner_alone(tmp_path):
    made = read_token(tmp_path / "token")
    assert len(made) == 43
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert read_token(tmp_path / "token") == made
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(UserError, match="chmod 600"):
        read_token(tmp_path / "token")
    (tmp_path / "short").write_text("x\n")
    (tmp_path / "short").chmod(0o600)
    with pytest.raises(UserError, match="holds no token"):
        read_token(tmp_path / "short")
