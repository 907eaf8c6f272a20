"""What a model says of new rows: labels with probabilities, or values in the target's own unit."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp.errors import UserError

ROW, PREDICTION = "row", "prediction"
"""Columns of a table of predictions: the row's number, from 1, and the label or value."""


@dataclass(frozen=True, eq=False)  # eq: two arrays' == is an array, not an answer
class Prediction:
    """Predictions for N rows, in their order."""

    classes: tuple[Any, ...] = ()  # classification: the labels in the schema's order, or the numbers of the classes
    labels: NDArray[Any] | None = None  # (N,) classification: the most probable class of each row
    probabilities: NDArray[np.float64] | None = None  # (N, classes)
    values: NDArray[np.float64] | None = None  # (N,) regression: in the target's own unit
    ids: tuple[str, Sequence[str]] | None = None  # the column that identifies rows, if one was named, and its cells
    warnings: tuple[str, ...] = ()  # words that the model never saw

    def __len__(self) -> int:
        return len(self.values if self.values is not None else self.labels if self.labels is not None else ())

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the predictions as columns: id, row, prediction, and the probability p(label) of each label."""
        columns: dict[str, list[Any]] = {} if self.ids is None else {self.ids[0]: list(self.ids[1])}
        columns[ROW] = list(range(1, len(self) + 1))
        if self.values is not None:
            return {**columns, PREDICTION: self.values.tolist()}
        assert self.labels is not None, "neither values nor labels"
        assert self.probabilities is not None, "labels without probabilities"
        columns[PREDICTION] = self.labels.tolist()
        shares = zip(self.classes, self.probabilities.T.tolist(), strict=True)
        return {**columns, **{f"p({label})": share for label, share in shares}}

    def to_pandas(self) -> Any:
        """Return the same as a DataFrame of pandas."""
        try:
            import pandas  # type: ignore[import-untyped, unused-ignore]
        except ImportError:
            raise UserError("pandas is not installed; run: pip install pandas, or take prediction.to_dict()") from None
        return pandas.DataFrame(self.to_dict())

    def to_csv(self) -> str:
        """Return the same as csv text; numbers come back exactly."""
        columns, text = self.to_dict(), io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        return text.getvalue()


def check_id(name: str) -> None:
    """Raise if the column that identifies rows is called as a column of predictions is."""
    if name in (ROW, PREDICTION) or (name.startswith("p(") and name.endswith(")")):
        raise UserError(f"the id column is called {name!r}, as a column of predictions is; rename it in the table")
