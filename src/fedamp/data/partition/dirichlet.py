"""Dirichlet: each class is split by random proportions, as skewed as beta says."""

from dataclasses import dataclass

import numpy as np

from fedamp import checks, seeds
from fedamp.data.partition.base import Setting
from fedamp.data.partition.dealing import Ints, apportion
from fedamp.errors import UserError
from fedamp.fields import about

MOST_DRAWS = 1000


@dataclass(frozen=True)
class Dirichlet(Setting):
    """Each class is split among the clients in proportions from Dirichlet(beta): the smaller beta, the more skewed.

    All training samples are used, once each. Proportions are drawn again until every client has `min_samples`.
    """

    beta: float = about(
        0.5,
        "How even the proportions are: the smaller, the more skewed.",
        range="above 0",
        source="ours: the paper has no such setting",
    )
    min_samples: int = about(
        10, "How many training samples each client has at least.", unit="samples", range="1 or more", source="ours"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive("beta", self.beta)
        checks.count("min_samples", self.min_samples)

    def train_counts(self, have: Ints, num_clients: int, seed: int) -> Ints:
        """Return counts whose column for a class is `have` times Dirichlet(beta), rounded."""
        need = f"{num_clients} clients with at least {self.min_samples} samples each"
        if self.min_samples * num_clients > have.sum():
            raise UserError(f"the training pool has {have.sum()} samples, too few for {need}; lower min_samples")
        for draw in range(MOST_DRAWS):
            stream = seeds.generator(seed, "dirichlet", draw)
            weights = stream.dirichlet(np.full(num_clients, float(self.beta)), size=len(have))
            split = [apportion(n, own, n) for n, own in zip(have.tolist(), weights, strict=True)]
            counts = np.stack(split, axis=1)
            if counts.sum(axis=1).min() >= self.min_samples:
                return counts
        tried = f"none of {MOST_DRAWS} draws with beta {self.beta}"
        raise UserError(f"{tried} gave {need}; raise beta, or lower min_samples or the number of clients")

    def test_counts(self, have: Ints, train: Ints, seed: int) -> Ints:
        """Return test_samples for each client in its training proportions, but of no class more than the pool has."""
        for client, most in enumerate((train > 0) @ have):
            if most < self.test_samples:
                asks = f"client {client} asks for {self.test_samples}"
                raise UserError(f"{asks} test samples, but its classes have {most}; lower test_samples")
        return np.stack([apportion(self.test_samples, own.astype(float), have) for own in train])
