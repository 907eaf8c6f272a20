"""Which runs belong together: seeds of one method are a group, methods in one setting a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedamp.errors import UserError
from fedamp.records.differences import differing_keys, flat
from fedamp.records.reading import DESCRIPTION, RunRecord
from fedamp.records.summaries import higher_is_better
from fedamp.report.run_scores import Trial, read_trial

ORDER = (
    "separate",
    "fedavg",
    "fedprox",
    "fedavg-ft",
    "fedprox-ft",
    "scaffold",
    "apfl",
    "fedamp",
    "heurfedamp",
    "autoamp",
    "per-fedavg",
    "ditto",
    "mr-mtl",
    "pfedme",
    "fedper",
    "fedrep",
    "fedbn",
    "fedala",
    "pfedgraph",
    "fedfomo",
    "ifca",
    "ifca-ft",
    "cfl",
    "cfl-ft",
)
"""The order in which methods are listed; others come after. A copy, which a test checks: the methods need torch."""
NUM_USUAL = 10
"""How many of them, from the first on, `fedamp compare` takes unless told otherwise."""

TRAINING = (
    *("rounds", "then_alone", "epochs", "steps", "batch_size", "optimizer", "lr", "momentum", "weight_decay"),
    "precision",
)
"""How, and for how long, a method was trained: like hyperparameters, these may differ from method to method. The table
says where they do."""

NOT_ASKED = ("method", "seed", "engine", "device", "compile", "deterministic", "take_home", "alone", *TRAINING)
"""What does not make a different setting; the data, the clients, the model and what was done to them do. Engine, device
and compilation change no result beyond rounding; what clients take home changes no training, and the table has both;
what is trained alone beside a method changes nothing of it."""


@dataclass(frozen=True)
class Group:
    """One method with its hyperparameters, over seeds."""

    label: str
    name: str
    parameters: Mapping[str, Any]  # those that were given; the others are at the method's defaults
    training: Mapping[str, Any]  # rounds, learning rate and the like; None: the method's default
    records: list[RunRecord]  # all runs
    trials: list[Trial]  # one for each seed, in order: those with a scored round
    repeated: int  # runs left out because their seed was run already

    @property
    def tuned(self) -> Mapping[str, Any]:
        """What validation chose of a grid, by name; empty without a grid."""
        return self.records[0].tuned

    @property
    def unfinished(self) -> bool:
        """Whether a run did not finish."""
        return any(not record.finished for record in self.records)


@dataclass(frozen=True)
class Block:
    """Methods that were run on the same data in the same setting, so that they can be compared."""

    label: str  # what sets this block apart from the others; empty if there is only one
    groups: list[Group]

    @property
    def config(self) -> Mapping[str, Any]:
        """One run's configuration, for what all runs of the block have in common."""
        return self.groups[0].records[0].config

    @property
    def metric(self) -> str:
        """What is scored: a name of `config.metrics`."""
        return next((trial.metric for group in self.groups for trial in group.trials), "accuracy")

    @property
    def higher(self) -> bool:
        """Whether a higher score is the better one."""
        return higher_is_better(self.metric)


def make_blocks(runs: Sequence[RunRecord]) -> list[Block]:
    """Return the runs by setting, then by method; a run that is not one of this package's is an error."""
    if not runs:
        raise UserError("got no runs; give at least one folder that holds a run")
    settings: list[dict[str, Any]] = []
    members: list[list[RunRecord]] = []
    # By number: a digest of private rows is not shown.
    samples = list(dict.fromkeys(run.data_digest for run in runs))
    models = list(dict.fromkeys(run.model_digest for run in runs))
    tuned: dict[Path, set[str]] = {}  # in each comparison, what was chosen for each method: it sets nobody apart
    for run in runs:
        tuned.setdefault(run.path.parent, set()).update(run.tuned)
    for run in {run.path.resolve(): run for run in runs}.values():
        _check(run)
        setting = flat({key: value for key, value in run.config.items() if key not in NOT_ASKED})
        setting |= {OTHER_DATA: 1 + samples.index(run.data_digest), OTHER_MODEL: 1 + models.index(run.model_digest)}
        if any(key.partition(".")[0] == "model" for key in tuned[run.path.parent]):
            setting = {key: value for key, value in setting.items() if not _is_of_the_model(key)}
        if setting not in settings:
            settings.append(setting)
            members.append([])
        members[settings.index(setting)].append(run)
    labels = what_differs(settings)
    return [Block(label, _groups(own)) for label, own in zip(labels, members, strict=True)]


def _is_of_the_model(key: str) -> bool:
    return key.startswith("model.") or key in ("model_code", OTHER_MODEL)


def _groups(runs: Sequence[RunRecord]) -> list[Group]:
    kinds: list[tuple[str, dict[str, Any]]] = []
    members: list[list[RunRecord]] = []
    for run in runs:
        kind = run.config["method"]["name"], parameters(run.config)
        if kind not in kinds:
            kinds.append(kind)
            members.append([])
        members[kinds.index(kind)].append(run)
    groups = []
    for name in dict.fromkeys(name for name, _ in kinds):
        same = [place for place, kind in enumerate(kinds) if kind[0] == name]
        for place, differs in zip(same, what_differs([kinds[place][1] for place in same]), strict=True):
            label = f"{name} ({differs})" if differs else name
            groups.append(_group(label, name, kinds[place][1], members[place]))
    return sorted(groups, key=lambda group: ORDER.index(group.name) if group.name in ORDER else len(ORDER))


def _group(label: str, name: str, given: Mapping[str, Any], records: list[RunRecord]) -> Group:
    trials = [trial for trial in map(read_trial, records) if trial is not None]
    # Of several runs of one seed the finished one counts, else the longest.
    trials.sort(key=lambda trial: (trial.seed, not trial.record.finished, -len(trial.scores)))
    first = {trial.seed: trial for trial in reversed(trials)}
    kept = [first[seed] for seed in sorted(first)]
    training = {key: records[0].config.get(key) for key in TRAINING}
    return Group(label, name, given, training, records, kept, len(trials) - len(kept))


def parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters that a run was given, those of its training among them."""
    given = {key: value for key, value in flat(config["method"]).items() if key != "name"}
    return given | {key: config[key] for key in TRAINING if config.get(key) not in (None, 0)}


def what_differs(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return in words, for each of the tables, what sets it apart from the others; nothing if all are equal."""
    keys = differing_keys(tables)
    return [", ".join(word_for(key, table.get(key)) for key in keys) for table in tables]


def word_for(key: str, value: Any) -> str:
    """Return a setting in words; None is its default."""
    if key in (OTHER_DATA, OTHER_MODEL):  # the name may be the same, but not what it stands for
        return f"{key} ({value})"
    return f"{key.removesuffix('.name')}={'default' if value is None else value}"


OTHER_DATA, OTHER_MODEL = "other data", "other model"


def _check(run: RunRecord) -> None:
    method = run.config.get("method")
    fine = isinstance(method, Mapping) and isinstance(method.get("name"), str)
    if not (fine and isinstance(run.config.get("seed"), int)):
        raise UserError(f"{run.path} is not a run of fedamp: its {DESCRIPTION} has no method or no seed; leave it out")
