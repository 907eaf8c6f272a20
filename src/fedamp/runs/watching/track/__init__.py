"""Where else a run is shown while it runs: TensorBoard, MLflow, Weights & Biases. It changes nothing of the run."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedamp import checks
from fedamp.config import RunConfig
from fedamp.errors import UserError
from fedamp.records.differences import flat
from fedamp.runs.result import Result
from fedamp.runs.watching.round_line import RoundLine
from fedamp.runs.watching.track.base import Tracked, Tracker

TRACKERS = {
    "tensorboard": "fedamp.runs.watching.track.to_tensorboard",
    "mlflow": "fedamp.runs.watching.track.to_mlflow",
    "wandb": "fedamp.runs.watching.track.to_wandb",
}
"""The module of each, which is imported when it is asked for."""

Warn = Callable[[str], None]


def tracker_names(asked: str | Sequence[str] | None) -> list[str]:
    """Return the names in `tensorboard,mlflow` or in a list; one that is not installed is an error with the cure."""
    parts = asked.split(",") if isinstance(asked, str) else asked or []
    names = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
    for name in names:
        checks.one_of("tracker", name, TRACKERS)
        if find_spec(name) is None:
            raise UserError(f"track is {name!r}, but {name} is not installed; run: pip install {name}")
    return names


class Tracking:
    """The trackers of one run. One that fails is warned about once and left: the run goes on."""

    def __init__(self, names: Sequence[str], about: Tracked, warn: Warn) -> None:
        self.names, self.about, self.warn = names, about, warn
        self.started: dict[str, Tracker] | None = None

    def round(self, line: RoundLine) -> None:
        """Log a round; the first one starts the trackers, for only then is the run's folder its own."""
        self._each(lambda tracker: tracker.round(line))

    def end(self, result: Result) -> None:
        """Log what came of the run."""
        summary = flat(result.summary.to_dict())
        numbers = {key: float(value) for key, value in summary.items() if checks.is_number(value)}
        self._each(lambda tracker: tracker.end({**numbers, "seconds": result.seconds}))

    def close(self) -> None:
        """Let the trackers write what they still hold."""
        if self.started:
            self._each(lambda tracker: tracker.close())

    def _each(self, do: Callable[[Tracker], None]) -> None:
        if self.started is None:
            self.started = {}
            for name in self.names:
                with self._kept_out(name):
                    self.started[name] = importlib.import_module(TRACKERS[name]).start(self.about)
        for name, tracker in list(self.started.items()):
            with self._kept_out(name):
                do(tracker)

    @contextlib.contextmanager
    def _kept_out(self, name: str) -> Iterator[None]:
        """Turn whatever a tracker raises into one warning."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # between libraries; nobody here can do anything
                yield
        except Exception as error:  # a tracker's faults are of all kinds, and none may cost a run
            why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            self.warn(f"{name} failed ({why}); the run goes on without it, and its record is whole")
            if self.started is not None:
                self.started.pop(name, None)


@contextlib.contextmanager
def tracking(
    names: Sequence[str], config: RunConfig, folder: Path | None, warn: Warn, store: Path | None = None
) -> Iterator[Tracking]:
    """Give the trackers of a run; its files are in its folder, what several runs share in `store`."""
    if names and folder is None:
        raise UserError(f"track is {','.join(names)!r}, which keeps its files in the run's folder: give out='a-folder'")
    home = folder or Path()
    told: Mapping[str, Any] = flat(config.to_dict())
    about = Tracked(f"{config.data}-{config.method.name}-seed{config.seed}", home, store or home, told)
    trackers = Tracking(names, about, warn)
    try:
        yield trackers
    finally:
        trackers.close()
