"""When a cloud model stops fitting its client: what the probe of `bias_variance` can't see.

Clients with other classes and clients with other rules look alike after one round: their models differ. But what
clients with other classes learn together fits each of them better and better, while one model can't fit two rules: its
loss on a client's own training samples soon stops falling. So a client is asked for that loss, one number, in its first
round, its 8th, and whenever the number of its rounds has doubled since.

A client whose samples are protected is not asked. Its loss stops falling anyway, where privacy's noise in the models
lets it fall no further: that is no misfit, and to listen to fewer then would make the noise worse. Nor would the number
be free: it would have to be noised too, and paid for.
"""

import torch
from torch import Tensor

FIRST = 8
"""Rounds of a client before its loss is compared: before that it falls for everyone."""
STALLED = 2 / 3
"""Share of the loss that is left after twice as many rounds, above which it has stopped falling."""
LEFT = 0.25
"""Share of its first loss that a client must still have to be called badly fitted."""


def asked(played: Tensor) -> Tensor:
    """Return who is asked for its loss, `(m, 1)` bool, by the rounds that each client has played, `(m, 1)`."""
    now = (played + 1).long()
    return (now == 1) | ((now >= FIRST) & (now & (now - 1) == 0))


def stalled(loss: Tensor, losses: Tensor, played: Tensor) -> Tensor:
    """Return whose loss has stopped falling too early, `(n, 1)` bool; `losses` `(n, 2)`: the first and the last."""
    compared = asked(played) & (played + 1 > FIRST)
    return compared & (loss > STALLED * losses[:, 1:]) & (loss > LEFT * losses[:, :1])


def noted(loss: Tensor, losses: Tensor, played: Tensor) -> Tensor:
    """Return `losses` `(n, 2)`, the first and the last that each client was asked for, with what it answered now."""
    first = torch.where(played == 0, loss, losses[:, :1])
    return torch.cat([first, torch.where(asked(played), loss, losses[:, 1:])], 1)
