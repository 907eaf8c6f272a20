"""What the page says, in plain values: page.html turns them into HTML."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from fedamp.config.metrics import info
from fedamp.records.facts import Facts
from fedamp.report.commands import compare_command, run_command
from fedamp.report.groups import Block, Group
from fedamp.report.lead import ALIKE_NOTE, Lead, Standings, lead, standings
from fedamp.report.render import body, footnotes, headings
from fedamp.report.run_scores import rounds_played
from fedamp.report.table import Row

UNUSUAL = (
    *("label_noise", "noisy_clients", "poisoned", "attack", "absent", "validation", "class_weights"),
    *("dp_epsilon", "dp_noise", "dp_delta", "dp_clip"),
)
"""Settings that are named only if they were used."""

MOST_NAMED = 4
"""As many runs that have not finished are named at the top."""

UNSAID = ("state",)
"""What a headline leaves out of a setting: the digest by which a newcomer's run knows the run that it joined."""


@dataclass(frozen=True)
class TableLine:
    """A line of a table; the first cell is its heading."""

    cells: list[str]
    best: bool = False


@dataclass(frozen=True)
class PageTable:
    """A table with its headings and its caption, which may be empty."""

    caption: str
    headings: list[str]
    lines: list[TableLine]


@dataclass(frozen=True)
class Terms:
    """What all runs of a block have in common."""

    label: str
    terms: dict[str, str]


@dataclass(frozen=True)
class Warned:
    """A warning, and which runs it is about."""

    text: str
    runs: str


@dataclass(frozen=True)
class Content:
    """All that the page says besides its plots."""

    title: str
    leads: list[Lead]
    unfinished: str  # how far runs have come that have not finished; empty if all have
    comparison: list[PageTable]
    notes: list[str]
    warnings: list[Warned]
    setups: list[Terms]
    hyperparameters: list[PageTable]
    commands: list[str]
    without_command: int  # runs that no command can repeat


def content(blocks: Sequence[Block], rows: Sequence[Row]) -> Content:
    """Return what the page says about these blocks, whose table has these rows."""
    by_block = [(block, list(own)) for block, own in groupby(rows, key=lambda row: row.block)]
    stands = [standings(block, own) for block, (_, own) in zip(blocks, by_block, strict=True)]
    commands, without_command = _commands(blocks)
    return Content(
        title=_title(blocks),
        leads=[lead(name, stand) for (name, _), stand in zip(by_block, stands, strict=True)],
        unfinished=_unfinished(blocks),
        comparison=[_comparison(name, stand) for (name, _), stand in zip(by_block, stands, strict=True)],
        notes=[*footnotes(rows), *([ALIKE_NOTE] if any(len(stand.scored) > 1 for stand in stands) else [])],
        warnings=_warnings(blocks),
        setups=[_setup(block) for block in blocks],
        hyperparameters=[_hyperparameters(block) for block in blocks],
        commands=commands,
        without_command=without_command,
    )


def _title(blocks: Sequence[Block]) -> str:
    settings = [f"{block.config.get('data')}, {_choice(block.config.get('setting'), UNSAID)}" for block in blocks]
    return " · ".join(dict.fromkeys(settings))


def _choice(value: Any, leave_out: Collection[str] = ()) -> str:
    """Return a choice by name in words, with its parameters but for some."""
    if not isinstance(value, Mapping):
        return str(value)
    rest = ", ".join(f"{key}={each}" for key, each in value.items() if key not in ("name", *leave_out))
    return f"{value.get('name')} ({rest})" if rest else str(value.get("name"))


def _unfinished(blocks: Sequence[Block]) -> str:
    """Return in a sentence how far runs have come that have not finished."""
    runs = [(group, record) for block in blocks for group in block.groups for record in group.records]
    found = [(group, record) for group, record in runs if not record.finished]
    if not found:
        return ""
    how_far = [f"{rounds_played(record)} of its {record.config.get('rounds')} rounds" for _, record in found]
    if len(runs) == 1:
        return f"This run has not finished: {how_far[0]} were played, and all numbers are of these."
    each = [f"{group.label}, seed {record.config['seed']}" for group, record in found]
    named = [f"{who}, {far}" for who, far in zip(each, how_far, strict=True)][:MOST_NAMED]
    more = f"; and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    have = "has" if len(found) == 1 else "have"
    return (
        f"{len(found)} of {len(runs)} runs {have} not finished, and what is said of them is of the rounds so far: "
        f"{'; '.join(named)}{more}."
    )


