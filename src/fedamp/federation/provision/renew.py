"""What must be replaced in a federation's life: the server's certificate, and a silo's key."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from fedamp.errors import UserError
from fedamp.federation.plan import SiloConfig
from fedamp.federation.plan_files import read_federation, write_federation
from fedamp.federation.provision.address import read_address
from fedamp.federation.provision.bundle import write_bundle
from fedamp.federation.provision.given_keys import read_key
from fedamp.federation.provision.writing import FOLDER, PUBLIC, write
from fedamp.files import write_whole


def renew(folder: Path, ca_key: Path | None = None) -> datetime:
    """Write a new certificate for the server, of the same authority and for the same key; return when it ends.

    The silos need nothing: they know the authority. One file is replaced, so the server can be started at any moment.
    """
    from fedamp.federation import certificates

    read_federation(folder)
    hosts, server = read_address(folder).hosts, folder / "server"
    path = ca_key or folder / "ca" / "ca.key"
    try:
        authority_key = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{path} can't be read ({error.strerror}); give the authority's key, which was moved to a safe place, "
            "with --ca-key PATH"
        ) from None
    authority = (server / "ca.crt").read_bytes()
    if (end := certificates.validity(authority)[1]) <= datetime.now(UTC):
        raise UserError(f"the authority's certificate ended on {end:%Y-%m-%d}; make a new federation")
    own_key = (server / "server.key").read_bytes()
    certificate, _ = certificates.make_server_certificate(authority, authority_key, hosts, own_key)
    write_whole(server / "server.crt", certificate)
    (server / "server.crt").chmod(PUBLIC)
    return certificates.validity(certificate)[1]


def rekey(folder: Path, name: str, path: Path) -> bytes:
    """Let a silo be known by the key in a file, with the row that it has; return its public line.

    The silo gets a new bundle. The server must be down.
    """
    from fedamp.federation import silo_keys

    federation = read_federation(folder)
    members = {member.name: member for member in federation.members}
    there = [member.name for member in federation.members if not member.removed]
    if name not in there:
        raise UserError(f"{folder} has no silo {name!r}; expected one of {', '.join(there)}")
    public = read_key(path, name, list(members))
    digest = silo_keys.key_digest(public)
    for member in federation.members:
        if digest in (member.key, *member.former):
            raise UserError(f"this key is or was that of {member.name}; expected a new one")
    if (home := folder / "bundles" / name / "run").exists():
        raise UserError(f"{home} is there, so {name} itself lives in {home.parent}; move that folder away first")
    old = members[name]
    new = replace(old, key=digest, former=(*old.former, old.key))
    (folder / "bundles").mkdir(mode=FOLDER, exist_ok=True)
    write_bundle(folder, SiloConfig(federation.plan, name, old.number, read_address(folder).server), None, public)
    write(folder / "server/keys" / f"{name}.pub", public)
    # Last of all: until this is written the old key counts, and the same command can be given again.
    write_federation(folder, replace(federation, members=tuple(new if one is old else one for one in members.values())))
    return public
