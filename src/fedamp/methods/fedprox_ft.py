"""FedProx-FT: FedProx's trajectory, scored at each client's model after the round's local training."""

from dataclasses import dataclass
from typing import ClassVar

from fedamp.methods.fedprox import FedProx


@dataclass(frozen=True)
class FedProxFT(FedProx):
    """FedProx with fine-tuning: the local epochs of a round are the fine-tuning."""

    scored: ClassVar[str] = "own"
