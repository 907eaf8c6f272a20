"""The configuration of a run: everything that its result depends on apart from data and code, in words and numbers."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fedamp import __version__, checks
from fedamp.config.metrics import METRICS, OWN
from fedamp.errors import UserError
from fedamp.fields import about, explained, field_list

NAMED = ("setting", "model", "method")
"""What is chosen by a name and has parameters of its own."""

DEFAULT_LR = {"adam": 1e-3, "sgd": 1e-2}

LATER = (
    *("alone", "then_alone", "take_home", "newcomers"),
    *("metric", "positive", "class_weights", "loss_code", "metric_code"),
    *("missing", "indicate_missing", "silo_column", "columns", "drop", "encoding"),
    "share_models",
    *("dp_epsilon", "dp_delta", "dp_clip", "dp_noise"),
    "attack",
)
"""Fields that earlier versions did not have. At its default such a field is not written down, so that a run from before
is still the same run, in the same folder."""
PRIVACY_DETAILS = ("dp_delta", "dp_clip")
"""How samples are protected, where `dp_epsilon` or `dp_noise` says that they are."""
CLIPS = (1e-6, 1e6)
"""Between which the clip makes sense: with less no model moves, with more noise is all there is, up to an overflow."""

NO_MATTER = ("rows",)
"""Fields on which no number of a result depends. They are not written down: a run goes on with another one, and each
machine chooses for itself."""

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
    def of(cls, value: object, what: str = "it") -> Named:
        """Return a choice from a name, or from a mapping with a `name` and parameters; `what` is chosen."""
        if isinstance(value, Named):
            return value
        if isinstance(value, str):
            return cls(value)
        if isinstance(value, Mapping) and isinstance(value.get("name"), str):
            parameters = {key: each for key, each in checks.plain(value).items() if key != "name"}
            return cls(value["name"], {k: math.inf if v == "inf" else v for k, v in parameters.items()})
        raise UserError(f"{what} is {value!r}; expected a name, or a table with a 'name' and parameters")


WHAT, TRAINING, PRIVACY, SILOS, FAULTS, MACHINE = (
    "Who learns what, and how",
    "Training at a client",
    "Privacy of single samples",
    "Your own silos",
    "What may go wrong",
    "How it is computed",
)
"""The headings of help texts."""


@dataclass(frozen=True)
class RunConfig:
    """One run. Two runs with equal configurations, data and code have equal results.

    A field with an explanation is a flag of `fedamp run` and `compare`, a key of a TOML file and an argument of
    `fedamp.run`; name, default and help text come from here.
    """

    data: str = about(
        "digits",
        "Data set (`fedamp list data`), a folder with a file for each silo, or one file with --silo-column.",
        group=WHAT,
    )
    setting: Named = about(
        Named("practical"), "How the samples are split among the clients (`fedamp list settings`).", group=WHAT
    )
    clients: int = about(20, "Number of clients.", range="1 or more", group=WHAT)
    model: Named = about(Named("mlp"), "Model (`fedamp list models`), or your own as module:function.", group=WHAT)
    method: Named = about(Named("autoamp"), "Method (`fedamp list methods`).", group=WHAT)
    rounds: int = about(30, "Communication rounds.", range="1 or more", group=WHAT)
    epochs: int | None = about(
        None, "Passes over a client's data in each round; 5 unless --steps is given.", range="1 or more", group=TRAINING
    )
    steps: int | None = about(None, "Minibatches in each round, instead of epochs.", range="1 or more", group=TRAINING)
    batch_size: int = about(10, "Samples in a minibatch.", range="1 or more", group=TRAINING)
    optimizer: str | None = about(None, "adam or sgd; by default the method's own.", group=TRAINING)
    lr: float | None = about(None, "Learning rate; by default the method's own.", range="above 0", group=TRAINING)
    momentum: float = about(0.0, "Momentum of sgd.", range="0 or more", group=TRAINING)
    weight_decay: float = about(0.0, "Weight decay, as an L2 penalty.", range="0 or more", group=TRAINING)
    task: str = about(
        "auto",
        "classification or regression; auto decides by the type of the labels.",
        choices=("auto", "classification", "regression"),
        group=SILOS,
    )
    metric: str = about(
        "auto",
        f"What models are judged by: {', '.join(METRICS)}; auto is accuracy, or rmse for a regression.",
        group=WHAT,
    )
    positive: str | None = about(
        None,
        "Of two classes, the positive one, which f1, auc and average-precision are about; by default the one that "
        "sorts last.",
        group=SILOS,
    )
    class_weights: str = about(
        "none",
        "balanced weighs each client's training loss by n / (classes * count), so that its rare classes count as much "
        "as its frequent ones.",
        choices=("none", "balanced"),
        group=TRAINING,
    )
    dp_epsilon: float | None = about(
        None,
        "Differential privacy of each client's single samples: the most that all rounds together may spend. The noise "
        "is chosen so that they do; by default samples are not protected.",
        range="above 0",
        group=PRIVACY,
    )
    dp_delta: float = about(
        1e-5, "The delta beside --dp-epsilon: well below 1 / samples of a client.", range="0 to 1", group=PRIVACY
    )
    dp_clip: float = about(
        1.0,
        "The longest that the gradient of one sample may be; longer ones are cut.",
        range=f"{CLIPS[0]:g} to {CLIPS[1]:g}",
        group=PRIVACY,
    )
    dp_noise: float | None = about(
        None,
        "Noise of a minibatch's gradients, in units of --dp-clip, instead of --dp-epsilon: what it spends is told.",
        range="above 0",
        group=PRIVACY,
    )
    label: str | None = about(None, "The csv column to predict.", group=SILOS)
    silo_column: str | None = about(
        None, "The column that says whose row it is, if one file has the rows of all silos.", group=SILOS
    )
    columns: tuple[str, ...] = about((), "Columns to learn from, say age,sex; by default all.", group=SILOS)
    drop: tuple[str, ...] = about((), "Columns to leave out, say id,name.", group=SILOS)
    encoding: str | None = about(None, "Of text files that are not utf-8, say cp1252.", group=SILOS)
    missing: str = about(
        "refuse",
        "What becomes of missing cells: an error (refuse), the mean or the most frequent word of all silos (fill), or "
        "their rows are left out (drop).",
        choices=("refuse", "fill", "drop"),
        group=SILOS,
    )
    indicate_missing: bool = about(
        False, "With --missing fill: an input for each such column that says where its cells are missing.", group=SILOS
    )
    held_out: float = about(0.2, "Share of each silo's samples held out for testing.", range="0 to 1", group=SILOS)
    label_noise: float = about(0.0, "Share of wrong training labels.", range="0 to 1", group=FAULTS)
    noisy_clients: tuple[int, ...] | None = about(
        None, "Clients with wrong labels, say 0,3; by default all of them.", group=FAULTS
    )
    poisoned: tuple[int, ...] = about((), "Clients that attack the others, say 0,3; see --attack.", group=FAULTS)
    attack: str = about(
        "models",
        "What poisoned clients do: they send sign-flipped, scaled models, or they train with labels that are turned "
        "around, the first class for the last and so on, and send what they have learnt.",
        choices=("models", "labels"),
        group=FAULTS,
    )
    poison_scale: float = about(10.0, "Factor by which sent models are scaled.", range="above 0", group=FAULTS)
    replies: str = about(
        "auto",
        "Which replies are accepted: those that a federation would accept (checked), or any that is finite; "
        "auto checks if some clients are poisoned.",
        choices=("auto", "checked", "any"),
        group=FAULTS,
    )
    init: str = about(
        "common", "First models: the same for all clients, or one for each.", choices=("common", "own"), group=WHAT
    )
    absent: float = about(
        0.0, "Probability that a client misses a round; at least one always takes part.", range="0 to 1", group=FAULTS
    )
    validation: float = about(
        0.0, "Share of each client's training samples held out for validation.", range="0 to 1", group=TRAINING
    )
    take_home: str = about(
        "auto",
        "What clients take home: the models that the method is scored by, or the chosen ones: those of own, received "
        "and their midpoint (and with --then-alone what became of these) that do best on held-out samples; auto is the "
        "method's own way, and with --then-alone the chosen ones.",
        choices=("auto", "scored", "chosen"),
        group=TRAINING,
    )
    seed: int = about(0, "Seed of all random numbers: one seed, one result.", range="0 to 2**64 - 1", group=WHAT)
    engine: str = about(
        "auto",
        "Train all clients at once (stacked) or one at a time (loop).",
        choices=("auto", "stacked", "loop"),
        group=MACHINE,
    )
    device: str = about("auto", "cpu, cuda, or cuda:1 and so on; auto uses a GPU if there is one.", group=MACHINE)
    precision: str = about(
        "auto",
        "Number format of training and scoring; auto is fp32 on a CPU, and on a GPU tf32, or bf16 for nets of "
        "convolutions that tell classes.",
        choices=("auto", "fp32", "tf32", "bf16"),
        group=MACHINE,
    )
    rows: str = about(
        "auto",
        "Where the models of all clients are kept: where they are trained (device), on the host, from where they go to "
        "the device in chunks, or on disk; auto is the first that has room.",
        choices=("auto", "device", "host", "disk"),
        group=MACHINE,
    )
    schema: str | None = about(None, "A file with the schema that the silos agreed on.", group=SILOS)
    model_code: str | None = None  # digest of the file that a module:function comes from: another file, another run
    loss_code: str | None = None  # digest of a loss, or of a metric, that was given from Python
    metric_code: str | None = None
    share_models: bool = False  # of a federation: silos may get each other's models as they are; see `federation.plan`
    version: str = __version__
    compile: str = about(
        "auto",
        "torch.compile on a GPU; auto compiles if the run is long enough to repay it.",
        choices=("auto", "on", "off"),
        group=MACHINE,
    )
    deterministic: bool = about(False, "Same bits on a GPU every time; slower.", group=MACHINE)
    alone: bool = about(
        False,
        "Train a local-only model beside the method, and warn which clients are worse off than with it; needs "
        "--validation to compare, and about doubles the local training.",
        group=TRAINING,
    )
    then_alone: int = about(
        0,
        "Rounds that each client goes on alone after the last one, from the models that held-out samples chose; they "
        "also say after how many of them to stop, if any help. Needs --validation.",
        range="0 or more",
        group=TRAINING,
    )
    newcomers: int = about(
        0,
        "Clients, drawn by the seed, that are kept out of the whole run; each joins it afterwards, nobody else trains, "
        "and the result says what they get (see `fedamp join`).",
        range="0 or more",
        group=WHAT,
    )

    def __post_init__(self) -> None:
        if not isinstance(self.data, str):
            raise UserError(
                f"data is a {type(self.data).__name__}; expected a data set's name or a folder of silos (from Python, "
                "your own samples go into clients=[(x, y), ...])"
            )
        for each in fields(self):
            object.__setattr__(self, each.name, checks.plain(getattr(self, each.name)))
        for name in NAMED:
            object.__setattr__(self, name, Named.of(getattr(self, name), name))
        checks.count("clients", self.clients)
        checks.count("rounds", self.rounds)
        checks.seed("seed", self.seed)
        for name, explanation in explained(self).items():
            if explanation.choices:
                checks.one_of(name, getattr(self, name), explanation.choices)
        if not str(self.metric).startswith(f"{OWN}:"):
            checks.one_of("metric", self.metric, ("auto", *METRICS))
        if self.positive is not None:
            object.__setattr__(self, "positive", str(self.positive))
        checks.truth("deterministic", self.deterministic)
        checks.truth("alone", self.alone)
        checks.truth("share_models", self.share_models)
        checks.truth("indicate_missing", self.indicate_missing)
        if self.indicate_missing and self.missing != "fill" and self.schema is None:
            raise UserError(
                f"indicate_missing is True, but missing is {self.missing!r}, so that no cell is missing after reading: "
                "give --missing fill too"
            )
        checks.count("newcomers", self.newcomers, least=0)
        checks.count("then_alone", self.then_alone, least=0)
        checks.share("held_out", self.held_out)
        checks.share("label_noise", self.label_noise)
        checks.positive("poison_scale", self.poison_scale)
        for name in ("noisy_clients", "poisoned"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        for name in ("label", "silo_column"):
            object.__setattr__(self, name, column_name(name, getattr(self, name)))
        for name in ("columns", "drop"):
            object.__setattr__(self, name, _words(name, getattr(self, name)))
        self._check_attack()
        checks.share("absent", self.absent)
        checks.share("validation", self.validation)
        if self.take_home == "chosen" and not self.validation:
            raise UserError(
                "take_home is 'chosen', but no samples are held out to choose by: give --validation, say 0.2"
            )
        self._check_then_alone()
        if self.epochs is None and self.steps is None:
            object.__setattr__(self, "epochs", 5)
        self._check_privacy()

    def _check_then_alone(self) -> None:
        """Raise if nobody could say after how many rounds alone to stop, or if it would be for nothing."""
        if self.then_alone and not self.validation:
            raise UserError(
                f"then_alone is {self.then_alone}, but no samples are held out to say when to stop: give --validation, "
                "say 0.2"
            )
        if self.then_alone and self.take_home == "scored":
            raise UserError(
                f"then_alone is {self.then_alone}, but take_home is 'scored', which is the method's own model of a "
                "round; leave one of them out"
            )

    def _check_privacy(self) -> None:
        """Raise if samples can't be protected in this way, or would not be although somebody seems to expect it."""
        for name in ("dp_epsilon", "dp_noise"):
            if getattr(self, name) is not None:
                checks.positive(name, getattr(self, name))
        check_clip("dp_clip", self.dp_clip)
        checks.positive("dp_delta", self.dp_delta)
        if self.dp_delta >= 1:
            raise UserError(f"dp_delta is {self.dp_delta:g}; expected a number below 1, well below 1 / samples")
        if self.dp_epsilon is not None and self.dp_noise is not None:
            raise UserError(
                f"dp_epsilon is {self.dp_epsilon:g} and dp_noise {self.dp_noise:g}, but one follows from the other: "
                "leave one of them out"
            )
        if not self.private:
            details = {name: getattr(self, name) for name in PRIVACY_DETAILS}
            check_protected({name: value for name, value in details.items() if value != getattr(RunConfig, name)})
            return
        if self.class_weights == "balanced":
            raise UserError(
                "class_weights is 'balanced', which tells how many samples of each class a client has, and dp_epsilon "
                "and dp_noise do not cover that; leave one of them out"
            )
        if self.then_alone:
            raise UserError(
                f"then_alone is {self.then_alone}, and the scores of held-out samples say when to stop, which "
                "dp_epsilon and dp_noise do not cover; leave one of them out"
            )
        if self.take_home == "chosen":
            raise UserError(
                "take_home is 'chosen', by the scores of held-out samples, which dp_epsilon and dp_noise do not cover; "
                "take what is scored (--take-home scored)"
            )

    def _check_attack(self) -> None:
        """Refuse what would be ignored silently."""
        if self.attack == "labels" and not self.poisoned:
            raise UserError("attack is 'labels', but nobody is poisoned: give --poisoned, say 0,3, too")
        if self.attack == "labels" and self.poison_scale != RunConfig.poison_scale:
            raise UserError(
                f"poison_scale is {self.poison_scale:g}, but attack is 'labels', which sends models as they are; leave "
                "one of them out"
            )

    @property
    def private(self) -> bool:
        """Whether single samples are protected."""
        return self.dp_epsilon is not None or self.dp_noise is not None

    @property
    def all_rounds(self) -> int:
        """Rounds that clients train: together, and then alone."""
        return self.rounds + self.then_alone

    @property
    def checks_replies(self) -> bool:
        """Whether a reply that a federation would refuse is refused here too."""
        return self.replies == "checked" or (self.replies == "auto" and bool(self.poisoned))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RunConfig:
        """Return a configuration from a mapping; an unknown key is an error that lists the known ones."""
        known = [f.name for f in fields(cls)]
        for key in values:
            if key not in known:
                checks.one_of("setting of a run", key, explained(cls))
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, with the named choices as tables: what goes to JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in NO_MATTER}
        for name in LATER:
            if values[name] == getattr(RunConfig, name):
                del values[name]
        for name in NAMED:
            choice: Named = values[name]
            # JSON has no word for infinity, which is a sigma like any other.
            parameters = {key: "inf" if value == math.inf else value for key, value in choice.parameters.items()}
            values[name] = {"name": choice.name, **parameters}
        plain: dict[str, Any] = json.loads(json.dumps(values, default=_plain))
        return plain


