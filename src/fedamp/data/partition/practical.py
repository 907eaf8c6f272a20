"""Practical: groups of similar clients, each with its dominating classes and some samples of every other."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedamp import checks
from fedamp.data.partition.base import PAPER, Setting
from fedamp.data.partition.dealing import Ints, check_classes, evenly
from fedamp.errors import UserError
from fedamp.fields import about


@dataclass(frozen=True)
class Practical(Setting):
    """Clients in groups: round(share n) samples of the group's dominating classes, the rest of all other classes.

    Both parts are spread evenly over their classes, and no class is missing (unless share is 0 or 1). The clients of a
    group are consecutive, and so are its dominating classes.
    """

    groups: int = about(5, "How many groups of clients there are.", unit="groups", range="1 or more", source="ours")
    group_clients: tuple[int, ...] | None = about(
        None,
        "How many clients each group has; by default as equal as possible.",
        unit="clients",
        range="one number per group, 1 or more; their sum is the number of clients",
        source=f"{PAPER}, gives 10, 26, 26 for EMNIST; the default is ours",
    )
    group_classes: tuple[int, ...] | None = about(
        None,
        "How many dominating classes each group has; by default as equal as possible.",
        unit="classes",
        range="one number per group, 1 or more; their sum is the number of classes",
        source=f"{PAPER}, gives 10, 26, 26 for EMNIST; the default is ours",
    )
    share: float = about(
        0.8, "What share of a client's samples comes from its dominating classes.", range="0 to 1", source=PAPER
    )
    sizes: int | tuple[int, ...] | None = about(
        None,
        "How many training samples each client has; by default falling linearly from s in the "
        "first group to 2s/3 in the last, s as large as the training pool allows without sharing, whatever the seed.",
        unit="samples",
        range="1 or more; one number, or one per group",
        source=f"{PAPER}, gives 1000, 700, 400 for EMNIST; the default is ours",
    )
    size_parameter: ClassVar[str] = "sizes"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count("groups", self.groups)
        checks.share("share", self.share)
        for what in ("group_clients", "group_classes", "sizes"):
            given = getattr(self, what)
            if what == "sizes" and checks.is_number(given):
                checks.count(what, given)
            elif given is not None and (not isinstance(given, tuple) or len(given) != self.groups):
                raise UserError(f"{what} is {given!r}, but groups is {self.groups}; expected one number for each group")
            else:
                for group, number in enumerate(given or ()):
                    checks.count(f"{what} of group {group}", number)

    def true_groups(self, num_clients: int) -> tuple[int, ...]:
        """Return the group of each client."""
        return tuple(self._group_of_each("clients", self.group_clients, num_clients).tolist())

    def train_counts(self, have: Ints, num_clients: int, seed: int) -> Ints:
        """Return counts that differ by at most 1 within each part of a client."""
        check_classes(have)
        sizes, remedy = self.sizes, "raise sizes"
        if sizes is None:
            sizes, remedy = self._automatic_sizes(have, num_clients), "use fewer clients (sizes are automatic)"
            if not self._enough(sizes, len(have)) and (most := self._most_clients(have, num_clients)):
                raise UserError(
                    f"clients is {num_clients}, too many for {int(have.sum())} training samples of {len(have)} "
                    f"classes; expected up to {most}, who get a sample of each class, or change share or group_classes"
                )
        elif isinstance(sizes, int):
            sizes = (sizes,) * self.groups
        for group, size in enumerate(sizes):
            for part, (classes, amount) in self._parts(group, size, len(have)).items():
                if amount < len(classes):
                    raise UserError(
                        f"a client of group {group} has {size} samples, {amount} for its {len(classes)} {part} "
                        f"classes, but each needs one; {remedy}, or change share or group_classes"
                    )
        return self._counts("training", sizes, len(have), num_clients, seed)

    def test_counts(self, have: Ints, train: Ints, seed: int) -> Ints:
        """Return test_samples for each client in the same shares; if they are too few, some classes get none."""
        return self._counts("test", (self.test_samples,) * self.groups, len(have), len(train), seed)

    def _group_of_each(self, what: str, given: tuple[int, ...] | None, total: int) -> Ints:
        if given is None:
            if total < self.groups:
                raise UserError(
                    f"{total} {what} {'is' if total == 1 else 'are'} too few for {self.groups} groups; lower groups "
                    f"(--set setting.groups={total}; in Python setting={{'name': 'practical', 'groups': {total}}})"
                )
            given = tuple(total // self.groups + (group < total % self.groups) for group in range(self.groups))
        if sum(given) != total:
            raise UserError(f"group_{what} sums to {sum(given)}, but there are {total} {what}; change group_{what}")
        return np.repeat(np.arange(self.groups), given)

    def _parts(self, group: int, size: int, num_classes: int) -> dict[str, tuple[Ints, int]]:
        """Return the classes of each part, and how many samples of them a client of the group has."""
        dominating = self._group_of_each("classes", self.group_classes, num_classes) == group
        share = 1 if dominating.all() else self.share  # one group: no class is left for the rest
        first = round(share * size)
        parts = {"dominating": (dominating, first, share > 0), "other": (~dominating, size - first, share < 1)}
        return {name: (np.flatnonzero(mask), amount) for name, (mask, amount, wanted) in parts.items() if wanted}

    def _counts(self, kind: str, sizes: tuple[int, ...], num_classes: int, num_clients: int, seed: int) -> Ints:
        counts = np.zeros((num_clients, num_classes), np.int64)
        groups = np.array(self.true_groups(num_clients))
        for group, size in enumerate(sizes):
            clients = np.flatnonzero(groups == group)
            for part, (classes, amount) in self._parts(group, size, num_classes).items():
                even = evenly(amount, clients.tolist(), len(classes), seed, f"{kind}-{part}")
                counts[np.ix_(clients, classes)] = even
        return counts

    def _enough(self, sizes: tuple[int, ...], num_classes: int) -> bool:
        """Return whether each client gets a sample of each of its classes."""
        parts = [part for group, size in enumerate(sizes) for part in self._parts(group, size, num_classes).values()]
        return all(amount >= len(classes) for classes, amount in parts)

    def _most_clients(self, have: Ints, too_many: int) -> int:
        """Return how many clients automatic sizes are enough for; 0 if it can't be told by their number alone."""
        if self.group_clients is not None:
            return 0
        numbers = range(self.groups, too_many)

        def too_few(num_clients: int) -> bool:
            return not self._enough(self._automatic_sizes(have, num_clients), len(have))

        place = bisect_left(numbers, True, key=too_few)
        return numbers[place - 1] if place else 0

    def _automatic_sizes(self, have: Ints, num_clients: int) -> tuple[int, ...]:
        members = np.bincount(self.true_groups(num_clients)).tolist()

        def sizes(s: int) -> tuple[int, ...]:
            return tuple(round(s - s / 3 * group / max(1, self.groups - 1)) for group in range(self.groups))

        def too_large(s: int) -> bool:
            # A group asks for ceil(total / classes) of a class, or one less. The former grows with s, as
            # bisection needs, and leaves the sizes independent of the seed.
            demand = np.zeros_like(have)
            for group, size in enumerate(sizes(s)):
                for classes, amount in self._parts(group, size, len(have)).values():
                    demand[classes] += -(-amount * members[group] // len(classes))
            return bool((demand > have).any())

        return sizes(bisect_left(range(1, int(have.sum()) + 1), True, key=too_large))
