"""One HTML page that opens offline: what was run, what came of it, and plots to look closer."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from fedamp.errors import UserError
from fedamp.records.reading import read_runs
from fedamp.report.commands import compare_command, run_command
from fedamp.report.figures import figures
from fedamp.report.groups import Block, Group, make_blocks
from fedamp.report.render import cells, footnotes, headings
from fedamp.report.table import Row, rows_of


def write_report(folders: list[Path], out: Path | None = None, against: str | None = None) -> Path:
    """Write the page of all runs in the folders, by default as report.html in the first; return where it is."""
    if not folders:
        raise UserError("got no folders; give at least one with a run or a comparison")
    blocks = make_blocks([run for folder in folders for run in read_runs(folder)])
    path = folders[0] / "report.html" if out is None else out / "report.html" if out.is_dir() else out
    text = page(blocks, rows_of(blocks, against))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"can't write the report to {path}: {error.strerror}; give another file with --out") from None
    return path


def page(blocks: Sequence[Block], rows: Sequence[Row]) -> str:
    """Return the page's HTML."""
    here = files("fedamp.report")
    plotly = gzip.decompress((here / "plotly-cartesian.min.js.gz").read_bytes()).decode("utf-8")
    parts = {
        "title": escape(_title(blocks)),
        "lead": _lead(rows),
        "tables": _tables(rows),
        "setup": "".join(map(_setup, blocks)),
        "warnings": _warnings(blocks),
        "hyperparameters": "".join(map(_hyperparameters, blocks)),
        "commands": _commands(blocks),
        "data": as_json(figures(blocks)),
        "style": (here / "page.css").read_text(encoding="utf-8"),
        "plotly": plotly,
        "script": (here / "page.js").read_text(encoding="utf-8"),
    }
    template = (here / "page.html").read_text(encoding="utf-8")
    # In one pass: what is put in is never searched for places itself.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def as_json(value: object) -> str:
    """Return JSON that can stand in a script element: no text in it can end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _title(blocks: Sequence[Block]) -> str:
    settings = [f"{block.config.get('data')}, {_choice(block.config.get('setting'))}" for block in blocks]
    return " · ".join(dict.fromkeys(settings))


def _choice(value: Any) -> str:
    """Return a choice by name in words, with its parameters."""
    if not isinstance(value, Mapping):
        return str(value)
    rest = ", ".join(f"{key}={each}" for key, each in value.items() if key != "name")
    return f"{value.get('name')} ({rest})" if rest else str(value.get("name"))


def _lead(rows: Sequence[Row]) -> str:
    """Return the result in a sentence for each block."""
    sentences = []
    for block, group in groupby(rows, key=lambda row: row.block):
        own = list(group)
        scored = [row for row in own if row.best is not None and math.isfinite(row.best)]
        if not scored:
            diverged = any(row.best is not None and math.isinf(row.best) for row in own)
            sentences.append(
                "No method has a finite mean: models diverged." if diverged else "No round was scored yet."
            )
            continue
        sign = -1 if scored[0].higher else 1
        ranked = sorted(scored, key=lambda row: sign * (row.best or 0))
        text = " and ".join(row.method for row in ranked if cells(row)[2] == cells(ranked[0])[2])
        unit = " %" if ranked[0].higher else ""
        what = "best mean test accuracy" if ranked[0].higher else "lowest mean test error (RMSE)"
        first = f"<strong>{escape(text)}</strong> has the {what}: <strong>{cells(ranked[0])[2]}{unit}</strong>"
        alone = next((row for row in scored if row.method == "separate"), None)
        if alone is not None and len(scored) > 1:
            won = f"every client for itself has {cells(alone)[2]}{unit}"
            first += f"; {won if alone is not ranked[0] else 'no method with collaboration does better'}"
        where = f"{escape(block)}: " if block else ""
        unlike = " The methods were not trained alike: the notes say how." if any(row.training for row in own) else ""
        sentences.append(f"{where}{first}.{unlike}")
    return "".join(f"<p class='lead'>{sentence}</p>" for sentence in sentences)


def _tables(rows: Sequence[Row]) -> str:
    parts = []
    for block, group in groupby(rows, key=lambda row: row.block):
        own = list(group)
        caption = f"<caption>{escape(block)}</caption>" if block else ""
        best = [row.best for row in own if row.best is not None and math.isfinite(row.best)]
        top = (max(best) if own[0].higher else min(best)) if best else None
        lines = "".join(_line(cells(row), row.best is not None and row.best == top) for row in own)
        parts.append(_table(headings(own), lines, caption, "Comparison of methods"))
    notes = "".join(f"<li>{escape(note)}</li>" for note in footnotes(rows))
    return "".join(parts) + f"<ul class='notes'>{notes}</ul>"


def _table(heads: Sequence[str], lines: str, caption: str, name: str, kind: str = "numbers") -> str:
    head = "".join(f"<th scope='col'>{escape(each).replace(' %', '&nbsp;%')}</th>" for each in heads)
    table = f"<table class='{kind}'>{caption}<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    # Focusable, so that it can be scrolled with the keyboard.
    return f"<div class='wide' tabindex='0' role='region' aria-label='{escape(name)}'>{table}</div>"


def _line(texts: Sequence[str], best: bool = False) -> str:
    rest = "".join(f"<td>{escape(text)}</td>" for text in texts[1:])
    return f"<tr{' class=best' if best else ''}><th scope='row'>{escape(texts[0])}</th>{rest}</tr>"


def _setup(block: Block) -> str:
    """Return what all runs of a block have in common, as a list of terms."""
    told = block.config
    facts = next((trial.facts for group in block.groups for trial in group.trials if trial.facts), {})
    sizes = [size for size in facts.get("sizes") or [] if size is not None]  # of silos that came
    seeds = sorted({record.config["seed"] for group in block.groups for record in group.records})
    terms = {
        "data": told.get("data"),
        "setting": _choice(told.get("setting")),
        "clients": told.get("clients"),
        "training samples a client": f"{min(sizes)} to {max(sizes)}" if sizes else None,
        "model": _choice(told.get("model"))
        + (f", {facts['parameters']:,} parameters" if "parameters" in facts else ""),
        "rounds": _by_method(block, lambda training: str(training.get("rounds"))),
        "local training": _by_method(block, _local_training),
        "seeds": ", ".join(map(str, seeds)),
        "device": facts.get("device"),
        "training samples that clients share": facts.get("shared_samples"),
        "note": facts.get("note"),
    }
    unusual = ("label_noise", "noisy_clients", "poisoned", "absent", "validation")
    terms |= {key.replace("_", " "): told[key] for key in unusual if told.get(key)}
    items = "".join(
        f"<div><dt>{escape(key)}</dt><dd>{escape(str(value))}</dd></div>"
        for key, value in terms.items()
        if value not in (None, "")
    )
    return (f"<h3>{escape(block.label)}</h3>" if block.label else "") + f"<dl>{items}</dl>"


def _by_method(block: Block, tell: Callable[[Mapping[str, Any]], str]) -> str:
    """Return what is told of the methods' training, with whom it is of where that is not the same for all."""
    found: dict[str, list[str]] = {}
    for group in block.groups:
        found.setdefault(tell(group.training), []).append(group.label)
    return "; ".join(text if len(found) == 1 else f"{text} ({', '.join(who)})" for text, who in found.items())


