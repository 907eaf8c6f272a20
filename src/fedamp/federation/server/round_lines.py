"""A round as a line of rounds.jsonl: lists with a place for each member, None if a silo has no value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from fedamp.config.metrics import info
from fedamp.federation.plan import Member
from fedamp.federation.server.observer import PlayedRound
from fedamp.federation.server.state import Reply
from fedamp.methods.base import ABOUT, SPECTRUM, by_text
from fedamp.records.summaries import finite, spread
from fedamp.records.take_home import ENTRIES

Metrics = Mapping[str, Mapping[str, float]]
"""What each silo reported, by identity."""


def round_line(played: PlayedRound, members: Sequence[Member], metric: str) -> dict[str, Any]:
    """Return the line of a round."""
    keys, replies = [member.key for member in members], played.replies
    m, here = len(keys), [place for place, who in enumerate(keys) if who in replies]
    line: dict[str, Any] = {"round": played.k, "present": [who in replies for who in keys]}

    def listed(name: str) -> list[Any]:
        return spread([replies[keys[place]].metrics.get(name, float("nan")) for place in here], here, m)

    losses = {name for reply in replies.values() for name in reply.metrics if name.startswith("train-loss")}
    for name in sorted(losses):
        line[name.replace("-", "_")] = listed(name)
    return {
        **line,
        **_diagnostics(played, keys),
        "events": [*played.diagnostics["events"], *_about(played, members)],
        "absent": {member.name: played.absent[member.key] for member in _in_order(played.absent, members)},
        **({"bytes": dict(played.num_bytes)} if played.num_bytes else {}),
        "train_seconds": listed("train-seconds"),
        **({"validation_samples": listed("num-validation")} if _held_out(replies.values()) else {}),
        "server_seconds": played.server_seconds,
        "seconds": played.seconds,
        **scores({who: reply.metrics for who, reply in replies.items()}, keys, metric),
    }


def _held_out(replies: Iterable[Reply]) -> bool:
    """Whether silos hold out samples for validation."""
    return any("num-validation" in reply.metrics for reply in replies)


def held_out_sizes(lines: Iterable[Mapping[str, Any]], m: int) -> list[int | None]:
    """Return the samples that each silo holds out for validation, as it said last; None if it never did."""
    sizes: list[int | None] = [None] * m
    for line in lines:
        said = line.get("validation_samples", [])
        sizes = [before if now is None else int(now) for now, before in zip_longest(said, sizes)]
    return sizes


def _in_order(identities: Mapping[str, str], members: Sequence[Member]) -> list[Member]:
    by_key = {member.key: member for member in members}
    return [by_key[who] for who in identities]


def _about(played: PlayedRound, members: Sequence[Member]) -> list[str]:
    """Return the method's warnings about single silos, by their names: its rows are in the order of arrival."""
    names = {member.key: member.name for member in members}
    about = by_text(played.diagnostics.get(ABOUT, []))
    return [f"{', '.join(names[played.order[row]] for row in some)}: {text}" for text, some in about.items()]


def _diagnostics(played: PlayedRound, keys: Sequence[str]) -> dict[str, Any]:
    """Return what the method says about its rows, and about the round as a whole; xi has a file of its own."""
    places, found = [keys.index(who) for who in played.order], {}
    for name, value in played.diagnostics.items():
        if isinstance(value, Tensor) and value.ndim == 1:
            found[name] = spread(value.tolist(), places, len(keys))
        elif isinstance(value, float) or name == SPECTRUM:
            found[name] = finite(value)
    return found


def scores(metrics: Metrics, keys: Sequence[str], metric: str) -> dict[str, Any]:
    """Return the silos' scores as a round's line has them."""
    m, found = len(keys), {}
    for on in ("test", "validation"):
        entries = {}
        for entry in ENTRIES:
            key, loss = f"{on}.{entry}.{metric}", f"{on}.{entry}.loss"
            # Who sends a loss without a score has samples that do not define one.
            here = [place for place, who in enumerate(keys) if {key, loss} & metrics.get(who, {}).keys()]
            if not here:
                continue
            values = [_or_broken(metrics[keys[place]], key) for place in here]
            losses = [metrics[keys[place]].get(loss, float("nan")) for place in here]
            entries[entry] = {metric: spread(values, here, m, broken="inf"), "loss": spread(losses, here, m)}
        if entries:
            found[on] = entries
    return found


def without_score(lines: Iterable[Mapping[str, Any]], metric: str, m: int) -> list[int]:
    """Return the places of silos that have sent losses on test samples and never a score: none is defined there."""
    tested = [scores for line in lines for scores in line.get("test", {}).values()]

    def known(what: str, place: int) -> bool:
        return any(place < len(scores[what]) and scores[what][place] is not None for scores in tested)

    return [place for place in range(m) if known("loss", place) and not known(metric, place)]


def _or_broken(said: Mapping[str, float], key: str) -> float:
    """Return a score that a silo sent, infinite if it is no number; nan if it sent none."""
    return float("nan") if key not in said else float("inf") if math.isnan(said[key]) else said[key]


def first_scores(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the scores that a silo had before its first training."""
    return {name.removeprefix("first."): value for name, value in metrics.items() if name.startswith("first.")}


def received_scores(received: Mapping[str, Any], metric: str) -> list[float | None] | None:
    """Return the test scores of what the server would send next, by silo; None for those that did not report any."""
    if "test" not in received:
        return None
    values = [None if value in (None, "inf") else float(value) for value in received["test"]["received"][metric]]
    return [None if value is None else info(metric).factor * value for value in values]


def placed(xi: Tensor, places: Sequence[int], m: int) -> Tensor:
    """Return xi `(n, n)` in the order of the m members; a silo that has no row yet listens only to itself."""
    whole = torch.eye(m)
    index = torch.tensor(places)
    whole[index[:, None], index] = xi.cpu().float()
    return whole


def grown(xi: Tensor, m: int) -> Tensor:
    """Return xi of a round before silos were added, for m members."""
    return placed(xi, range(len(xi)), m)


def padded(line: dict[str, Any], m: int) -> dict[str, Any]:
    """Return a round's line with None for silos that joined the federation after it was written."""
    lists = {
        "present",
        "train_seconds",
        "validation_samples",
        "self_weight",
        "effective_clients",
        "expected_gain",
        "opposed",
    }
    longer = dict(line)
    for name, value in line.items():
        if isinstance(value, list) and (name in lists or name.startswith("train_loss")):
            longer[name] = value + [False if name == "present" else None] * (m - len(value))
    for on in ("test", "validation"):
        if on in line:
            longer[on] = {
                entry: {what: values + [None] * (m - len(values)) for what, values in by.items()}
                for entry, by in line[on].items()
            }
    return longer
