"""HeurFedAMP: FedAMP for deep networks, with the cosine between models in place of their distance.

Symbols: xi, sigma as in the paper: Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data",
AAAI 2021, Eq. 9. Both halves stand in `message_passing`; here is how xi comes about.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedamp import checks
from fedamp.attention import (
    SelfWeight,
    check_self_weight,
    cosines,
    median_distance,
    self_weights,
    softmax_weights,
)
from fedamp.methods.message_passing import MessagePassing


@dataclass(frozen=True)
class HeurFedAMP(MessagePassing):
    """xi_ij = (1 - xi_ii) exp(sigma cos(w_i, w_j)) / sum_{h != i} exp(sigma cos(w_i, w_h)), xi_ii given.

    The larger sigma, the sharper the attention: the other way round than in FedAMP. sigma="median" is
    1 / median over pairs of the present 1 - cos, which fits it to how far apart the models really are.
    """

    sigma: float | str = "median"
    self_weight: SelfWeight = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive_or("sigma", self.sigma, "median")
        object.__setattr__(self, "self_weight", check_self_weight(self.self_weight))

    def collaboration_weights(self, w: Tensor, alpha: float) -> tuple[Tensor, Mapping[str, float]]:
        """Return xi of Eq. 9."""
        cos = cosines(w)
        # Below this 1 - cos is rounding. Where all models are equal there is no scale to go by, and any sigma
        # gives the same.
        median = median_distance((1 - cos).where(1 - cos > 1e-12, 0))
        sigma = (1 / median if median > 0 else 1.0) if isinstance(self.sigma, str) else self.sigma
        xi = softmax_weights(sigma * cos, self_weights(self.self_weight, len(w)))
        return xi, {"alpha": alpha, "sigma": sigma, "median_distance": median}

    def cure(self) -> str:
        """Return how to make clients listen to each other."""
        return "Lower self_weight (self_weight=uniform gives 1/m)"
