"""Write the curve of privacy in docs/privacy.md from results/, and draw it.

    python -m paper.privacy_page

It stands between two markers; all that is outside of them stays. What was not run says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paper import privacy, results
from paper.experiments import CHOICE_SEED, SEEDS
from paper.markdown import between, filled
from paper.outcomes import NOT_RUN, scores_of_label
from paper.peers import VALIDATION
from paper.provenance import where

PAGE = Path(__file__).parent.parent / "docs" / "privacy.md"
IMAGE = PAGE.parent / "images" / "privacy-curve.png"
BEGIN, END = "<!-- written by python -m paper.privacy_page -->\n", "<!-- end of the curve -->"

HOW = """\
Figures are the mean test accuracy over the clients **after the last round**, in %, as means over seeds {seeds}: with
noise no round may be picked afterwards, since picking looks at samples again. Each method at each epsilon tries the
learning rates {rates} of plain SGD with clip {clip} on validation samples ({validation:.0%} of the training samples,
seed {choice_seed}), and takes the best. *No privacy* is training as one would without it: no clip, no noise, and more
epochs. FedAMP and AutoAMP give each client two models, w that it trained and u that the server mixed:
which one counts is chosen with the rate."""

COMMANDS = """\
```bash
python -m paper.run {tables} --data-dir DIR
python -m paper.privacy_page
```"""


def lasts(name: str, method: str, epsilon: float | None) -> list[float]:
    """Return the mean accuracies after the last round, one for each seed that was run."""
    choice = privacy.chosen(name, method, epsilon)
    if choice is None:
        return []
    label = privacy.label_of(method, epsilon, choice.rate)
    return [one["last"] for one in scores_of_label(name, label, choice.entry).values()]


def model(name: str, method: str, epsilon: float | None) -> str:
    """Return which of its two models a method's figure is of, in brackets; nothing where it hands out one."""
    choice = privacy.chosen(name, method, epsilon)
    if choice is None or len(privacy.COMPARED[method]) == 1:
        return ""
    return {privacy.OWN: " (w)", privacy.RECEIVED: " (u)"}[choice.entry]


def gains(name: str, epsilon: float | None) -> dict[str, list[float]]:
    """Return what each method gains over training alone at the same epsilon, by seed."""
    alone = lasts(name, "separate", epsilon)
    found = {method: lasts(name, method, epsilon) for method in privacy.COMPARED if method != "separate"}
    return {
        method: [one - other for one, other in zip(each, alone, strict=True)]
        for method, each in found.items()
        if len(each) == len(alone)
    }


