"""Labels and a seed -> who gets which samples; knows nothing of models, nor of the samples themselves.

A setting says how many samples of each class each client gets: a table of counts (m, C) for training and one
for testing. Which samples these are is the same for all settings: each class is a shuffled deck, dealt from
the top to client 0, 1, ... Where clients may share samples, a deck that runs out is dealt again from its top.

Symbols: m clients, C classes, c classes of a pathological client, n samples of a client, beta of Dirichlet.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedamp import checks, seeds
from fedamp.errors import UserError

Ints = NDArray[np.int64]
MOST_DRAWS = 1000


@dataclass(frozen=True)
class Assignment:
    """Each client's samples, as ascending positions in the labels that were given, no position twice."""

    train: tuple[Ints, ...]
    test: tuple[Ints, ...]
    groups: tuple[int, ...] | None  # the true group of each client, where the setting has groups
    shared: int  # training samples held by more than one client
    shared_test: int  # test samples held by more than one client


@dataclass(frozen=True)
class Setting(ABC):
    """How samples are spread over clients; the parameters are the only attributes, and lists become tuples.

    Clients have no training sample in common unless `share_samples`, and even then only where a class has too
    few. Test samples may be common to several clients, again only where a class has too few for all.
    """

    test_samples: int = field(default=100, kw_only=True)  # a client
    share_samples: bool = field(default=False, kw_only=True)
    size_parameter: ClassVar[str] = "samples"  # what to lower where a class has too few

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
        """Return the group of each client, where the setting has groups."""
        return None

    def assign(
        self, labels: NDArray[Any], train_pool: NDArray[Any], test_pool: NDArray[Any], num_clients: int, seed: int
    ) -> Assignment:
        """Return who gets which samples; `labels` holds 0 ... C-1, and the pools are positions in it."""
        checks.count("num_clients", num_clients)
        checks.count("seed", seed, least=0)
        labels = np.asarray(labels)
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.min(initial=0) < 0:
            raise ValueError(f"labels are {labels!r}; expected a vector of whole numbers from 0")
        labels = labels.astype(np.int64)
        train_pool, test_pool = _positions("training", train_pool, labels), _positions("test", test_pool, labels)
        if common := len(np.intersect1d(train_pool, test_pool)):
            raise ValueError(f"the training and the test pool have {common} positions in common; expected none")
        have, have_test = (np.bincount(labels[p], minlength=labels.max() + 1) for p in (train_pool, test_pool))
        counts, lower = self.train_counts(have, num_clients, seed), self.size_parameter
        train, shared = _deal("training", labels, train_pool, counts, seed, lower, self.share_samples)
        counts = self.test_counts(have_test, counts, seed)
        test, shared_test = _deal("test", labels, test_pool, counts, seed, "test_samples", True)
        return Assignment(train, test, self.true_groups(num_clients), shared, shared_test)


