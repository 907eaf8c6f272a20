"""IFCA-FT: IFCA's trajectory, scored at each client's model after the round's local training."""

from dataclasses import dataclass
from typing import ClassVar

from fedamp.methods.ifca import IFCA


@dataclass(frozen=True)
class IFCAFT(IFCA):
    """IFCA with fine-tuning: the local epochs of a round are the fine-tuning."""

    group: ClassVar[str] = "fine-tuned"
    when: ClassVar[str] = "As `ifca`, where the clients of a group still differ: each trains its group's model on."
    scored: ClassVar[str] = "own"
