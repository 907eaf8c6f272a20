"""What every setting is: counts of each class for each client, and the samples that are dealt accordingly."""

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedamp import checks
from fedamp.data.partition.dealing import Ints, deal, sorted_pool
from fedamp.fields import about

PAPER = "the paper's experiments, Settings of Data Sets"  # where most fields of a setting come from


@dataclass(frozen=True)
class Assignment:
    """Each client's samples, as ascending positions in the labels that were given, no position twice."""

    train: tuple[Ints, ...]
    test: tuple[Ints, ...]
    groups: tuple[int, ...] | None  # the true group of each client, if the setting has groups
    shared: int  # training samples held by more than one client
    shared_test: int  # test samples held by more than one client


@dataclass(frozen=True)
class Setting(ABC):
    """How samples are spread over clients; the parameters are the only attributes, and lists become tuples.

    Clients have no training sample in common unless `share_samples`, and even then only where a class has too
    few. Clients may have test samples in common, again only where a class has too few for all.
    """

    _: KW_ONLY
    test_samples: int = about(
        100, "How many samples each client is tested on.", unit="samples", range="1 or more", source=PAPER
    )
    share_samples: bool = about(
        False, "Whether clients may have training samples in common if a class has too few.", source="ours"
    )
    size_parameter: ClassVar[str] = "samples"  # what to lower if a class has too few

    def __post_init__(self) -> None:
        for parameter in fields(self):
            value = checks.plain(getattr(self, parameter.name))
            object.__setattr__(self, parameter.name, tuple(value) if isinstance(value, list) else value)
        checks.count("test_samples", self.test_samples)
        checks.truth("share_samples", self.share_samples)

    @abstractmethod
    def train_counts(self, have: Ints, num_clients: int, seed: int) -> Ints:
        """Return how many training samples of each class each client gets (m, C); `have` (C,) is the pool's."""

    @abstractmethod
    def test_counts(self, have: Ints, train: Ints, seed: int) -> Ints:
        """Return the same for testing, given the counts for training."""

    def true_groups(self, num_clients: int) -> tuple[int, ...] | None:
        """Return the group of each client, if the setting has groups."""
        return None

    def assign(
        self, labels: NDArray[Any], train_pool: NDArray[Any], test_pool: NDArray[Any], num_clients: int, seed: int
    ) -> Assignment:
        """Return who gets which samples; `labels` holds 0 ... C-1, and the pools are positions in it."""
        checks.count("num_clients", num_clients)
        checks.seed("seed", seed)
        labels = np.asarray(labels)
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.min(initial=0) < 0:
            raise ValueError(f"labels are {labels!r}; expected a vector of whole numbers from 0")
        labels = labels.astype(np.int64)
        train_pool, test_pool = sorted_pool("training", train_pool, labels), sorted_pool("test", test_pool, labels)
        if common := len(np.intersect1d(train_pool, test_pool)):
            raise ValueError(f"the training and the test pool have {common} positions in common; expected none")
        have, have_test = (np.bincount(labels[p], minlength=labels.max() + 1) for p in (train_pool, test_pool))
        counts, lower = self.train_counts(have, num_clients, seed), self.size_parameter
        train, shared = deal("training", labels, train_pool, counts, seed, lower, self.share_samples)
        counts = self.test_counts(have_test, counts, seed)
        test, shared_test = deal("test", labels, test_pool, counts, seed, "test_samples", True)
        return Assignment(train, test, self.true_groups(num_clients), shared, shared_test)
