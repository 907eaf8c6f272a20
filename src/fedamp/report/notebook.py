"""The comparison as HTML, for the output of a notebook's cell."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fedamp.report.render import blocks, body, footnotes, headings
from fedamp.report.table import Row


def as_html(rows: Sequence[Row]) -> str:
    """Return a table for each setting, and footnotes."""
    parts = []
    for block, own in blocks(rows):
        lines = [_line(each, "td") for each in body(own)]
        title = f"<caption>{escape(block)}</caption>" if block else ""
        head = f"<thead>{_line(headings(own), 'th')}</thead>"
        parts.append(f"<table>{title}{head}<tbody>{''.join(lines)}</tbody></table>")
    notes = "".join(f"<li>{escape(note)}</li>" for note in footnotes(rows))
    return f"{''.join(parts)}<ul>{notes}</ul>"


def _line(texts: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>"
