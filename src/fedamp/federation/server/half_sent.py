"""A reply that was only half sent must not stop the others.

Flower's server app receives a reply in pieces and waits for the missing ones: more than an hour, whatever the round's
timeout says. A silo that dies while it sends would hold up the whole federation for as long.
"""

from __future__ import annotations

from functools import partial


def bound_the_wait(seconds: float) -> None:
    """Let Flower wait no longer than `seconds` for the rest of a reply; then its sender counts as absent."""
    from flwr.supercore.inflatable.inflatable_utils import pull_objects
    from flwr.superlink.grid import http_grid

    if not hasattr(http_grid, "pull_objects"):
        raise SystemExit("this version of Flower has no pull_objects; install the one that fedamp[federation] requires")
    http_grid.pull_objects = partial(pull_objects, max_time=seconds)
