"""FedAMP: clients with similar models help each other more, by the squared distance between them.

Symbols: xi, alpha, sigma, theta, A' as in the paper. Both halves are in `message_passing`; here is how xi is made.
Source: Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021, Eq. 5.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedamp import checks
from fedamp.errors import UserError
from fedamp.fields import about
from fedamp.methods.attention import (
    ATTENTION,
    SCALES,
    SelfWeight,
    check_self_weight,
    gradient_weights,
    make_attention,
    median_distance,
    scale,
    self_weights,
    softmax_weights,
    squared_distances,
    uniform_weights,
)
from fedamp.methods.message_passing import MessagePassing


@dataclass(frozen=True)
class FedAMP(MessagePassing):
    """xi from squared distances, in one of two forms.

    form="gradient" is Eq. 5 as printed, for any attention function; form="normalised" is a softmax over the others
    with a given self weight. Each field says what it means.
    """

    group: ClassVar[str] = "collaboration graph"
    when: ClassVar[str] = "Clients come in groups that are not known, and sigma can be tuned on held-out samples."

    form: str = about(
        "normalised",
        "How weights come from distances: `gradient` is Eq. 5 as printed, xi_ij = alpha A'(|w_i - w_j|^2), and xi_ii "
        "is the rest; `normalised` is a softmax over the others of -|w_i - w_j|^2/sigma, with a given self weight.",
        range="gradient or normalised",
        source="Huang et al. 2021, Eq. 5; the normalised form is ours, with self weights as in Eq. 9",
        choices=("gradient", "normalised"),
    )
    sigma: float | str = about(
        "median",
        "Squared distance at which attention fades: a number, or a word that fits it to the models of each round. "
        "`median` is the median over all pairs of clients (its root for the tamed square root, whose sigma is a "
        "distance). For the normalised form also `local`, each client's own median, so that a client whose model is "
        "far out listens as widely as the others; and `spread`, the standard deviation of each client's distances, so "
        "that what counts is how much nearer some are, not how far all of them are. Divided by `sharpness`.",
        unit="squared distance between two models",
        range="above 0, or median, local or spread",
        source="Huang et al. 2021, the example after Definition 1, tuned there for each data set and setting; the "
        "words are ours, local after Zelnik-Manor and Perona 2004",
    )
    self_weight: SelfWeight = about(
        "uniform",
        "Weight xi_ii of a client's own model in its cloud model, for the normalised form: a number, a list with one "
        "for each client, `uniform` (1/m), or `oracle` (1/group size, from a setting's true groups: knowledge that no "
        "deployment has).",
        range="0 to 1, or uniform or oracle",
        source="Huang et al. 2021, Experiments, has oracle; uniform is ours",
    )
    attention: str = about(
        "negative-exponential",
        "The attention-inducing function A of the gradient form; `fedamp list attention` shows them all.",
        range=", ".join(ATTENTION),
        source="Huang et al. 2021, Definition 1 and the examples after it",
        choices=tuple(ATTENTION),
    )
    theta: float = about(
        3.7,
        "For `mcp` and `scad`: attention ends at a squared distance of theta sigma.",
        range="above 2",
        source="Huang et al. 2021, the examples after Definition 1; 3.7 is what Fan and Li, 2001, use for SCAD",
    )
    strict: bool = about(
        False,
        "For the gradient form: an alpha that makes a self weight negative is an error instead of being lowered.",
        range="true or false",
        source="ours",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("form", self.form, ["gradient", "normalised"])
        checks.truth("strict", self.strict)
        words = SCALES if self.form == "normalised" else SCALES[:1]  # Eq. 5 has one sigma for all
        self.check_sigma(self.sigma, words, finite=self.form == "gradient")
        make_attention(self.attention, 1.0, self.theta)
        object.__setattr__(self, "self_weight", check_self_weight(self.self_weight))
        if self.form == "gradient" and self.self_weight != "uniform":
            raise UserError(
                f"self_weight is {self.self_weight!r}, but form='gradient' derives it (Eq. 5); leave it out, or "
                "use form='normalised'"
            )
        if self.form == "normalised" and self.attention != "negative-exponential":
            raise UserError(
                f"attention is {self.attention!r}, but form='normalised' is a softmax of negative squared "
                "distances; use form='gradient' or attention='negative-exponential'"
            )

    def collaboration_weights(self, w: Tensor, noise: Tensor, alpha: float) -> tuple[Tensor, Mapping[str, float]]:
        """Return xi of Eq. 5, or its normalised form; of E|theta_i - w_j|^2 = |w_i - w_j|^2 - s_i under noise."""
        measured = squared_distances(self.compared(w))
        distances = (measured - noise).clamp(min=0)
        pairs = (measured - (noise + noise.T) / 2).clamp(min=0)  # the same seen from both sides, for their scale
        median = median_distance(pairs)
        facts = {"alpha": alpha, "median_distance": median}
        if self.form == "normalised":
            sigmas = scale(pairs, self.sigma) / self.sharpness if isinstance(self.sigma, str) else self.sigma
            sigmas = torch.as_tensor(sigmas, dtype=distances.dtype, device=distances.device).expand(len(w), 1)
            # sigma is 0 if all models are equal: then any scale gives the same.
            similarity = -distances / torch.where(sigmas > 0, sigmas, 1.0)
            xi = softmax_weights(similarity, self_weights(self.self_weight, len(w)))
            return xi, {**facts, "sigma": float(sigmas.median())}
        fitted = ATTENTION[self.attention].sigma_at(median / self.sharpness)
        sigma = fitted if isinstance(self.sigma, str) else self.sigma
        facts["sigma"] = sigma
        if sigma == 0:  # no scale to go by, and any mixture of equal models is the same
            return uniform_weights(len(w)), facts
        similarity = make_attention(self.attention, sigma, self.theta).derivative(distances)
        xi, used = gradient_weights(similarity, alpha)
        if self.strict and used < alpha:
            raise UserError(
                f"alpha={alpha:g} makes a self weight negative (sigma={sigma:g}); lower alpha to "
                f"{used:g} or less, raise sigma, or leave strict off"
            )
        return xi, {**facts, "alpha": used}

    def cure(self) -> str:
        """Return how to make clients listen to each other."""
        if self.form == "normalised":
            return "Lower self_weight (self_weight=uniform gives 1/m)"
        return "Raise sigma towards the squared distances between the models (sigma=median does that), or raise alpha"