def check_clip(what: str, value: object) -> None:
    """Raise unless a gradient may be cut to this length."""
    least, most = CLIPS
    if not checks.is_number(value) or not least <= value <= most:
        raise UserError(
            f"{what} is {value!r}; expected a number from {least:g} to {most:g}, about the length of samples' "
            "gradients: 1 is often fine"
        )


def check_protected(given: Mapping[str, Any]) -> None:
    """Raise if of what was given about privacy nothing protects samples: somebody seems to expect that they are."""
    if given.get("dp_epsilon") is not None or given.get("dp_noise") is not None:
        return
    for name in PRIVACY_DETAILS:
        if given.get(name) is not None:
            raise UserError(
                f"{name} is {given[name]}, but nothing would be protected: give --dp-epsilon, say 4, or --dp-noise too"
            )


RunConfig.__doc__ = f"{RunConfig.__doc__}\n{field_list(RunConfig)}\n"


def _numbers(what: str, value: object) -> tuple[int, ...] | None:
    """Return clients' numbers as a tuple; one number, or text like "0,3", is fine too."""
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


def _words(what: str, value: object) -> tuple[str, ...]:
    """Return names as a tuple; text like "id,name" is fine too."""
    parts: Any = () if value is None else value.split(",") if isinstance(value, str) else value
    several = hasattr(parts, "__iter__") and not isinstance(parts, Mapping)
    found = [str(each) if checks.is_whole(each) else each for each in parts] if several else [parts]
    if not all(isinstance(each, str) for each in found):
        raise UserError(f"{what} is {value!r}; expected names of columns, say id,name")
    names = [each.strip() for each in (sorted(found) if isinstance(parts, set | frozenset) else found)]
    if twice := [each for place, each in enumerate(names) if each and each in names[:place]]:
        raise UserError(f"{what} has {twice[0]!r} twice; name each column once")
    return tuple(each for each in names if each)


def column_name(what: str, value: object) -> str | None:
    """Return a column's name; a whole number is one too, as in a DataFrame that was made from an array."""
    if checks.is_whole(value):
        return str(value)
    if not isinstance(value, str | None):
        raise UserError(f"{what} is {value!r}; expected a column's name")
    return value


def is_folder(data: str) -> bool:
    """Whether `data` names a folder of silos, or a file; `digits` means the data set, and `./digits` the folder."""
    if "/" in data or os.sep in data or data.startswith(".") or Path(data).suffix:
        return True
    if data == GIVEN or not Path(data).is_dir():
        return False
    from fedamp.data import DATA  # only here, where either may be meant: it needs torch

    return data not in DATA


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple | set) else str(value)
