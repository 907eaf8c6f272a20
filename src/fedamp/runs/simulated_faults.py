"""What may go wrong on purpose: clients that miss a round, and clients that send something other than their model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedamp import checks, seeds
from fedamp.rows import Message, Rows


def draw_present(seed: int, k: int, num_clients: int, absent: float) -> Tensor:
    """Return who takes part in round k, `(m,)` bool: each client is away with probability `absent`.

    At least one is present: if all would be away, the one that came nearest to taking part does.
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
