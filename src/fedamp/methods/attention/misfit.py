"""When a cloud model stops fitting its client: what the probe of `bias_variance` can't see.

Clients with other classes and clients with other rules look alike after one round: their models differ. But what
clients with other classes learn together fits each of them better and better, while one model can't fit two rules: its
loss on a client's own training samples soon stops falling. So a client is asked for that loss, one number, in its first
round, its 8th, and whenever the number of its rounds has doubled since.

A loss that stops falling may also be as low as it gets: where labels are wrong at random, no model fits them. So whose
loss has stopped is asked a second question in its next round: what is left of that loss if it goes on alone? It trains
some passes from its cloud model on one half of its samples and is judged on the other half, and the other way round.
Who has a rule of its own learns it so, and fits samples that it has not seen better; wrong labels can only be learned
by heart, and the loss rises. But a loss may also fall because training takes long: with the others it would have fallen
on as well. What that would have left after as many steps is read from how the loss fell between the last two questions;
alone it has to be less.

A client whose samples are protected is not asked. Its loss stops falling anyway, where privacy's noise in the models
lets it fall no further: that is no misfit, and to listen to fewer then would make the noise worse. Nor would the number
be free: it would have to be noised too, and paid for.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedamp.methods.base import Local, proximal
from fedamp.rows import Rows

FIT = ("losses", "doubted", "sharper")
"""What is known of a client's fit, a row each: its first and its last loss `(m, 2)`; if it is in doubt the share of its
loss that was left when its rounds had doubled, else 0; and how often a second look has shown that it is badly fitted,
`(m, 1)` each."""
FIRST = 8
"""Rounds of a client before its loss is compared: before that it falls for everyone."""
STALLED = 2 / 3
"""Share of the loss that is left after twice as many rounds, above which it has stopped falling."""
LEFT = 0.25
"""Share of its first loss that a client must still have to be called badly fitted."""
SECOND_LOOK = 2.0
"""What is asked of a client that is in doubt; 1 is the loss, 0 nothing."""
PASSES = 4
"""Passes that a client goes on alone, on half of its samples each."""
ROUNDS = PASSES / 2
"""Rounds that take as many steps."""
ALONE = 0.95
"""A client is better off alone if it is left with less than this share of what going on together would have left. Alone
it was left with 0.61 to 0.93 of its loss in silos with other rules, and with 0.94 to 1.83, nearly always above 0.95,
where labels were wrong, in the digits' four settings and in silos of one rule (trials with an MLP and seeds 563 to 570,
which no table has)."""


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


def answers(asked: Tensor, u: Rows, strength: Tensor, local: Local) -> Tensor:
    """Return what clients answer, `(n, 1)`: the loss of their cloud models, what they are left with alone, or 0.

    `asked` is what `questions` returned. Nothing is protected here: who protects its samples must not send it.
    """
    answer = torch.zeros_like(asked)
    if asked.any():
        answer = local.loss(u).to(asked).where(asked > 0, 0)
    if (asked == SECOND_LOOK).any():
        answer = left_alone(u, strength, local).where(asked == SECOND_LOOK, answer)
    return answer


def judged(answer: Tensor, fit: Mapping[str, Tensor], played: Tensor) -> dict[str, Tensor]:
    """Return what is known of clients' fit, `FIT`, now that they have answered."""
    better = better_alone(answer, left_together(fit["doubted"], played))
    sharper = fit["sharper"] + ((fit["doubted"] > 0) & better)
    stuck = stalled(answer, fit["losses"], played) & (sharper == 0)
    doubted = torch.where(stuck, answer / fit["losses"][:, 1:], 0.0)
    return {"losses": noted(answer, fit["losses"], played), "doubted": doubted, "sharper": sharper}


def left_alone(u: Rows, strength: Tensor, local: Local) -> Tensor:
    """Return the share of its cloud model's loss that each client is left with when it goes on alone, `(n, 1)`.

    It trains on one half of its samples and is judged on the other, and the other way round. Who has too few samples
    for two halves can't be judged, and is left with all of it. `strength` `(n, 1)` is the pull to u.
    """
    before, after = torch.zeros_like(strength).double(), torch.zeros_like(strength).double()
    for mine in (1, 2):
        here, there = (local.part(torch.full_like(strength, half)) for half in (mine, 3 - mine))
        w = u
        for number in range(1, PASSES + 1):
            w = here.again(number).run(w, proximal, anchor=u.params, strength=strength)
        before, after = before + there.loss(u), after + there.loss(w)
    left = after / before.clamp(min=torch.finfo(before.dtype).tiny)
    return left.where(there.sizes < local.sizes, 1)


def left_together(doubted: Tensor, played: Tensor) -> Tensor:
    """Return the share of its loss that each client would be left with if it went on with the others, `(n, 1)`.

    `doubted` is the share that the second half of its rounds, `played`, has left: at the pace of these rounds it falls
    on, for as many steps as the second look takes. A loss that has risen stays.
    """
    return doubted.clamp(max=1) ** (ROUNDS / (played / 2).clamp(min=1))


def better_alone(alone: Tensor, together: Tensor) -> Tensor:
    """Return who is better off alone, `(n, 1)` bool, by the shares of the loss that are left alone and together."""
    return alone < ALONE * together


def noted(loss: Tensor, losses: Tensor, played: Tensor) -> Tensor:
    """Return `losses` `(n, 2)`, the first and the last that each client was asked for, with what it answered now."""
    first = torch.where(played == 0, loss, losses[:, :1])
    return torch.cat([first, torch.where(asked(played), loss, losses[:, 1:])], 1)
