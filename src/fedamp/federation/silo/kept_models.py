"""The models that a silo has at home besides the newest ones: its best, and those of its last rounds.

run/models/best.safetensors, best.json   the best by the silo's own validation samples; none if nothing is held out
run/models/rounds/0042/ENTRY.*           the models of round 42; of the last three rounds

A JSON beside each says how to build and feed it, its scores, and the round that made it. Test samples never choose.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedamp.files import read_json, write_json, write_whole
from fedamp.records.summaries import finite
from fedamp.records.take_home import CHOSEN, ENTRIES, Candidate, HeldOut

BEST, ROUNDS = "best", "rounds"
LAST = 3
"""Rounds whose models are kept."""
ENDINGS = (".safetensors", ".json")


def keep_round(folder: Path, k: int, entries: Iterable[str]) -> None:
    """Keep the models of round k as they are now in a folder of their own, whole or not at all; delete old rounds.

    Rounds after k go too: the server has gone back to an earlier one, and plays them again.
    """
    rounds = folder / ROUNDS
    made, target = rounds / f".{k:04d}.part", rounds / f"{k:04d}"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    for name in (f"{entry}{ending}" for entry in entries for ending in ENDINGS):
        _link(folder / name, made / name)
    shutil.rmtree(target, ignore_errors=True)
    made.rename(target)
    for other in rounds.iterdir():
        if not (other.name.isdigit() and k - LAST < int(other.name) <= k):
            shutil.rmtree(other, ignore_errors=True)


def _link(source: Path, target: Path) -> None:
    """Give a file a second name: it takes no more room, and stays when a newer one takes the first name."""
    try:
        os.link(source, target)
    except OSError:  # not on this file system
        shutil.copy(source, target)


def keep_best(folder: Path, k: int, scores: Mapping[str, float], held_out: HeldOut) -> None:
    """Keep the best model so far, among those that were scored in round k; what was received then is of round k - 1.

    `held_out` names the silo's samples, metric and entry. If their number has changed, older scores can't be compared,
    and the best begins anew.
    """
    metric = held_out.metric
    found = {
        entry: {what: [scores[f"validation.{entry}.{what}"]] for what in (metric, "loss")}
        for entry in ENTRIES
        if f"validation.{entry}.{metric}" in scores
    }
    before = _best(folder, held_out.sizes[0])
    known = {} if before is None else {before.entry: before}
    said = HeldOut(held_out.sizes, metric, held_out.scored, best=known).after({"round": k, "validation": found})
    one = said.choice
    if one is None or one == before:
        return
    details = read_json(folder / f"{one.entry}.json") or {}
    # A best model without its JSON counts for nothing: so it is never told with the scores of another.
    (folder / f"{BEST}.json").unlink(missing_ok=True)
    write_whole(folder / f"{BEST}.safetensors", (folder / f"{one.entry}.safetensors").read_bytes())
    write_json(folder / f"{BEST}.json", {**details, BEST: finite({**asdict(one), "samples": held_out.sizes[0]})})


def _best(folder: Path, samples: int) -> Candidate | None:
    """Return the best model so far, if it was scored on as many samples."""
    told = (read_json(folder / f"{BEST}.json") or {}).get(BEST)
    if told is None or told["samples"] != samples:
        return None
    return Candidate(told["entry"], told["round"], told["score"], math.inf if told["loss"] is None else told["loss"])


@dataclass(frozen=True)
class Kept:
    """A model at home."""

    path: Path  # its safetensors
    entry: str  # own, received, ...
    metric: str
    round: int  # that made it
    validation: float | None  # None: not held out, or not finite
    test: float | None
    samples: int | None = None  # of the silo's own that chose it

    @property
    def name(self) -> str:
        """Its file's name without ending, from the models' folder on; of best and chosen, which entry it is."""
        own, place = self.path.stem, self.path.parent
        if place.parent.name == ROUNDS:
            return f"{ROUNDS}/{place.name}/{own}"
        return own if own == self.entry else f"{own} ({self.entry})"


def kept(folder: Path) -> list[Kept]:
    """Return the models in a silo's folder: the best, what all silos chose, the newest, then round by round."""
    found = []
    for path in [*folder.glob("*.json"), *folder.glob(f"{ROUNDS}/[0-9]*/*.json")]:
        details, tensors = read_json(path), path.with_suffix(".safetensors")
        if details is not None and tensors.exists():
            found.append(_kept(tensors, details))
    first = {name: place for place, name in enumerate((BEST, CHOSEN, *ENTRIES))}

    def order(one: Kept) -> tuple[int, int, str]:
        named, place = one.path.parent == folder, first.get(one.path.stem, len(first))
        of_round = 0 if named else -int(one.path.parent.name)
        return (0, place, one.path.stem) if named else (1, of_round, f"{place} {one.path.stem}")

    return sorted(found, key=order)


def _kept(tensors: Path, details: Mapping[str, Any]) -> Kept:
    score = details["score"]
    return Kept(
        tensors,
        details["entry"],
        score["metric"],
        score["round"],
        score.get("validation"),
        score.get("test"),
        details.get(BEST, {}).get("samples"),
    )
