"""What `fedamp.compare` returns: the table, for people and for programs, and the results behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedamp.config import RunConfig
from fedamp.errors import UserError
from fedamp.records.folder import RunFolder
from fedamp.records.reading import RunRecord
from fedamp.report.groups import Block, Group, make_blocks
from fedamp.report.notebook import as_html
from fedamp.report.render import as_markdown, as_text
from fedamp.report.table import Row, rows_of
from fedamp.runs.conclusion import read_again
from fedamp.runs.handed_over import HandedOver
from fedamp.runs.result import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Comparison:
    """Methods over seeds on one problem, or on several: `print` it, or let a notebook show it.

    Methods are keys by their names; where `setting.*` or the like is swept, with the block that they are in: `fedamp
    (setting.share=0.6)`.
    """

    folder: Path  # of all runs; without `out` it goes when this object goes
    records: Sequence[RunRecord] = field(repr=False)  # the runs that are shown: of a grid, those that validation chose
    configs: Mapping[str, RunConfig] = field(repr=False)  # by the name of a run's folder
    given: HandedOver = field(repr=False)
    against: str | None = None  # the method that p compares with; by default Separate

    @cached_property
    def blocks(self) -> list[Block]:
        """The runs by problem and method."""
        return make_blocks(self.records)

    @cached_property
    def rows(self) -> list[Row]:
        """The table's rows, typed; `fedamp.report.table.Row` explains its fields."""
        return rows_of(self.blocks, self.against)

    @property
    def table(self) -> list[dict[str, Any]]:
        """The table's rows as plain values, with all digits."""
        return [dict(vars(row)) for row in self.rows]

    def to_pandas(self) -> pd.DataFrame:
        """Return the table as a DataFrame."""
        try:
            import pandas as pd
        except ImportError:
            raise UserError("pandas is not installed; run: pip install pandas, or use .table") from None
        return pd.DataFrame(self.table)

    @property
    def chosen(self) -> dict[str, dict[str, Any]]:
        """For each method, what validation chose of the grid, by name; empty if it had nothing to choose from."""
        return {name: dict(group.tuned) for name, group in self._groups.items()}

    @cached_property
    def results(self) -> dict[str, dict[int, Result]]:
        """For each method and seed the result of its run, with its models; read from the folder when first used."""
        return {
            name: {record.config["seed"]: self._read(record) for record in group.records}
            for name, group in self._groups.items()
        }

    @property
    def warnings(self) -> list[str]:
        """The warnings that all runs have."""
        return common_warnings(self.records)

    @property
    def _groups(self) -> dict[str, Group]:
        pairs = [(block.label, group) for block in self.blocks for group in block.groups]
        return {f"{group.label} ({label})" if label else group.label: group for label, group in pairs}

    def _read(self, record: RunRecord) -> Result:
        config = self.configs[record.path.name]
        return read_again(config, self.given.assemble(config), RunFolder(record.path))

    def __str__(self) -> str:
        return as_text(self.rows)

    def _repr_html_(self) -> str:
        return as_html(self.rows)

    def _repr_markdown_(self) -> str:
        return as_markdown(self.rows)


def common_warnings(records: Sequence[RunRecord]) -> list[str]:
    """Return the warnings that all runs have: they are about the data, not about a method."""
    warnings = [(record.result or {}).get("warnings", []) for record in records]
    return [each for each in (warnings[0] if warnings else []) if all(each in others for others in warnings)]
