"""A silo's bundle: all that it needs to take part, in a folder and packed."""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
from pathlib import Path

from fedamp import __version__
from fedamp.federation.plan import SiloConfig
from fedamp.federation.plan_files import write_silo_config
from fedamp.federation.provision.model_code import copy_code
from fedamp.federation.provision.writing import FOLDER, SCRIPT, SECRET, create, fill, write

OWN_KEY = {
    "unpack": "Unpack the bundle where you ran `fedamp silo key $silo`: it comes into that folder, beside your `key`.",
    "key_origin": "You made it, and nobody else has it.",
}
KEY_FROM_SERVER = {
    "unpack": "Unpack this folder to a place that only you can read.",
    "key_origin": "It was made on the server, as for a trial, and came with the bundle.",
}


def write_bundle(folder: Path, silo_config: SiloConfig, private: bytes | None, public: bytes) -> None:
    """Write a silo's bundle, and pack it; the private key is in it only if it was made here, for a trial."""
    bundles = folder / "bundles"
    bundle = bundles / silo_config.name
    shutil.rmtree(bundle, ignore_errors=True)  # of an `add` that was interrupted
    bundle.mkdir(mode=FOLDER)
    values = {
        "name": silo_config.plan.name,
        "silo": silo_config.name,
        "server": silo_config.server,
        "version": __version__,
        "sharing": _sharing(silo_config),
    }
    about_key = OWN_KEY if private is None else KEY_FROM_SERVER
    values |= {name: text.replace("$silo", silo_config.name) for name, text in about_key.items()}
    write_silo_config(bundle, silo_config)
    write(bundle / "ca.crt", (folder / "server/ca.crt").read_bytes())
    if private is not None:
        write(bundle / "key", private, SECRET)
    write(bundle / "key.pub", public)
    copy_code(folder / "server/code", bundle / "code")
    fill("start-silo.sh", bundle / "start.sh", values, SCRIPT)
    fill("fedamp-silo.service", bundle / "fedamp-silo.service", values)
    fill("silo.md", bundle / "README.md", values)
    _zip(bundle, bundles / f"{silo_config.name}.zip")


def _sharing(silo_config: SiloConfig) -> str:
    """Return a paragraph about who gets the silo's model as it is, "" if nobody does."""
    if not (sharing := silo_config.plan.sharing()):
        return ""
    return (
        f"\n**Other silos get your model.** In this federation {sharing}. Whoever has it can examine it at leisure: "
        "if your silo has not agreed, do not start, and talk to the operator.\n"
    )


def _zip(bundle: Path, target: Path) -> None:
    """Pack a bundle; the entries carry their permissions, and the archive is as secret as a key that may be in it."""
    target.unlink(missing_ok=True)
    with os.fdopen(create(target, SECRET), "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in [bundle, *sorted(bundle.rglob("*"))]:
            name = f"{bundle.name}/{path.relative_to(bundle).as_posix()}".removesuffix("/.")
            entry = zipfile.ZipInfo(f"{name}/" if path.is_dir() else name)
            kind = stat.S_IFDIR if path.is_dir() else stat.S_IFREG
            entry.external_attr = (kind | stat.S_IMODE(path.stat().st_mode)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, b"" if path.is_dir() else path.read_bytes())
