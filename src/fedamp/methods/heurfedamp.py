"""HeurFedAMP: FedAMP for deep networks, with the cosine between models in place of their distance.

Symbols: xi, sigma as in the paper. Both halves are in `message_passing`; here is how xi is made.
Source: Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021, Eq. 9.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedamp.fields import about
from fedamp.methods.attention import (
    SCALES,
    SelfWeight,
    check_self_weight,
    cosines,
    median_distance,
    noise_in_length,
    scale,
    self_weights,
    softmax_weights,
)
from fedamp.methods.message_passing import MessagePassing


@dataclass(frozen=True)
class HeurFedAMP(MessagePassing):
    """xi_ij = (1 - xi_ii) exp(sigma cos(w_i, w_j)) / sum_{h != i} exp(sigma cos(w_i, w_h)), xi_ii given.

    The larger sigma, the sharper the attention: the opposite of FedAMP.
    """

    group: ClassVar[str] = "collaboration graph"
    when: ClassVar[str] = "As `fedamp`, for deep networks, whose distances say less than their angles."

    sigma: float | str = about(
        "median",
        "How sharp attention is, the larger the sharper: a number, or a word that fits it to the models of each round. "
        "`median` is 1 / median over all pairs of clients of 1 - cos; `local` uses each client's own median, `spread` "
        "1 / the standard deviation of each client's 1 - cos. Multiplied by `sharpness`.",
        range="above 0, or median, local or spread",
        source="Huang et al. 2021, Eq. 9, tuned there for each data set and setting; the words are ours",
    )
    self_weight: SelfWeight = about(
        "uniform",
        "Weight xi_ii of a client's own model in its cloud model: a number, a list with one for each client, `uniform` "
        "(1/m), or `oracle` (1/group size, from a setting's true groups: knowledge that no deployment has).",
        range="0 to 1, or uniform or oracle",
        source="Huang et al. 2021, Eq. 9, with oracle in its Experiments; uniform is ours",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sigma(self.sigma, SCALES, finite=True)
        object.__setattr__(self, "self_weight", check_self_weight(self.self_weight))

    def collaboration_weights(self, w: Tensor, noise: Tensor, alpha: float) -> tuple[Tensor, Mapping[str, float]]:
        """Return xi of Eq. 9; of cos(theta_i, w_j) = cos(w_i, w_j) |w_i| / |theta_i| under noise."""
        measured, stretch = cosines(self.compared(w)), noise_in_length(w, noise)
        cos = (measured * stretch).clamp(-1, 1)
        pairs = (measured * (stretch * stretch.T).sqrt()).clamp(-1, 1)  # the same seen from both sides, for their scale
        # Below this 1 - cos is rounding. If all models are equal, there is no scale to go by, and any sigma
        # gives the same.
        apart = (1 - pairs).where(1 - pairs > 1e-12, 0)
        median = median_distance(apart)
        sigmas = 1 / scale(apart, self.sigma) * self.sharpness if isinstance(self.sigma, str) else self.sigma
        sigmas = torch.as_tensor(sigmas, dtype=cos.dtype, device=cos.device).expand(len(w), 1)
        sigmas = torch.where(sigmas.isfinite(), sigmas, 1.0)
        xi = softmax_weights(sigmas * cos, self_weights(self.self_weight, len(w)))
        return xi, {"alpha": alpha, "sigma": float(sigmas.median()), "median_distance": median}

    def cure(self) -> str:
        """Return how to make clients listen to each other."""
        return "Lower self_weight (self_weight=uniform gives 1/m)"
