"""A client's model as ONNX: encoded rows in, probabilities or values out, with the scaling inside the graph.

Before anyone gets it, onnxruntime answers random rows with it, in batches of several sizes, and must say what the run's
own model says.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedamp.errors import UserError
from fedamp.runs.in_use.predictor import Predictor

TOLERANCE = 1e-5
"""The most that a probability may differ, or a value by the target's scale."""
BATCHES = (1, 2, 33)
"""How many rows are asked at once: the graph must take any number."""
INPUT, PROBABILITIES, VALUES = "x", "probabilities", "values"
PACKAGES = ("onnx", "onnxruntime", "onnxscript")


class Served(nn.Module):
    """A model as a pipeline wants it: rows as they are encoded, before any scaling -> probabilities or values."""

    shift: Tensor
    scale: Tensor

    def __init__(self, asked: Predictor, floating: bool) -> None:
        super().__init__()
        self.module, self.regression = asked.module, asked.task == "regression"
        self.dtype, self.floating = asked.dtype, floating
        shift, scale = _scaling(asked)
        self.register_buffer("shift", shift)
        self.register_buffer("scale", scale)
        schema = asked.schema
        self.target = (1.0, 0.0) if schema is None else (schema.target_scale, schema.target_shift)

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities (N, classes), or values (N,)."""
        if self.floating:
            x = ((x - self.shift) / self.scale).to(self.dtype)
        output: Tensor = self.module(x)
        if not self.regression:
            return output.softmax(-1)
        scale, shift = self.target
        # In float64: an amount of a million leaves little room in float32.
        return output[:, 0].double() * scale + shift


def _scaling(asked: Predictor) -> tuple[Tensor, Tensor]:
    """Return shift and scale that broadcast over samples, in the format in which training scaled them."""
    if asked.schema is None:
        if not asked.scale:
            return torch.zeros((), dtype=asked.dtype), torch.ones((), dtype=asked.dtype)
        return asked.per_channel(asked.shift), asked.per_channel(asked.scale)
    kind = torch.float32 if asked.schema.pictures else torch.float64
    return torch.tensor(asked.schema.shift, dtype=kind), torch.tensor(asked.schema.scale, dtype=kind)


def onnx_model(asked: Predictor) -> tuple[bytes, dict[str, Any]]:
    """Return a model as the contents of an ONNX file, and what a JSON says about its inputs and outputs.

    A graph whose answers differ from the model's is an error.
    """
    _check_packages()
    asked = replace(asked, precision="fp32")  # a graph computes in the format of its numbers
    floating = _takes_floats(asked)
    served = Served(asked, floating).eval()
    kind = served.shift.dtype if floating else torch.int64
    output = VALUES if served.regression else PROBABILITIES
    data = _exported(served, _rows(asked, 3, kind, 0), output, asked.whose)
    _check_same(data, asked, served, kind, output)
    rows = {"name": INPUT, "type": str(kind).removeprefix("torch."), "shape": ["rows", *asked.input_shape]}
    about: dict[str, Any] = {"input": rows, "scaling": "inside: give rows as they are encoded, not scaled"}
    if served.regression:
        return data, {**about, "output": {"name": VALUES, "unit": "the target's own"}}
    classes = list(asked.classes(served(_rows(asked, 1, kind, 0)).shape[1]))
    return data, {**about, "output": {"name": PROBABILITIES, "classes": classes}}


def _check_packages() -> None:
    from importlib.util import find_spec

    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        verb = "is" if len(missing) == 1 else "are"
        raise UserError(f"{' and '.join(missing)} {verb} not installed; run: pip install 'fedamp[onnx]'")


def _takes_floats(asked: Predictor) -> bool:
    """Whether a model takes numbers; one that begins with an Embedding takes indices, and nothing is scaled."""
    if asked.schema is not None or asked.scale:
        return True
    return asked.takes(torch.zeros((1, *asked.input_shape), dtype=asked.dtype))


def _rows(asked: Predictor, count: int, kind: torch.dtype, seed: int) -> Tensor:
    """Return random rows as they are encoded: numbers about as large as in training, words as 0 and 1."""
    stream = torch.Generator().manual_seed(seed)
    if not kind.is_floating_point:
        return torch.zeros((count, *asked.input_shape), dtype=kind)  # an index that every Embedding has
    x = torch.randn((count, *asked.input_shape), generator=stream, dtype=kind)
    shift, scale = _scaling(asked)
    x = x * scale + shift
    schema = asked.schema
    if schema is not None and schema.columns is not None:
        wordy = torch.tensor([not each.scaled for each in schema.inputs])
        x[:, wordy] = (x[:, wordy] > 0).to(kind)
    return x


def _exported(served: Served, example: Tensor, output: str, whose: str) -> bytes:
    """Return a graph that takes any number of rows."""
    try:
        with _quiet():
            program = torch.onnx.export(
                served,
                (example,),
                dynamo=True,
                input_names=[INPUT],
                output_names=[output],
                dynamic_shapes=({0: torch.export.Dim("rows")},),
                verbose=False,
            )
            assert program is not None, "torch writes a file only if it is given a name"
            data: bytes = program.model_proto.SerializeToString()
    except Exception as error:  # whatever torch raises for a layer that ONNX has no word for
        why = " ".join(str(error).split())[:160]
        raise UserError(
            f"the model of {whose} can't be written as ONNX ({type(error).__name__}: {why}); export it as safetensors"
        ) from None
    return data


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch's remarks about its own parts to itself."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _check_same(data: bytes, asked: Predictor, served: Served, kind: torch.dtype, output: str) -> None:
    """Raise unless onnxruntime, with this graph, says what the run's own model says."""
    import onnxruntime  # type: ignore[import-untyped, unused-ignore]

    unit = 1.0 if asked.schema is None or not served.regression else asked.schema.target_scale
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        worst = 0.0
        for seed, count in enumerate(BATCHES, start=1):
            x = _rows(asked, count, kind, seed)
            theirs = session.run([output], {INPUT: x.numpy()})[0].astype(np.float64)
            ours = _answers(asked, served, x)
            same = theirs.shape == ours.shape
            worst = max(worst, float(np.abs(theirs - ours).max()) / unit if same else float("inf"))
    except Exception as error:  # onnxruntime has many kinds of errors, none of them public
        why = " ".join(str(error).split())[:160]
        raise UserError(
            f"onnxruntime can't run the model of {asked.whose} ({why}); not written: export it as safetensors"
        ) from None
    if not worst <= TOLERANCE:
        raise UserError(
            f"as ONNX the model of {asked.whose} gives other answers, by up to {worst:.2g} (expected at most "
            f"{TOLERANCE:g}); not written: export it as safetensors"
        )


def _answers(asked: Predictor, served: Served, x: Tensor) -> NDArray[np.float64]:
    """Return what the run's own model says of encoded rows, by the way of `predict`: scaled here, then decoded."""
    shift, scale = _scaling(asked)
    scaled = ((x - shift) / scale).to(asked.dtype) if served.floating else x
    said = asked.decoded(asked.outputs(scaled))
    found = said.values if said.values is not None else said.probabilities
    assert found is not None, "one or the other"
    return found