@dataclass(frozen=True)
class IID(Setting):
    """Every client has the same number of samples, its classes in the pool's proportions.

    `samples` a client; None: the training pool divided by the clients, rounded down.
    """

    samples: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples is not None:
            checks.count("samples", self.samples)

    def train_counts(self, have: Ints, num_clients: int, seed: int) -> Ints:
        """Return counts near n have / sum(have)."""
        amount = max(1, int(have.sum()) // num_clients) if self.samples is None else self.samples
        return _proportional("training", amount, have, num_clients, seed, "samples")

    def test_counts(self, have: Ints, train: Ints, seed: int) -> Ints:
        """Return counts near test_samples have / sum(have)."""
        return _proportional("test", self.test_samples, have, len(train), seed, "test_samples")


@dataclass(frozen=True)
class Pathological(Setting):
    """Every client has c classes; every class is held by floor(m c / C) or ceil(m c / C) clients.

    `samples` a client, evenly over its classes; None: each class is split evenly among those that hold it.
    There are no groups: classes are dealt like cards, from a deck that is shuffled whenever it is used up.
    """

    classes: int = 2
    samples: int | None = None
    size_parameter: ClassVar[str] = "samples or classes"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count("classes", self.classes)
        if self.samples is not None:
            checks.count(f"samples with {self.classes} classes", self.samples, least=self.classes)

    def train_counts(self, have: Ints, num_clients: int, seed: int) -> Ints:
        """Return counts that are over 0 for c classes of each client."""
        _check_classes(have)
        if self.classes > len(have):
            raise UserError(f"classes is {self.classes}, but there are {len(have)} in all; lower classes")
        holds = _evenly(self.classes, range(num_clients), len(have), seed, "classes-held") > 0
        if self.samples is not None:
            return self._over_own_classes("training", self.samples, holds, seed)
        counts = np.zeros(holds.shape, np.int64)
        for label in np.flatnonzero(holds.any(axis=0)).tolist():
            holders = np.flatnonzero(holds[:, label])
            amount = max(int(have[label]), len(holders))  # too few: one each, and so shared or refused
            counts[holders, label] = _evenly(amount, [label], len(holders), seed, "class-split")[0]
        return counts

    def test_counts(self, have: Ints, train: Ints, seed: int) -> Ints:
        """Return test_samples a client, evenly over the classes it holds."""
        return self._over_own_classes("test", self.test_samples, train > 0, seed)

    def _over_own_classes(self, kind: str, amount: int, holds: NDArray[np.bool_], seed: int) -> Ints:
        counts = np.zeros(holds.shape, np.int64)
        for client, own in enumerate(holds):
            counts[client, own] = _evenly(amount, [client], self.classes, seed, f"{kind}-own-classes")[0]
        return counts


@dataclass(frozen=True)
class Practical(Setting):
    """Clients in groups: round(share n) samples of the group's dominating classes, the rest of all other classes.

    Both parts are spread evenly over their classes, and no class is missing (unless share is 0 or 1). Groups
    have consecutive clients and consecutive dominating classes: `group_clients` and `group_classes` say how many;
    None: as equal as can be. `sizes` is n, for all or a group; None: falling linearly from s in the first group
    to 2s/3 in the last, s as large as the training pool allows without sharing, whatever the seed.
    """

    groups: int = 5
    group_clients: tuple[int, ...] | None = None
    group_classes: tuple[int, ...] | None = None
    share: float = 0.8
    sizes: int | tuple[int, ...] | None = None
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
                raise UserError(f"{what} is {given!r}, but groups is {self.groups}; expected one number a group")
            else:
                for group, number in enumerate(given or ()):
                    checks.count(f"{what} of group {group}", number)

    def true_groups(self, num_clients: int) -> tuple[int, ...]:
        """Return the group of each client."""
        return tuple(self._group_of_each("clients", self.group_clients, num_clients).tolist())

    def train_counts(self, have: Ints, num_clients: int, seed: int) -> Ints:
        """Return counts that differ by at most 1 within each part of a client."""
        _check_classes(have)
        sizes, remedy = self.sizes, "raise sizes"
        if sizes is None:
            sizes, remedy = self._automatic_sizes(have, num_clients), "use fewer clients (sizes are automatic)"
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
        """Return test_samples a client in the same shares; where they are too few, some classes go without."""
        return self._counts("test", (self.test_samples,) * self.groups, len(have), len(train), seed)

    def _group_of_each(self, what: str, given: tuple[int, ...] | None, total: int) -> Ints:
        if given is None:
            if total < self.groups:
                raise UserError(f"{total} {what} are too few for {self.groups} groups; lower groups")
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
                even = _evenly(amount, clients.tolist(), len(classes), seed, f"{kind}-{part}")
                counts[np.ix_(clients, classes)] = even
        return counts

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


@dataclass(frozen=True)
class Dirichlet(Setting):
    """Each class is split among the clients in proportions from Dirichlet(beta): the smaller, the more skewed.

    All training samples are used, once each. Proportions are drawn anew until every client has `min_samples`.
    """

    beta: float = 0.5
    min_samples: int = 10

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
            split = [_apportion(n, own, n) for n, own in zip(have.tolist(), weights, strict=True)]
            counts = np.stack(split, axis=1)
            if counts.sum(axis=1).min() >= self.min_samples:
                return counts
        tried = f"none of {MOST_DRAWS} draws with beta {self.beta}"
        raise UserError(f"{tried} gave {need}; raise beta, or lower min_samples or the number of clients")

    def test_counts(self, have: Ints, train: Ints, seed: int) -> Ints:
        """Return test_samples a client in its training proportions, of no class more than the pool has."""
        for client, most in enumerate((train > 0) @ have):
            if most < self.test_samples:
                asks = f"client {client} asks for {self.test_samples}"
                raise UserError(f"{asks} test samples, but its classes have {most}; lower test_samples")
        return np.stack([_apportion(self.test_samples, own.astype(float), have) for own in train])


def _evenly(amount: int, rows: Iterable[int], bins: int, seed: int, purpose: str) -> Ints:
    """Spread an amount over bins in each row: counts in a row differ by at most 1, and so do the column sums.

    What is left over goes to the bins that have least so far, at random among equals; so a row depends on
    those before it, but not on those after it. `rows` are the coordinates of their streams.
    """
    counts = []
    so_far = np.zeros(bins, np.int64)
    for row in rows:
        ties = seeds.generator(seed, purpose, row).random(bins)
        counts.append(np.full(bins, amount // bins))
        counts[-1][np.lexsort((ties, so_far))[: amount % bins]] += 1
        so_far += counts[-1]
    return np.stack(counts)


def _proportional(kind: str, amount: int, have: Ints, num_clients: int, seed: int, parameter: str) -> Ints:
    """Give each client floor(amount have / sum(have)) of each class, and draw the few left over at random."""
    total = int(have.sum())
    if amount > total:
        raise UserError(f"the {kind} pool has {total} samples, but a client asks for {amount}; lower {parameter}")
    whole = amount * have // total
    # Where the pool is enough for all, what one client draws is gone for the next.
    enough = amount * num_clients <= total
    left = have - whole * (num_clients if enough else 1)
    counts = []
    for client in range(num_clients):
        stream = seeds.generator(seed, f"{kind}-left-over", client)
        drawn = stream.multivariate_hypergeometric(left, amount - int(whole.sum()))
        counts.append(whole + drawn)
        left = left - drawn * enough
    return np.stack(counts)


def _apportion(total: int, weights: NDArray[np.float64], most: Ints | int) -> Ints:
    """Split a total by weights and largest remainders, no count over `most`; the others take the excess."""
    quota = np.zeros(len(weights))
    free = weights > 0
    while free.any():
        quota[free] = (total - quota[~free].sum()) * weights[free] / weights[free].sum()
        full = free & (quota > most)
        quota = np.minimum(quota, most)
        free &= ~full
        if not full.any():
            break
    counts = np.floor(quota).astype(np.int64)
    counts[np.argsort(counts - quota, kind="stable")[: total - counts.sum()]] += 1
    return counts


def _deal(
    kind: str, labels: NDArray[Any], pool: Ints, counts: Ints, seed: int, parameter: str, may_share: bool
) -> tuple[tuple[Ints, ...], int]:
    """Return each client's positions, counted ones of each class's shuffled deck, and how many are shared."""
    ends = np.bincount(labels[pool], minlength=counts.shape[1]).cumsum()
    decks = np.split(pool[np.argsort(labels[pool], kind="stable")], ends[:-1])
    dealt, owners, shared = [], [], 0
    for label, (deck, asked) in enumerate(zip(decks, counts.T, strict=True)):
        deck = seeds.generator(seed, f"{kind}-deck", label).permutation(deck)
        has, total = f"class {label} has {len(deck)} {kind} samples", int(asked.sum())
        if asked.max() > len(deck):
            raise UserError(f"{has}, but client {asked.argmax()} asks for {asked.max()}; lower {parameter}")
        if total > len(deck) and not may_share:
            remedy = f"lower {parameter}, use fewer clients, or let clients share samples (share_samples=true)"
            raise UserError(f"{has}, but the clients ask for {total} of it; {remedy}")
        # No client takes more than a deck, so a sample that is dealt again goes to another client.
        dealt.append(deck[np.arange(total) % max(1, len(deck))])
        owners.append(np.repeat(np.arange(len(counts)), asked))
        shared += min(max(0, total - len(deck)), len(deck))
    positions = np.concatenate(dealt)
    order = np.lexsort((positions, np.concatenate(owners)))
    return tuple(np.split(positions[order], counts.sum(axis=1).cumsum()[:-1])), shared


def _positions(kind: str, pool: NDArray[Any], labels: NDArray[Any]) -> Ints:
    """Return a pool in ascending order: which positions it has matters, their order doesn't."""
    pool = np.asarray(pool)
    if pool.size == 0:
        raise UserError(f"the {kind} pool is empty; expected at least one sample")
    valid = pool.ndim == 1 and pool.dtype.kind in "iu" and pool.min() >= 0 and pool.max() < len(labels)
    if not valid or len(np.unique(pool)) < len(pool):
        raise ValueError(f"the {kind} pool is {pool!r}; expected distinct positions from 0 to {len(labels) - 1}")
    return np.sort(pool).astype(np.int64)


def _check_classes(have: Ints) -> None:
    """Raise unless the training pool has every class."""
    for label in np.flatnonzero(have == 0):
        raise UserError(f"class {label} has no training samples; expected some of each from 0 to {len(have) - 1}")


SETTINGS: dict[str, type[Setting]] = {
    "iid": IID,
    "pathological": Pathological,
    "practical": Practical,
    "dirichlet": Dirichlet,
}


def make_setting(name: str, **parameters: Any) -> Setting:
    """Return a setting by its name; a wrong name or parameter is an error that lists the right ones.

    >>> make_setting("dirichlet", beta=0.1)
    Dirichlet(test_samples=100, share_samples=False, beta=0.1, min_samples=10)
    """
    checks.one_of("setting", name, SETTINGS)
    for given in parameters:
        checks.one_of(f"parameter of {name}", given, {f.name for f in fields(SETTINGS[name])})
    return SETTINGS[name](**parameters)
