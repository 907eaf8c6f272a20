"""Certificates and keys: the federation's own authority, the server's certificate, a key pair for each silo.

Elliptic curves throughout. Private keys are never encrypted with a passphrase, as services must start by themselves:
the files' permissions protect them.
"""

from __future__ import annotations

import hashlib
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


def make_server_certificate(authority: bytes, authority_key: bytes, hosts: Sequence[str]) -> tuple[bytes, bytes]:
    """Return certificate and private key of a server that is reached by these names and addresses."""
    issuer = x509.load_pem_x509_certificate(authority)
    signer = serialization.load_pem_private_key(authority_key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise UserError("the authority's key is of the wrong kind; expected the ca.key that fedamp wrote")
    key = ec.generate_private_key(ec.SECP256R1())
    names = [_general_name(host) for host in dict.fromkeys([*hosts, *ALWAYS])]
    builder = _builder(_subject([*hosts, *ALWAYS][0]), issuer.subject, key.public_key(), SERVER_DAYS)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(sign_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    return _pem(builder.sign(signer, hashes.SHA384())), _private(key)


def make_key_pair(name: str) -> tuple[bytes, bytes]:
    """Return a silo's private key and its public line, both in OpenSSH's format, which Flower reads."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    line = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, line + f" {name}\n".encode()


def key_digest(public: bytes) -> str:
    """Return a silo's identity: the SHA-256, in hex, of its public key as Flower's server app is given it.

    Flower turns the OpenSSH line into PEM (SubjectPublicKeyInfo) when a key is registered; those bytes are hashed.
    """
    key = serialization.load_ssh_public_key(public)
    pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(pem).hexdigest()


def check_private(key: bytes) -> None:
    """Refuse what is not a silo's private key."""
    try:
        read = serialization.load_ssh_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        read = None
    if not isinstance(read, ec.EllipticCurvePrivateKey):
        raise UserError("the file `key` is damaged or not a silo's key; unpack the bundle again")


def validity(certificate: bytes) -> tuple[datetime, datetime]:
    """Return from when to when a certificate is valid."""
    try:
        read = x509.load_pem_x509_certificate(certificate)
    except ValueError:
        raise UserError("the file `ca.crt` is damaged or not a certificate; unpack the bundle again") from None
    return read.not_valid_before_utc, read.not_valid_after_utc


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
    builder = builder.not_valid_before(now - CLOCKS).not_valid_after(now + timedelta(days=days))
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
