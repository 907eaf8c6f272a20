"""A run that is seen while it runs: by trackers, by progress, by a callback of the user's."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedamp.config import RunConfig
from fedamp.errors import FedampWarning, UserError
from fedamp.ranks.launched import is_leader
from fedamp.records.folder import RunFolder
from fedamp.records.take_home import THEN_ALONE
from fedamp.runs.loop import Observer, all_of, ignore, play
from fedamp.runs.result import Result
from fedamp.runs.setup import Setup
from fedamp.runs.watching.progress import Progress, Show, shown
from fedamp.runs.watching.round_line import RoundLine, is_alone, is_played, viewed
from fedamp.runs.watching.track import Warn, tracker_names, tracking

OnRound = Callable[[RoundLine], bool | None]
"""Called after each round that was played. Once it returns False, the run ends after that round."""


@dataclass(frozen=True)
class Watch:
    """Who sees a run that was started from Python, and where."""

    on_round: OnRound | None = None
    progress: Progress = "auto"
    track: str | Sequence[str] | None = None
    observer: Observer = ignore

    def __post_init__(self) -> None:
        if self.on_round is not None and not callable(self.on_round):
            raise UserError(f"on_round is {self.on_round!r}; expected a function that takes a RoundLine")

    def play(self, config: RunConfig, setup: Setup, folder: RunFolder | None) -> Result:
        """Play a run that is watched."""
        names = tracker_names(self.track)
        with shown(self.progress if is_leader() else False, config.all_rounds) as show:
            observer = all_of(self.observer, self.looking(config, setup, show))
            return play_tracked(names, config, setup, folder, observer, say)

    def looking(self, config: RunConfig, setup: Setup, show: Show) -> Observer:
        """Return the observer that shows a run's rounds and calls back."""

        def look(line: Mapping[str, Any]) -> bool | None:
            if is_alone(line):
                view = RoundLine.of(line, config.all_rounds, THEN_ALONE, config.poisoned)
                show(view, f"{config.method.name}, alone")
            if not is_played(line):
                return None
            view = viewed(line, config, setup)
            show(view, config.method.name)
            return None if self.on_round is None else self.on_round(view)

        return look


def play_tracked(
    names: Sequence[str],
    config: RunConfig,
    setup: Setup,
    folder: RunFolder | None,
    observer: Observer,
    warn: Warn,
    store: Path | None = None,
) -> Result:
    """Play a run that these trackers show; what several runs share is in `store`."""
    if not names or not is_leader():
        return play(config, setup, folder, observer)
    with tracking(names, config, None if folder is None else folder.path, warn, store) as trackers:

        def track(line: Mapping[str, Any]) -> None:
            if is_played(line):
                trackers.round(viewed(line, config, setup))

        result = play(config, setup, folder, all_of(track, observer))
        trackers.end(result)
    return result


def say(text: str) -> None:
    """Warn at once about what can't wait until a run has ended."""
    warnings.warn(text, FedampWarning, stacklevel=2)
