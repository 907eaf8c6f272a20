"""FedBN: the normalisations of the model stay at home, all else is learned together.

    w_i = local training from (w^k, b_i^k);  w^{k+1} = sum_i (n_i / n) w_i^{k+1} of all that is no normalisation

Symbols: b_i the weights, biases and statistics of the client's normalisation layers, w the other parameters. Source: Li
et al., "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", ICLR 2021, Algorithm 1. As in the
authors' code, the averaged model is tested with each client's own normalisations. There all
clients have the same weight; ours count by samples, as in FedAvg.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedamp.methods.base import Local
from fedamp.methods.personal_parts import PersonalParts
from fedamp.rows import Columns


@dataclass(frozen=True)
class FedBN(PersonalParts):
    """FedAvg of all but the normalisations."""

    when: ClassVar[str] = "Clients' inputs differ (scanners, sites), their labels do not; the model has BatchNorm."
    scored: ClassVar[str] = "received"

    def at_home(self, local: Local) -> Columns:
        """Return the columns of the normalisations."""
        return local.norm()

    def in_words(self) -> tuple[str, str]:
        """Return what a normalisation is."""
        return "the normalisations", "Choose a model with BatchNorm (cnn-small with model.norm=true, resnet18)"
