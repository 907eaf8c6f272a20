"""The public keys that silos hand over: NAME.pub files, read with distrust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedamp.errors import UserError
from fedamp.federation import silo_keys


def read_keys(given: Sequence[Path], names: Sequence[str]) -> dict[str, bytes]:
    """Return each silo's public line, from files NAME.pub or folders of them; refuse a mix-up."""
    keys: dict[str, bytes] = {}
    for path in (file for place in given for file in _files(place, names)):
        if path.stem not in names:
            raise UserError(f"{path} is the key of no silo named here; expected NAME.pub, for {', '.join(names)}")
        if path.stem in keys:
            raise UserError(f"{path} is a second key of {path.stem}; give one for each silo")
        keys[path.stem] = read_key(path, path.stem, names)
    if missing := [name for name in names if name not in keys]:
        raise UserError(
            f"there is no key of {', '.join(missing)}; each silo makes its own with `fedamp silo key NAME` and hands "
            "over NAME.pub: give it with --key. To make the silos' keys here, for a trial: --make-keys"
        )
    _all_different(keys)
    return keys


def read_key(path: Path, name: str, names: Sequence[str]) -> bytes:
    """Return the public line of the silo with this name, and nothing else that the file may hold.

    `names` are all silos': a file that says it is another one's is refused.
    """
    try:
        public = path.read_bytes()
        silo_keys.read_public(public)
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}; expected a silo's public key") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    other = silo_keys.comment(public)
    if other != name and other in names:
        raise UserError(f"{path} holds the key of {other}; ask {name} for its own")
    return silo_keys.line(public, name)


def _files(place: Path, names: Sequence[str]) -> list[Path]:
    """Return a file itself, or of a folder the keys of these silos."""
    return [place / f"{name}.pub" for name in names if (place / f"{name}.pub").exists()] if place.is_dir() else [place]


def _all_different(keys: Mapping[str, bytes]) -> None:
    seen: dict[str, str] = {}
    for name, public in keys.items():
        digest = silo_keys.key_digest(public)
        if digest in seen:
            raise UserError(f"{seen[digest]} and {name} have the same key; each silo makes its own")
        seen[digest] = name
