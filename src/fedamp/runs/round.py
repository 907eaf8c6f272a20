"""One communication round, and who takes part in it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedamp.config.reply_limits import ReplyLimits
from fedamp.methods import Local, Method
from fedamp.methods.base import ABOUT, by_text
from fedamp.privacy.events import Spending
from fedamp.rows import Message, Rows, State
from fedamp.runs import reply_checks
from fedamp.runs.client_half import ClientHalf, LocalFor, together
from fedamp.runs.shard import ONE_PROCESS, Shard
from fedamp.runs.simulated_faults import Tamper


@dataclass(frozen=True)
class Round:
    """What a round leaves behind: the next round's states, and what is looked at."""

    server: State
    clients: State
    sent: Message  # to the clients of this process, or waiting for those who are away
    present: Tensor  # (m,) bool
    heard: Tensor  # (m,) bool: whose reply was received
    models: dict[str, Rows]  # of the present clients of this process: "own", "received"
    losses: dict[str, Tensor]  # of the present clients: mean training loss, (n,)
    refused: dict[int, str]  # whose reply was refused, by position, and why
    diagnostics: dict[str, Any]  # of the method; `events` are the warnings of this round
    num_bytes: dict[str, int]  # of all present clients together: `down` to them, `up` to the server
    spent: list[Spending] | None = None  # what the privacy of each of the m clients was spent on; None: no such thing


def play_round(
    method: Method,
    server: State,
    clients: State,
    k: int,
    local_for: LocalFor,
    present: Tensor,
    tamper: Tamper = lambda reply, who: reply,
    checked: bool = False,
    poisoned: Collection[int] = (),
    names: Sequence[str] | None = None,
    half: ClientHalf = together,
    shard: Shard = ONE_PROCESS,
) -> Round:
    """Play round k: server_send, client_update of the present clients, server_receive.

    `local_for(who)` gives the local training of the clients at these positions; `half` is the way through them. A reply
    that is not finite is not received, and its sender's state stays what it was: one such row in a mixture, at whatever
    weight, would ruin every model. With `checked` the same goes for a reply that a federation would refuse
    (`reply_checks`). `poisoned` are the clients whose replies are tampered with: their warnings say so. Warnings call
    clients by `names`, if they have some, else by their numbers. Of several processes each has the `clients` of its
    `shard`, trains those, and hears of all replies.
    """
    if present.shape != (server.num_clients,) or not present.any():
        raise ValueError(
            f"present has shape {tuple(present.shape)} and {int(present.sum())} clients in it; expected a mask of "
            f"{server.num_clients} with at least one client present"
        )
    who = present.nonzero()[:, 0]
    with shard.server():
        server, message = method.server_send(server, k)
    trained = _trained(method, clients, message, half, local_for, present, shard)
    part, received, losses = trained.part, trained.received, trained.losses
    reply = tamper(trained.reply, who)
    num_bytes = {"down": _num_bytes(received), "up": _num_bytes(reply)}
    diagnostics = method.diagnostics(server)
    if checked:
        finite, refused = _looked_at(method, reply, received, message, present, local_for(who))
    else:
        finite, refused = _finite(reply, len(who)), {}
    single = [f"{_called(some, names)}: {text}" for text, some in by_text(diagnostics.get(ABOUT, [])).items()]
    events = [*diagnostics["events"], *single, *_events(who, losses, finite, refused, checked, poisoned, names)]
    sound = finite & torch.tensor([i not in refused for i in who.tolist()])
    heard = present.clone()
    if not sound.all():  # for the server and the states, whoever is not heard was absent
        heard[present] = sound
        reply = {name: rows[sound] for name, rows in reply.items()}
    if heard.any():
        with shard.server():
            server = method.server_receive(server, reply, heard)
    return Round(
        server=server,
        clients=_remembered(clients, part, sound[shard.here(who)], heard[shard.mine]),
        sent=shard.message(message),
        present=present,
        heard=heard,
        models=trained.models,
        losses=losses,
        refused={i: why.text for i, why in refused.items()},
        diagnostics={**diagnostics, "events": events},
        num_bytes=num_bytes,
        spent=_spent(trained.spent, who, len(present)),
    )


@dataclass(frozen=True)
class _Trained:
    """What the clients have done in a round: those of this process, and what all of them have told."""

    part: State | None  # of the present clients of this process; None if there are none
    models: dict[str, Rows]  # of the same
    received: Message  # of all present clients
    reply: Message  # of the same
    losses: dict[str, Tensor]  # of the same
    spent: list[Spending]  # of the same


def _trained(
    method: Method,
    clients: State,
    message: Message,
    half: ClientHalf,
    local_for: LocalFor,
    present: Tensor,
    shard: Shard,
) -> _Trained:
    """Train the present clients of this process, and hear what those of the others reply."""
    who = present.nonzero()[:, 0]
    mine = who[shard.here(who)]
    if not len(mine):
        return _heard(shard, _Trained(None, {}, _picked(message, present), {}, {}, []))
    done = half(
        method,
        clients,
        shard.message(message),
        shard.places(mine),
        lambda places: local_for(shard.positions(places)),
    )
    losses, spent = getattr(done.local, "losses", {}), list(getattr(done.local, "spent", ()))
    received = done.received if shard.team is None else _picked(message, present)
    models = method.client_models(done.clients, done.received)
    return _heard(shard, _Trained(done.clients, models, received, done.reply, losses, spent))


