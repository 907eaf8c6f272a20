"""The configuration of a federation: what is agreed on beforehand; data and clients are the silos themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedamp import models
from fedamp.config import Named, RunConfig
from fedamp.config.of_the_silos import FROM_THE_SILOS, WHY
from fedamp.config.run_config import FAULTS, PRIVACY
from fedamp.config.sources import read_toml, with_flags, with_model_code, with_overrides
from fedamp.data.silos.schema import Schema, check_agreed
from fedamp.errors import UserError
from fedamp.fields import explained
from fedamp.runs.judging import NOTHING_OWN, judged_task
from fedamp.runs.material import outputs_of

SIMULATED = (*FROM_THE_SILOS, *(name for name, about in explained(RunConfig).items() if about.group == FAULTS))
"""What the silos themselves decide, or what a federation has no use for."""
PROMISES = tuple(name for name, about in explained(RunConfig).items() if about.group == PRIVACY)


def configured_for(
    name: str, silos: int, schema: Schema, file: Path | None, flags: Mapping[str, Any], overrides: Sequence[str]
) -> RunConfig:
    """Return the configuration that a TOML file, flags and `--set` give, for silos under an agreed schema."""
    values = read_toml(file) if file else {}
    for key in SIMULATED:
        if key in values:
            what = WHY.get(key, "which is for simulations")
            raise UserError(f"{file} sets {key}, {what}; leave it out: silos are real here")
    if promised := [key for key in values if key in PROMISES]:
        raise UserError(
            f"{file} sets {', '.join(promised)}, which each silo promises for itself; leave it out, and start silos "
            "with fedamp silo up --dp-epsilon"
        )
    values = with_flags(values, flags)
    ways = values.get("missing", RunConfig.missing), values.get("indicate_missing", RunConfig.indicate_missing)
    check_agreed(schema, values.get("task", "auto"), values.get("label"), *ways)
    values["label"] = schema.label or values.get("label")
    agreed = {"task": schema.task, "missing": schema.missing, "indicate_missing": schema.indicate}
    values = with_overrides({**values, **agreed}, overrides)
    if ":" in (spec := Named.of(values.get("model", RunConfig.model)).name):
        models.load_builder(spec)  # a model that can't be loaded is an error now, not at the first silo
    config = RunConfig.of({**with_model_code(values), "data": name, "setting": "natural", "clients": silos})
    outputs, task = outputs_of(schema)
    judged_task(config, task, outputs, schema.labels, NOTHING_OWN)  # a metric that does not fit is an error now, too
    return config
