"""Who helps whom, and why: what a run's method found out about its clients, read from the rounds' lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ALONE = 1.05
"""Effective clients, itself counted, below which a client keeps to itself: the others would be rounded to 0.0."""
FEW = 4
"""As many clients are named; of more there is only a count."""


@dataclass(frozen=True)
class Helping:
    """What AutoAMP read from the probe; lists over clients have None for one that never came."""

    spectrum: list[float]  # of M, in units of the mean noise, the largest first
    rank: int  # how many of them are more than noise
    noise_share: float  # of what differs between models, 0 to 1
    self_weight: list[float | None]
    effective: list[float | None]  # clients that each one listens to, itself counted
    gain: list[float | None]  # share of its expected error that each one loses by listening
    opposed: list[float | None]  # how many clients learned the opposite of each one; empty if that was not noted

    @property
    def others(self) -> list[float | None]:
        """How many others each client listens to."""
        return [None if value is None else max(0.0, value - 1) for value in self.effective]


def helping(lines: Sequence[Mapping[str, Any]]) -> Helping | None:
    """Return what the last round's line says, or None if the method does not say it, or has not found out yet."""
    known = [line for line in lines if line.get("spectrum") and line.get("noise")]
    if not known:
        return None
    line = known[-1]
    return Helping(
        spectrum=sorted((float(value) for value in line["spectrum"] if value is not None), reverse=True),
        rank=int(line["rank"]),
        noise_share=float(line["noise_share"]),
        self_weight=list(line["self_weight"]),
        effective=list(line["effective_clients"]),
        gain=list(line["expected_gain"]),
        opposed=list(line.get("opposed") or []),
    )


def in_a_sentence(found: Helping, names: Sequence[str] | None = None) -> str:
    """Return what was found in a sentence or two, for people."""
    here = [value for value in found.effective if value is not None]
    if len(found.effective) == 1:
        return "There is nobody to listen to: there is only one client."
    if len(here) < 2:
        return "There is nobody to listen to: only one client has finished its probe."
    if not found.rank:
        if min(here) >= ALONE:
            return "Nobody differs measurably: everyone gets the average."
        return f"Nobody differs measurably: those who have probed and are heard get their average; {_alone(here)}."
    first = f"Clients differ in {_count(found.rank, 'direction')}{_small(found)}"
    listening = [value - 1 for value in here if value >= ALONE]
    if not listening:
        parts = [first, "and too much to help each other: everyone keeps to itself"]
        return f"{', '.join(parts)}.{_opposites(found, names)}"
    noise = f"noise is {100 * found.noise_share:.0f} % of what differs"
    mean = sum(listening) / len(listening)
    who = f"{len(listening)} clients" if len(listening) > 1 else "1 client"
    verb = "listen" if len(listening) > 1 else "listens"
    last = f"{who} {verb} to {mean:.1f} others on average"
    if len(listening) < len(here):
        last += f", {_alone(here)}"
    return f"{first}; {noise}; {last}.{_opposites(found, names)}"


def _small(found: Helping) -> str:
    """Return how many of the directions are small beside the noise; nothing if none.

    Few clients have few eigenvalues below 0, or none but for rounding, that tell how large noise's are: then small ones
    count as well.
    """
    small = sum(0 < value < 1 for value in found.spectrum[: found.rank])
    if not small:
        return ""
    where = "" if found.rank == 1 else "in all of them " if small == found.rank else f"in {small} of them "
    return f", {where}by less than a model's noise"


def _alone(here: Sequence[float]) -> str:
    number = sum(value < ALONE for value in here)
    return f"{number} {'keeps to itself' if number == 1 else 'keep to themselves'}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _opposites(found: Helping, names: Sequence[str] | None) -> str:
    """Return a sentence about clients that learned the opposite of others; nothing if there are none."""
    against = {i: value for i, value in enumerate(found.opposed) if value}
    if not against:
        return ""
    most = [i for i, value in against.items() if value > (len(found.opposed) - 1) / 2]
    if most and len(most) < len(against):
        return f" {_named(most, names)} learned the opposite of most others: they don't listen to each other."
    return f" {_named(list(against), names)} learned opposite things: those don't listen to each other."


def _named(who: Sequence[int], names: Sequence[str] | None) -> str:
    if len(who) > FEW:
        return f"{len(who)} clients"
    said = [names[i] if names else str(i) for i in who]
    listed = said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
    return listed if names else f"Client{'s' if len(said) > 1 else ''} {listed}"
