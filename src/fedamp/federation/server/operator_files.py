"""What the operator of a running federation reads and writes.

log.txt        a line for each round, and what happened in between
status.json    who is in, who is missing and since when
../admit/NAME  put there by `fedamp federation admit`: a silo that was set aside is let in again
../readmit/NAME, ../remove/NAME  by the commands of these names: a silo begins anew, or is taken out
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedamp.config.metrics import info
from fedamp.federation.moments import now
from fedamp.federation.plan import Federation, Member
from fedamp.federation.processes import rotation
from fedamp.federation.server.observer import PlayedRound
from fedamp.federation.server.silo_states import AWAY, PRESENT
from fedamp.federation.server.state import ServerState
from fedamp.federation.wire.allowed_metrics import withholds
from fedamp.federation.wire.encoding import one_line
from fedamp.files import write_whole
from fedamp.records.summaries import recorded_score

LOG, STATUS = "log.txt", "status.json"
ADMIT, READMIT, REMOVE = "admit", "readmit", "remove"
NEVER = {
    "state": "never came",
    "since": None,
    "since_time": None,
    "seen": None,
    "strikes": 0,
    "refused": 0,
    "samples": None,
    "data_changed": None,
    "withholds": False,
    "version": None,
    "reason": None,
}


def write_line(folder: Path, text: str) -> None:
    """Write a line to the log of a record."""
    folder.mkdir(parents=True, exist_ok=True)
    line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {one_line(text, 2000)}\n"
    rotation.append(folder / LOG, line.encode())


@dataclass(frozen=True)
class OperatorFiles:
    """The operator's files in a federation's record."""

    folder: Path
    federation: Federation
    state: ServerState
    metric: str

    def say(self, text: str) -> None:
        """Write a line to the log."""
        write_line(self.folder, text)

    def status(self, state: str) -> None:
        """Write who is in, who is missing, and since when."""
        value = {
            "state": state,
            "round": self.state.k,
            "rounds": self.federation.plan.config.rounds,
            "updated": now(),
            "last_round": self.state.counted_at,
            "silos": [self._silo(member, waits=state in ("waiting", "paused")) for member in self.federation.members],
        }
        write_whole(self.folder / STATUS, (json.dumps(value, indent=2) + "\n").encode())

    def _silo(self, member: Member, waits: bool) -> dict[str, Any]:
        standing = self.state.standings.get(member.key)
        if standing is None:
            return {"name": member.name, "number": member.number, **NEVER}
        if standing.removed:
            word = "removed"
        elif standing.aside:
            word = "set aside"
        elif standing.out:
            word = "out"
        elif member.key not in self.state.order:
            word = "not let in" if standing.reason else "here" if standing.samples else "never came"
        else:
            word = "in" if standing.since is None else "refuses" if standing.refuses else "missing"
        if waits and word in PRESENT and member.key not in self.state.online:  # no round is there to find it missing
            word = AWAY
        return {
            "name": member.name,
            "number": member.number,
            "state": word,
            "since": standing.since,
            "seen": standing.seen,
            "since_time": standing.since_time,
            "strikes": standing.strikes,
            "refused": standing.refused,
            "samples": standing.samples,
            "data_changed": standing.data_changed,
            "withholds": standing.withholds,
            "version": standing.version,
            "reason": standing.reason,
        }

    def admitted(self) -> list[str]:
        """Return whom the operator lets in again, by identity; each once."""
        found = self.wished(ADMIT)
        self.granted(ADMIT, found)
        return found

    def wished(self, kind: str) -> list[str]:
        """Return for whom the operator has given a command that waits in a folder of its name, by identity."""
        folder = self.folder.parent / kind
        return [member.key for member in self.federation.members if (folder / member.name).exists()]

    def granted(self, kind: str, whom: Collection[str]) -> None:
        """Take these commands out of their folder: they are done."""
        for member in self.federation.members:
            if member.key in whom:
                (self.folder.parent / kind / member.name).unlink(missing_ok=True)

    def round_text(self, played: PlayedRound, line: Mapping[str, Any]) -> str:
        """Return a round in one line of text."""
        rounds = self.federation.plan.config.rounds
        members = [member for member in self.federation.members if not self._removed(member)]
        parts = [f"round {played.k}/{rounds}: {len(played.replies)} of {len(members)} silos"]
        parts += [self._missing(member) for member in members if member.key not in played.replies]
        test = line.get("test", {})
        entry = self.state.method.scored
        if not test.get(entry) or test[entry] == test.get("own"):  # who probes has received nothing yet
            entry = "own"
        if (scores := test.get(entry)) is not None:
            parts.append(f"{entry} models: {self._score_text(scores[self.metric])}")
        if private := [member.name for member in members if self._withholds(member, played)]:
            parts.append(f"scores withheld by {', '.join(private)}")
        if "effective_clients" in line:
            known = [value for value in line["effective_clients"] if value is not None]
            parts.append(f"effective collaborators {sum(known) / len(known):.1f}")
        return ", ".join([*parts, f"{played.seconds:.1f} s"])

    def without_memory(self, played: PlayedRound) -> str:
        """Return which silos had no memory of where the server goes on, and what follows; "" if all had."""
        names = {member.key: member.name for member in self.federation.members}
        forgot = ", ".join(names[who] for who, reply in played.replies.items() if "forgot" in reply.metrics)
        method = self.state.method
        then = f"begins anew: {method.anew}" if method.remembers else "goes on, since this method needs none"
        return f"who has lost the memory of its last round {then}: {forgot}" if forgot else ""

    def _withholds(self, member: Member, played: PlayedRound) -> bool:
        return member.key in played.replies and withholds(played.replies[member.key].metrics)

    def _removed(self, member: Member) -> bool:
        standing = self.state.standings.get(member.key)
        return standing is not None and standing.removed

    def _missing(self, member: Member) -> str:
        standing = self.state.standings.get(member.key)
        if standing is not None and standing.out:
            return f"{member.name} is out ({standing.reason})"
        if standing is None or member.key not in self.state.order:
            return f"{member.name} has not joined yet"
        return (
            f"{member.name} is set aside" if standing.aside else f"{member.name} missing since round {standing.since}"
        )

    def _score_text(self, scores: Sequence[Any]) -> str:
        names = [member.name for member in self.federation.members]
        about, pairs = info(self.metric), zip(names, scores, strict=True)
        known = {name: recorded_score(value, self.metric) for name, value in pairs if value is not None}
        if not known:
            return f"no silo's test samples define {about.words}"
        mean = sum(known.values()) / len(known)
        worst = (min if about.higher_is_better else max)(known, key=lambda name: known[name])
        what = "error" if self.metric == "rmse" else about.words
        shown, least = (_shown(value, self.metric) for value in (mean, known[worst]))
        return f"mean test {what} {shown}, worst {least} ({worst})"


def _shown(score: float, metric: str) -> str:
    """Return a recorded score in words, as a line of the log has it."""
    about = info(metric)
    return about.text(about.factor * score) if math.isfinite(score) else f"{score:g}"
