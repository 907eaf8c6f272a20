"""A silo's own key: made here, and never anywhere else.

BUNDLE/key       the private key: it stays here
BUNDLE/NAME.pub  the public key, to be handed to the federation's operator
BUNDLE/key.new   a private key that waits until the operator has its public key: `fedamp silo key --renew`
BUNDLE/key.pub   from the operator: the public key that this silo is known by
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fedamp.errors import UserError
from fedamp.federation import silo_keys
from fedamp.federation.plan_files import SILO
from fedamp.federation.provision.names import check_names
from fedamp.federation.provision.writing import FOLDER, PUBLIC, SECRET, create, write
from fedamp.files import read_json

KEY, NEW, KNOWN = "key", "key.new", "key.pub"


def make(folder: Path, renew: bool = False) -> tuple[Path, str]:
    """Make the key of the silo that a folder is named after; return its public file and its fingerprint."""
    folder = folder.absolute()
    name = str((read_json(folder / SILO) or {"name": folder.name})["name"])  # a bundle may have been renamed
    check_names([name])
    path = folder / (NEW if renew else KEY)
    if renew and not (folder / KEY).exists():
        raise UserError(f"{folder} has no key yet; leave out --renew")
    if path.exists():
        cure = "hand over its public key" if renew else "give --renew for one that replaces it"
        raise UserError(f"{path} exists and is not overwritten: whoever has lost a key can't get it back; {cure}")
    private, public = silo_keys.make_key_pair(name)
    try:
        folder.mkdir(mode=FOLDER, parents=True, exist_ok=True)
        with os.fdopen(create(path, SECRET), "wb") as file:
            file.write(private)
        write(folder / f"{name}.pub", public, PUBLIC)
    except OSError as error:
        raise UserError(f"{path} can't be written: {error.strerror}; give another folder") from None
    return folder / f"{name}.pub", silo_keys.fingerprint(public)


def check(bundle: Path, name: str) -> str:
    """Refuse a bundle without its silo's key, or with another's; return a note. A renewed key is taken into use."""
    known = (bundle / KNOWN).read_bytes() if (bundle / KNOWN).exists() else None
    _take_new(bundle, name, known)
    key = bundle / KEY
    if not key.is_file():
        raise UserError(
            f"{bundle} has no `key`; unpack the bundle over the folder {name} that `fedamp silo key {name}` made, or "
            f"move that folder's `key` to {key}; if it is lost, make a new one and hand over {name}.pub"
        )
    public = silo_keys.public_of(key.read_bytes(), name)
    if known is not None and silo_keys.key_digest(public) != silo_keys.key_digest(known):
        raise UserError(
            f"{key} ({silo_keys.fingerprint(public)}) is not the key that the operator knows {name} by "
            f"({silo_keys.fingerprint(known)}); find that one, or hand over {name}.pub and unpack the bundle that "
            "comes back"
        )
    mode = stat.S_IMODE(key.stat().st_mode)
    if mode & 0o077:
        key.chmod(SECRET)
        return f"others could read it (mode {mode:o}); now only you can"
    return silo_keys.fingerprint(public)


def _take_new(bundle: Path, name: str, known: bytes | None) -> None:
    """Take a renewed key into use, once the operator knows the silo by it."""
    new = bundle / NEW
    if known is None or not new.is_file():
        return
    if silo_keys.key_digest(silo_keys.public_of(new.read_bytes(), name)) == silo_keys.key_digest(known):
        new.replace(bundle / KEY)
