"""A silo's privacy account for people and programs: what is promised, spent and left, and what is not covered."""

from __future__ import annotations

import math
from typing import Any

from fedamp.federation.silo.privacy_account import MOST_ROUNDS, Account
from fedamp.privacy.account import RELATION

SAMPLING = "poisson"
NOTHING_PROMISED = "nothing is promised about single samples; to protect them: fedamp silo up --dp-epsilon"
NOT_COVERED = (
    "how many samples the silo trains on: the exact number leaves",
    "when its replies come, how long they take, and the fixed phrases with which it declines",
    "what it contributed to the agreed schema: columns, words, classes, and statistics of the numbers",
    "several samples of one person: the promise is by sample, and k of them may spend k times as much",
    "what stays at home: scores, logs and models in the silo's own folder, to whoever is given them",
)
"""What the promise does not reach, in words."""


def spent_text(account: Account) -> str:
    """Return in words what is spent, and of how much."""
    of = "" if account.promise.limit is None else f" of {account.promise.limit:g}"
    if account.unprotected is not None:
        return f"no epsilon bounds what is spent: since {account.unprotected} what left was not protected"
    if account.spent is None:
        return f"what {_rounds(len(account.rounds))} spent is not known: pip install 'fedamp[privacy]' computes it"
    return f"epsilon {account.spent:.4g}{of} is spent, at delta {account.delta:g}"


def left_text(account: Account) -> str:
    """Return in words how many rounds can still be paid for; "" if nothing limits them, or it is not known."""
    left, known = account.rounds_left(), bool(account.next_round)
    like = "" if known else " like the last one"
    if left is None:
        return ""
    if left:
        return f"enough for {_rounds(left)} more{like}" + (" at least" if left == MOST_ROUNDS else "")
    then = "trains no more" if known else "may train no more"
    return (
        f"not enough is left for another round{like}: this silo {then}, unless its operator allows more than epsilon "
        f"{account.promise.limit:g} (fedamp silo up --dp-epsilon)"
    )


def status_text(account: Account) -> str:
    """Return in words what is spent, and what is left."""
    return "; ".join(filter(None, [spent_text(account), left_text(account)]))


def summary(account: Account) -> str:
    """Return the account in a line: for a check-up."""
    return f"{status_text(account)}; {_how(account)}; not covered: " + "; ".join(
        each.split(":")[0] for each in NOT_COVERED
    )


def in_words(account: Account) -> list[str]:
    """Return the account as lines for somebody who has to judge it, say an ethics board."""
    before, limit = account.before, account.promise.limit
    if account.unprotected is not None:
        lines = [
            f"Given up, {account.unprotected}: nothing is promised any more. What left since then may have been "
            "without any protection, and no epsilon bounds it."
        ]
    elif limit is None:
        lines = ["Promised: every sample is protected by noise; there is no limit to what all rounds spend."]
    else:
        lines = [
            "Promised: whatever is seen of all that leaves this silo, but for what is named below as not covered, is "
            f"at most {math.exp(limit):.3g} times as likely with any one sample in its data as without it, or the "
            f"other way round, but for a chance of {account.delta:g}: (epsilon, delta)-differential privacy with "
            f"epsilon {limit:g} and delta {account.delta:g}. It holds whatever else somebody knows, and whatever is "
            "done with it later."
        ]
    lines += [
        "Relation: two data sets are neighbours if one has one sample more (add or remove).",
        f"How: {_how(account)}; minibatches are drawn at random, each sample by itself (Poisson), from a secret.",
        f"Spent before, as the operator stated: epsilon {before.epsilon:g} at delta {before.delta:g}.",
    ]
    lines += [f"Round {each.round}, {each.time}: epsilon {_number(each.epsilon)} so far." for each in account.rounds]
    lines += [f"Changed, {each['time']}: {each['what']}." for each in account.changes]
    lines.append(f"Spent: {spent_text(account)}.")
    if (left := _left(account)) is not None:
        rounds = left_text(account)
        lines.append(
            f"Left: epsilon {left:.4g}{rounds and f', {rounds}'}. When a round would spend more, the silo trains no "
            "more."
        )
    return [*lines, *(f"Not covered: {each}." for each in NOT_COVERED)]


def in_numbers(account: Account) -> dict[str, Any]:
    """Return the account for programs; its keys stay as they are, and what is not known is null."""
    values = account.to_dict()
    events = [{"rate": event.rate, "noise": event.noise, "steps": n} for event, n in account.spending.items()]
    return {
        "limit": None if account.unprotected else account.promise.limit,
        "delta": account.delta,
        "clip": account.promise.clip,
        "noise": account.promise.noise,
        "planned_rounds": account.promise.rounds,
        "relation": RELATION,
        "sampling": SAMPLING,
        "spent_before": values["before"],
        "spent": None if account.unprotected else account.spent,
        "left": _left(account),
        "rounds_left": account.rounds_left(),
        "unprotected_since": account.unprotected,
        "rounds": [{name: each[name] for name in ("round", "time", "epsilon")} for each in values["rounds"]],
        "events": events,
        "changes": values["changes"],
        "not_covered": list(NOT_COVERED),
    }


def _how(account: Account) -> str:
    promise = account.promise
    planned = "" if promise.rounds is None else f", found for {_rounds(promise.rounds)}"
    return (
        f"each sample's gradient is cut to length {promise.clip:g}, and noise of {promise.noise:.4g} times that is "
        f"added{planned}"
    )


def _left(account: Account) -> float | None:
    if account.promise.limit is None or account.spent is None or account.unprotected is not None:
        return None
    return max(0.0, account.promise.limit - account.spent)


def _rounds(number: int) -> str:
    return "1 round" if number == 1 else f"{number} rounds"


def _number(value: float | None) -> str:
    return "not known" if value is None else f"{value:.4g}"
