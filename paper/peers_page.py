"""Write the comparison of all methods in docs/methods.md from results/.

    python -m paper.peers_page

It stands between two markers; all that is outside of them stays. What was not run says so.
"""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedamp.methods import METHODS
from fedamp.records.summaries import worse_off
from paper import peers, results
from paper.automatic import LETTERS
from paper.experiments import CHOICE_SEED, SEEDS
from paper.markdown import between, filled, listed
from paper.outcomes import NOT_RUN, mean, scores_of_label
from paper.provenance import precision, where

PAGE = Path(__file__).parent.parent / "docs" / "methods.md"
BEGIN, END = "<!-- written by python -m paper.peers_page -->\n", "<!-- end of the comparison -->"
NOTHING = "–"
NOTHING_RUN = "Not run yet."
PROBED = 2
"""Rounds that say nothing about the time of later ones: in the first a GPU prepares, and AutoAMP's clients probe; in
the second FedALA's clients learn their weights for the first time."""

HOW = """\
Every method gets the same effort in each setting: five trials on validation samples ({validation:.0%} of the training
samples, seed {choice_seed}, which no table has, half the rounds), then runs with seeds {seeds} and what validation
chose, at the model that the method is scored at; of equals the first. Of {two}, which give a client a model of its own
(w) and a mixture of its own (u), the one is taken that was better on the same samples in the trial that was chosen: one
more choice of two than the others have. First it tries the learning rates {adam} (with
SGD, where the method needs it: {sgd}), with its own knob at its default; then, at the best of these rates, two more
values of its knob, as the table below says. A method without a knob tries two more rates instead: the best one times
{around}. All else is each method's default, but for FedAMP and HeurFedAMP: alpha falls after each third of the run, as
in the paper's 90 rounds, and the self weight is 1/m, since the paper's is an oracle's: it knows the true groups, which
no deployment does. Twins ({twins}) share their runs as far as they agree, and each chooses for itself.

{knobs}

BMTA is the best, over the rounds, of the mean test accuracy over the clients, at that model.
*Worst client* is the lowest accuracy in that round, and *worse off* the number of clients with a lower one than
Separate gives them, with the same seed and so the same split. All are means over the seeds (a figure in brackets says
how many, where not all were run); accuracies in %. The best is bold where all methods were run with equally many seeds.

{surroundings} What is missing is run by these commands, in as many processes at once as the machine has room for (the
time alone on the machine), and written here by the last:

```bash
python -m paper.run {tables} \\
    --data-dir DIR
python -m paper.run {time} --data-dir DIR
python -m paper.peers_page
```"""

COSTS = """\
A round's seconds are the median of those after the first {probed} rounds on {title}, one process alone on the machine,
scoring included{device}. So what is done only in the beginning is not in them: AutoAMP's probing, and the first time
that FedALA's clients learn their weights. MB are of one client in one round, in float32, the mean over all rounds."""


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
    return Outcome(
        chosen=_chosen(name, method),
        scores=scores,
        worst=[min(one["per_client"]) for one in scores.values()],
        worse_off=[float(worse_off(scores[seed]["per_client"], alone[seed]["per_client"])) for seed in both],
    )


def scores_of(name: str, method: str) -> dict[int, dict[str, Any]]:
    """Return a method's scores with what validation chose for it, by seed."""
    choice = peers.chosen(name, method)
    if choice is None:
        return {}
    return scores_of_label(name, peers.label_of(name, method, choice), peers.judged(name, method, choice))


def _chosen(name: str, method: str) -> str:
    """Return what validation chose in words, and whether it had no preference."""
    choice = peers.chosen(name, method)
    if choice is None:
        return NOT_RUN
    knob = peers.knob_of(name, method)
    words = f"{peers.LR} {peers.short(choice.lr)}"
    if knob is not None:
        own = peers.default_of(method, knob[0]) if choice.own is None else choice.own
        words += f", {knob[0]} {peers.short(own)}"
    if method in peers.TWO_MODELS:
        words += f", {_models(name, method, choice)}"
    scores = peers.validated(name, method, peers.trials_of(name, method)) or {}
    return f"{words} (all equal)" if len(set(scores.values())) == 1 else words


def _models(name: str, method: str, choice: peers.Choice) -> str:
    """Return which of two models was taken, and what the other one reached: "u (w: 96.07)"."""
    taken = peers.judged(name, method, choice)
    other = next(entry for entry in LETTERS if entry != taken)
    reached = mean(scores_of_label(name, peers.label_of(name, method, choice), other))
    return f"{LETTERS[taken]} ({LETTERS[other]}: {reached})"


def details(name: str) -> str:
    """Return a setting's table."""
    methods = peers.compared(name)
    found = {method: outcome(name, method) for method in methods}
    if not any(one.scores for one in found.values()):
        return NOTHING_RUN
    clients = peers.PLACES[name].values["clients"]
    others = [one.worse_off for method, one in found.items() if method != "separate"]
    columns = [
        _column([one.bmta for one in found.values()], max, spread=True),
        _column([one.worst for one in found.values()], max, digits=1),
        _column(others, min, digits=1),
        [one.chosen for one in found.values()],
    ]
    if "separate" in methods:
        columns[2].insert(methods.index("separate"), NOTHING)
    return _table(methods, ["BMTA", "worst client", f"worse off of {clients}", "chosen"], columns)