def _local_training(training: Mapping[str, Any]) -> str:
    local = f"{training['steps']} minibatches" if training["steps"] else f"{training['epochs']} epochs"
    return f"{local}, batches of {training['batch_size']}"


def _warnings(blocks: Sequence[Block]) -> str:
    """Return every warning once, with whom it is of."""
    found: dict[str, list[str]] = {}
    for block in blocks:
        where = f", {block.label}" if block.label else ""
        for group in block.groups:
            for trial in group.trials:
                for warning in trial.warnings:
                    found.setdefault(warning, []).append(f"{group.label}, seed {trial.seed}{where}")
            for record in group.records:
                if not record.finished:
                    lost = f"{record.path} did not come to its end. Go on with it by: fedamp resume {record.path}"
                    found.setdefault(lost, []).append(f"{group.label}, seed {record.config['seed']}{where}")
    if not found:
        return "<p>None.</p>"
    items = "".join(
        f"<li><p>{escape(text)}</p><p class='of'>{escape('; '.join(dict.fromkeys(who)))}</p></li>"
        for text, who in found.items()
    )
    return f"<ul class='warnings'>{items}</ul>"


def _hyperparameters(block: Block) -> str:
    lines = "".join(_line([group.label, *_used(group)]) for group in block.groups)
    caption = f"<caption>{escape(block.label)}</caption>" if block.label else ""
    heads = ["method", "optimizer", "learning rate", "hyperparameters"]
    return _table(heads, lines, caption, "Hyperparameters", kind="words")


def _used(group: Group) -> list[str]:
    told = group.records[0].config
    facts = group.trials[0].facts if group.trials else {}
    own = {key: value for key, value in told["method"].items() if key != "name"}
    own = {**(facts.get("hyperparameters") or {}), **own}
    own |= {key: told[key] for key in ("momentum", "weight_decay") if told.get(key)}
    optimizer, lr = (str(facts.get(key) or told.get(key) or "the method's own") for key in ("optimizer", "lr"))
    return [optimizer, lr, ", ".join(f"{key}={value}" for key, value in own.items()) or "all at their defaults"]


def _commands(blocks: Sequence[Block]) -> str:
    known: list[str] = []
    given = 0
    for block in blocks:
        told = [record.config for group in block.groups for record in group.records]
        whole = compare_command(told)
        each = [run_command(config) for config in told]
        given += each.count(None)
        known += [whole] if whole else [command for command in each if command]
    text = f"<pre tabindex='0' id='commands'>{escape(chr(10).join(known))}</pre>" if known else ""
    if given:
        text += f"<p>{given} run(s) had clients of a Python program or of a federation: they are run from there.</p>"
    return text
