"""The run folder: what is written while a run goes on, and how it is read again.

description.json    what was asked for
rounds.jsonl        a line for each round, as it was played; round 0 scores the first models, and a last line,
                    one round further, what the server would send next
models.safetensors  the final models, `own` and `received`: params (m, d), buffers (m, b)
xi.safetensors      the collaboration weights of each round (K, m, m), for methods that have them
schema.json         of a user's own silos: columns, labels and scaling that all of them agreed on
result.json         what it comes to; `finished` is false where the run was interrupted
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from fedamp.description import differences
from fedamp.reading import DESCRIPTION, LINES, MODELS, RESULT, SCHEMA, XI, read_json, read_lines
from fedamp.rows import Rows


@dataclass(frozen=True)
class RunFolder:
    """A folder that a run writes to."""

    path: Path

    def begin(self, description: Mapping[str, Any], schema: str | None = None) -> None:
        """Make the folder ready for a run that starts at round 0; another run's folder is not touched."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            there = self.description()
            if there is None and any(self.path.iterdir()):
                raise ValueError(f"{self.path} is not empty and holds no run; give another folder with --out")
            if there is not None and there != description:
                what = "; ".join(differences(there, description))
                raise ValueError(f"{self.path} holds another run: {what}. Give another folder with --out")
            for name in (LINES, RESULT, MODELS, XI):
                (self.path / name).unlink(missing_ok=True)
            self._write_json(DESCRIPTION, description)
            (self.path / LINES).touch()
            if schema is not None:
                (self.path / SCHEMA).write_text(schema, encoding="utf-8")
        except OSError as error:
            raise ValueError(f"can't write to {self.path}: {error.strerror}; give another folder with --out") from None

    def add(self, line: Mapping[str, Any]) -> None:
        """Write a round's line."""
        with (self.path / LINES).open("a") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")

    def finish(self, result: Mapping[str, Any], models: Mapping[str, Rows], xi: Tensor | None) -> None:
        """Write the models, and last of all the result: its presence says that the rest is whole."""
        tensors = {}
        for name, rows in models.items():
            tensors[f"{name}.params"] = rows.params.detach().cpu().contiguous()
            tensors[f"{name}.buffers"] = rows.buffers.detach().cpu().contiguous()
        save_file(tensors, self.path / MODELS)
        if xi is not None:
            save_file({"xi": xi.to(torch.float32).contiguous()}, self.path / XI)
        self._write_json(RESULT, result)

    def description(self) -> dict[str, Any] | None:
        """Return what the run in this folder was asked for, or None where there is none."""
        return read_json(self.path / DESCRIPTION)

    def result(self) -> dict[str, Any] | None:
        """Return what the run came to, or None where it did not end."""
        return read_json(self.path / RESULT)

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the rounds so far."""
        return read_lines(self.path / LINES)

    def _write_json(self, name: str, value: Mapping[str, Any]) -> None:
        temporary = self.path / f".{name}.part"
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n")
        os.replace(temporary, self.path / name)
