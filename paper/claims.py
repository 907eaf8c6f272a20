"""Which claims of the paper hold here, in how many of its twelve settings: tests over clients, corrected for many.

The test is the paper's: Wilcoxon's signed-rank test of two methods' accuracies, paired by client, a client's accuracy
being its mean over the seeds that both methods have. Over seeds there is no test: of three pairs no p is below 0.25.
A claim is a family of tests, of all models against the methods that it is about, in all settings in which they were
run, and Holm's correction is over the whole family: as far as clients are independent, the probability that any of its
findings is chance is 5 % at most. They are not quite, since clients of one run share a federation: page.md says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from paper.automatic import taken_home
from paper.outcomes import CHANCE, Gain, Scores, gained, holm, row_named, scores_of
from paper.published import PAPER, SETTING, TWELVE, Setting

AUTOAMP = "AutoAMP"
CLAIMANTS = ("FedAMP, w", "FedAMP, u", "HeurFedAMP, w", "HeurFedAMP, u", AUTOAMP)
"""For whom a claim is tested. AutoAMP is not the paper's; it is judged by the model that validation chose."""

BETTER, LEVEL, WORSE = "better", "level", "worse"


@dataclass(frozen=True)
class Claim:
    """Somebody is better than these others, each of them; or only not worse, if that is all the paper says.

    Claims about the same others are one family of tests, in all twelve settings: `kinds` only says where it is claimed.
    """

    words: str
    others: tuple[str, ...]
    kinds: tuple[str, ...] = tuple(SETTING)
    only_as_good: bool = False

    def holds(self, verdict: str) -> bool:
        """Return whether a verdict is what the claim says."""
        return verdict == BETTER or (self.only_as_good and verdict == LEVEL)


CLAIMS = (
    Claim("better than training alone", ("Separate",)),
    Claim("better than one model for all", ("FedAvg", "FedProx")),
    Claim("better than one model for all, fine-tuned", ("FedAvg-FT", "FedProx-FT")),
    Claim("better than the other personal methods", ("SCAFFOLD", "APFL")),
    Claim("not worse than one model for all where all clients are alike", ("FedAvg", "FedProx"), ("table1",), True),
    Claim("not worse than fine-tuning where no clients are alike", ("FedAvg-FT", "FedProx-FT"), ("table2",), True),
)
"""What the paper's text says of its three tables."""


Reader = Callable[[str, str], Scores]
"""Returns the scores of a row, by its name, in a table."""


def read(table: str, name: str) -> Scores:
    """Return the scores of a row; of AutoAMP those of the model that counts."""
    return taken_home(table) if name == AUTOAMP else scores_of(table, row_named(name))


@dataclass(frozen=True)
class Findings:
    """What became of a claim: a verdict for each claimant in each setting that is complete."""

    claim: Claim
    tests: int
    verdicts: Mapping[str, Mapping[Setting, str]]

    def count(self, claimant: str, kinds: Sequence[str] = tuple(SETTING)) -> tuple[int, int]:
        """Return in how many settings the claim holds, and how many are complete."""
        found = [self.verdicts[claimant][each] for each in self._complete(claimant) if each[0] in kinds]
        return sum(self.claim.holds(verdict) for verdict in found), len(found)

    def where(self, claimant: str, verdict: str) -> list[Setting]:
        """Return the settings with this verdict."""
        return [each for each in self._complete(claimant) if self.verdicts[claimant][each] == verdict]

    def _complete(self, claimant: str) -> list[Setting]:
        return [each for each in self.verdicts[claimant] if each[0] in self.claim.kinds]


def judge(claim: Claim, read: Reader = read) -> Findings:
    """Return what the results say of a claim. A setting is complete for a claimant when all that it needs was run."""
    gains: dict[tuple[str, Setting], list[Gain]] = {}
    for claimant in CLAIMANTS:
        for kind, data in TWELVE:
            mine = read(f"{kind}-{data}", claimant)
            found = [gained(mine, read(f"{kind}-{data}", other)) for other in claim.others]
            if None not in found:
                gains[claimant, (kind, data)] = [gain for gain in found if gain is not None]
    # Where all clients are equal there is no p: nothing speaks for a difference.
    corrected = iter(holm([1.0 if gain.p is None else gain.p for each in gains.values() for gain in each]))
    verdicts: dict[str, dict[Setting, str]] = {claimant: {} for claimant in CLAIMANTS}
    for (claimant, setting), each in gains.items():
        verdicts[claimant][setting] = _verdict([(gain.points, next(corrected)) for gain in each])
    return Findings(claim, sum(len(each) for each in gains.values()), verdicts)


def _verdict(tested: Sequence[tuple[float, float]]) -> str:
    """Return better than all, worse than one, or level, from gains and corrected p values."""
    if any(points < 0 and p < CHANCE for points, p in tested):
        return WORSE
    return BETTER if all(points > 0 and p < CHANCE for points, p in tested) else LEVEL


def in_the_paper(claim: Claim, claimant: str) -> tuple[int, int]:
    """Return in how many settings the paper's own figure is above all the others', and of how many."""
    mine = row_named(claimant).place
    places = [row_named(other).place for other in claim.others]
    figures = [PAPER[kind][data] for kind, data in TWELVE if kind in claim.kinds]
    return sum(all(each[mine] > each[place] for place in places) for each in figures), len(figures)
