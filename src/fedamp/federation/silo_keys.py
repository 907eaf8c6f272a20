"""A silo's key pair, in OpenSSH's format, which Flower reads: made, recognised, and shown to people.

The curve is NIST's P-384: Flower takes NIST's curves alone. The private key is not encrypted with a passphrase, as
services must start by themselves: the file's permissions protect it.
"""

from __future__ import annotations

import base64
import hashlib

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedamp.errors import UserError


def make_key_pair(name: str) -> tuple[bytes, bytes]:
    """Return a silo's private key, and its public line with the silo's name at the end."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    return private, _line(key.public_key()) + f" {name}\n".encode()


def as_registered(public: bytes) -> bytes:
    """Return a public line as Flower knows a registered key: PEM (SubjectPublicKeyInfo)."""
    return read_public(public).public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def key_digest(public: bytes) -> str:
    """Return a silo's identity: the SHA-256, in hex, of its public key as it is registered."""
    return hashlib.sha256(as_registered(public)).hexdigest()


def fingerprint(public: bytes) -> str:
    """Return a public key in the short form that people compare: what `ssh-keygen -lf NAME.pub` shows."""
    blob = base64.b64decode(_line(read_public(public)).split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def read_public(public: bytes) -> ec.EllipticCurvePublicKey:
    """Return the key of a public line; refuse what is not a key that Flower would take."""
    if b"PRIVATE KEY" in public:
        raise UserError("it is a private key, which never leaves its silo: the silo needs a new one now")
    try:
        key = serialization.load_ssh_public_key(public)
    except (ValueError, UnsupportedAlgorithm):
        raise UserError("it is not a public key; expected the .pub file that `fedamp silo key` wrote") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise UserError("it is a key of the wrong kind; expected one that `fedamp silo key` made (NIST P-384)")
    return key


def line(public: bytes, name: str) -> bytes:
    """Return a public key as one line with the silo's name, whatever else came with it."""
    return _line(read_public(public)) + f" {name}\n".encode()


def comment(public: bytes) -> str:
    """Return what a public line says at its end: the silo's name, if fedamp wrote it."""
    return b" ".join(public.split()[2:]).decode(errors="replace")


def public_of(private: bytes, name: str) -> bytes:
    """Return the public line of a silo's private key; refuse what is none."""
    try:
        key = serialization.load_ssh_private_key(private, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UserError("the file `key` is damaged or not a silo's key; restore it from a backup, or make a new one")
    return _line(key.public_key()) + f" {name}\n".encode()


def _line(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
