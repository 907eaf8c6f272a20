"""The server's record of a federation: a run folder like any other, so that `fedamp report` reads it.

Besides the files of a run folder there are:
log.txt       a line a round, and what happened in between, for the operator
status.json   who is in, who is missing and since when
life.json     the federation's own number, and how often its server was started
../admit/NAME put there by `fedamp federation admit`: a silo that was set aside is let in again
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedamp.config import Named
from fedamp.data.silos.schema_file import schema_to_json
from fedamp.errors import UserError
from fedamp.federation.plan import Federation
from fedamp.federation.server.state import Reply, ServerState
from fedamp.federation.server.strategy import Played
from fedamp.federation.wire.encoding import one_line
from fedamp.files import read_json, write_whole
from fedamp.records.checkpoints import load_checkpoint
from fedamp.records.folder import RunFolder
from fedamp.records.metrics import finite, score_table, spread, summarise
from fedamp.records.reading import DESCRIPTION, LINES, RESULT, read_lines

LOG, STATUS, LIFE, ADMIT = "log.txt", "status.json", "life.json", "admit"
NEVER = {"state": "never came", "since": None, "strikes": 0, "samples": None, "reason": None}


@dataclass
class Record:
    """Writes what a federation does. Lists over silos stand in the order of the members."""

    folder: Path
    federation: Federation
    state: ServerState
    metric: str
    facts: Mapping[str, Any]
    seconds: float = 0.0
    xis: list[Tensor] = field(default_factory=list)
    life: str = ""
    starts: int = 0
    warned: bool = False

    @property
    def keys(self) -> list[str]:
        """The members' identities, in order."""
        return [member.key for member in self.federation.members]

    def finished(self) -> bool:
        """Return whether all rounds are played and summed up."""
        result = read_json(self.folder / RESULT)
        return result is not None and result["rounds"] >= self.federation.plan.config.rounds

    def begin(self) -> None:
        """Make the folder ready, and take up where a federation was broken off."""
        run, config = RunFolder(self.folder), self._description()
        there = read_json(self.folder / DESCRIPTION)
        if there is not None:
            self._adapt(there, config)
            self._check_whole()
        saved = run.begin(config, schema_to_json(self.federation.plan.schema), torch.device("cpu"))
        if saved is not None:
            self._check_members(saved.how["members"])
            self.state.restore(saved)
            self.seconds = saved.how["seconds"]
            m = len(self.keys)
            self.xis = [] if saved.xi is None else [_grown(xi, m) for xi in saved.xi]
            self.say(f"going on after round {self.state.k}")
        before = read_json(self.folder / STATUS) or {"silos": []}
        self._take_over(before["silos"])
        told = read_json(self.folder / LIFE) or {"life": secrets.token_hex(8), "starts": 0}
        self.life, self.starts = told["life"], told["starts"] + 1
        text = json.dumps({"life": self.life, "starts": self.starts})
        write_whole(self.folder / LIFE, (text + "\n").encode())
        self.status("waiting")

    def _check_whole(self) -> None:
        """Raise where rounds were played that can't be taken up: beginning anew would throw them away."""
        lines = read_lines(self.folder / LINES) if (self.folder / LINES).exists() else []
        saved = load_checkpoint(self.folder, torch.device("cpu"))
        played = max((line["round"] for line in lines), default=0)
        known = [line["round"] for line in lines if saved is not None and line["round"] <= saved.k]
        # A first round that was written down and not yet saved never counted.
        never = played <= 1 and not any(self.folder.glob("checkpoint-*"))
        if not never and (saved is None or known != list(range(saved.k + 1))):
            raise UserError(
                f"{self.folder} holds {played} rounds, but no checkpoint that fits them: it was damaged. Put the "
                "folder back from a copy; to begin anew, move it away"
            )

    def _check_members(self, before: Sequence[str]) -> None:
        """Raise where a silo was taken out or moved: the record's lists stand in the order of the members."""
        if self.keys[: len(before)] != list(before):
            raise UserError(
                "silos were taken out of federation.json, or moved; put them back in their order (new ones come last). "
                "To keep a silo out, delete server/keys/NAME.pub and server/run"
            )

    def _take_over(self, silos: Sequence[Mapping[str, Any]]) -> None:
        """Remember who was set aside, also where no round has counted since."""
        for told in silos:
            for member in self.federation.members:
                if member.name == told["name"] and told["strikes"]:
                    standing = self.state.standing(member.key)
                    standing.strikes, standing.reason = told["strikes"], told["reason"]
                    standing.aside = told["state"] == "set aside"

    def _description(self) -> dict[str, Any]:
        plan = self.federation.plan
        own = replace(plan.config, data=plan.name, setting=Named("federation"), clients=len(self.keys))
        return own.to_dict()

    def _adapt(self, there: dict[str, Any], config: Mapping[str, Any]) -> None:
        """Let a federation go on that has grown, or is to last longer: older lines know nothing of the new silos."""
        changed = {**there, "clients": config["clients"], "rounds": config["rounds"]}
        if changed == there or changed != config:
            return  # the same run, or truly another: `begin` tells them apart
        m = len(self.keys)
        lines = [_padded(line, m) for line in read_lines(self.folder / LINES)] if (self.folder / LINES).exists() else []
        write_whole(self.folder / LINES, "".join(json.dumps(line) + "\n" for line in lines).encode())
        write_whole(self.folder / DESCRIPTION, (json.dumps(changed, indent=2) + "\n").encode())

    # -- rounds ----------------------------------------------------------------------------------------------------

    def after(self, played: Played) -> None:
        """Write a round's line, then the checkpoint: from now on the round counts."""
        run = RunFolder(self.folder)
        self.seconds += played.seconds
        if played.k == 1:
            first = {who: _first(told.metrics) for who, told in played.told.items()}
            run.add({"round": 0, "events": [], "seconds": 0.0, **self._scores(first)}, sync=True)
        if "xi" in played.diagnostics:
            places = [self.keys.index(who) for who in played.order]
            self.xis.append(_placed(played.diagnostics["xi"], places, len(self.keys)))
        line = self._line(played)
        run.add(line, sync=True)
        xi = torch.stack(self.xis) if self.xis else None
        run.save(self.state.checkpoint(xi, {"seconds": self.seconds, "members": self.keys}))
        if len(self.state.order) == 2 and not self.warned:
            self.warned = True
            self.say("only two silos have come so far: each can compute the other's model from what it gets")
        self.say(self._words(played, line))
        self.status("running")

    def _line(self, played: Played) -> dict[str, Any]:
        m, told = len(self.keys), played.told
        places = [self.keys.index(who) for who in played.order]
        line: dict[str, Any] = {"round": played.k, "present": [who in told for who in self.keys]}
        here = [place for place, who in enumerate(self.keys) if who in told]
        for name in sorted({name for one in told.values() for name in one.metrics if name.startswith("train-loss")}):
            losses = [told[self.keys[place]].metrics.get(name, float("nan")) for place in here]
            line[name.replace("-", "_")] = spread(losses, here, m)
        for name, value in played.diagnostics.items():
            if isinstance(value, Tensor) and value.ndim == 1:
                line[name] = spread(value.tolist(), places, m)
            elif isinstance(value, float):
                line[name] = finite(value)
        training = [told[self.keys[place]].metrics.get("train-seconds", float("nan")) for place in here]
        return {
            **line,
            "events": list(played.diagnostics["events"]),
            "absent": {self._name(who): reason for who, reason in played.absent.items()},
            "train_seconds": spread(training, here, m),
            "server_seconds": played.server_seconds,
            "seconds": played.seconds,
            **self._scores({who: one.metrics for who, one in told.items()}),
        }

    def _scores(self, metrics: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
        """Return the silos' scores as a round's line has them."""
        m, scores = len(self.keys), {}
        for on in ("test", "validation"):
            entries = {}
            for entry in ("own", "received"):
                key = f"{on}.{entry}.{self.metric}"
                here = [place for place, who in enumerate(self.keys) if key in metrics.get(who, {})]
                if not here:
                    continue
                values = [metrics[self.keys[place]][key] for place in here]
                losses = [metrics[self.keys[place]].get(f"{on}.{entry}.loss", float("nan")) for place in here]
                entries[entry] = {self.metric: spread(values, here, m, broken="inf"), "loss": spread(losses, here, m)}
            if entries:
                scores[on] = entries
        return scores

    def _words(self, played: Played, line: Mapping[str, Any]) -> str:
        """Return the operator's line."""
        rounds = self.federation.plan.config.rounds
        words = [f"round {played.k}/{rounds}: {len(played.told)} of {len(self.keys)} silos"]
        for member in self.federation.members:
            standing = self.state.standings.get(member.key)
            if member.key in played.told:
                continue
            if standing is None or member.key not in self.state.order:
                words.append(f"{member.name} has not come yet")
            elif standing.aside:
                words.append(f"{member.name} is set aside")
            else:
                words.append(f"{member.name} missing since round {standing.since}")
        scores = line.get("test", {}).get(self.state.method.scored) or line.get("test", {}).get("own")
        if scores is not None:
            words.append(self._score_words(scores[self.metric]))
        if "effective_clients" in line:
            known = [value for value in line["effective_clients"] if value is not None]
            words.append(f"effective collaborators {sum(known) / len(known):.1f}")
        return ", ".join([*words, f"{played.seconds:.1f} s"])

    def _score_words(self, scores: Sequence[Any]) -> str:
        known = {self.federation.members[i].name: float(value) for i, value in enumerate(scores) if value is not None}
        mean = sum(known.values()) / len(known)
        if self.metric == "accuracy":
            worst = min(known, key=lambda name: known[name])
            return f"mean accuracy {mean:.2%}, worst {known[worst]:.2%} ({worst})"
        worst = max(known, key=lambda name: known[name])
        return f"mean error {mean:.4g}, worst {known[worst]:.4g} ({worst})"

    # -- the end ---------------------------------------------------------------------------------------------------

    def last(self, told: Mapping[str, Reply]) -> None:
        """Write the scores of what the server would send next, and what the federation came to."""
        run, method = RunFolder(self.folder), self.state.method
        scores = self._scores({who: one.metrics for who, one in told.items()})
        received = {on: {"received": by["received"]} for on, by in scores.items() if "received" in by}
        if received:
            run.add({"round": self.state.k + 1, "events": [], "seconds": 0.0, **received})
        lines = run.lines()
        table = score_table(lines, method.scored, self.metric)
        if not len(table):
            table = score_table(lines, "own", self.metric)
        # Who was never scored enters no mean; before all others were, there is none.
        scored = [bool((~np.isnan(column)).any()) for column in table.T]
        summary = summarise(table, self.metric, scored)
        assert self.state.method_state is not None, "no silo has joined"
        _, message = method.server_send(self.state.method_state, self.state.k + 1)
        joined = method.client_models(method.client_init(self.state.first.repeat(len(self.state.order))), message)
        places = [self.keys.index(who) for who in self.state.order]
        samples = [self.state.standings[who].samples if who in self.state.standings else None for who in self.keys]
        result = {
            "finished": True,
            "method": self.federation.plan.config.method.name,
            "scored": method.scored,
            **summary.to_dict(),
            "rounds": self.state.k,
            "seconds": self.seconds,
            "warnings": list(dict.fromkeys(event for line in lines for event in line["events"])),
            "facts": {**self.facts, "sizes": samples, "rows": places},
            # Each silo has its own models at home, with their scores; the server has what it would send next.
            "models": {"received": {"round": self.state.k, "scores": _last_scores(received, self.metric)}},
        }
        models = {"received": joined["received"]} if "received" in joined else {}
        run.finish(result, models, torch.stack(self.xis) if self.xis else None, forget=False)
        best = f"{summary.best:.2f} %" if self.metric == "accuracy" else f"{summary.best:.4g}"
        self.say(f"finished: best mean {self.metric} {best} in round {summary.best_round}")
        self.status("finished")

    # -- for the operator ------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Write a line to the operator's log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {one_line(text, 2000)}\n")

    def status(self, state: str) -> None:
        """Write who is in, who is missing, and since when."""
        silos = []
        for member in self.federation.members:
            standing = self.state.standings.get(member.key)
            told: dict[str, Any] = {"name": member.name, "number": member.number}
            if standing is None:
                silos.append({**told, **NEVER})
                continue
            if standing.aside:
                word = "set aside"
            elif member.key not in self.state.order:
                word = "not let in" if standing.reason else "here" if standing.samples else "never came"
            else:
                word = "in" if standing.since is None else "missing"
            told |= {"state": word, "since": standing.since, "strikes": standing.strikes}
            silos.append({**told, "samples": standing.samples, "reason": standing.reason})
        value = {
            "state": state,
            "round": self.state.k,
            "rounds": self.federation.plan.config.rounds,
            "updated": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "silos": silos,
        }
        write_whole(self.folder / STATUS, (json.dumps(value, indent=2) + "\n").encode())

    def admitted(self) -> Iterable[str]:
        """Return whom the operator lets in again, once."""
        found = []
        for member in self.federation.members:
            wish = self.folder.parent / ADMIT / member.name
            if wish.exists():
                wish.unlink()
                found.append(member.key)
        return found

    def _name(self, key: str) -> str:
        return self.federation.members[self.keys.index(key)].name


def _first(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the scores that a silo had before its first training."""
    return {name.removeprefix("first."): value for name, value in metrics.items() if name.startswith("first.")}


def _placed(xi: Tensor, places: Sequence[int], m: int) -> Tensor:
    """Return xi `(n, n)` in the order of the m members; who has no row yet listens to itself alone."""
    whole = torch.eye(m)
    index = torch.tensor(places)
    whole[index[:, None], index] = xi.cpu().float()
    return whole


def _last_scores(received: Mapping[str, Any], metric: str) -> list[float | None] | None:
    """Return the test scores of what the server would send next, by silo; None for those that did not tell."""
    if "test" not in received:
        return None
    scores = [None if value in (None, "inf") else float(value) for value in received["test"]["received"][metric]]
    return [None if score is None else 100 * score if metric == "accuracy" else score for score in scores]


def _grown(xi: Tensor, m: int) -> Tensor:
    return _placed(xi, range(len(xi)), m)


def _padded(line: dict[str, Any], m: int) -> dict[str, Any]:
    """Return a round's line with None for silos that came to the federation after it was written."""
    lists = {"present", "train_seconds", "self_weight", "effective_clients"}
    padded = dict(line)
    for name, value in line.items():
        if isinstance(value, list) and (name in lists or name.startswith("train_loss")):
            padded[name] = value + [False if name == "present" else None] * (m - len(value))
    for on in ("test", "validation"):
        if on in line:
            padded[on] = {
                entry: {what: values + [None] * (m - len(values)) for what, values in scores.items()}
                for entry, scores in line[on].items()
            }
    return padded
