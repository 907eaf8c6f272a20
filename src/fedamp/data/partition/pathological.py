"""Pathological: every client has a few of the classes, and none of the others."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedamp import checks
from fedamp.data.partition.base import PAPER, Setting
from fedamp.data.partition.dealing import Ints, check_classes, evenly
from fedamp.errors import UserError
from fedamp.fields import about


@dataclass(frozen=True)
class Pathological(Setting):
    """Every client has c classes; every class is held by floor(m c / C) or ceil(m c / C) clients.

    There are no groups: classes are dealt like cards, from a deck that is shuffled whenever it is used up.
    """

    classes: int = about(
        2, "How many classes each client has.", unit="classes", range="1 to the number of classes", source=PAPER
    )
    samples: int | None = about(
        None,
        "How many training samples each client has, spread evenly over its classes; by default each class is split "
        "evenly among the clients that have it.",
        unit="samples",
        range="classes or more",
        source="ours: the paper does not say",
    )
    size_parameter: ClassVar[str] = "samples or classes"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count("classes", self.classes)
        if self.samples is not None:
            checks.count(f"samples with {self.classes} classes", self.samples, least=self.classes)

    def train_counts(self, have: Ints, num_clients: int, seed: int) -> Ints:
        """Return counts that are above 0 for c classes of each client."""
        check_classes(have)
        if self.classes > len(have):
            raise UserError(f"classes is {self.classes}, but there are {len(have)} in all; lower classes")
        holds = evenly(self.classes, range(num_clients), len(have), seed, "classes-held") > 0
        if self.samples is not None:
            return self._over_own_classes("training", self.samples, holds, seed)
        counts = np.zeros(holds.shape, np.int64)
        for label in np.flatnonzero(holds.any(axis=0)).tolist():
            holders = np.flatnonzero(holds[:, label])
            amount = max(int(have[label]), len(holders))  # too few: one each, and so shared or refused
            counts[holders, label] = evenly(amount, [label], len(holders), seed, "class-split")[0]
        return counts

    def test_counts(self, have: Ints, train: Ints, seed: int) -> Ints:
        """Return test_samples for each client, evenly over the classes it holds."""
        return self._over_own_classes("test", self.test_samples, train > 0, seed)

    def _over_own_classes(self, kind: str, amount: int, holds: NDArray[np.bool_], seed: int) -> Ints:
        counts = np.zeros(holds.shape, np.int64)
        for client, own in enumerate(holds):
            counts[client, own] = evenly(amount, [client], self.classes, seed, f"{kind}-own-classes")[0]
        return counts
