"""Write the comparison of all methods in docs/methods.md from results/.

    python -m paper.peers_page

It stands between two markers; all that is outside of them stays. A cell that was not run says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedamp.methods import METHODS
from fedamp.methods.base import GROUPS
from fedamp.records.summaries import worse_off
from paper import peers, results
from paper.experiments import CHOICE_SEED, SEEDS
from paper.outcomes import NOT_RUN, score, scores_of_label
from paper.provenance import surroundings

PAGE = Path(__file__).parent.parent / "docs" / "methods.md"
BEGIN, END = "<!-- written by python -m paper.peers_page -->\n", "<!-- end of the comparison -->"
NOTHING = "–"
PROBED = 2
"""Rounds that say nothing about the time of later ones: in the first a GPU prepares, and AutoAMP's clients probe."""

HOW = """\
Every method gets the same effort in each setting: three trials on validation samples (a fifth of the training samples,
seed {choice_seed}, which no table has, half the rounds), then runs with seeds {seeds} and the value that validation
chose. Tried are three values of the method's own knob; the learning rates 3e-4, 1e-3 and 3e-3 where it has none; 0.01,
0.03 and 0.1 where it needs SGD. All else is each method's default, but for FedAMP and HeurFedAMP: alpha falls after
each third of the run, as in the paper's 90 rounds, and the self weight is 1/m, since the paper's is an oracle's: it
knows the true groups, which no deployment does. Twins (`fedavg` and `fedavg-ft`, and so on) share their runs, and each
chooses for itself.

BMTA is the best, over the rounds, of the mean test accuracy over the clients, at the model that a method is scored at.
*Worst client* is the lowest accuracy in that round, and *worse off* the number of clients with a lower one than
Separate gives them, with the same seed and so the same split. All are means over the seeds (a figure in brackets says
how many, where not all were run); accuracies in %; the best is bold.

{surroundings}. What is missing is run by one command, in as many processes at once as the machine has room for (the
time alone on the machine), and written here by the next:

```bash
python -m paper.run {tables} \\
    --data-dir DIR
python -m paper.run {time} --data-dir DIR
python -m paper.peers_page
```"""


@dataclass(frozen=True)
class Outcome:
    """What a method reached in a setting; empty where it was not run."""

    chosen: str
    scores: Mapping[int, Mapping[str, Any]]  # by seed
    worst: Sequence[float]
    worse_off: Sequence[float]  # than with Separate; nothing for Separate itself

    @property
    def bmta(self) -> list[float]:
        """The best mean test accuracies, one for each seed."""
        return [one["best"] for one in self.scores.values()]


def outcome(name: str, method: str) -> Outcome:
    """Return what a method reached in a setting."""
    scores, alone = scores_of(name, method), scores_of(name, "separate")
    both = [seed for seed in scores if seed in alone and method != "separate"]
    value = peers.chosen(name, method)
    return Outcome(
        chosen=NOT_RUN if value is None else f"{peers.trials_of(name, method)[0]} {_short(value)}",
        scores=scores,
        worst=[min(one["per_client"]) for one in scores.values()],
        worse_off=[float(worse_off(scores[seed]["per_client"], alone[seed]["per_client"])) for seed in both],
    )


def scores_of(name: str, method: str) -> dict[int, dict[str, Any]]:
    """Return a method's scores with what validation chose for it, by seed."""
    value = peers.chosen(name, method)
    return {} if value is None else scores_of_label(name, peers.label_of(name, method, value), METHODS[method].scored)


def details(name: str) -> str:
    """Return a setting's table."""
    methods = peers.compared(name)
    found = {method: outcome(name, method) for method in methods}
    clients = peers.PLACES[name].values["clients"]
    columns = [
        _column([one.bmta for one in found.values()], max, texts=[score(one.scores) for one in found.values()]),
        _column([one.worst for one in found.values()], max, digits=1),
        _column([one.worse_off for one in found.values()], min, digits=1),
    ]
    if "separate" in methods:
        columns[2][methods.index("separate")] = NOTHING
    columns.append([one.chosen for one in found.values()])
    heads = ["BMTA", "worst client", f"worse off of {clients}", "chosen"]
    return _table(methods, heads, columns)