def _comparison(block: str, stand: Standings) -> PageTable:
    rows = stand.rows
    lines = [TableLine(each, best=row in stand.bold) for row, each in zip(rows, body(rows), strict=True)]
    # A number stays on one line with its unit.
    return PageTable(block, [heading.replace(" %", "\N{NO-BREAK SPACE}%") for heading in headings(rows)], lines)


def _setup(block: Block) -> Terms:
    config = block.config
    trials = [trial for group in block.groups for trial in group.trials]
    facts = next((trial.facts for trial in trials if trial.facts != Facts()), Facts())
    sizes = [size for size in facts.sizes or [] if size is not None]  # of the silos that came
    seeds = sorted({record.config["seed"] for group in block.groups for record in group.records})
    model = _choice(config.get("model"))
    terms = {
        "data": config.get("data"),
        "setting": _choice(config.get("setting")),
        "clients": config.get("clients"),
        "training samples per client": f"{min(sizes)} to {max(sizes)}" if sizes else None,
        "model": model if facts.parameters is None else f"{model}, {facts.parameters:,} parameters",
        "rounds": _by_method(block, lambda training: str(training.get("rounds"))),
        "local training": _by_method(block, _local_training),
        "seeds": ", ".join(map(str, seeds)),
        "device": facts.device,
        "training samples that clients share": facts.shared_samples,
        "positive class": facts.positive if info(block.metric).by_positive else None,
        "note": facts.note,
    }
    terms |= {key.replace("_", " "): config[key] for key in UNUSUAL if config.get(key)}
    return Terms(block.label, {key: str(value) for key, value in terms.items() if value not in (None, "")})


def _by_method(block: Block, describe: Callable[[Mapping[str, Any]], str]) -> str:
    """Return a description of the methods' training; if it differs, each with the methods it holds for."""
    found: dict[str, list[str]] = {}
    for group in block.groups:
        found.setdefault(describe(group.training), []).append(group.label)
    return "; ".join(text if len(found) == 1 else f"{text} ({', '.join(who)})" for text, who in found.items())


def _local_training(training: Mapping[str, Any]) -> str:
    number, unit = (training["steps"], "minibatch") if training["steps"] else (training["epochs"], "epoch")
    plural = "" if number == 1 else "es" if unit == "minibatch" else "s"
    return f"{number} {unit}{plural}, batches of {training['batch_size']}"


def _warnings(blocks: Sequence[Block]) -> list[Warned]:
    """Return every warning once, with the runs it is about."""
    found: dict[str, list[str]] = {}
    for block in blocks:
        where = f", {block.label}" if block.label else ""
        for group in block.groups:
            for trial in group.trials:
                for warning in trial.warnings:
                    found.setdefault(warning, []).append(f"{group.label}, seed {trial.seed}{where}")
            for record in group.records:
                if not record.finished:
                    text = f"{record.path} did not finish. To continue it: fedamp resume {record.path}"
                    found.setdefault(text, []).append(f"{group.label}, seed {record.config['seed']}{where}")
    return [Warned(text, "; ".join(dict.fromkeys(runs))) for text, runs in found.items()]


def _hyperparameters(block: Block) -> PageTable:
    heads = ["method", "optimizer", "learning rate", "hyperparameters"]
    return PageTable(block.label, heads, [TableLine([group.label, *_used(group)]) for group in block.groups])


def _used(group: Group) -> list[str]:
    """Return the optimizer, the learning rate and the hyperparameters that a method was run with."""
    config = group.records[0].config
    facts = group.trials[0].facts if group.trials else Facts()
    given = {key: value for key, value in config["method"].items() if key != "name"}
    given |= {key: config[key] for key in ("momentum", "weight_decay") if config.get(key)}
    used = {**(facts.hyperparameters or {}), **given}
    optimizer = str(facts.optimizer or config.get("optimizer") or "the method's own")
    lr = str(facts.lr or config.get("lr") or "the method's own")
    return [optimizer, lr, ", ".join(f"{key}={value}" for key, value in used.items()) or "all at their defaults"]


def _commands(blocks: Sequence[Block]) -> tuple[list[str], int]:
    """Return the commands that repeat the runs, and how many runs have none."""
    commands: list[str] = []
    without = 0
    for block in blocks:
        configs = [record.config for group in block.groups for record in group.records]
        each = [run_command(config) for config in configs]
        without += each.count(None)
        whole = compare_command(configs)
        commands += [whole] if whole else [command for command in each if command]
    return commands, without
