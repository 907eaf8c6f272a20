"""The limits of the reply check with their defaults, and how long a server waits for replies."""

from __future__ import annotations

from dataclasses import dataclass

from fedamp import checks
from fedamp.fields import about

REPLIES = "Which replies are accepted"
MOVES = "ours: between what honest clients and ten-fold flips were seen to do, see ReplyLimits"


@dataclass(frozen=True)
class ReplyLimits:
    """How far a reply may be off, in medians over the clients.

    `move_factor` lies between two measured values (benchmarks/moves.py), in multiples of the usual move, among moves
    that are not free. The longest of an honest client was 3: with a hundred times as many samples as the others, under
    SCAFFOLD. (One whose inputs were ten times as large as the others' reached 6; it should be warned.) The shortest
    of a ten-fold flip, by the third of the clients that move least, was 5.7 among clients of similar size, and 4.8 by
    clients of 20 samples among clients of 2000, at the methods' own learning rates.
    """

    move_factor: float = about(
        4.0,
        "How many times as far as the median a reply may be from what was sent.",
        range="above 0",
        source=MOVES,
        group=REPLIES,
    )
    norm_factor: float = about(
        10.0, "How many times as long as the median a reply may be.", range="above 0", source="ours", group=REPLIES
    )
    samples_factor: float = about(
        1000.0,
        "How many times the median sample count a silo may report; the same for what its model carries along.",
        range="above 0",
        source="ours",
        group=REPLIES,
    )


@dataclass(frozen=True)
class Rules(ReplyLimits):
    """A server's rules: how far a reply may be off, and how long it waits for whom."""

    reply_timeout: float = about(
        600.0, "Seconds that a round waits for replies.", unit="seconds", range="above 0", source="ours", group=REPLIES
    )
    late_after: float = about(
        30.0,
        "Seconds that a round waits at least for a silo when enough others have answered.",
        unit="seconds",
        range="above 0",
        source="ours",
        group=REPLIES,
    )
    min_silos: int = about(
        2,
        "Good replies that a round needs in order to count; `federation init` sets 3 if there are three silos or more.",
        range="1 or more",
        source="ours: with two, each silo can compute the other's model",
        group=REPLIES,
    )
    strikes: int = about(
        3, "Bad replies in a row after which a silo is set aside.", range="1 or more", source="ours", group=REPLIES
    )

    def __post_init__(self) -> None:
        checks.positive("reply_timeout", self.reply_timeout)
        checks.positive("late_after", self.late_after)
        checks.count("min_silos", self.min_silos)
        checks.positive("move_factor", self.move_factor)
        checks.positive("norm_factor", self.norm_factor)
        checks.positive("samples_factor", self.samples_factor)
        checks.count("strikes", self.strikes)
