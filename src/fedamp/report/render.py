"""The comparison as text, CSV or Markdown."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import fields
from itertools import groupby

from fedamp.report.table import ALONE, Row

NOTHING = "–"


def headings(row: Row) -> list[str]:
    """Return the columns' headings; for errors each says that lower is better."""
    p = f"p against {row.against}" if row.against else "p"
    if row.higher:
        scores = ["BMTA %", "sd", "last round %", "worst client %", "10th percentile %"]
    else:
        scores = [
            "best RMSE (lowest)",
            "sd of lowest RMSE",
            "last round RMSE (lower is better)",
            "worst client RMSE (highest)",
            "90th percentile RMSE (lower is better)",
        ]
    return ["method", "seeds", *scores, "worse off than Separate", p, "seconds"]


def cells(row: Row) -> list[str]:
    """Return a row's cells, in the order of the headings."""
    digits = ".2f" if row.higher else ".4g"
    scores = [_number(value, digits) for value in (row.best, row.sd, row.last, row.worst, row.tenth)]
    worse = NOTHING if row.worse_off is None else f"{row.worse_off} of {row.clients}"
    p = row.p_note or NOTHING if row.p is None else "<0.0001" if row.p < 1e-4 else f"{row.p:.2g}"
    star = "*" if row.unfinished else ""
    return [row.method + star, str(len(row.seeds)), *scores, worse, p, _number(row.seconds, ".1f")]


def footnotes(rows: Sequence[Row]) -> list[str]:
    """Return what a reader has to know of the numbers."""
    higher = all(row.higher for row in rows)
    notes = [
        "BMTA: the best, over the rounds, of the mean test accuracy over the clients."
        if higher
        else "Errors: the best is the lowest, over the rounds, of the mean test error over the clients.",
        "Last round, worst client, percentile and seconds are means over the seeds.",
    ]
    against = list(dict.fromkeys(row.against for row in rows if row.against))
    if against:
        who = ", ".join(against)
        notes.append(f"p: Wilcoxon's signed-rank test over clients, two-sided, against {who}; seeds that both have.")
    if any(row.unfinished for row in rows):
        notes.append("* a run did not come to its end: its numbers are of the rounds so far.")
    if repeated := sum(row.repeated for row in rows):
        notes.append(f"Left out: {repeated} run(s) of a method and seed that are there already.")
    if not any(row.method.split(" ")[0] == ALONE for row in rows):
        notes.append("Separate was not run, so that nobody can say who is worse off than alone.")
    if len({row.block for row in rows}) > 1:
        notes.append("These runs differ in more than method and seed: compare methods within a setting alone.")
    return notes


def as_text(rows: Sequence[Row]) -> str:
    """Return aligned columns, a block for each setting, and footnotes."""
    parts = []
    for block, own in _blocks(rows):
        table = [headings(own[0]), *(cells(row) for row in own)]
        widths = [max(len(line[place]) for line in table) for place in range(len(table[0]))]
        lines = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in table]
        lines.insert(1, "  ".join("-" * width for width in widths))
        parts.append("\n".join([*([block] if block else []), *(line.rstrip() for line in lines)]))
    return "\n\n".join([*parts, "\n".join(footnotes(rows))]) + "\n"


def as_markdown(rows: Sequence[Row]) -> str:
    """Return a Markdown table for each setting, and footnotes."""
    parts = []
    for block, own in _blocks(rows):
        heads = headings(own[0])
        lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *(cells(row) for row in own)]
        table = "\n".join("| " + " | ".join(map(_plain, line)) + " |" for line in lines)
        parts.append(f"**{_plain(block)}**\n\n{table}" if block else table)
    return "\n\n".join([*parts, "\n".join(f"- {_plain(note)}" for note in footnotes(rows))]) + "\n"


def as_csv(rows: Sequence[Row]) -> str:
    """Return a line for each row with all digits; `better` says whether higher or lower scores are."""
    out = io.StringIO()
    names = [field.name for field in fields(Row)]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "better"])
    for row in rows:
        values = [getattr(row, name) for name in names]
        plain = [" ".join(map(str, value)) if isinstance(value, list) else value for value in values]
        writer.writerow([*plain, "higher" if row.higher else "lower"])
    return out.getvalue()


def _blocks(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    return [(block, list(own)) for block, own in groupby(rows, key=lambda row: row.block)]


def _number(value: float | None, digits: str) -> str:
    return NOTHING if value is None or not math.isfinite(value) else format(value, digits)


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is."""
    one_line = " ".join(text.split()).replace("\\", "\\\\")
    for sign in "|<>*_`[":
        one_line = one_line.replace(sign, f"\\{sign}")
    return one_line
