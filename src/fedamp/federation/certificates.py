"""Certificates: the federation's own authority and the server's certificate. The silos' keys are in `silo_keys`.

Elliptic curves throughout. Private keys are never encrypted with a passphrase, as services must start by themselves:
the files' permissions protect them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedamp.errors import UserError

AUTHORITY_DAYS, SERVER_DAYS = 3653, 825  # 825: more than that, and some systems refuse a server's certificate
ALWAYS = ("localhost", "127.0.0.1")  # the server's own programs reach it there
CLOCKS = timedelta(hours=1)  # clocks of other machines may be behind


def make_authority(name: str) -> tuple[bytes, bytes]:
    """Return certificate and private key of a new authority, both as PEM."""
    key = ec.generate_private_key(ec.SECP384R1())
    subject = _subject(f"{name} authority")
    builder = _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(sign_certificates=True), critical=True)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
    )
    return _pem(builder.sign(key, hashes.SHA384())), _private(key)


def make_server_certificate(
    authority: bytes, authority_key: bytes, hosts: Sequence[str], own_key: bytes | None = None
) -> tuple[bytes, bytes]:
    """Return certificate and private key of a server that is reached by these names and addresses.

    The key is a new one, or `own_key`. The certificate ends when the authority's does, at the latest.
    """
    issuer = x509.load_pem_x509_certificate(authority)
    signer = _signer(issuer, authority_key)
    key = ec.generate_private_key(ec.SECP256R1()) if own_key is None else _read_private(own_key, "server.key")
    names = [_general_name(host) for host in dict.fromkeys([*hosts, *ALWAYS])]
    builder = _builder(
        _subject([*hosts, *ALWAYS][0]), issuer.subject, key.public_key(), SERVER_DAYS, issuer.not_valid_after_utc
    )
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(sign_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    return _pem(builder.sign(signer, hashes.SHA384())), _private(key)


def validity(certificate: bytes) -> tuple[datetime, datetime]:
    """Return from when to when a certificate is valid."""
    read = _read_certificate(certificate)
    return read.not_valid_before_utc, read.not_valid_after_utc


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate, as people compare it: `openssl x509 -noout -fingerprint -sha256`."""
    return _read_certificate(certificate).fingerprint(hashes.SHA256()).hex(":").upper()


def _read_certificate(certificate: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate)
    except ValueError:
        raise UserError("the file is damaged or not a certificate; unpack the bundle again") from None


def _read_private(key: bytes, name: str) -> ec.EllipticCurvePrivateKey:
    try:
        read = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        read = None
    if not isinstance(read, ec.EllipticCurvePrivateKey):
        raise UserError(f"the key is damaged or of the wrong kind; expected the {name} that `fedamp` wrote")
    return read


def _signer(authority: x509.Certificate, authority_key: bytes) -> ec.EllipticCurvePrivateKey:
    """Return the authority's key; refuse that of another one."""
    signer = _read_private(authority_key, "ca.key")
    if signer.public_key() != authority.public_key():
        raise UserError("this ca.key is not that of the federation's authority; expected the one that `init` wrote")
    return signer


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    days: int,
    latest: datetime | None = None,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    end = now + timedelta(days=days)
    builder = x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
    builder = builder.not_valid_before(now - CLOCKS).not_valid_after(end if latest is None else min(end, latest))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)


def _usage(sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])  # 64 is the standard's limit


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
