"""The comparison as text, CSV or Markdown."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import fields
from itertools import groupby

from fedamp.config.metrics import NOT_FINITE, PERCENT, info
from fedamp.records.take_home import SYMBOLS, THEN_ALONE
from fedamp.report.groups import OTHER_DATA
from fedamp.report.stats import short_p
from fedamp.report.table import ALONE, Row

NOTHING = "–"


def headings(rows: Sequence[Row]) -> list[str]:
    """Return the column headings of a block; for errors they say that lower is better."""
    against = list(dict.fromkeys(row.against for row in rows if row.against))
    # If a method was run in several ways, the notes say which of them p compares with.
    p = f"p against {against[0] if len(against) == 1 else against[0].split(' ')[0]}" if against else "p"
    about = info(rows[0].metric)
    unit = PERCENT if about.name == "accuracy" else about.short + (f", {about.unit}" if about.unit else "")
    if about.name == "accuracy":
        scores = ["BMTA %", "sd", "last round %", "worst client %", "10th percentile %"]
    elif about.higher_is_better:
        scores = [f"best {unit}", "sd", f"last round {unit}", f"worst client {unit}", f"10th percentile {unit}"]
    else:
        scores = [
            f"best {unit} (lowest)",
            f"sd of lowest {unit}",
            f"last round {unit} (lower is better)",
            f"worst client {unit} (highest)",
            f"90th percentile {unit} (lower is better)",
        ]
    if chose(rows):
        scores += [f"validated {unit}", f"chosen {unit}"]
    tuned = ["chosen by validation"] if was_tuned(rows) else []
    worse = "worse off than alone" if _told_beside(rows) else "worse off than Separate"
    return ["method", "seeds", *scores, worse, p, "seconds", *tuned]


def chose(rows: Sequence[Row]) -> bool:
    """Whether held-out samples chose what clients take home: then the table has columns for it."""
    return any(row.chosen is not None for row in rows)


def _has_separate(rows: Sequence[Row]) -> bool:
    return any(row.method.split(" ")[0] == ALONE for row in rows)


def _told_beside(rows: Sequence[Row]) -> bool:
    """Whether a block tells who is worse off by models trained alone beside its methods: it has no Separate."""
    return not _has_separate(rows) and any(row.worse_off is not None for row in rows)


def was_tuned(rows: Sequence[Row]) -> bool:
    """Whether a grid was tried: then the table has a column with what was chosen, and of how many points."""
    return any(row.tried > 1 for row in rows)


def body(rows: Sequence[Row]) -> list[list[str]]:
    """Return the cells of a block's rows, in the order of its headings."""
    return [_cells(row, chose(rows), was_tuned(rows)) for row in rows]


def _cells(row: Row, choice: bool, tuned: bool) -> list[str]:
    """Return a row's cells: with `choice` those of what clients take home too, with `tuned` what a grid chose."""
    digits = _digits(row)
    rest = [_number(value, digits) for value in (row.sd, row.last, row.worst, row.tenth)]
    if choice:
        which = f" ({row.chosen_entries})" if row.chosen_entries else ""
        rest += [_number(row.validated, digits), _number(row.chosen, digits) + which]
    worse = NOTHING if row.worse_off is None else f"{row.worse_off} of {row.clients}"
    p = row.p_note or NOTHING if row.p is None else short_p(row.p)
    star = "*" if row.unfinished else ""
    grid = [f"{row.tuned} (of {row.tried})" if row.tried > 1 else NOTHING] if tuned else []
    seconds = _number(row.seconds, ".1f")
    return [row.method + star, str(len(row.seeds)), best_score(row), *rest, worse, p, seconds, *grid]


def best_score(row: Row) -> str:
    """Return a row's best score as the table shows it."""
    return _number(row.best, _digits(row))


def _digits(row: Row) -> str:
    about = info(row.metric)
    return ".2f" if about.unit == PERCENT else ".4f" if about.shares else ".4g"


def footnotes(rows: Sequence[Row]) -> list[str]:
    """Return what a reader needs to know about the numbers."""
    notes = [_best_in_words(metric) for metric in dict.fromkeys(row.metric for row in rows)]
    notes.append("Last round, worst client, percentile and seconds are means over the seeds.")
    if without := "; ".join(dict.fromkeys(row.without_score for row in rows if row.without_score)):
        notes.append(f"Without a score, in no mean and in no p, since test samples do not define one: {without}.")
    if withheld := "; ".join(dict.fromkeys(row.withheld for row in rows if row.withheld)):
        notes.append(f"Without a score, in no mean and in no p, since these silos protect their samples: {withheld}.")
    if chose(rows):
        notes.append(
            "Validated: the models that a method is scored by, in the round that is best on all clients' held-out "
            "samples together. Chosen: the best there of w (own), u (received) and the midpoint between them, which "
            "clients may take home. Both are means of test scores; test samples decide nothing."
        )
    if any(SYMBOLS[THEN_ALONE] in row.chosen_entries for row in rows):
        notes.append(
            "Then alone: not those, but what each client made of them by going on alone (--then-alone), for as many "
            "rounds as did best on all held-out samples. All columns but this one are about the rounds together."
        )
    against = list(dict.fromkeys(row.against for row in rows if row.against))
    if against:
        who = ", ".join(against)
        notes.append(
            f"p: Wilcoxon's signed-rank test over clients, two-sided, against {who}, over the seeds that both have."
        )
    if any(len({row.against for row in own if row.against}) > 1 for _, own in blocks(rows)):
        notes.append(
            "If a method was run in several ways, p and worse off compare with the one trained most similarly."
        )
    notes += _tuning(rows)
    notes += [note for _, own in blocks(rows) for note in _trained(own)]
    if any(row.unfinished for row in rows):
        notes.append("* a run did not finish: its numbers are those of the rounds so far.")
    if repeated := sum(row.repeated for row in rows):
        runs = "1 run that repeats" if repeated == 1 else f"{repeated} runs that repeat"
        notes.append(f"Left out: {runs} a method and seed.")
    if any(_told_beside(own) for _, own in blocks(rows)):
        notes.append(
            "Worse off than alone: each client's test score at the method's best round against that of the model "
            "trained alone beside it (--alone) at its own; a mean over the seeds, without regard to chance."
        )
    elif not _has_separate(rows):
        notes.append(
            "Who is worse off is not known: neither was Separate run, nor a model trained alone beside (--alone)."
        )
    if len({row.block for row in rows}) > 1:
        notes.append("These runs differ in more than method and seed: compare methods only within a setting.")
    if any(OTHER_DATA in row.block for row in rows):
        notes.append("Other data: the samples themselves are not the same, whatever they are called.")
    if any(math.isinf(value) for row in rows for value in (row.best, row.last) if value is not None):
        notes.append(
            f"{NOT_FINITE.capitalize()}: the models of at least one client diverged; a lower learning rate may help."
        )
    return notes