def overview() -> str:
    """Return the mean BMTA of all methods side by side, in all settings in which anything was run."""
    names = [name for name, place in peers.PLACES.items() if place.trials and place.methods is None]
    methods = peers.compared(names[0])
    found = {name: [outcome(name, method).bmta for method in methods] for name in names}
    run = {peers.PLACES[name].title: of_methods for name, of_methods in found.items() if any(of_methods)}
    if not run:
        return NOTHING_RUN
    missing = [peers.PLACES[name].title for name in names if not any(found[name])]
    text = _table(methods, list(run), [_column(of_methods, max) for of_methods in run.values()])
    return f"{text}\n\nNot run yet: {'; '.join(missing)}." if missing else text


def costs() -> str:
    """Return what a round of each method costs."""
    methods = peers.compared(peers.TIME)
    runs = _used([peers.TIME])
    if not runs:
        return NOTHING_RUN
    columns = [[_cost(method, part) for method in methods] for part in ("seconds", "up", "down")]
    device = "; ".join(dict.fromkeys(f"{run['device']}, {precision(run)}" for run in runs))
    about = COSTS.format(probed=PROBED, title=peers.PLACES["peers-fmnist-practical"].title, device=f" ({device})")
    return f"{_table(methods, ['s a round', 'MB up', 'MB down'], columns)}\n\n{filled(about)}"


def _used(names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the results of all runs that these tables use."""
    found = (results.read(name, cell.label) for name in names for cell in peers.table(name))
    return [result for result in found if result is not None]


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
    spread: bool = False,
) -> list[str]:
    """Return the means over the seeds, with their deviation if asked for; the best is bold if all have as many."""
    means = [round(statistics.mean(of_seeds), digits) if of_seeds else None for of_seeds in values]
    known = [mean for mean in means if mean is not None]
    comparable = len(known) == len(values) and len({len(of_seeds) for of_seeds in values}) == 1
    texts = [_mean(of_seeds, digits, spread) for of_seeds in values]
    return [
        f"**{text}**" if comparable and mean == best(known) else text for mean, text in zip(means, texts, strict=True)
    ]


def _mean(of_seeds: Sequence[float], digits: int, spread: bool = False) -> str:
    if not of_seeds:
        return NOT_RUN
    few = "" if len(of_seeds) == len(SEEDS) else f" ({len(of_seeds)})"
    deviation = f" ± {statistics.stdev(of_seeds):.{digits}f}" if spread and len(of_seeds) > 1 else ""
    return f"{statistics.mean(of_seeds):.{digits}f}{deviation}{few}"


def _table(methods: Sequence[str], heads: Sequence[str], columns: Sequence[Sequence[str]]) -> str:
    """Return a table with a row for each method; a group is named in its first row."""
    lines = [f"| group | method | {' | '.join(heads)} |", f"|---|---|{'---:|' * len(heads)}"]
    before = ""
    for method, *cells in zip(methods, *columns, strict=True):
        group = METHODS[method].group
        lines.append(f"| {group if group != before else ''} | `{method}` | {' | '.join(cells)} |")
        before = group
    return "\n".join(lines)


def knobs() -> str:
    """Return which knobs are tried at which values; a model that asks for others has its own lines."""
    lines = ["| method | knob | default | also tried |", "|---|---|---:|---:|"]
    instead = {(run, model): knob for model, of_runs in peers.OF_MODEL.items() for run, knob in of_runs.items()}
    for run, knob in peers.KNOBS.items():
        lines.append(_knob(f"`{run}`", run, knob))
        lines += [_knob(f"`{run}`, model `{model}`", run, knob) for (of, model), knob in instead.items() if of == run]
    return "\n".join(lines)


def _knob(title: str, run: str, knob: peers.Knob | None) -> str:
    if knob is None:
        return f"| {title} | none: two more rates | {NOTHING} | {NOTHING} |"
    default, others = peers.default_of(run, knob[0]), ", ".join(peers.short(value) for value in knob[1])
    return f"| {title} | `{knob[0]}` | {peers.short(default)} | {others} |"


def _listed(values: Sequence[peers.Value], last: str = "and") -> str:
    texts = [peers.short(value) for value in values]
    return f"{', '.join(texts[:-1])} {last} {texts[-1]}"


def block() -> str:
    """Return the whole comparison."""
    names = [name for name, place in peers.PLACES.items() if place.trials]
    shared = [f"`{peers.trained_as(each)}` and `{each}`" for each in METHODS if peers.trained_as(each) != each]
    used = where(_used(names))
    how = HOW.format(
        validation=peers.VALIDATION,
        choice_seed=CHOICE_SEED,
        seeds=_listed(SEEDS),
        adam=_listed(peers.RATES["adam"]),
        sgd=_listed(peers.RATES["sgd"]),
        around=_listed(peers.AROUND),
        twins=", ".join(shared),
        knobs=knobs(),
        two=listed([f"`{method}`" for method in peers.TWO_MODELS]),
        surroundings=f"In the tables are {used}." if used else "No run yet.",
        tables=textwrap.fill(" ".join(names), 90, break_on_hyphens=False).replace("\n", " \\\n    "),
        time=peers.TIME,
    )
    parts = [filled(how), f"### BMTA by setting\n\n{overview()}", f"### What a round costs\n\n{costs()}"]
    parts += [f"### {_title(name)}\n\n{details(name)}" for name in names]
    return "\n\n".join(parts)


def _title(name: str) -> str:
    place = peers.PLACES[name]
    title = f"{place.title[:1].upper()}{place.title[1:]}"
    return f"{title}: {place.values['clients']} clients, {place.values['rounds']} rounds"


def written(page: str) -> str:
    """Return the page with the comparison as results/ have it."""
    return between(page, BEGIN, block(), END)


def main() -> None:
    """Write the comparison."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
