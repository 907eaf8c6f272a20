"""FedAvg-FT: FedAvg's trajectory, scored at each client's model after the round's local training.

Source: Wang et al., "Federated Evaluation of On-device Personalization", 2019.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedamp.methods.fedavg import FedAvg


@dataclass(frozen=True)
class FedAvgFT(FedAvg):
    """FedAvg with fine-tuning: the local epochs of a round are the fine-tuning."""

    group: ClassVar[str] = "fine-tuned"
    when: ClassVar[str] = "A strong and simple baseline: one model for all, trained on by each client for a round."
    scored: ClassVar[str] = "own"
