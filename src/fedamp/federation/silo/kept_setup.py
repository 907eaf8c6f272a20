"""What a silo trains with, made once: its process lives through all rounds, and most rounds change nothing of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from fedamp.config import RunConfig
from fedamp.data.clients import Clients
from fedamp.data.silos.read import read_silo
from fedamp.data.silos.schema.missing import READING
from fedamp.data.silos.schema_file import schema_to_json
from fedamp.errors import UserError
from fedamp.federation.plan import SiloConfig
from fedamp.runs.material import silo_material
from fedamp.runs.setup import Setup, assemble
from fedamp.training.model_check import check_private


class DataError(UserError):
    """The silo's data can't be used; the text says why."""


_KEPT: dict[Path, tuple[str, Setup]] = {}  # by the data's path, of which a silo has one


def kept_setup(silo_config: SiloConfig, data: Path, trains_alone: bool, private: bool = False) -> Setup:
    """Return what the plan and the data come to; made anew only if one of them has changed since the last round.

    `private` if samples are to be protected: not every model and plan allows that.
    """
    plan = silo_config.plan
    config = replace(plan.config, engine="loop", alone=trains_alone)
    try:
        key = repr((private, config, schema_to_json(plan.schema), silo_config.number, fingerprint(data)))
        if data in _KEPT and _KEPT[data][0] == key:
            return _KEPT[data][1]
        raw = read_silo(data, config.label, plan.schema.dropped, missing=READING[plan.schema.missing], agreed=True)
        material = silo_material(config, [raw], plan.schema, [silo_config.number])
    except (UserError, OSError) as error:
        raise DataError(str(error)) from None
    made = assemble(config, material, together=False)
    if private:
        _check_private(config, made)
    _KEPT[data] = key, made
    return made


def _check_private(config: RunConfig, made: Setup) -> None:
    if config.class_weights == "balanced":
        raise UserError(
            "the plan weighs each silo's loss by its classes (class_weights is 'balanced'), which tells how many "
            "samples of each class there are, and privacy does not cover that; take part without --dp-epsilon, or ask "
            "for another plan"
        )
    check_private(made.trainer.model, made.clients)
    _check_sides(config, made.clients)


def _check_sides(config: RunConfig, clients: Clients) -> None:
    """Raise unless each row is held out or not by its own lot alone: else one row more would move others.

    Where no lot, or each, is below the share, `lots.below` moves one to the other side.
    """
    rest = torch.cat([clients.train[0], *clients.validation])
    sides = [("held_out", "test", config.held_out, clients.test[0], rest)]
    if clients.validation:
        sides.append(("validation", "validation", config.validation, clients.validation[0], clients.train[0]))
    for parameter, purpose, share, held, others in sides:
        below = (clients.lots(each, config.seed, purpose) < share for each in (held, others))
        if not next(below).all() or next(below).any():
            raise UserError(
                f"the plan's {parameter} is {share}, and of this silo's few different rows none, or each, falls under "
                "it by its own lot: one row more could move others to the other side, and privacy does not cover that; "
                "take part with more rows, or ask for another share"
            )


def fingerprint(path: Path) -> list[tuple[str, int, int, int, int]]:
    """Return what changes whenever a file, or one of a folder's, is written: its size, times and place on the disk."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = ((str(file), file.stat()) for file in files)
    return [(name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino) for name, stat in stats]
