"""When a round stops waiting: a silo that never answers must not cost everybody the whole timeout each time.

A round ends when all who were asked have answered. It also ends when enough have (`min_silos`, and half of those that
were asked) and all others are overdue: so much time has passed that three answers as slow as this round's slowest
would fit in, and two as slow as the silo's own last one, and at least `late_after` seconds. Who has not answered yet
since the server was started gets the whole timeout, once. A late answer does not count, but it says how long that silo
takes: the next rounds wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedamp.config.reply_limits import Rules

SLOWEST, OWN = 3.0, 2.0


@dataclass
class Lateness:
    """How long silos took to answer, in seconds, by node; and so, for whom a round still waits."""

    rules: Rules
    usual: dict[int, float] = field(default_factory=dict)

    def answered(self, node: int, seconds: float) -> None:
        """Note how long an answer took, late or not."""
        self.usual[node] = seconds

    def missed(self, node: int) -> None:
        """Note that a silo did not answer in time; what it usually takes is known from its answers alone."""
        self.usual.setdefault(node, 0.0)

    def is_over(self, elapsed: float, answers: Sequence[float], waiting: Sequence[int]) -> bool:
        """Return whether a round is over, `elapsed` seconds after its messages were sent.

        `answers` are the seconds that those who answered took, `waiting` the nodes of all others.
        """
        if not waiting:
            return True
        enough = max(self.rules.min_silos, math.ceil((len(answers) + len(waiting)) / 2))
        return len(answers) >= enough and all(elapsed > self._patience(node, max(answers)) for node in waiting)

    def _patience(self, node: int, slowest: float) -> float:
        own = self.usual.get(node, math.inf)
        return max(self.rules.late_after, SLOWEST * slowest, OWN * own)
