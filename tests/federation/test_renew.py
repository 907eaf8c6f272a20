"""Certificates that end, and what takes their place; a silo with a new key and its old row."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import torch
from cryptography import x509

from fedamp.config.reply_limits import Rules
from fedamp.federation import certificates, expiry, provision, silo_keys
from fedamp.federation.plan import Federation
from fedamp.federation.plan_files import read_federation, read_silo_config
from fedamp.federation.processes import ports
from fedamp.federation.server.app import serve
from fedamp.federation.silo import checkup
from federation import inprocess
from federation.inprocess import Local, plan_of, write_silos
from federation.provisioned import HOSTS, NAMES, make_plan, silo_data
from federation.test_certificates import handshake
from federation.test_checkup import listening

HALF_AN_HOUR_AGO = -1 / 48  # in days: a certificate begins an hour before it is made


def made(folder, monkeypatch, server_days=825.0, authority_days=3653.0, hosts=HOSTS, port=9092):
    """Return a federation whose certificates last so many days."""
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "SERVER_DAYS", server_days)
        patch.setattr(certificates, "AUTHORITY_DAYS", authority_days)
        provision.init(folder, NAMES, make_plan(folder.name), Rules(), hosts, port, None)
    return folder


def test_a_renewed_certificate_is_good_for_bundles_that_are_out(tmp_path, monkeypatch, fedamp_command):
    federation = made(tmp_path / "fed", monkeypatch, server_days=HALF_AN_HOUR_AGO)
    authority = federation / "bundles" / NAMES[0] / "ca.crt"
    assert "expired" in str(handshake(federation / "server", authority, "fl.example.org"))
    shutil.move(federation / "ca/ca.key", tmp_path / "safe.key")
    code, _, err = fedamp_command("federation", "renew", federation)
    assert (code, err.count("\n"), "--ca-key PATH" in err) == (2, 1, True)
    code, out, err = fedamp_command("federation", "renew", federation, "--ca-key", tmp_path / "safe.key")
    assert (code, "the silos need nothing" in out) == (0, True), err
    for host in ("fl.example.org", "localhost"):
        assert handshake(federation / "server", authority, host) is None
    assert expiry.check_server(federation) == []


def test_another_authoritys_key_renews_nothing(tmp_path, monkeypatch, federation):
    other = made(tmp_path / "other", monkeypatch)
    before = (federation / "server/server.crt").read_bytes()
    with pytest.raises(ValueError, match="not that of the federation's authority"):
        provision.renew(federation, other / "ca/ca.key")
    with pytest.raises(ValueError, match="damaged or of the wrong kind"):
        provision.renew(federation, federation / "federation.json")
    assert (federation / "server/server.crt").read_bytes() == before


def test_a_servers_certificate_does_not_outlive_its_authority(tmp_path, monkeypatch):
    federation = made(tmp_path / "fed", monkeypatch, authority_days=100.0)
    ends = [certificates.validity((federation / f"server/{name}").read_bytes())[1] for name in ("server.crt", "ca.crt")]
    assert ends[0] == ends[1]
    assert provision.renew(federation) == ends[1]
    ended = made(tmp_path / "ended", monkeypatch, authority_days=HALF_AN_HOUR_AGO)
    with pytest.raises(ValueError, match=r"ended on \S+; make a new federation"):
        provision.renew(ended)


@pytest.mark.parametrize(
    ("days", "words"), [(61.5, ""), (59.5, "in 59 days"), (1.5, "in 1 day;"), (0.5, "in less than")]
)
def test_the_operator_is_warned_from_60_days_before(tmp_path, monkeypatch, fedamp_command, days, words):
    federation = made(tmp_path / "fed", monkeypatch, server_days=days)
    end = x509.load_pem_x509_certificate((federation / "server/server.crt").read_bytes()).not_valid_after_utc
    code, _, err = fedamp_command("federation", "status", federation)
    assert code == 0
    if not words:
        assert err == ""
        return
    assert err.count("\n") == 1
    assert f"ends on {end:%Y-%m-%d}, {words}" in err
    assert f"fedamp federation renew {federation} --ca-key" in err
    assert expiry.check_server(federation) != []


def test_what_has_ended_is_one_line(tmp_path, monkeypatch, fedamp_command):
    today = datetime.now(UTC) + timedelta(days=HALF_AN_HOUR_AGO)
    federation = made(tmp_path / "fed", monkeypatch, server_days=HALF_AN_HOUR_AGO)
    code, _, err = fedamp_command("federation", "up", federation)
    assert (code, err.count("\n")) == (2, 1)
    assert f"the server's certificate ended on {today:%Y-%m-%d}; renew it" in err
    ended = made(tmp_path / "ended", monkeypatch, authority_days=HALF_AN_HOUR_AGO)
    data = silo_data(tmp_path / "own.npz")
    code, _, err = fedamp_command("silo", "up", ended / "bundles" / NAMES[0], "--data", data)
    assert (code, err.count("\n"), f"to {today:%Y-%m-%d}" in err) == (2, 1, True), err


def test_a_silo_is_warned_of_both_certificates(tmp_path, monkeypatch):
    from fedamp.federation.silo import server_seen

    port, data = ports.free_port(), silo_data(tmp_path / "own.npz")
    soon = made(tmp_path / "soon", monkeypatch, 30.0, 40.0, ["localhost"], port)
    ended = made(tmp_path / "ended", monkeypatch, HALF_AN_HOUR_AGO, hosts=["localhost"], port=port)

    def seen(federation):
        bundle = federation / "bundles" / NAMES[0]
        found = {one.what: one.fault or one.note for one in checkup.check(bundle, data)}
        return found["certificate"], found["server"], server_seen.endings(f"localhost:{port}", bundle / "ca.crt")

    with listening(soon / "server", port):
        authority, server, lines = seen(soon)
    assert "warning: the authority's certificate ends on" in authority
    assert "is the right server; warning: the server's certificate ends on" in server
    assert [line.partition(" ends on")[0] for line in lines] == [expiry.OF_AUTHORITY, expiry.OF_SERVER]
    assert "fedamp federation renew" in lines[1]
    with listening(ended / "server", port):
        authority, server, lines = seen(ended)
    assert "warning" not in authority
    assert server == f"the certificate of localhost:{port} has ended; {server_seen.RENEW}"
    assert lines == [server]
    assert len(seen(soon)[2]) == 1  # the server is away: that is no matter of certificates


def test_a_new_key_takes_the_old_ones_place(federation, fedamp_command, tmp_path):
    before = read_federation(federation)
    _, public = silo_keys.make_key_pair(NAMES[1])
    (tmp_path / "new.pub").write_bytes(public)
    code, out, err = fedamp_command("federation", "rekey", federation, NAMES[1], "new.pub")
    assert (code, silo_keys.fingerprint(public) in out) == (0, True), err
    old, new = before.members[1], read_federation(federation).members[1]
    assert (new.name, new.number, new.key, new.former) == (old.name, 1, silo_keys.key_digest(public), (old.key,))
    assert (federation / f"server/keys/{NAMES[1]}.pub").read_bytes() == public
    bundle = federation / "bundles" / NAMES[1]
    assert ((bundle / "key.pub").read_bytes(), (bundle / "key").exists()) == (public, False)
    assert read_silo_config(bundle).number == 1
    wrong = {"stranger": "has no silo 'stranger'", NAMES[1]: "is or was", NAMES[0]: f"holds the key of {NAMES[1]}"}
    for silo, words in wrong.items():
        code, _, err = fedamp_command("federation", "rekey", federation, silo, "new.pub")
        assert (code, err.count("\n"), words in err) == (2, 1, True), err


def test_a_federation_from_before_has_no_former_keys(federation):
    path = federation / "federation.json"
    text = json.loads(path.read_text())
    for silo in text["silos"]:
        del silo["former"]
    path.write_text(json.dumps(text))
    assert [member.former for member in read_federation(federation).members] == [()] * 3


@pytest.mark.parametrize("method", ["fedamp", "scaffold"])
def test_a_silo_with_a_new_key_has_its_old_row(tmp_path, monkeypatch, method):
    """The rounds before and after the change are those of a federation without one, bit for bit."""
    data = write_silos(tmp_path / "data")
    plan = plan_of(data, method, rounds=4)
    expected = Local(tmp_path / "one", plan, data).serve().state
    local = Local(tmp_path / "two", plan, data)
    local.serve(rounds=2)
    old, real = local.federation.members[1].key, inprocess.public_key
    monkeypatch.setattr(inprocess, "public_key", lambda number: b"another" if number == 1 else real(number))
    members = list(local.federation.members)
    with pytest.raises(ValueError, match="silos were taken out"):
        serve(local.grid(), local.federation, tmp_path / "two/record")
    members[1] = replace(members[1], former=(old,))
    state = serve(local.grid(), Federation(plan, tuple(members), local.rules), tmp_path / "two/record").state
    assert state.order == [member.key for member in members]
    for kind in ("rows", "shared"):
        for name, rows in getattr(expected.method_state, kind).items():
            assert torch.equal(getattr(state.method_state, kind)[name].params, rows.params), name
