"""CFL-FT: CFL's trajectory, scored at each client's model after the round's local training."""

from dataclasses import dataclass
from typing import ClassVar

from fedamp.methods.cfl import CFL


@dataclass(frozen=True)
class CFLFT(CFL):
    """CFL with fine-tuning: the local epochs of a round are the fine-tuning."""

    group: ClassVar[str] = "fine-tuned"
    when: ClassVar[str] = "As `cfl`, where the clients of a group still differ: each trains its group's model on."
    scored: ClassVar[str] = "own"
