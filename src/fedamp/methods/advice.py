"""Warnings about attentive message passing, for runs that are not what was intended."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

ALONE = 0.999
"""A self weight above which the others are not heard."""

STRONG = 1.0
"""A pull, lam/alpha, above which a client's own data hardly counts (seen on networks trained by Adam)."""


HIDING = 0.5
"""Share of the models' noise that is privacy's, above which it is to blame where no difference can be seen."""


class Advised(Protocol):
    """What `advice` looks at in a method."""

    @property
    def lam(self) -> float: ...  # noqa: D102
    @property
    def start(self) -> str: ...  # noqa: D102
    def cure(self) -> str: ...  # noqa: D102


def advice(method: Advised, xi: Tensor, facts: Mapping[str, float]) -> list[str]:
    """Return a warning, with its cause and its cure, for each thing that is wrong with a round's weights."""
    events = []
    pull = method.lam / facts["alpha"]
    if facts["alpha"] < facts["alpha_asked"]:
        events.append(
            f"alpha was lowered from {facts['alpha_asked']:g} to {facts['alpha']:g}, for all clients and for both "
            "equations: more would make a self weight negative. The pull to the cloud model, lam/alpha, is now "
            f"{pull:g}. To keep alpha as you set it, set a lower one or raise sigma (now {facts['sigma']:g})"
        )
    if method.lam == 0 and method.start == "w":
        events.append(
            "lam is 0 and local training starts at w, so no cloud model is ever used: this is Separate under "
            "another name. Set lam above 0, or start=u"
        )
    elif pull > STRONG:
        events.append(
            f"the pull to the cloud model, lam/alpha, is {pull:g}: local training hardly moves away from it. Raise "
            "alpha or lower lam"
        )
    elif len(xi) > 1 and bool((xi.diagonal() > ALONE).all()):
        events.append(
            f"every client's self weight is above {ALONE}: this is Separate under another name. {method.cure()}"
        )
    return events


def pull_advice(to: str, lam: float) -> list[str]:
    """Return a warning if nothing pulls clients' own models to `to`, or so much that they hardly leave it."""
    if lam == 0:
        return [f"lam is 0, so nothing pulls to {to}: own models are Separate's under another name. Set lam above 0"]
    if lam > STRONG:
        return [f"the pull to {to}, lam, is {lam:g}: local training hardly moves away from it. Lower lam"]
    return []


def probe_advice(far: Tensor, limit: float, sharper: Tensor) -> list[tuple[int, str]]:
    """Return a warning about each client whose probe went too far, `(m,)`, or whose cloud model stopped fitting it."""
    events = [
        (
            i,
            f"its probe went {far[i]:.0f} times as far as is usual here (more than {limit:g}), so nobody listens to "
            "it. Look at its samples, its labels and what it sends",
        )
        for i in (far > limit).nonzero()[:, 0].tolist()
    ]
    stuck = (
        "the cloud model fits the client's samples no better than many rounds ago, and a model trained on half of "
        "them alone fits the other half better, so from now on the client listens only to those that are measurably "
        "the same. Its labels may follow another rule than the others': compare how they were made"
    )
    return [*events, *((i, stuck) for i in (sharper > 0).nonzero()[:, 0].tolist())]


def hidden_advice(private: Tensor, facts: Mapping[str, float]) -> list[str]:
    """Return a warning where privacy's noise hides whatever clients may differ in.

    `private` `(m, 1)` is the variance that it has put into each model; the facts are the mean of all `noise`, which is
    0 until it is known, and the `rank`: in how many ways clients were seen to differ.
    """
    share = float(private.mean()) / facts["noise"] if facts["noise"] else 0.0
    if facts["rank"] > 0 or share <= HIDING:
        return []
    return [
        f"{share:.0%} of what tells clients' models apart is privacy's noise, and no other "
        "difference can be seen, so everyone listens to all. If clients differ, a model of one's own is better, and "
        "one that never leaves needs no noise: compare with --method separate. More samples, or a larger epsilon, "
        "show who is alike"
    ]
