"""The server's record of a federation: a run folder like any other, so that `fedamp report` reads it.

Besides the files of a run folder there are those of `operator_files` and of `resume`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedamp.config import Named
from fedamp.config.metrics import info
from fedamp.data.silos.schema_file import schema_to_json
from fedamp.federation.plan import Federation
from fedamp.federation.server import data_changes, resume
from fedamp.federation.server.observer import PlayedRound
from fedamp.federation.server.operator_files import READMIT, REMOVE, STATUS, OperatorFiles
from fedamp.federation.server.outbox import Life
from fedamp.federation.server.round_lines import (
    first_scores,
    grown,
    held_out_sizes,
    placed,
    received_scores,
    round_line,
    scores,
    without_score,
)
from fedamp.federation.server.state import Reply, ServerState
from fedamp.files import read_json
from fedamp.records.checkpoints import Checkpoint, Kept
from fedamp.records.facts import Facts
from fedamp.records.folder import RunFolder
from fedamp.records.reading import DESCRIPTION, RESULT
from fedamp.records.summaries import Summary, in_unit, score_table, summarise
from fedamp.records.take_home import HeldOut, TakeHome
from fedamp.rows import Rows
from fedamp.runs.scoring import take_home_rule

KEPT = Kept(last=3, every=10, most=10)
"""Rounds that a federation can be rewound to. A checkpoint holds all rows: at most 13 times that is on the disk."""


@dataclass(frozen=True)
class TaskFacts:
    """What is learned, and with how large a model: what a result says about it."""

    task: str
    metric: str
    input_shape: tuple[int, ...]
    num_outputs: int
    parameters: int
    positive: str | None = None  # of two classes, the positive one


@dataclass
class Record:
    """Writes down what a federation does: its `Observer`. Lists over silos are in the order of the members."""

    folder: Path
    federation: Federation
    state: ServerState
    facts: TaskFacts
    seconds: float = 0.0
    xis: list[Tensor] = field(default_factory=list)
    warned: bool = False

    def __post_init__(self) -> None:
        self.operator = OperatorFiles(self.folder, self.federation, self.state, self.facts.metric)

    @property
    def keys(self) -> list[str]:
        """The members' identities, in order."""
        return [member.key for member in self.federation.members]

    def finished(self) -> bool:
        """Return whether all rounds are played and summed up."""
        result = read_json(self.folder / RESULT)
        return result is not None and result["rounds"] >= self.federation.plan.config.rounds

    def begin(self) -> Life:
        """Make the folder ready, and continue where a federation was interrupted; count the server's start."""
        run, config = self._run(), self._config()
        there = read_json(self.folder / DESCRIPTION)
        if there is not None:
            resume.adapt(self.folder, there, config, len(self.keys))
            resume.check_whole(self.folder)
        else:
            resume.check_begun(self.folder)
        saved = run.begin(config, schema_to_json(self.federation.plan.schema), torch.device("cpu"))
        if saved is not None:
            saved = resume.with_present_keys(saved, self.federation.members)
            resume.check_members(self.keys, saved.how["members"])
            self.state.restore(saved)
            self.seconds = saved.how["seconds"]
            self.xis = [] if saved.xi is None else [grown(xi, len(self.keys)) for xi in saved.xi]
            self.say(f"continuing after round {self.state.k}")
            if lost := resume.not_whole_after(self.folder, self.state.k):
                self.say(f"later checkpoints are damaged or half written, and not used: those of round {lost}")
        before = read_json(self.folder / STATUS) or {"silos": []}
        resume.restore_strikes(self.state, before["silos"], self.federation.members)
        self.state.counted_at = before.get("last_round")
        for member in self.federation.members:
            if member.removed:
                self.state.remove(member.key)
        self.state.choice = self._held_out(run.lines()).choice
        life = resume.next_life(self.folder)
        self.status("waiting")
        return life

    def _run(self) -> RunFolder:
        return RunFolder(self.folder, kept=KEPT)

    def _checkpoint(self) -> Checkpoint:
        return self.state.checkpoint(self._xi(), {"seconds": self.seconds, "members": self.keys})

    def _counts(self, key: str) -> bool:
        """Return whether a silo's scores count: those of one that was removed do not."""
        return key not in self.state.standings or not self.state.standings[key].removed

    def _config(self) -> dict[str, Any]:
        plan = self.federation.plan
        own = replace(plan.config, data=plan.name, setting=Named("federation"), clients=len(self.keys))
        return own.to_dict()

    # -- what an observer does -------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Write a line to the operator's log."""
        self.operator.say(text)

    def status(self, state: str) -> None:
        """Write who is in, who is missing, and since when."""
        self.operator.status(state)

    def admitted(self) -> Iterable[str]:
        """Return whom the operator lets in again, once."""
        return self.operator.admitted()

    def readmitted(self) -> Iterable[str]:
        """Return whom the operator lets begin anew."""
        return self.operator.wished(READMIT)

    def removed(self) -> Iterable[str]:
        """Return whom the operator takes out."""
        return self.operator.wished(REMOVE)

    def rearranged(self, readmitted: Sequence[str], removed: Sequence[str]) -> None:
        """Write the checkpoint again, with silos readmitted or removed since; then the commands are done."""
        if self.state.k and self.state.order:
            self._run().save(self._checkpoint())
        self.operator.granted(READMIT, readmitted)
        self.operator.granted(REMOVE, removed)
        self.status("running")

    def caught_up(self, serial: int) -> None:
        """Keep how often the server has been started in truth, as the silos have seen."""
        resume.skip_starts(self.folder, serial)
        self.say("the silos have seen later messages than this record knows: it is an older copy; going on from it")

    def round_played(self, played: PlayedRound) -> None:
        """Write a round's line, then the checkpoint: from now on the round counts."""
        run, metric = self._run(), self.facts.metric
        self.seconds += played.seconds
        if played.k == 1:
            first = {who: first_scores(reply.metrics) for who, reply in played.replies.items()}
            run.add({"round": 0, "events": [], "seconds": 0.0, **scores(first, self.keys, metric)}, sync=True)
        if "xi" in played.diagnostics:
            places = [self.keys.index(who) for who in played.order]
            self.xis.append(placed(played.diagnostics["xi"], places, len(self.keys)))
        line = round_line(played, self.federation.members, metric)
        changes = data_changes.news(self.state, played.replies, self.federation.members)
        line["events"] += changes
        run.add(line, sync=True)
        self.state.choice = self._held_out(run.lines()).choice
        run.save(self._checkpoint())
        resume.note_begun(self.folder)
        if text := self.operator.without_memory(played):
            self.say(text)
        if len(self.state.order) == 2 and not self.warned:
            self.warned = True
            self.say("only two silos have joined so far: each can compute the other's model from what it receives")
        for text in [self.operator.round_text(played, line), *changes]:
            self.say(text)
        self.status("running")

    def last_scores(self, replies: Mapping[str, Reply]) -> None:
        """Write the scores of what the server would send next, and the federation's result."""
        run, metric = RunFolder(self.folder), self.facts.metric
        found = scores({who: reply.metrics for who, reply in replies.items()}, self.keys, metric)
        received = {on: {"received": by["received"]} for on, by in found.items() if "received" in by}
        changes = data_changes.news(self.state, replies, self.federation.members)
        if received:
            run.add({"round": self.state.k + 1, "events": changes, "seconds": 0.0, **received})
        for text in changes:
            self.say(text)
        lines = run.lines()
        summary = self._summary(lines)
        result = self._result(summary, lines, received)
        self.state.choice = self._held_out(lines).choice
        run.finish(result, self._next_models(), self._xi(), forget=False)
        self.say(f"finished: {self._best_text(summary, lines)}")
        self.status("finished")

    # -- the result ------------------------------------------------------------------------------------------------

    def _xi(self) -> Tensor | None:
        return torch.stack(self.xis) if self.xis else None

    def _summary(self, lines: list[dict[str, Any]]) -> Summary:
        table = score_table(lines, self.state.method.scored, self.facts.metric)
        if not len(table):
            table = score_table(lines, "own", self.facts.metric)
        if not len(table):  # all silos keep their scores at home
            table = np.full((1, len(self.keys)), np.nan)
        # A silo that was never scored enters no mean; until all others have been scored, there is no mean.
        columns = zip(self.keys, table.T, strict=True)
        scored = [self._counts(key) and bool((~np.isnan(column)).any()) for key, column in columns]
        return summarise(table, self.facts.metric, scored)

    def _best_text(self, summary: Summary, lines: list[dict[str, Any]]) -> str:
        """Return the best round in words: like a round's line, it says which models its score is of."""
        if not any("test" in line for line in lines):
            return "all silos keep their scores at home"
        about, scored, k = info(self.facts.metric), self.state.method.scored, summary.best_round
        entry = scored if len(score_table(lines, scored, self.facts.metric)) else "own"
        made = f"of the {entry} models that round {k} made"
        if entry == "received":  # silos score them when they get them
            made += f" (line of round {k + 1})" if k < self.state.k else " (scored after the last line)"
        return f"{about.best_mean} {about.text(summary.best)}, {made}"

    def _held_out(self, lines: list[dict[str, Any]]) -> HeldOut:
        """Return what the silos' held-out samples say; one that was removed, or never told how many, does not count."""
        said = zip(self.keys, held_out_sizes(lines, len(self.keys)), strict=True)
        sizes = tuple((self._counts(key) and size) or 0 for key, size in said)
        return HeldOut(sizes, self.facts.metric, self.state.method.scored).over(lines if any(sizes) else [])

    def _take_home(self, lines: list[dict[str, Any]]) -> dict[str, Any]:
        """Return what held-out samples choose, decided as in a simulation; nothing if none are held out."""
        said = self._held_out(lines)
        if (one := said.choice) is None:
            return {}
        test = score_table(lines, one.entry, self.facts.metric)[one.round - 1]
        rule = take_home_rule(self.federation.plan.config, self.state.method)
        return {"take_home": TakeHome.of_choice(rule, said, in_unit(test, self.facts.metric).tolist()).to_dict()}

    def _next_models(self) -> dict[str, Rows]:
        """Return what the server would send next, a row for each silo that has joined."""
        state, method = self.state, self.state.method
        assert state.method_state is not None, "no silo has joined"
        _, message = method.server_send(state.method_state, state.k + 1)
        models = method.client_models(method.client_init(state.first.repeat(len(state.order))), message)
        return {"received": models["received"]} if "received" in models else {}

    def _result(self, summary: Summary, lines: list[dict[str, Any]], received: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "finished": True,
            "method": self.federation.plan.config.method.name,
            "scored": self.state.method.scored,
            **summary.to_dict(),
            "rounds": self.state.k,
            "seconds": self.seconds,
            "warnings": list(dict.fromkeys([*self._unscored(lines), *(e for line in lines for e in line["events"])])),
            "facts": self._facts(lines).to_dict(),
            # Each silo has its own models at home, with their scores; the server has what it would send next.
            "models": {"received": {"round": self.state.k, "scores": received_scores(received, self.facts.metric)}},
            **self._take_home(lines),
        }

    def _unscored(self, lines: list[dict[str, Any]]) -> list[str]:
        """Return a warning about silos whose test samples do not define the metric."""
        places = without_score(lines, self.facts.metric, len(self.keys))
        who = ", ".join(self.federation.members[place].name for place in places)
        words = info(self.facts.metric).words
        return [f"{words} is not defined by the test samples of {who}: they are in no mean and no p"] if places else []

    def _facts(self, lines: list[dict[str, Any]]) -> Facts:
        """Return what a result says about its run; what only a simulation knows is left out."""
        standings, held_out = self.state.standings, held_out_sizes(lines, len(self.keys))
        return Facts(
            names=[member.name for member in self.federation.members],
            task=self.facts.task,
            positive=self.facts.positive,
            undefined=without_score(lines, self.facts.metric, len(self.keys)) or None,
            withheld=[i for i, who in enumerate(self.keys) if who in standings and standings[who].withholds] or None,
            poisoned=[],
            input_shape=list(self.facts.input_shape),
            num_outputs=self.facts.num_outputs,
            parameters=self.facts.parameters,
            engine="federation",
            sizes=[standings[who].samples if who in standings else None for who in self.keys],
            validation_sizes=held_out if any(held_out) else None,
            rows=[self.keys.index(who) for who in self.state.order],
        )
