"""The frozen description of a run: all that its result depends on, in words and numbers."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fedamp import __version__, checks
from fedamp.errors import UserError

NAMED = ("setting", "model", "method")
"""What is chosen by a name and has parameters of its own."""

DEFAULT_LR = {"adam": 1e-3, "sgd": 1e-2}

GIVEN = "given"
"""The data and the setting of clients whose samples were handed over from Python."""


@dataclass(frozen=True)
class Named:
    """A choice by name, with its parameters: those not given are the choice's own defaults."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", checks.plain(self.parameters))

    @classmethod
    def of(cls, value: object) -> Named:
        """Return a choice from a name, or from a mapping with a `name` and parameters."""
        if isinstance(value, Named):
            return value
        if isinstance(value, str):
            return cls(value)
        if isinstance(value, Mapping) and isinstance(value.get("name"), str):
            parameters = {key: each for key, each in checks.plain(value).items() if key != "name"}
            return cls(value["name"], {k: math.inf if v == "inf" else v for k, v in parameters.items()})
        raise UserError(f"got {value!r}; expected a name, or a table with a 'name' and parameters")


@dataclass(frozen=True)
class RunConfig:
    """One run. Two runs with equal descriptions have equal results."""

    data: str = "digits"
    setting: Named = Named("practical")
    clients: int = 20
    model: Named = Named("mlp")
    method: Named = Named("fedamp")
    rounds: int = 30
    epochs: int | None = None  # passes over the data in a round; 5 where steps are not given either
    steps: int | None = None  # or: minibatches in a round
    batch_size: int = 10
    optimizer: str | None = None  # None: the method's own
    lr: float | None = None  # None: the method's own
    momentum: float = 0.0
    weight_decay: float = 0.0
    task: str = "auto"  # of your own silos: "classification" or "regression"
    label: str | None = None  # of your own silos: the csv column to predict
    held_out: float = 0.2  # of your own silos: share of each that is held out for testing
    label_noise: float = 0.0  # share of wrong training labels
    noisy_clients: tuple[int, ...] | None = None  # who has them; None: everyone
    poisoned: tuple[int, ...] = ()  # clients that send sign-flipped, scaled rows
    poison_scale: float = 10.0
    replies: str = (
        "auto"  # "checked": refused as in a federation; "any" finite one; auto checks where some are poisoned
    )
    init: str = "common"  # first models: one for all clients, or each its "own"
    absent: float = 0.0  # probability that a client is away from a round
    validation: float = 0.0  # share of each client's training samples that is held out
    seed: int = 0
    engine: str = "auto"
    device: str = "auto"
    precision: str = "auto"  # of training and scoring: fp32, tf32 or bf16; auto is tf32 on a GPU, fp32 on a CPU
    schema: str | None = None  # of your own silos: a file with the schema that was agreed on
    model_code: str | None = None  # digest of the file that a module:function comes from: another file, another run
    version: str = __version__
    compile: str = "auto"  # torch.compile on a GPU: "on", "off", or where the run is long enough to repay it
    deterministic: bool = False  # bit for bit the same on a GPU too, at the cost of speed

    def __post_init__(self) -> None:
        if not isinstance(self.data, str):
            raise UserError(
                f"data is a {type(self.data).__name__}; expected a data set's name or a folder of silos (from Python, "
                "your own samples go into clients=[(x, y), ...])"
            )
        for each in fields(self):
            object.__setattr__(self, each.name, checks.plain(getattr(self, each.name)))
        for name in NAMED:
            object.__setattr__(self, name, Named.of(getattr(self, name)))
        checks.count("clients", self.clients)
        checks.count("rounds", self.rounds)
        checks.count("seed", self.seed, least=0)
        checks.one_of("init", self.init, ["common", "own"])
        checks.one_of("engine", self.engine, ["auto", "stacked", "loop"])
        checks.one_of("precision", self.precision, ["auto", "fp32", "tf32", "bf16"])
        checks.one_of("compile", self.compile, ["auto", "on", "off"])
        checks.truth("deterministic", self.deterministic)
        checks.one_of("task", self.task, ["auto", "classification", "regression"])
        checks.share("held_out", self.held_out)
        checks.share("label_noise", self.label_noise)
        checks.positive("poison_scale", self.poison_scale)
        checks.one_of("replies", self.replies, ["auto", "checked", "any"])
        for name in ("noisy_clients", "poisoned"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        checks.share("absent", self.absent)
        checks.share("validation", self.validation)
        if self.epochs is None and self.steps is None:
            object.__setattr__(self, "epochs", 5)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RunConfig:
        """Return a description from a mapping; an unknown key is an error that lists the known ones."""
        known = [f.name for f in fields(cls)]
        for key in values:
            checks.one_of("setting of a run", key, known)
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, with the named choices as tables: what goes to JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in NAMED:
            choice: Named = values[name]
            # JSON has no word for infinity, which is a sigma like any other.
            told = {key: "inf" if value == math.inf else value for key, value in choice.parameters.items()}
            values[name] = {"name": choice.name, **told}
        plain: dict[str, Any] = json.loads(json.dumps(values, default=_plain))
        return plain


def _numbers(what: str, value: object) -> tuple[int, ...] | None:
    """Return clients' numbers as a tuple; one number, or words like "0,3", will do."""
    if value is None:
        return None
    parts: Any = value.split(",") if isinstance(value, str) else [value] if checks.is_whole(value) else value
    try:
        numbers = [int(part) if isinstance(part, str) else checks.plain(part) for part in parts]
    except (TypeError, ValueError):
        numbers = [None]
    if not all(checks.is_whole(number) for number in numbers):
        raise UserError(f"{what} is {value!r}; expected numbers of clients, say 0,3,7")
    return tuple(sorted(numbers) if isinstance(value, set) else numbers)


def is_folder(data: str) -> bool:
    """Whether `data` names a folder with silos; a data set's name is the data set, and `./digits` the folder."""
    if "/" in data or os.sep in data or data.startswith("."):
        return True
    if data == GIVEN or not Path(data).is_dir():
        return False
    from fedamp.data import DATA  # only here, where both can be meant: it needs torch

    return data not in DATA


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple | set) else str(value)
