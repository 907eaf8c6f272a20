"""From a file of rows to a file of predictions, which is written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from fedamp.data.silos.unlabelled_tables import check_file
from fedamp.errors import UserError
from fedamp.files import write_whole
from fedamp.runs.in_use.prediction import Prediction
from fedamp.runs.in_use.predictor import Predictor

PACKED = (".gz", ".bz2", ".xz", ".zst")


def predictions_path(data: Path, out: Path | None, force: bool) -> Path:
    """Return the file to write: `out`, or NAME-predictions.csv beside the rows; one that is there is not overwritten.

    >>> predictions_path(Path("new.csv"), None, force=False)
    PosixPath('new-predictions.csv')
    """
    stem = Path(data.stem).stem if data.suffix.lower() in PACKED else data.stem
    target = data.with_name(f"{stem}-predictions.csv") if out is None else out
    if os.path.isdir(target):
        raise UserError(f"out is {target}, which is a folder; expected a file for the predictions")
    if os.path.exists(target) and os.path.exists(data) and os.path.samefile(target, data):
        raise UserError(f"out is {target}, the file with the rows; expected another, so that they are not lost")
    if os.path.exists(target) and not force:
        raise UserError(f"{target} is there already; give --force to overwrite it, or another file with --out")
    if not os.path.isdir(target.parent):
        raise UserError(f"there is no folder {target.parent} to write to; make it, or give another file with --out")
    return target


def predict_file(
    asked: Predictor,
    data: Path,
    out: Path | None = None,
    id: str | None = None,
    force: bool = False,
    encoding: str | None = None,
) -> tuple[Path, Prediction]:
    """Write what a model says of a file's rows as csv; return the file that was written, and what it says."""
    check_file(data)
    target = predictions_path(data, out, force)
    said = asked.predict(data, id, encoding)
    try:
        write_whole(target, said.to_csv().encode())
    except OSError as error:
        raise UserError(f"can't write {target}: {error.strerror}; give another file with --out") from None
    return target, said
