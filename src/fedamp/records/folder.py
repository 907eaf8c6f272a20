"""The run folder: what is written while a run goes on, and how it is read again.

description.json    what was asked for
rounds.jsonl        a line for each round, as it was played; round 0 scores the first models, and a last line,
                    one round further, what the server would send next
models.safetensors  the final models, `own` and `received`: params (m, d), buffers (m, b)
best.safetensors    where there is validation: the models of the round that it was best in, each entry's own
xi.safetensors      the collaboration weights of each round (K, m, m), for methods that have them
inputs.json         digests of the data and of the model: what this result belongs to; see `inputs`
schema.json         of a user's own silos: columns, labels and scaling that all of them agreed on
checkpoint-*        while a run goes on: all it needs to go on after a stop
result.json         what it comes to; `finished` is false where the run was interrupted
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from fedamp.errors import UserError
from fedamp.files import read_json, write_json, write_whole
from fedamp.records.checkpoints import Checkpoint, forget_checkpoints, load_checkpoint, save_checkpoint
from fedamp.records.differences import differences
from fedamp.records.inputs import Inputs
from fedamp.records.reading import (
    BEST,
    DESCRIPTION,
    INPUTS,
    LINES,
    MODELS,
    RESULT,
    SCHEMA,
    XI,
    RunRecord,
    read_lines,
    read_run,
)
from fedamp.rows import Rows


@dataclass(frozen=True)
class RunFolder:
    """A folder that a run writes to. A federation's server has no inputs: nobody has its data in one place."""

    path: Path
    inputs: Inputs | None = None

    def begin(self, config: Mapping[str, Any], schema: str | None, device: torch.device) -> Checkpoint | None:
        """Make the folder ready, and return the checkpoint to go on from, if this very run was broken off in it.

        Another run's folder is not touched, unless it ended by a mistake before its first round.
        """
        with self._said_clearly():
            self.path.mkdir(parents=True, exist_ok=True)
            there = self.config()
            if there is None and any(not path.name.startswith(".") for path in self.path.iterdir()):
                raise UserError(f"{self.path} is not empty and holds no run; give another folder with --out")
            if there is not None and self.begun and (what := self.differences(config)):
                words = "; ".join(what)
                raise UserError(
                    f"{self.path} holds another run: {words}. Give another folder (--out, or out= in Python)"
                )
            saved = load_checkpoint(self.path, device) if there == config else None
            if saved is not None and saved.how.get("device", device.type) != device.type:
                raise UserError(
                    f"{self.path} was begun on {saved.how['device']}, and would not give the same numbers on "
                    f"{device.type}; give the first --device again, or another folder with --out"
                )
            for name in (RESULT, MODELS, BEST, XI, SCHEMA):
                (self.path / name).unlink(missing_ok=True)
            if self.inputs is not None:
                self._write_json(INPUTS, self.inputs.to_dict())
            self._write_json(DESCRIPTION, config)
            if schema is not None:
                write_whole(self.path / SCHEMA, schema.encode())
            before = [] if saved is None else [line for line in self.lines() if line["round"] <= saved.k]
            if saved is not None and [line["round"] for line in before] != list(range(saved.k + 1)):
                saved, before = None, []  # rounds are missing from the record: begin anew
            self.rewrite(before)
        return saved

    def differences(self, config: Mapping[str, Any]) -> list[str]:
        """Return in words how the run in this folder is another than the described one with these inputs."""
        there = self.config()
        asked = [] if there is None else differences(there, config)
        return asked + ([] if self.inputs is None else self.inputs.differences(read_json(self.path / INPUTS)))

    def finished(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what this very run came to, where it is here and came to its end."""
        if self.config() is None or self.differences(config):
            return None
        result = self.result()
        return result if result is not None and result.get("finished") else None

    def rewrite(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Write the lines of the rounds anew."""
        with self._said_clearly():
            write_whole(self.path / LINES, "".join(_text(line) for line in lines).encode())

    def add(self, line: Mapping[str, Any], sync: bool = False) -> None:
        """Write a round's line; with `sync` it is on the disk when this returns."""
        with self._said_clearly(), (self.path / LINES).open("a", encoding="utf-8") as file:
            file.write(_text(line))
            if sync:
                file.flush()
                os.fsync(file.fileno())

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint."""
        with self._said_clearly():
            save_checkpoint(self.path, checkpoint)

    def finish(
        self,
        result: Mapping[str, Any],
        models: Mapping[str, Rows],
        xi: Tensor | None,
        best: Mapping[str, Rows] | None = None,
        forget: bool = True,
    ) -> None:
        """Write the models, and last of all the result: its presence says that the rest is whole.

        `best` are the models of the best validated round. The checkpoints of a run that came to its end are forgotten,
        unless it may go on some day.
        """
        with self._said_clearly():
            write_whole(self.path / MODELS, save(_tensors(models)))
            if best:
                write_whole(self.path / BEST, save(_tensors(best)))
            if xi is not None:
                write_whole(self.path / XI, save({"xi": xi.to(torch.float32).contiguous()}))
            self._write_json(RESULT, result)
            if result["finished"] and forget:
                forget_checkpoints(self.path)

    @contextlib.contextmanager
    def _said_clearly(self) -> Iterator[None]:
        """Turn a full disk or an unwritable folder into one line; the last good checkpoint stays."""
        try:
            yield
        except OSError as error:
            raise UserError(
                f"can't write to {self.path}: {error.strerror or error}; what was written before is whole: make room "
                "and give the same command again to go on, or give another folder with --out"
            ) from None

    def read(self) -> RunRecord:
        """Return the run as its folder tells it."""
        return read_run(self.path)

    def config(self) -> dict[str, Any] | None:
        """Return what the run in this folder was asked for, or None where there is none."""
        return read_json(self.path / DESCRIPTION)

    def result(self) -> dict[str, Any] | None:
        """Return what the run came to, or None where it did not end."""
        return read_json(self.path / RESULT)

    @property
    def begun(self) -> bool:
        """Whether a round was played here: round 0 scores the first models, and loses nobody anything."""
        return (self.path / LINES).exists() and any(line["round"] > 0 for line in self.lines())

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the rounds so far."""
        return read_lines(self.path / LINES)

    def _write_json(self, name: str, value: Mapping[str, Any]) -> None:
        write_json(self.path / name, value)


def _tensors(models: Mapping[str, Rows]) -> dict[str, Tensor]:
    kinds = {f"{name}.{kind}": getattr(rows, kind) for name, rows in models.items() for kind in ("params", "buffers")}
    # Copies: a file can't hold one storage under two names, and methods may give one model under both.
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in kinds.items()}


def read_models(path: Path) -> dict[str, Rows]:
    """Return the models in a file that `finish` wrote, by entry."""
    try:
        tensors = load_file(path)
        entries = dict.fromkeys(name.rpartition(".")[0] for name in tensors)
        return {entry: Rows(tensors[f"{entry}.params"], tensors[f"{entry}.buffers"]) for entry in entries}
    except (OSError, SafetensorError, KeyError) as error:
        raise UserError(f"{path} can't be read ({error}); the folder is damaged") from None


def _text(line: Mapping[str, Any]) -> str:
    return json.dumps(line, allow_nan=False) + "\n"
