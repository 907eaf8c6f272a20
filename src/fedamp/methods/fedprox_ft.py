"""FedProx-FT: FedProx's trajectory, scored at each client's model after the round's local training."""

from dataclasses import dataclass
from typing import ClassVar

from fedamp.methods.fedprox import FedProx


@dataclass(frozen=True)
class FedProxFT(FedProx):
    """FedProx with fine-tuning: the local epochs of a round are the fine-tuning."""

    group: ClassVar[str] = "fine-tuned"
    when: ClassVar[str] = "As `fedavg-ft`, where clients have few samples: the pull keeps them near the common model."
    scored: ClassVar[str] = "own"
