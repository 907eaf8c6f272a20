"""What a silo's operator reads when the connection ends."""

import json
import os
import subprocess

import pytest

from fedamp.config.reply_limits import Rules
from fedamp.federation import provision
from fedamp.federation.processes import launch, ports
from fedamp.federation.silo import connect
from fedamp.federation.silo.connect import _reason
from federation.provisioned import NAMES, make_plan, silo_data
from federation.test_checkup import listening


def test_a_key_that_is_refused_may_be_used_by_another_process():
    reason = _reason(["Failed to activate SuperNode: it is online"])
    assert "does not know this silo's key" in reason
    assert "another process may be using this key" in reason
    assert "was removed" in reason


VERIFY = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {} (_ssl.c:1006)"


@pytest.mark.parametrize(
    ("openssl", "words"),
    [
        ("unable to get local issuer certificate", "is not the server of this bundle: unable to get local issuer"),
        ("Hostname mismatch, certificate is not valid for 'fl.example.org'.", "is not the server of this bundle"),
        ("certificate has expired", "the server's certificate has ended"),
    ],
)
def test_a_server_of_another_federation_is_no_hiccup(openssl, words):
    reason = _reason(["Failed to initialize the connection to the SuperLink.", VERIFY.format(openssl)])
    assert words in reason
    assert "_ssl.c" not in reason
    assert "SSL" not in reason


def test_another_authority_is_told_apart_as_flower_says_it(federation, tmp_path):
    """The words of the real thing: a silo's process that meets the server of another federation."""
    port = ports.free_port()
    provision.init(tmp_path / "other", NAMES, make_plan("other"), Rules(), ["localhost"], port, None)
    bundle = federation / "bundles" / NAMES[0]
    config = bundle / "silo.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "server": f"localhost:{port}"}))
    command = connect.command_of(bundle, silo_data(tmp_path / "own.npz"))
    env = {**os.environ, **launch.environment(bundle / "run/flwr", bundle / "code")}
    with listening(tmp_path / "other/server", port):
        ended = subprocess.run(command, env=env, capture_output=True, timeout=60, check=False)
    assert "is not the server of this bundle" in _reason((ended.stdout + ended.stderr).decode().splitlines())
