"""One communication round, and who takes part in it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedamp import checks, seeds
from fedamp.errors import UserError
from fedamp.methods import Local, Method
from fedamp.optimizers import Optimizer
from fedamp.rows import Message, Rows, State


@dataclass(frozen=True)
class Round:
    """What a round leaves behind: the next round's states, and what is looked at."""

    server: State
    clients: State
    present: Tensor  # (m,) bool
    models: dict[str, Rows]  # of the present clients: "own", "received"
    losses: dict[str, Tensor]  # of the present clients: mean training loss, (n,)
    diagnostics: dict[str, Any]  # of the method; `events` are the warnings of this round


def check_optimizer(method: Method, optimizer: Optimizer) -> None:
    """Raise where a method that rests on plain SGD is given anything else."""
    if method.plain_sgd_only and not optimizer.plain:
        raise UserError(
            f"optimizer is {optimizer.name} with momentum {optimizer.momentum:g} and weight decay "
            f"{optimizer.weight_decay:g}, but {type(method).__name__} rests on plain SGD steps; "
            "take sgd without momentum and weight decay"
        )


def draw_present(seed: int, k: int, num_clients: int, absent: float) -> Tensor:
    """Return who takes part in round k, `(m,)` bool: each client is away with probability `absent`.

    At least one is present: where all would be away, the one that was nearest to coming comes.
    """
    checks.share("absent", absent)
    draws = torch.tensor([seeds.generator(seed, "absent", i, k).random() for i in range(num_clients)])
    present = draws >= absent
    present[draws.argmax()] = True
    return present


Tamper = Callable[[Message, Tensor], Message]
"""Changes what the clients at these positions send, on its way to the server."""


def poison(poisoned: Sequence[int], scale: float, num_params: int) -> Tamper:
    """Return a tampering in which the given clients send their rows sign-flipped and scaled: -scale w.

    Only what has the size of a model is changed; sample counts are sent as they are.
    """

    def tamper(reply: Message, who: Tensor) -> Message:
        bad = torch.tensor([i in poisoned for i in who.tolist()])
        if not bad.any():
            return reply
        sent = dict(reply)
        for name, rows in reply.items():
            if rows.params.shape[1] == num_params:
                flip = torch.where(bad, -scale, 1.0).to(rows.params)[:, None]
                sent[name] = Rows(flip * rows.params, rows.buffers)
        return sent

    return tamper


def play_round(
    method: Method,
    server: State,
    clients: State,
    k: int,
    local_for: Callable[[Tensor], Local],
    present: Tensor,
    tamper: Tamper = lambda reply, who: reply,
) -> Round:
    """Play round k: server_send, client_update of the present clients, server_receive.

    `local_for(who)` gives the local training of the clients at these positions. A reply that is not finite is not
    received, and its sender's state stays what it was: one such row in a mixture, at whatever weight, would be the end
    of every model.
    """
    if present.shape != (server.num_clients,) or not present.any():
        raise ValueError(
            f"present has shape {tuple(present.shape)} and {int(present.sum())} clients in it; expected a mask of "
            f"{server.num_clients} with at least one client present"
        )
    who = present.nonzero()[:, 0]
    server, message = method.server_send(server, k)
    local = local_for(who)
    if present.all():  # the usual case: nothing to pick out, and so nothing to copy
        received, part = message, clients
    else:
        received = {name: rows[who.to(rows.params.device)] for name, rows in message.items()}
        part = clients.take(who)
    part, reply = method.client_update(part, received, local)
    reply = tamper(reply, who)
    diagnostics = method.diagnostics(server)
    losses = getattr(local, "losses", {})
    sound = torch.ones(len(who), dtype=torch.bool)
    for rows in reply.values():
        sound &= rows.finite().cpu()
    events = [*diagnostics["events"], *_not_finite(who, sound, losses)]
    heard, ended = present.clone(), part
    if not sound.all():  # to server and state, who is not heard was absent
        heard[present] = sound
        reply = {name: rows[sound] for name, rows in reply.items()}
        ended = part.take(sound.nonzero()[:, 0])
    return Round(
        server=method.server_receive(server, reply, heard) if heard.any() else server,
        clients=ended if heard.all() else clients.put(heard.nonzero()[:, 0], ended),
        present=present,
        models=method.client_models(part, received),
        losses=losses,
        diagnostics={**diagnostics, "events": events},
    )


def _not_finite(who: Tensor, sound: Tensor, losses: Mapping[str, Tensor]) -> list[str]:
    cure = "Lower the learning rate, or look for values in the client's data that are not finite"
    looked_at = [("training loss", "is not finite", loss.isfinite().cpu()) for loss in losses.values()]
    looked_at.append(("model", "is not finite: it is not received, and the client goes on from its last one", sound))
    events = {}
    for what, told, finite in looked_at:
        if not finite.all():
            names = ", ".join(str(i) for i in who[~finite].tolist())
            events[what] = f"the {what} of client {names} {told}. {cure}"
    return list(events.values())
