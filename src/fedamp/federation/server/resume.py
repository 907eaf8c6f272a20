"""Continuing a federation where its server was stopped: whether its record is whole, and what has changed since.

life.json   the federation's own number, and how often its server was started
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedamp.errors import UserError
from fedamp.federation.plan import Member
from fedamp.federation.server.outbox import SERIALS, Life
from fedamp.federation.server.round_lines import padded
from fedamp.federation.server.state import ServerState
from fedamp.files import read_json, write_json, write_whole
from fedamp.records.checkpoints import Checkpoint, load_checkpoint
from fedamp.records.folder import RunFolder
from fedamp.records.reading import DESCRIPTION, LINES, read_lines

LIFE = "life.json"
OUT = "out"  # the state of a silo that trains no more
BEGUN = "server/begun"  # beside the record: rounds have been played, so there must be one


def check_whole(folder: Path) -> None:
    """Raise if rounds were played that can't be continued: starting afresh would throw them away."""
    lines = read_lines(folder / LINES) if (folder / LINES).exists() else []
    saved = load_checkpoint(folder, torch.device("cpu"))
    played = max((line["round"] for line in lines), default=0)
    known = [line["round"] for line in lines if saved is not None and line["round"] <= saved.k]
    # A first round that was written down and not yet saved never counted.
    never = played <= 1 and not any(folder.glob("checkpoint-*"))
    if not never and (saved is None or known != list(range(saved.k + 1))):
        raise UserError(
            f"{folder} has lines up to round {played}, but no checkpoint that fits them, so it is damaged; restore the "
            f"folder from a backup, or move it away and delete {folder.parent / BEGUN} to start afresh"
        )


def note_begun(folder: Path) -> None:
    """Remember outside of the record that rounds have been played."""
    if (mark := folder.parent / BEGUN).parent.is_dir() and not mark.exists():
        mark.touch()


def check_begun(folder: Path) -> None:
    """Raise if rounds have been played, though there is no record of them: starting afresh would throw them away."""
    if (mark := folder.parent / BEGUN).exists():
        raise UserError(
            f"{folder} is missing or empty, though this federation has played rounds; restore it from a backup. "
            f"To begin again from round 1, delete {mark}"
        )


def not_whole_after(folder: Path, k: int) -> str:
    """Return the rounds after round k whose checkpoints are there but not whole, as text; "" if there are none."""
    found = (re.match(r"checkpoint-(\d+)", path.name) for path in folder.glob("checkpoint-*"))
    return ", ".join(str(each) for each in sorted({int(name[1]) for name in found if name}) if each > k)


def check_members(now: Sequence[str], before: Sequence[str]) -> None:
    """Raise if a silo was removed or moved: the record's lists are in the order of the members."""
    if list(now[: len(before)]) != list(before):
        raise UserError(
            "silos were taken out of federation.json, or reordered; restore their order (new ones come last). "
            "To remove a silo: fedamp federation remove FOLDER NAME"
        )


def with_present_keys(saved: Checkpoint, members: Sequence[Member]) -> Checkpoint:
    """Return a checkpoint with the silos' present keys in place of those that they had when it was written."""
    present = {old: member.key for member in members for old in member.former}

    def now(who: str) -> str:
        return present.get(who, who)

    how = {
        **saved.how,
        "members": [now(who) for who in saved.how["members"]],
        "order": [now(who) for who in saved.how["order"]],
        "standings": {now(who): values for who, values in saved.how["standings"].items()},
    }
    return replace(saved, how=how)


def adapt(folder: Path, there: Mapping[str, Any], config: Mapping[str, Any], m: int) -> None:
    """Let a federation that has grown, or is to last longer, continue: pad older lines, which lack the new silos."""
    changed = {**there, "clients": config["clients"], "rounds": config["rounds"]}
    if changed == there or changed != config:
        return  # the same run, or truly another: `RunFolder.begin` tells them apart
    lines = [padded(line, m) for line in read_lines(folder / LINES)] if (folder / LINES).exists() else []
    RunFolder(folder).rewrite(lines)
    write_json(folder / DESCRIPTION, changed)


def restore_strikes(state: ServerState, silos: Sequence[Mapping[str, Any]], members: Sequence[Member]) -> None:
    """Remember from a status file who was set aside, and who is out, even if no round has counted since."""
    keys = {member.name: member.key for member in members}
    for silo in silos:
        if silo["name"] in keys and silo["state"] == OUT:
            standing = state.standing(keys[silo["name"]])
            standing.out, standing.reason = True, silo["reason"]
        if silo["name"] in keys and silo.get("refused"):
            standing = state.standing(keys[silo["name"]])
            standing.refused = max(standing.refused, silo["refused"])
        if silo["name"] in keys and silo["strikes"]:
            standing = state.standing(keys[silo["name"]])
            standing.strikes, standing.reason = silo["strikes"], silo["reason"]
            standing.aside = silo["state"] == "set aside"


def next_life(folder: Path) -> Life:
    """Count one more start of the federation's server."""
    before = read_json(folder / LIFE) or {"life": secrets.token_hex(8), "starts": 0}
    life = Life(before["life"], before["starts"] + 1)
    _write_life(folder, life)
    return life


def skip_starts(folder: Path, serial: int) -> None:
    """Count the starts that a message of this number tells of: they happened, but this copy of the record is older."""
    before = read_json(folder / LIFE) or {"life": secrets.token_hex(8), "starts": 0}
    _write_life(folder, Life(before["life"], max(before["starts"], serial // SERIALS)))


def _write_life(folder: Path, life: Life) -> None:
    write_whole(folder / LIFE, (json.dumps({"life": life.name, "starts": life.starts}) + "\n").encode())