def curve(name: str) -> str:
    """Return the table of a setting: a row for each method, a column for each epsilon, and what AutoAMP gains."""
    columns = [[lasts(name, method, epsilon) for method in privacy.COMPARED] for epsilon in privacy.EPSILONS]
    if not any(each for column in columns for each in column):
        return "Not run yet."
    heads = [f"epsilon {epsilon:g}" if epsilon is not None else "no privacy" for epsilon in privacy.EPSILONS]
    lines = [f"| method | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for number, method in enumerate(privacy.COMPARED):
        models = [model(name, method, epsilon) for epsilon in privacy.EPSILONS]
        cells = [_cell(column, number) + which for column, which in zip(columns, models, strict=True)]
        lines.append(f"| `{method}` | {' | '.join(cells)} |")
    gained = [gains(name, epsilon).get("autoamp", []) for epsilon in privacy.EPSILONS]
    lines.append(f"| *AutoAMP over Separate* | {' | '.join(_mean(each, signed=True) for each in gained)} |")
    return "\n".join(lines)


def _cell(column: Sequence[Sequence[float]], number: int) -> str:
    """Return a mean over seeds; the best of its column is bold if all methods have all seeds."""
    text = _mean(column[number])
    means = [round(statistics.mean(each), 1) for each in column if len(each) == len(SEEDS)]
    best = len(means) == len(column) and means[number] == max(means)
    return f"**{text}**" if best else text


def _mean(of_seeds: Sequence[float], signed: bool = False) -> str:
    if not of_seeds:
        return NOT_RUN
    few = "" if len(of_seeds) == len(SEEDS) else f" ({len(of_seeds)})"
    deviation = f" ± {statistics.stdev(of_seeds):.1f}" if len(of_seeds) > 1 else ""
    return f"{statistics.mean(of_seeds):{'+' if signed else ''}.1f}{deviation}{few}"


def about(name: str) -> str:
    """Return in words how the runs of a setting are made."""
    values, free = privacy.PLACES[name].values, privacy.PLACES[name].unprotected
    passes = "1 epoch" if values["epochs"] == 1 else f"{values['epochs']} epochs"
    return (
        f"{values['clients']} clients, {values['rounds']} rounds of {passes}, minibatches of {values['batch_size']} on "
        f"average, delta {values['dp_delta']:g}. Without privacy {free['epochs']} epochs in minibatches of "
        f"{free['batch_size']}."
    )


def used() -> list[dict[str, Any]]:
    """Return the results of all runs behind the curve."""
    found = (results.read(name, cell.label) for name in privacy.NAMES for cell in privacy.table(name))
    return [result for result in found if result is not None]


def block() -> str:
    """Return all of it."""
    clips = {cell.config.dp_clip for name in privacy.NAMES for cell in privacy.table(name)}
    how = HOW.format(
        seeds=", ".join(map(str, SEEDS)),
        rates=", ".join(f"{rate:g}" for rate in privacy.RATES),
        clip=", ".join(f"{clip:g}" for clip in clips),
        validation=VALIDATION,
        choice_seed=CHOICE_SEED,
    )
    runs = used()
    origin = f"In the tables are {where(runs)}. They are run, and written here, by:" if runs else "Not run yet:"
    parts = [filled(how)]
    for name, place in privacy.PLACES.items():
        title = place.title[0].upper() + place.title[1:]
        parts += [f"### {title}", filled(about(name)), curve(name)]
    return "\n\n".join([*parts, filled(origin), COMMANDS.format(tables=" ".join(privacy.NAMES))])


def written(page: str) -> str:
    """Return the page with the curve as results/ have it."""
    return between(page, BEGIN, block(), END)


def _spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def draw() -> None:
    """Draw accuracy against epsilon, a panel for each setting that was run."""
    import matplotlib.pyplot as plt

    names = [name for name in privacy.NAMES if lasts(name, "separate", None)]
    if not names:
        return
    figure, axes = plt.subplots(1, len(names), figsize=(5.5 * len(names), 3.8), layout="constrained", squeeze=False)
    places = range(len(privacy.EPSILONS))
    for axis, name in zip(axes[0], names, strict=True):
        for number, method in enumerate(privacy.COMPARED):
            found = [lasts(name, method, epsilon) for epsilon in privacy.EPSILONS]
            known = [(place, each) for place, each in zip(places, found, strict=True) if each]
            means, spread = ([function(each) for _, each in known] for function in (statistics.mean, _spread))
            style = {"linewidth": 2.5} if method == "autoamp" else {"linestyle": "--"} if "-ft" in method else {}
            beside = 0.04 * (number - (len(privacy.COMPARED) - 1) / 2)  # where two are equal, both are seen
            at = [place + beside for place, _ in known]
            axis.errorbar(at, means, spread, marker="o", label=method, capsize=3, **style)
        axis.set(title=privacy.PLACES[name].title, xlabel="epsilon", ylabel="mean test accuracy, %")
        axis.set_xticks(places, [privacy.spelled(epsilon) for epsilon in privacy.EPSILONS])
        axis.grid(alpha=0.3)
    axes[0][0].legend()
    figure.savefig(IMAGE, dpi=110)
    plt.close(figure)


def main() -> None:
    """Write the curve, and draw it."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    if used():
        draw()


if __name__ == "__main__":
    main()
