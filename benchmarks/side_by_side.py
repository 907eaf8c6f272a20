"""Two ways of doing the same thing, timed in turn in one process: a busy machine slows both, and the ratio stays."""

import statistics
import time
from collections.abc import Callable, Mapping


def ratios(ways: Mapping[str, Callable[[], object]], repeats: int = 7) -> dict[str, list[float]]:
    """Return for every way but the last how many times as long it took as the last, once for each repeat.

    A first call of each is warm-up and is not counted.
    """
    for way in ways.values():
        way()
    *others, last = ways
    found: dict[str, list[float]] = {name: [] for name in others}
    for _ in range(repeats):
        spent = {}
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            spent[name] = time.perf_counter() - began
        for name in others:
            found[name].append(spent[name] / spent[last])
    return found


def median_and_range(values: list[float]) -> str:
    """Return the median of some ratios, with the lowest and the highest, in words."""
    return f"{statistics.median(values):6.2f}  ({min(values):.2f} to {max(values):.2f})"
