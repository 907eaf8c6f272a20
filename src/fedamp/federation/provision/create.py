"""A new federation, and more silos for an existing one."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import torch

from fedamp.config.reply_limits import Rules
from fedamp.data.clients import Clients
from fedamp.errors import UserError
from fedamp.federation.plan import Federation, Member, Plan, SiloConfig
from fedamp.federation.plan_files import read_federation, write_federation
from fedamp.federation.provision.address import ADDRESS, Address, read_address
from fedamp.federation.provision.bundle import write_bundle
from fedamp.federation.provision.model_code import check_code, copy_code
from fedamp.federation.provision.names import check_names, check_title
from fedamp.federation.provision.server_folder import write_server
from fedamp.federation.provision.writing import FOLDER, SECRET, write
from fedamp.runs.material import Material, outputs_of
from fedamp.runs.setup import assemble

TWO = (
    "with two silos, each can compute the other's model from its own and from what the server sends it: "
    "add a third, or make sure that both accept this"
)
SHARED = (
    "every silo's model will be handed to other silos as it is: each operator reads this in the bundle's README and in "
    "`fedamp silo check`; make sure that all have agreed"
)


def init(
    folder: Path,
    silos: list[str],
    plan: Plan,
    rules: Rules,
    hosts: list[str],
    port: int,
    code: Path | None,
    keys: Mapping[str, bytes] | None = None,
) -> list[str]:
    """Write a new federation, wholly or not at all; return warnings. `code` is that of a user's own model.

    `keys` are the silos' public keys by name; None makes key pairs here, for trials, with the private ones in the
    bundles.
    """
    check_names(silos)
    check_title(plan.name)
    if len(silos) < 2:
        raise UserError(f"the silos named are {', '.join(silos) or 'none'}; a federation needs two or more")
    if rules.min_silos > len(silos):
        raise UserError(f"min_silos is {rules.min_silos}, but there are {len(silos)} silos; expected no more than that")
    check_plan(plan)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not empty; give a new folder")
    address = Address.of(hosts, port)
    folder = folder.absolute()
    if unfit := set(str(folder)) & set('"\\%$' + os.pathsep):
        found = " and ".join(sorted(unfit))
        raise UserError(
            f"{folder} has {found} in its path, which systemd units and nginx can't quote; give another folder"
        )
    with _moved_when_whole(folder) as made:
        _write_keys(made, plan, address)
        copy_code(code, made / "server/code")
        check_code(plan, code, made / "server/code")
        write_server(made, folder, plan, address, makes_keys=keys is None)
        members = _add_members(made, plan, address, silos, 0, keys)
        write_federation(made, Federation(plan, tuple(members), rules))
    warnings = [TWO] if len(silos) == 2 else []
    return [*warnings, SHARED] if plan.hands_out_models else warnings


@contextmanager
def _moved_when_whole(folder: Path) -> Iterator[Path]:
    """Give a folder beside this one to write to, and move it here at the end; after an error nothing is left of it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise UserError(f"{folder} can't be created: {error.strerror or error}; give another folder") from None
    try:
        yield made
        made.replace(folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _write_keys(made: Path, plan: Plan, address: Address) -> None:
    """Write the authority, the server's certificate and key, and the address that they are for."""
    from fedamp.federation import certificates

    for name in ("ca", "server", "server/keys", "bundles"):
        (made / name).mkdir(mode=FOLDER)
    authority, authority_key = certificates.make_authority(plan.name)
    certificate, key = certificates.make_server_certificate(authority, authority_key, address.hosts)
    write(made / "ca/ca.crt", authority)
    write(made / "ca/ca.key", authority_key, SECRET)
    write(made / "server/ca.crt", authority)
    write(made / "server/server.crt", certificate)
    write(made / "server/server.key", key, SECRET)
    write(made / "server" / ADDRESS, (json.dumps(asdict(address), indent=2) + "\n").encode())


def add(folder: Path, names: list[str], keys: Mapping[str, bytes] | None = None) -> list[str]:
    """Add silos to a federation; return warnings, of which there are none so far. `keys` as for `init`."""
    federation = read_federation(folder)
    known = [member.name for member in federation.members]
    if gone := [member.name for member in federation.members if member.removed and member.name in names]:
        raise UserError(f"silo {gone[0]!r} was removed from {folder}, and its name is not given again; choose another")
    check_names([*known, *names])
    if not names:
        raise UserError("no silos are named; expected one or more names")
    number = max(member.number for member in federation.members) + 1
    (folder / "bundles").mkdir(mode=FOLDER, exist_ok=True)
    members = _add_members(folder, federation.plan, read_address(folder), names, number, keys)
    # Last of all: until this is written the new silos do not exist, and the same command can be given again.
    write_federation(folder, replace(federation, members=(*federation.members, *members)))
    return []


def check_plan(plan: Plan) -> None:
    """Refuse a plan that no silo could follow, by trying it with rows of zeros."""
    outputs, task = outputs_of(plan.schema)
    x = torch.zeros(20, *plan.schema.input_shape)
    y = torch.zeros(20) if plan.schema.labels is None else torch.arange(20) % outputs
    clients = Clients.of([(x, y)]).hold_out(plan.config.held_out, plan.config.seed, "test")
    config = replace(plan.config, clients=1, engine="loop", device="cpu")
    assemble(config, Material(clients, outputs, task, schema=plan.schema))


def _add_members(
    folder: Path,
    plan: Plan,
    address: Address,
    names: Sequence[str],
    number: int,
    keys: Mapping[str, bytes] | None,
) -> list[Member]:
    """Write a bundle for each silo, numbered from `number` on."""
    from fedamp.federation import silo_keys

    members = []
    for name in names:
        private, public = silo_keys.make_key_pair(name) if keys is None else (None, keys[name])
        write_bundle(folder, SiloConfig(plan, name, number, address.server), private, public)
        write(folder / "server/keys" / f"{name}.pub", public)
        members.append(Member(name, number, silo_keys.key_digest(public)))
        number += 1
    return members
