"""When a cloud model stops fitting its client: what the probe of `bias_variance` can't see.

Clients with other classes and clients with other rules look alike after one round: their models differ. But what
clients with other classes learn together fits each of them better and better, while one model can't fit two rules: its
loss on a client's own training samples soon stops falling. So a client is asked for that loss, one number, in its first
round, its 8th, and whenever the number of its rounds has doubled since.

A loss that stops falling may also be as low as it gets: where labels are wrong at random, no model fits them. So whose
loss has stopped is asked a second question in its next round: what is left of that loss if it goes on alone? It trains
some passes from its cloud model on one half of its samples and is judged on the other half, and the other way round.
Who has a rule of its own learns it so, and fits samples that it has not seen better; wrong labels can only be learned
by heart, and the loss rises.

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
SECOND_LOOK = 2.0
"""What is asked of a client that is in doubt; 1 is the loss, 0 nothing."""
PASSES = 4
"""Passes that a client goes on alone: as much training as in as many rounds."""
ALONE = 0.92
"""Share of the loss that is left then, below which a client is better off alone. In trials with seeds 563 and 564,
which no table has, it was 0.61 to 0.89 in silos with other rules, and 0.94 to 1.83 where labels were wrong, in the
digits' four settings and in silos of one rule."""


def asked(played: Tensor) -> Tensor:
    """Return who is asked for its loss, `(m, 1)` bool, by the rounds that each client has played, `(m, 1)`."""
    now = (played + 1).long()
    return (now == 1) | ((now >= FIRST) & (now & (now - 1) == 0))


def stalled(loss: Tensor, losses: Tensor, played: Tensor) -> Tensor:
    """Return whose loss has stopped falling too early, `(n, 1)` bool; `losses` `(n, 2)`: the first and the last."""
    compared = asked(played) & (played + 1 > FIRST)
    return compared & (loss > STALLED * losses[:, 1:]) & (loss > LEFT * losses[:, :1])


def questions(played: Tensor, doubted: Tensor) -> Tensor:
    """Return what each client is asked for in its next round, `(m, 1)`: nothing, its loss, or to look a second time."""
    return asked(played).to(doubted).where(doubted == 0, SECOND_LOOK)


def better_alone(left: Tensor) -> Tensor:
    """Return who is better off alone, `(n, 1)` bool, by the share of the loss that is left then."""
    return left < ALONE


def noted(loss: Tensor, losses: Tensor, played: Tensor) -> Tensor:
    """Return `losses` `(n, 2)`, the first and the last that each client was asked for, with what it answered now."""
    first = torch.where(played == 0, loss, losses[:, :1])
    return torch.cat([first, torch.where(asked(played), loss, losses[:, 1:])], 1)
