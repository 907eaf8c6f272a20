"""What the operator does when something was lost or stolen: readmit, rewind, remove.

DIR/readmit/NAME, DIR/remove/NAME  tell a running server, which looks there before each round; a server that is not up
                                   looks when it is started
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedamp.errors import UserError
from fedamp.federation.plan import Federation, Member
from fedamp.federation.plan_files import read_federation, write_federation
from fedamp.federation.processes import locks
from fedamp.federation.provision.create import TWO
from fedamp.federation.server.operator_files import READMIT, REMOVE, write_line
from fedamp.federation.server.place import place_of
from fedamp.records.checkpoints import complete_checkpoints, forget_later
from fedamp.records.reading import RESULT
from fedamp.runs.parts import method_of


def member_named(federation: Federation, folder: Path, name: str) -> Member:
    """Return a silo that has not been removed."""
    there = {member.name: member for member in federation.members if not member.removed}
    if name in there:
        return there[name]
    was = any(member.name == name for member in federation.members)
    raise UserError(
        f"{folder} has {'removed' if was else 'no'} silo {name!r}; expected one of {', '.join(there)}"
        + ("; to let it in again, add it under a new name: fedamp federation add" if was else "")
    )


def readmit(folder: Path, name: str) -> str:
    """Let a silo that has lost its memory begin anew from what the server sends it; return what that means."""
    federation = read_federation(folder)
    member_named(federation, folder, name)
    method, title = method_of(federation.plan.config), federation.plan.config.method.name
    if not method.remembers:
        return f"nothing to do: with {title} a silo needs no memory of earlier rounds, and goes on by itself"
    _wish(folder, READMIT, name)
    return f"from the next round on {name} begins anew if it has lost its memory: {method.anew}"


def remove(folder: Path, name: str) -> list[str]:
    """Take a silo out for good, key and row; return warnings.

    It keeps its place in federation.json, so that neither its number nor its name is ever given again.
    """
    federation = read_federation(folder)
    gone = member_named(federation, folder, name)
    members = tuple(replace(each, removed=True) if each == gone else each for each in federation.members)
    write_federation(folder, replace(federation, members=members))
    _wish(folder, REMOVE, name)
    (folder / "server" / "keys" / f"{name}.pub").unlink(missing_ok=True)
    left, needed = sum(not each.removed for each in members), federation.rules.min_silos
    few = (
        f"{left} silos are left, and no round begins with fewer than min_silos, {needed}: add a silo, or lower "
        "min_silos in federation.json; then start the server again"
    )
    return [*([few] if left < needed else []), *([TWO] if left == 2 else [])]


def rewind(folder: Path, k: int) -> str:
    """Let a federation go on after an earlier round, whose checkpoint is kept; return what that means."""
    place, federation = place_of(folder), read_federation(folder)
    with locks.only_one(place.lock, f"the federation in {folder}"):
        kept = complete_checkpoints(place.record)
        if k not in kept:
            listed = ", ".join(map(str, kept)) or "none"
            raise UserError(f"round {k} is not kept in {place.record}; the rounds to go back to are: {listed}")
        method = method_of(federation.plan.config)
        if method.remembers:  # what silos remember is of later rounds: those that have no older state begin anew
            for member in federation.members:
                if not member.removed:
                    _wish(folder, READMIT, member.name)
        # The checkpoints decide where the server goes on, so they go last.
        (place.record / RESULT).unlink(missing_ok=True)
        forget_later(place.record, k)
        write_line(place.record, f"the operator has rewound the federation from round {kept[-1]} to {k}")
    later = f"rounds {k + 1} to {kept[-1]} are played again" if kept[-1] > k else "no round was played since"
    cost = f"; each silo that has no state of its last round up to then begins anew: {method.anew}"
    return f"the federation goes on after round {k}: {later}{cost if method.remembers else ''}"


def _wish(folder: Path, kind: str, name: str) -> None:
    wish = folder / kind / name
    wish.parent.mkdir(parents=True, exist_ok=True)
    wish.touch()