def _best_in_words(metric: str) -> str:
    if metric == "accuracy":
        return "BMTA: the best, over the rounds, of the mean test accuracy over the clients."
    if metric == "rmse":
        return "Best RMSE: the lowest, over the rounds, of the mean test error over the clients."
    about = info(metric)
    best = "best" if about.higher_is_better else "lowest"
    return f"Best {about.short}: the {best}, over the rounds, of the mean test {about.words} over the clients."


def _tuning(rows: Sequence[Row]) -> list[str]:
    """Return in words what a grid was chosen by, and who had more points to choose from."""
    if not was_tuned(rows):
        return []
    notes = [
        "Chosen by validation: of all points tried, the one with the best mean score over the clients' validation "
        "samples in any round, a mean over the seeds. Test samples decide nothing."
    ]
    efforts: dict[int, list[str]] = {}
    for row in rows:
        efforts.setdefault(row.tried, []).append(row.method)
    if len(efforts) > 1:
        each = "; ".join(f"{', '.join(dict.fromkeys(methods))} {tried}" for tried, methods in sorted(efforts.items()))
        notes.append(f"Not the same effort: points that were tried for each method: {each}.")
    return notes


def _trained(rows: Sequence[Row]) -> list[str]:
    """Return in words how the methods of a block were trained; nothing if all were trained in the same way."""
    ways: dict[str, list[str]] = {}
    for row in rows:
        ways.setdefault(row.training, []).append(row.method)
    if len(ways) < 2:
        return []
    how = "; ".join(f"{', '.join(methods)} with {way}" for way, methods in ways.items())
    where = f" ({rows[0].block})" if rows[0].block else ""
    return [f"Not trained in the same way{where}, so a difference need not be due to the method: {how}."]


def as_text(rows: Sequence[Row]) -> str:
    """Return aligned columns, a block for each setting, and footnotes."""
    parts = []
    for block, own in blocks(rows):
        parts.append("\n".join([*([block] if block else []), aligned([headings(own), *body(own)])]))
    return "\n\n".join([*parts, "\n".join(footnotes(rows))]) + "\n"


def aligned(table: Sequence[Sequence[str]]) -> str:
    """Return cells in columns of the same width, the first to the left and the others to the right, with a rule."""
    widths = [max(len(line[place]) for line in table) for place in range(len(table[0]))]
    lines = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in table]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def as_markdown(rows: Sequence[Row]) -> str:
    """Return a Markdown table for each setting, and footnotes."""
    parts = []
    for block, own in blocks(rows):
        heads = headings(own)
        lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *body(own)]
        table = "\n".join("| " + " | ".join(map(_plain, line)) + " |" for line in lines)
        parts.append(f"**{_plain(block)}**\n\n{table}" if block else table)
    return "\n\n".join([*parts, "\n".join(f"- {_plain(note)}" for note in footnotes(rows))]) + "\n"


def as_csv(rows: Sequence[Row]) -> str:
    """Return a line for each row, with all digits; the column `better` is "higher" or "lower"."""
    out = io.StringIO()
    names = [field.name for field in fields(Row)]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "better"])
    for row in rows:
        values = [getattr(row, name) for name in names]
        writer.writerow([*map(_value, values), "higher" if row.higher else "lower"])
    return out.getvalue()


def blocks(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return the rows of each setting, with what it is called."""
    return [(block, list(own)) for block, own in groupby(rows, key=lambda row: row.block)]


def _number(value: float | None, digits: str) -> str:
    if value is None or math.isnan(value):
        return NOTHING
    return NOT_FINITE if math.isinf(value) else format(value, digits)


def _value(value: object) -> object:
    """Return a value as it appears in CSV, with all digits."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else NOT_FINITE
    return value


def _plain(text: str) -> str:
    """Return text that Markdown shows unchanged."""
    one_line = " ".join(text.split()).replace("\\", "\\\\")
    for sign in "|<>*_`[":
        one_line = one_line.replace(sign, f"\\{sign}")
    return one_line
