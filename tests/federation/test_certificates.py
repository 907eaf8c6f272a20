"""The authority, the server's certificate, and the silos' keys."""

import hashlib
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedamp.config.reply_limits import Rules
from fedamp.federation import provision, silo_keys
from fedamp.federation.plan_files import read_federation
from federation.provisioned import HOSTS, NAMES, make_plan


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


def test_members_are_known_by_their_keys(federation):
    for number, (name, member) in enumerate(zip(NAMES, read_federation(federation).members, strict=True)):
        public = (federation / "server/keys" / f"{name}.pub").read_bytes()
        assert public.startswith(b"ecdsa-sha2-nistp384 ")
        assert (member.name, member.number, member.key) == (name, number, silo_keys.key_digest(public))
        private = load_ssh_private_key((federation / "bundles" / name / "key").read_bytes(), None)
        assert private.curve.name == "secp384r1"
        # As Flower turns a private key into what its server gets to see.

        assert hashlib.sha256(public_key_to_bytes(private.public_key())).hexdigest() == member.key
