"""Settings that would be ignored: somebody who gives one seems to expect that it does something.

Asked of what is wished for, not of every configuration: an earlier version's record may hold such a setting, and so may
one point of a grid whose other points use it.
"""

from __future__ import annotations

from collections.abc import Collection

from fedamp.config.run_config import RunConfig
from fedamp.errors import UserError


def check_effects(asked: Collection[RunConfig]) -> None:
    """Raise if a setting has no effect on any of the runs that are asked for."""
    noisy = [config for config in asked if config.noisy_clients is not None]
    if noisy and not any(config.label_noise for config in noisy):
        who = ",".join(map(str, noisy[0].noisy_clients or ()))
        raise UserError(f"noisy_clients is {who}, but no labels are wrong: give --label-noise, say 0.2, too")
    scaled = [config for config in asked if config.poison_scale != RunConfig.poison_scale]
    if scaled and not any(config.poisoned for config in scaled):
        raise UserError(
            f"poison_scale is {scaled[0].poison_scale:g}, but nobody is poisoned: give --poisoned, say 0,3, too"
        )