def overview() -> str:
    """Return the mean BMTA of all methods in all settings side by side, and what a round costs."""
    names = [name for name, place in peers.PLACES.items() if place.trials and place.methods is None]
    methods = [method for method in METHODS if method not in peers.NEED_NORM]
    methods = [method for group in GROUPS for method in methods if METHODS[method].group == group]
    columns = [_column([outcome(name, method).bmta for method in methods], max) for name in names]
    columns += [[_cost(method, part) for method in methods] for part in ("seconds", "up", "down")]
    heads = [*(peers.PLACES[name].title for name in names), "s a round", "MB up", "MB down"]
    return _table(methods, heads, columns)


def _cost(method: str, part: str) -> str:
    """Return the median seconds of the later rounds, or the megabytes of a client and round."""
    result = results.read(peers.TIME, peers.trained_as(method))
    if result is None:
        return NOT_RUN
    if part == "seconds":
        return f"{statistics.median(result['round_seconds'][PROBED:]):.2f}"
    return f"{result['client_bytes'][part] / 1e6:.1f}"


def _column(
    values: Sequence[Sequence[float]],
    best: Callable[[list[float]], float],
    digits: int = 2,
    texts: Sequence[str] | None = None,
) -> list[str]:
    """Return the means over the seeds, or other texts for them, the best in bold."""
    means = [round(statistics.mean(of_seeds), digits) if of_seeds else None for of_seeds in values]
    shown = [_mean(of_seeds, digits) for of_seeds in values] if texts is None else texts
    known = [mean for mean in means if mean is not None]
    return [f"**{text}**" if known and mean == best(known) else text for mean, text in zip(means, shown, strict=True)]


def _mean(of_seeds: Sequence[float], digits: int) -> str:
    if not of_seeds:
        return NOT_RUN
    few = "" if len(of_seeds) == len(SEEDS) else f" ({len(of_seeds)})"
    return f"{statistics.mean(of_seeds):.{digits}f}{few}"


def _table(methods: Sequence[str], heads: Sequence[str], columns: Sequence[Sequence[str]]) -> str:
    """Return a table with a row for each method; a group is named in its first row."""
    lines = [f"| group | method | {' | '.join(heads)} |", f"|---|---|{'---:|' * len(heads)}"]
    before = ""
    for method, *cells in zip(methods, *columns, strict=True):
        group = METHODS[method].group
        lines.append(f"| {group if group != before else ''} | `{method}` | {' | '.join(cells)} |")
        before = group
    return "\n".join(lines)


def _short(value: peers.Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def block() -> str:
    """Return the whole comparison."""
    names = [name for name, place in peers.PLACES.items() if place.trials]
    how = HOW.format(
        choice_seed=CHOICE_SEED,
        seeds=" to ".join(str(seed) for seed in (SEEDS[0], SEEDS[-1])),
        surroundings=surroundings(peers.NAMES),
        tables=" ".join(names),
        time=peers.TIME,
    )
    about_time = (
        "A round's seconds are the median of the later rounds on FMNIST, practical, one process alone on the machine,\n"
        "scoring included; MB are of one client in one round, in float32."
    )
    parts = [how, f"BMTA in all settings, and what a round costs:\n\n{overview()}\n\n{about_time}"]
    parts += [f"### {_title(name)}\n\n{details(name)}" for name in names]
    return "\n\n".join(parts)


def _title(name: str) -> str:
    place = peers.PLACES[name]
    title = f"{place.title[:1].upper()}{place.title[1:]}"
    return f"{title}: {place.values['clients']} clients, {place.values['rounds']} rounds"


def written(page: str) -> str:
    """Return the page with the comparison as results/ have it."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{block()}\n\n{END}{after}"


def main() -> None:
    """Write the comparison."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
