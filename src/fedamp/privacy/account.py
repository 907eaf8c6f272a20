"""What a client's steps come to, as epsilon and delta, and which noise keeps within them.

By the privacy loss distributions of Google's library dp-accounting (Doroshenko et al., "Connect the Dots: Tighter
Discrete Approximations of Privacy Loss Distributions", PoPETs 2022), whose rounding is pessimistic: what is said here
is never less than what was spent. Two data sets are neighbours if one sample was added or removed. The library is an
extra (`pip install fedamp[privacy]`), and is imported when it is first asked.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fedamp import checks
from fedamp.errors import UserError
from fedamp.privacy.events import Event, Spending

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution  # type: ignore[import-untyped]

LIBRARY = "dp-accounting"
INSTALL = "pip install 'fedamp[privacy]'"
RELATION = "add-or-remove"
"""Which data sets are neighbours: those that differ in one sample more."""
FINE = 20
"""Points of the grid for each standard deviation of one step's privacy loss. Epsilon is then at most 0.1 % too high (at
10 points it is four times that); the tests compare it with another library and with a closed form."""
CLOSE = 1e-3
"""How near below its target a search for noise has to come, relative to it: one step less would not be noticed."""
LEAST, MOST = 1e-3, 1e6
"""Between which a search looks for noise."""
SMALL = 1e-12
"""A delta that is certainly large enough for the library: it leaves out some 1e-15 at the tails."""
LARGEST = 300.0  # of 1 / z^2 in an exponential
MOST_POINTS = 1 << 16
"""Of the grid of one step: some 0.2 s. Steps with a rate below 1e-4 would take more, and are then counted too high."""
MANY = 64
"""How much longer the grid of all steps may be than that of one: only an epsilon in the thousands is then too high."""
TAIL = 10.0
"""Standard deviations of the noise beyond which the library looks no further."""


def available() -> bool:
    """Return whether the library is installed."""
    return importlib.util.find_spec("dp_accounting") is not None


def check_available(why: str) -> None:
    """Raise an error that says how to install the library, if it is not."""
    if not available():
        raise UserError(f"{why}, which takes {LIBRARY}, and that is not installed: {INSTALL}")


def name() -> str:
    """Return which library counts, and its version."""
    return f"{LIBRARY} {importlib.metadata.version(LIBRARY)} (PLD)"


def epsilon(spent: Spending, delta: float) -> float:
    """Return the least epsilon that is sure after these steps, at this delta.

    0 where nothing was spent, infinity where a step had no noise.
    """
    check_delta(delta)
    return _epsilon(frozenset(_that_count(spent).items()), delta)


def delta(spent: Spending, epsilon: float) -> float:
    """Return the least delta that is sure after these steps, at this epsilon: 0 where nothing was spent."""
    checks.not_negative("epsilon", epsilon)
    steps = frozenset(_that_count(spent).items())
    if not steps or _open(steps):
        return float(bool(steps))
    return float(_composed(steps).get_delta_for_epsilon(epsilon))


def deltas(spent: Spending, epsilons: Sequence[float]) -> list[float]:
    """Return the least delta at each of these epsilons, which rise: the trade-off curve of these steps."""
    steps = frozenset(_that_count(spent).items())
    if not steps or _open(steps):
        return [float(bool(steps))] * len(epsilons)
    return [float(each) for each in _composed(steps).get_delta_for_epsilon(epsilons)]


def calibrate(plan: Spending | Callable[[float], Spending], epsilon: float, delta: float) -> float:
    """Return the least noise z, up to `CLOSE`, with which a plan spends at most epsilon at delta; 0 if it has no step.

    A plan is what would be spent with z = 1: at z each event has z times that noise. Or it is a function of z whose
    noise grows with it.
    """
    checks.positive("epsilon", epsilon)
    check_delta(delta)
    if callable(plan):
        first = _about(frozenset(_that_count(plan(1.0)).items()), epsilon, delta)
        return _search(lambda z: _epsilon(frozenset(_that_count(plan(z)).items()), delta), epsilon, delta, first)
    return _calibrated(frozenset(_that_count(plan).items()), epsilon, delta)


def scaled(plan: Spending, z: float) -> Spending:
    """Return the same steps with z times their noise."""
    return Counter({Event(event.rate, event.noise * z): count for event, count in plan.items()})


def check_delta(delta: float, what: str = "delta") -> None:
    """Raise unless delta is a probability that is neither 0, which Gaussian noise can't reach, nor 1."""
    checks.positive(what, delta)
    if delta >= 1:
        raise UserError(f"{what} is {delta:g}; expected a number below 1, well below 1 / samples of a client")


Steps = frozenset[tuple[Event, int]]


