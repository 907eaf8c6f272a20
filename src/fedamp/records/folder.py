"""The run folder: what is written while a run is under way, and when a folder may be written to.

description.json    the run's configuration
rounds.jsonl        a line for each round, as it was played; round 0 scores the first models, and a last line,
                    one round further, scores what the server would send next
models.safetensors  the final models, `own` and `received`: params (m, d), buffers (m, b)
best.safetensors    with validation: the models of the best validated round, chosen for each entry separately
                    (`own`, `received`, the midpoint `between`), and as `chosen` the take-home (`records.take_home`)
xi.safetensors      the collaboration weights of each round (K, m, m), for methods that have them
inputs.json         digests of the data and of the model that this result belongs to; see `fedamp.records.inputs`
schema.json         of a user's own silos: the columns, labels and scaling that all of them agreed on
state.safetensors   of a finished run: the server's last state, for newcomers (`fedamp join`)
checkpoint-*        until the run has finished: all it needs to continue after a stop
result.json         the summary, see `fedamp.runs.result`; `finished` is false if the run was interrupted
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
from safetensors.torch import load_file
from torch import Tensor

from fedamp.errors import UserError
from fedamp.files import held, read_json, write_json, write_whole
from fedamp.records.checkpoints import (
    Checkpoint,
    Kept,
    forget_checkpoints,
    forget_parts,
    load_checkpoint,
    save_checkpoint,
)
from fedamp.records.differences import differences
from fedamp.records.inputs import Inputs
from fedamp.records.last_state import LastState, write_last_state
from fedamp.records.reading import (
    BEST,
    DESCRIPTION,
    INPUTS,
    LINES,
    MODELS,
    RESULT,
    SCHEMA,
    STATE,
    XI,
    RunRecord,
    read_lines,
    read_run,
)
from fedamp.records.tensor_file import write_tensors
from fedamp.rows import Rows

PLACES = ("data", "schema")
"""What a configuration says of where files are: the same files may be given by another path."""


@dataclass(frozen=True)
class RunFolder:
    """A folder that a run writes to. A federation's server has no inputs: its data are not in one place."""

    path: Path
    inputs: Inputs | None = None
    kept: Kept | None = None  # which checkpoints stay; by default the last two

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep all other processes from writing here: the rounds of two would be mixed in one record."""
        with contextlib.ExitStack() as stack:
            with self._clear_errors():
                self.path.mkdir(parents=True, exist_ok=True)
                free = stack.enter_context(held(self.path))
            if not free:
                raise UserError(
                    f"another process is playing in {self.path}; wait until it ends, after which the same command "
                    "shows the result, or give another folder with --out (out= in Python)"
                )
            yield

    def begin(
        self, config: Mapping[str, Any], schema: str | None, device: torch.device, home: torch.device | None = None
    ) -> Checkpoint | None:
        """Make the folder ready; return the checkpoint to continue from if this run was interrupted in it.

        `device` trains; `home` is where rows are kept, if that is elsewhere. The folder of another run is an error,
        unless that run failed before its first round.
        """
        with self._clear_errors():
            self.path.mkdir(parents=True, exist_ok=True)
            there = self.config()
            self._check_free(there, config)
            saved = load_checkpoint(self.path, home or device) if self._goes_on(there, config) else None
            if saved is not None:
                self._check_device(saved, device)
            for name in (RESULT, MODELS, BEST, XI, SCHEMA, STATE):
                (self.path / name).unlink(missing_ok=True)
            forget_parts(self.path)
            if self.inputs is not None:
                write_json(self.path / INPUTS, self.inputs.to_dict())
            write_json(self.path / DESCRIPTION, config)
            if schema is not None:
                write_whole(self.path / SCHEMA, schema.encode())
            before = [] if saved is None else [line for line in self.lines() if line["round"] <= saved.k]
            if saved is not None and [line["round"] for line in before] != list(range(saved.k + 1)):
                saved, before = None, []  # rounds are missing from the record: begin anew
            self.rewrite(before)
        return saved

    def _goes_on(self, there: Mapping[str, Any] | None, config: Mapping[str, Any]) -> bool:
        return there is not None and not self.differences(config)

    def _check_free(self, there: Mapping[str, Any] | None, config: Mapping[str, Any]) -> None:
        """Raise if the folder holds another run, or other files."""
        if there is None:
            # The digests are written before the description: a run was killed between the two.
            ours = self.inputs is not None and set(read_json(self.path / INPUTS) or ()) == set(self.inputs.to_dict())
            others = {path.name for path in self.path.iterdir() if not path.name.startswith(".")}
            if others - ({INPUTS} if ours else set()):
                raise UserError(f"{self.path} is not empty and holds no run; give another folder with --out")
        if there is not None and self.begun and (what := self.differences(config)):
            raise UserError(
                f"{self.path} holds another run: {'; '.join(what)}. It goes on with what it began with alone; for a "
                "new run give another folder (fedamp run --out, or out= in Python)"
            )

    def _check_device(self, saved: Checkpoint, device: torch.device) -> None:
        """Raise if a run was begun on another kind of device: the numbers would not be the same."""
        begun_on = saved.how.get("device", device.type)
        if begun_on != device.type:
            raise UserError(
                f"{self.path} was begun on {begun_on}, and would not give the same numbers on {device.type}; "
                f"give --device {begun_on} again, or another folder with --out"
            )

    def differences(self, config: Mapping[str, Any]) -> list[str]:
        """Return in words how the run in this folder differs from this configuration with these inputs."""
        there = self.config()
        other = [] if self.inputs is None else self.inputs.differences(read_json(self.path / INPUTS))
        if there is not None and self.inputs is not None and not other:
            there = {**there, **{name: config.get(name) for name in PLACES}}  # what is there is the same
        return ([] if there is None else differences(there, config)) + other

    def finished(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result of exactly this run, if it is here and has finished."""
        if self.config() is None or self.differences(config):
            return None
        result = self.result()
        return result if result is not None and result.get("finished") else None

    def rewrite(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Replace all lines of the rounds."""
        with self._clear_errors():
            write_whole(self.path / LINES, "".join(_text(line) for line in lines).encode())

    def add(self, line: Mapping[str, Any], sync: bool = False) -> None:
        """Append a round's line; with `sync` it is on the disk when this returns."""
        with self._clear_errors(), (self.path / LINES).open("a", encoding="utf-8") as file:
            file.write(_text(line))
            if sync:
                file.flush()
                os.fsync(file.fileno())

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint."""
        with self._clear_errors():
            save_checkpoint(self.path, checkpoint, self.kept)

    def finish(
        self,
        result: Mapping[str, Any],
        models: Mapping[str, Rows],
        xi: Tensor | None,
        best: Mapping[str, Rows] | None = None,
        forget: bool = True,
        last: LastState | None = None,
    ) -> None:
        """Write the models, and last of all the result: its presence says that the rest is complete.

        `best` are the models of the best validated round. The checkpoints of a finished run are deleted, unless
        `forget` is False: a federation may be asked for more rounds later. `last` is kept for newcomers.
        """
        with self._clear_errors():
            write_tensors(self.path / MODELS, _tensors(models))
            if best:
                write_tensors(self.path / BEST, _tensors(best))
            if xi is not None:
                write_tensors(self.path / XI, {"xi": xi.to(torch.float32)})
            if last is not None:
                write_last_state(self.path, last)
            write_json(self.path / RESULT, result)
            if result["finished"] and forget:
                forget_checkpoints(self.path)

    @contextlib.contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Turn a full disk or an unwritable folder into one line; the last good checkpoint stays."""
        try:
            yield
        except (FileExistsError, NotADirectoryError):
            raise UserError(
                f"can't write to {self.path}: there is a file in its place or above it; give another folder with --out "
                "(out= in Python)"
            ) from None
        except OSError as error:
            elsewhere = "" if self.inputs is None else ", or give another folder with --out (out= in Python)"
            raise UserError(
                f"can't write to {self.path}: {error.strerror or error}; what was written before is intact: make room, "
                f"or let it be written to, and give the same command again to continue{elsewhere}"
            ) from None

    def read(self) -> RunRecord:
        """Return the run as the folder describes it."""
        return read_run(self.path)

    def config(self) -> dict[str, Any] | None:
        """Return the configuration of the run in this folder, or None if there is no run."""
        return read_json(self.path / DESCRIPTION)

    def result(self) -> dict[str, Any] | None:
        """Return the result of the run in this folder, or None if it has none yet."""
        return read_json(self.path / RESULT)

    @property
    def begun(self) -> bool:
        """Whether a round was played here; round 0, which only scores the first models, is no loss."""
        return (self.path / LINES).exists() and any(line["round"] > 0 for line in self.lines())

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the rounds so far."""
        return read_lines(self.path / LINES)


def _tensors(models: Mapping[str, Rows]) -> dict[str, Tensor]:
    return {f"{name}.{kind}": getattr(rows, kind) for name, rows in models.items() for kind in ("params", "buffers")}


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