def _heard(shard: Shard, mine: _Trained) -> _Trained:
    """Return the same with the replies of all processes' clients."""
    if shard.team is None:
        return mine
    losses = {name: loss.cpu() for name, loss in mine.losses.items()}
    reply, told = shard.all_told(mine.reply, (losses, mine.spent))
    named = {name: [losses[name] for losses, _ in told if name in losses] for losses, _ in told for name in losses}
    return replace(
        mine,
        reply=reply,
        losses={name: torch.cat(parts) for name, parts in named.items()},
        spent=[each for _, spent in told for each in spent],
    )


def _picked(message: Message, present: Tensor) -> Message:
    """Return what present clients are sent."""
    if present.all():  # the usual case: nothing to pick out, and so nothing to copy
        return message
    who = present.nonzero()[:, 0]
    return {name: rows[who.to(rows.params.device)] for name, rows in message.items()}


def _remembered(clients: State, part: State | None, sound: Tensor, heard: Tensor) -> State:
    """Return the clients' states after a round: whoever is not heard has the one that it had."""
    if part is None:
        return clients
    ended = part if sound.all() else part.take(sound.nonzero()[:, 0])
    return ended if heard.all() else clients.put(heard.nonzero()[:, 0], ended)


def _spent(spent: Sequence[Spending], who: Tensor, num_clients: int) -> list[Spending] | None:
    """Return what each client's privacy was spent on: also of one whose reply was refused, for it has left."""
    found: list[Spending] = [Counter() for _ in range(num_clients)]
    for i, mine in zip(who.tolist(), spent, strict=False):
        found[i] = mine
    return found if any(found) else None


def _num_bytes(message: Message) -> int:
    return sum(rows.num_bytes for rows in message.values())


def _finite(reply: Message, num_clients: int) -> Tensor:
    """Return whose reply is finite, `(n,)` on the CPU."""
    finite = torch.ones(num_clients, dtype=torch.bool)
    for rows in reply.values():
        finite &= rows.finite().cpu()
    return finite


def _looked_at(
    method: Method, reply: Message, received: Message, message: Message, present: Tensor, local: Local
) -> tuple[Tensor, dict[int, reply_checks.Refusal]]:
    """Return whose reply is finite, `(n,)`, and whose is refused, by position."""
    models = {name: rows for name, rows in reply.items() if name != "samples"}  # which we have counted ourselves
    measured = reply_checks.measure(models, received, method, local.steps)
    waiting: dict[str, list[float]] = {}
    if not present.all():
        away = {name: rows[(~present).to(rows.params.device)] for name, rows in message.items()}
        waiting = reply_checks.waiting(away, method, models)
    found = zip(present.nonzero()[:, 0].tolist(), measured, strict=True)
    refused = reply_checks.refused({i: one for i, one in found if one is not None}, ReplyLimits(), waiting)
    return torch.tensor([one is not None for one in measured]), refused


def _events(
    who: Tensor,
    losses: Mapping[str, Tensor],
    finite: Tensor,
    refused: Mapping[int, reply_checks.Refusal],
    checked: bool,
    poisoned: Collection[int],
    names: Sequence[str] | None,
) -> list[str]:
    """Return warnings about losses and replies, each with its cause and its cure."""
    sick = torch.stack([~loss.isfinite() for loss in losses.values()]).any(0).cpu() if losses else ~finite
    causes = {
        "the training loss of {} is not finite": who[sick].tolist() if losses else [],
        "the model of {} is not finite: it is not received, and the client continues from its last one": (
            who[~finite].tolist()
        ),
    }
    cure = "Lower the learning rate, or look for values in the client's data that are not finite"
    if poisoned and not checked:
        cure = "What the poisoned clients send may have reached it: check replies (replies=checked)"
    events = [text for words, bad in causes.items() for text in _with_cure(words, bad, cure, poisoned, names)]
    for cause in dict.fromkeys(why.cause for why in refused.values()):
        words = f"the reply of {{}} is refused, and its sender counts as absent: {cause}"
        bad = [i for i, why in refused.items() if why.cause == cause]
        events += _with_cure(words, bad, f"{reply_checks.CURE}; replies=any accepts every reply", poisoned, names)
    return events


def _called(some: Sequence[int], names: Sequence[str] | None) -> str:
    """Return what clients are called in a warning: "client 0, 3", or "hospital-a, hospital-d"."""
    return f"client {', '.join(map(str, some))}" if names is None else ", ".join(names[i] for i in some)


def _with_cure(
    words: str, bad: Sequence[int], cure: str, poisoned: Collection[int], names: Sequence[str] | None
) -> list[str]:
    """Return an event for those who are poisoned on purpose, and one for the others, who need a cure."""
    groups = {
        "This is intended: it is poisoned on purpose": [i for i in bad if i in poisoned],
        cure: [i for i in bad if i not in poisoned],
    }
    return [f"{words.replace('{}', _called(some, names))}. {end}" for end, some in groups.items() if some]
