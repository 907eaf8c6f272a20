"""A silo's own model in use, in its own house: which of those at home is asked, and how it is built again."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedamp import checks, models
from fedamp.errors import UserError
from fedamp.federation.plan import Plan
from fedamp.federation.plan_files import read_silo_config
from fedamp.federation.silo import kept_models
from fedamp.federation.silo.bundle_code import use_code
from fedamp.records.take_home import CHOSEN
from fedamp.runs.in_use.predictor import Predictor
from fedamp.runs.material import outputs_of
from fedamp.runs.parts import method_of
from fedamp.runs.scoring import take_home_rule


def own_predictor(bundle: Path, model: str | None = None) -> tuple[str, Predictor]:
    """Return the name of a model's file that a silo has at home, without its ending, and the model to ask.

    By default what a run's client would take home: the models that all silos chose, if that is the plan's rule; else
    the best by the silo's own validation samples; without any, the newest of those that the method is scored by.
    """
    config = read_silo_config(bundle)
    use_code(bundle)
    plan = config.plan
    if plan.here()["model_code"] != plan.agreed()["model_code"]:
        raise UserError(
            f"the model {plan.config.model.name} is not the one of the plan (its file has changed); "
            f"restore {bundle / 'code'}"
        )
    folder = bundle / "run" / "models"
    known = {_name(kept, folder): kept.path for kept in kept_models.kept(folder)}
    if not known:
        raise UserError(f"{folder} has no models yet; they come with the first round")
    name = _usual(plan, known) if model is None else model
    checks.one_of("model", name, known)
    schema = plan.schema
    return name, Predictor(
        module=_built(plan, known[name]),
        whose=f"silo {config.name!r}",
        task=schema.task,
        input_shape=schema.input_shape,
        schema=schema,
        label=plan.config.label,
    )


def _name(kept: kept_models.Kept, folder: Path) -> str:
    return kept.path.relative_to(folder).with_suffix("").as_posix()


def _usual(plan: Plan, known: dict[str, Path]) -> str:
    method = method_of(plan.config)
    if take_home_rule(plan.config, method) == CHOSEN and CHOSEN in known:
        return CHOSEN
    return next((name for name in (kept_models.BEST, method.scored) if name in known), next(iter(known)))


def _built(plan: Plan, path: Path) -> nn.Module:
    """Return the module of a file of tensors."""
    try:
        state: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} can't be read ({error}); take another with --model") from None
    config, schema = plan.config, plan.schema
    builder = models.load_builder(config.model.name)
    module = models.build(builder, schema.input_shape, outputs_of(schema)[0], config.seed, **config.model.parameters)
    try:
        module.to(next((values.dtype for values in state.values() if values.is_floating_point()), torch.float32))
        module.load_state_dict(state)
    except RuntimeError as error:
        why = " ".join(str(error).split())[:160]
        raise UserError(f"{path} does not fit the plan's model ({why}); take another with --model") from None
    return module.eval()
