"""From run folders to tables and one HTML page; needs numpy and scipy, never torch."""

from fedamp.report.page import write_report
from fedamp.report.render import as_csv, as_markdown, as_text
from fedamp.report.table import Row, comparison_table

__all__ = ["Row", "as_csv", "as_markdown", "as_text", "comparison_table", "write_report"]
