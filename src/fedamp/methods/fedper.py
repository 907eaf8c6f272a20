"""FedPer: the body of the model is learned together, its head stays at home.

    (theta, h_i) = local training from (theta^k, h_i^k);  theta^{k+1} = sum_i (n_i / n) theta_i^{k+1}

Symbols: theta the body, h_i the client's head: its last layers. Source: Arivazhagan et al., "Federated Learning with
Personalization Layers", 2019, Algorithms 1 and 2. There each client draws its first head at random; here it is that of
the client's first model, with `init=own` a random one.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedamp import checks
from fedamp.fields import about
from fedamp.methods.base import Local
from fedamp.methods.personal_parts import PersonalParts, last
from fedamp.rows import Columns


@dataclass(frozen=True)
class FedPer(PersonalParts):
    """FedAvg of the body; body and head are trained at once."""

    when: ClassVar[str] = "Clients see the same kind of inputs, but label them differently or have other classes."

    head: int = about(
        1,
        "Layers with weights, counted from the last that the module registers, that stay at home.",
        unit="layers",
        range="0 or more",
        source="Arivazhagan et al. 2019, K_P; 1 is ours, not tuned: the classifier",
    )

    def __post_init__(self) -> None:
        checks.count("head", self.head, least=0)

    @property
    def remembers(self) -> bool:
        """Each client has its head, if there is one."""
        return self.head > 0

    def at_home(self, local: Local) -> Columns:
        """Return the head's columns."""
        return local.head(self.head)

    def in_words(self) -> tuple[str, str]:
        """Return how long the head is."""
        return last(self.head), "Choose a model with more layers (mlp, cnn-small), another `head`"
