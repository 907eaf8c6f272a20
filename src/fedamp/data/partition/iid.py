"""IID: every client has the pool's mixture of classes."""

from dataclasses import dataclass

from fedamp import checks
from fedamp.data.partition.base import Setting
from fedamp.data.partition.dealing import Ints, proportional
from fedamp.fields import about


@dataclass(frozen=True)
class IID(Setting):
    """Every client has the same number of samples, its classes in the pool's proportions."""

    samples: int | None = about(
        None,
        "How many training samples each client has; by default the pool divided by the clients, rounded down.",
        unit="samples",
        range="1 or more",
        source="ours: the paper divides the data, and does not say how much of it",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples is not None:
            checks.count("samples", self.samples)

    def train_counts(self, have: Ints, num_clients: int, seed: int) -> Ints:
        """Return counts near n have / sum(have)."""
        amount = max(1, int(have.sum()) // num_clients) if self.samples is None else self.samples
        return proportional("training", amount, have, num_clients, seed, "samples")

    def test_counts(self, have: Ints, train: Ints, seed: int) -> Ints:
        """Return counts near test_samples have / sum(have)."""
        return proportional("test", self.test_samples, have, len(train), seed, "test_samples")