@functools.lru_cache(maxsize=4096)
def _epsilon(steps: Steps, delta: float) -> float:
    if not steps or _open(steps):
        return math.inf if steps else 0.0
    return float(_composed(steps).get_epsilon_for_delta(delta))


@functools.lru_cache(maxsize=1024)
def _calibrated(steps: Steps, epsilon: float, delta: float) -> float:
    plan: Spending = Counter(dict(steps))
    if not plan:
        return 0.0
    first = _about(steps, epsilon, delta)
    return _search(lambda z: _epsilon(frozenset(scaled(plan, z).items()), delta), epsilon, delta, first)


def _about(steps: Steps, epsilon: float, delta: float) -> float:
    """Return about which noise is needed, if it is much: n steps are then a Gaussian mechanism of noise z / (q sqrt n).

    By Dwork and Roth's bound, epsilon = sqrt(2 log(1.25 / delta)) / noise.
    """
    total = math.sqrt(sum(n * (event.rate / event.noise) ** 2 for event, n in steps if event.noise > 0))
    return min(max(total * math.sqrt(2 * math.log(1.25 / delta)) / epsilon, 0.5), MOST)


def _search(spends: Callable[[float], float], most: float, delta: float, first: float) -> float:
    """Return the least z whose epsilon is at most so much: between two that are known, log epsilon is a line of log z.

    The one that is returned was itself tried.
    """
    low, high = first / 2, first  # to become: epsilon(low) > most >= epsilon(high)
    while (found := spends(high)) > most:
        low, high = high, 2 * high
        if high > 2 * MOST and math.isinf(found):  # delta is less than what the library leaves out at its tails
            raise UserError(
                f"delta is {delta:g}, and {LIBRARY} counts nothing as precisely as that; expected a larger one, say "
                f"{SMALL:g}"
            )
        if high > 2 * MOST:
            raise UserError(
                f"no noise up to {MOST:g} spends as little as epsilon {most:g}; ask for more, or for fewer rounds"
            )
    while (above := spends(low)) <= most:
        high, found, low = low, above, low / 2
        if low < LEAST:
            return high
    while found < most * (1 - CLOSE) and high / low > 1 + CLOSE / 10:
        share = 0.5
        if found > 0 and above < math.inf:
            share = math.log(most * (1 - CLOSE / 4) / found) / math.log(above / found)
        z = high * (low / high) ** min(max(share, 0.02), 0.98)
        if (now := spends(z)) <= most:
            high, found = z, now
        else:
            low, above = z, now
    return high


def _that_count(spent: Spending) -> Spending:
    """Return the steps that tell something: with samples in them, and without endless noise."""
    return Counter({event: n for event, n in spent.items() if n > 0 and event.rate > 0 and event.noise < math.inf})


def _open(steps: Steps) -> bool:
    """Return whether a step had no noise, or so little that no library can count it."""
    return any(event.noise < LEAST for event, _ in steps)


def _composed(steps: Steps) -> PrivacyLossDistribution:
    """Return the privacy loss of all steps together."""
    grid = _grid(steps)
    parts = [_one_step(event, grid).self_compose(count) for event, count in sorted(steps)]
    return functools.reduce(lambda one, other: one.compose(other), parts)


@functools.lru_cache(maxsize=256)
def _one_step(event: Event, grid: float) -> PrivacyLossDistribution:
    """Return the privacy loss of one step, on multiples of `grid`."""
    check_available("epsilon is computed from privacy loss distributions")
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    return from_gaussian_mechanism(event.noise, sampling_prob=event.rate, value_discretization_interval=grid)


def _grid(steps: Steps) -> float:
    """Return the grid for these steps: a power of 2, fine enough for those who spend most of it.

    On a grid of width h a loss of spread s < h gets a variance of about s h. So h has to be small against
    sum s^2 / sum s.
    """
    spreads = [(_spread(event), count) for event, count in steps]
    wanted = sum(n * s * s for s, n in spreads) / sum(n * s for s, n in spreads) / FINE
    longest = max(*(_largest(event) for event, _ in steps), sum(n * s * s for s, n in spreads) / MANY)
    return 2.0 ** math.floor(math.log2(max(wanted, longest / MOST_POINTS)))


def _spread(event: Event) -> float:
    """Return about the standard deviation of one step's privacy loss: q sqrt(exp(1/z^2) - 1), at most 1/z."""
    at_most = 1 / event.noise
    return min(event.rate * math.sqrt(math.expm1(min(at_most**2, LARGEST))), at_most)


def _largest(event: Event) -> float:
    """Return about the largest privacy loss of one step: log(1 + q (exp(x) - 1)) at the end of the noise's tail."""
    x = TAIL / event.noise + 1 / (2 * event.noise**2)
    return x + math.log(event.rate) if x > LARGEST else math.log1p(event.rate * math.expm1(x))
