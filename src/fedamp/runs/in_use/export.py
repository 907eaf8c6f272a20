"""A client's model, taken out of a run folder for use elsewhere: safetensors, and a small JSON of how to build it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load as load_tensors
from safetensors.torch import save
from torch import nn

from fedamp import checks
from fedamp.config import RunConfig
from fedamp.data.silos.schema import Schema
from fedamp.errors import UserError
from fedamp.files import write_whole
from fedamp.models.flat_model import FlatModel
from fedamp.models.rebuild import describe_layers, rebuilds
from fedamp.records.summaries import finite
from fedamp.rows import Rows
from fedamp.runs.in_use.export_names import FORMATS, ONNX, SAFETENSORS, default_name, stem_of, with_ending
from fedamp.runs.in_use.loading import load
from fedamp.runs.result import Kept, Result


def export_client(
    folder: Path, client: int | str, out: Path | None = None, take_home: str | None = None, form: str = SAFETENSORS
) -> Path:
    """Write the model that a client takes home to `out`.safetensors or .onnx, with `out`.json; return the first.

    It is that of the best validated round, or of the last if nothing was held out for validation; the JSON says
    which, and has the test score of exactly this model. `take_home` is "scored" or "chosen", see
    `fedamp.records.take_home`, or "alone", the model that was trained alone; by default what the run says.
    `form` is "safetensors", "onnx" or "both".
    """
    run = load(folder)
    return export(run, run.client_number(client), folder, out, take_home, form)[0]


def export_all(
    folder: Path, out: Path | None = None, take_home: str | None = None, form: str = SAFETENSORS
) -> Iterator[Path]:
    """Write every client's model, as `export_client` does, to the folder `out`, by default the run's; yield files."""
    run = load(folder)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"can't make the folder {out}: {error.strerror}; give another with --out") from None
    for number in range(len(run.chosen.models)):
        yield from export(run, number, folder, out, take_home, form)


def export(run: Result, number: int, folder: Path, out: Path | None, take_home: str | None, form: str) -> list[Path]:
    """Write one client's files; return those that hold the model. Nothing is written before all of it is checked."""
    checks.one_of("format", form, FORMATS)
    if run.model is None:
        raise UserError(run.no_model)
    stem = stem_of(folder, out, default_name(number, run.facts.names, take_home))
    entry, kept = run.taken_home(take_home)
    row, how = kept.models[slice(number, number + 1)], _how(run, number, entry, kept)
    written = []
    try:
        if form != SAFETENSORS:
            from fedamp.runs.in_use.onnx_file import onnx_model

            data, how["onnx"] = onnx_model(run.predictor(number, take_home))
        if form != ONNX:
            written.append(with_ending(stem, f".{SAFETENSORS}"))
            write_model(written[0], run.model, row, how)
        else:
            write_whole(with_ending(stem, ".json"), _text({**how, "layers": None}))
        if form != SAFETENSORS:
            written.append(with_ending(stem, f".{ONNX}"))
            write_whole(written[-1], data)
    except OSError as error:
        raise UserError(f"can't write {stem}: {error.strerror}; give another file with --out") from None
    return written


def _how(run: Result, number: int, entry: str, kept: Kept) -> dict[str, Any]:
    """Return what the JSON says: how to build and feed the model, whose it is, which round's, and its score."""
    assert run.model is not None, "checked before"
    facts, played = run.facts, run.last_models[run.scored].round
    unfinished = "" if run.finished else f" (interrupted after {played} of {run.config.rounds} rounds)"
    return {
        **how_to_build(run.config, run.model.module, facts.input_shape or [], facts.num_outputs or 0),
        "shift": facts.shift or [0.0],  # samples that were given from Python are taken as they are
        "scale": facts.scale or [1.0],
        **({} if run.schema is None else how_to_encode(run.schema)),
        **({} if facts.labels is None else {"labels": facts.labels}),
        "client": number,
        **({} if facts.names is None else {"name": facts.names[number]}),
        "entry": entry,
        "score": {
            "metric": run.summary.metric,
            "test": finite(kept.scores[number]),
            "round": kept.round,
            "why_this_round": kept.why + unfinished,
        },
    }


def write_model(target: Path, model: FlatModel, row: Rows, how: Mapping[str, Any]) -> None:
    """Write a row as a state dict, and beside it a JSON of how to build the module and feed it.

    `layers` are written only if a module built from the contents of the two files, and from nothing else, is shown
    to be the model that is exported.
    """
    tensors = save({name: value.cpu().contiguous() for name, value in model.state_dict(row).items()})
    text = _text(how)
    if how.get("layers") is not None and not _rebuilds(text, tensors, model, row):
        text = _text({**how, "layers": None})
    write_whole(target, tensors)
    write_whole(target.with_suffix(".json"), text)


def _text(how: Mapping[str, Any]) -> bytes:
    return (json.dumps(how, indent=2) + "\n").encode()


def _rebuilds(text: bytes, tensors: bytes, model: FlatModel, row: Rows) -> bool:
    """Return whether the contents of the two files, used as docs/use.md says, give the model."""
    how = json.loads(text)
    original = model.fresh().cpu()
    original.load_state_dict(model.state_dict(row))
    return rebuilds(how["layers"], load_tensors(tensors), original, how["input_shape"])


def how_to_build(config: RunConfig, module: nn.Module, shape: Sequence[int], outputs: int) -> dict[str, Any]:
    """Return what is needed to build the module again."""
    return {
        "model": {"name": config.model.name, **config.model.parameters},
        "layers": describe_layers(module),
        "input_shape": list(shape),
        "num_outputs": outputs,
        "method": config.method.name,
    }


def how_to_encode(schema: Schema) -> dict[str, Any]:
    """Return what is needed to turn a silo's rows into inputs: a model sees (x - shift) / scale.

    `inputs` are the model's, in order: a column of numbers, or a word of a column, 1 if a row has it, else 0. Only
    where there are any: `dates` are columns whose numbers are days since 1970-01-01; `fill` is what a missing cell of
    each column becomes, and `indicators` are inputs that are 1 where a cell of their column is missing.
    """
    more = {
        "dates": list(schema.dates),
        "fill": schema.fills,
        "indicators": {each.name: each.column for each in schema.inputs if each.indicator},
    }
    return {
        "task": schema.task,
        "columns": schema.columns,
        "words": {column: list(words) for column, words in schema.categories.items()},
        "inputs": list(schema.features),
        "labels": schema.labels,
        "shift": schema.shift,
        "scale": schema.scale,
        "target_shift": schema.target_shift,
        "target_scale": schema.target_scale,
        **{name: value for name, value in more.items() if value},
    }
