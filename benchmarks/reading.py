"""How long it takes to read a large table, by pyarrow and line by line, and what follows: schema, digests, encoding.

    python benchmarks/reading.py                  # 1 M rows x 21 columns, about 190 MB in a temporary folder
    python benchmarks/reading.py --rows 100000

CPU time of this process, all threads together. Both ways must give the same bits.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from fedamp.data.silos.files.arrow_csv import read_by_arrow
from fedamp.data.silos.files.csv_file import read_by_lines
from fedamp.data.silos.files.table import Table, Wanted, silos_of
from fedamp.data.silos.raw import RawSilo
from fedamp.data.silos.read import read_silo
from fedamp.data.silos.row_digests import row_digests
from fedamp.data.silos.schema import apply_schema, make_schema

COLUMNS = 21
Result = TypeVar("Result")


def write(path: Path, rows: int) -> None:
    """Write a table of 17 measurements, a count, a word, a date and a label."""
    draw = np.random.default_rng(0)
    words, dates = np.array(["A", "B", "AB", "O"]), np.datetime64("2015-01-01") + np.arange(4000)
    with path.open("w") as file:
        file.write(",".join([*(f"m{i}" for i in range(COLUMNS - 4)), "count", "blood", "admitted", "label"]) + "\n")
        for start in range(0, rows, 10_000):
            size = min(10_000, rows - start)
            measured = draw.normal(100, 15, (size, COLUMNS - 4)).round(5).tolist()
            others = zip(
                draw.poisson(4, size).tolist(),
                words[draw.integers(0, 4, size)].tolist(),
                dates[draw.integers(0, 4000, size)].astype(str).tolist(),
                draw.integers(0, 2, size).tolist(),
                strict=True,
            )
            lines = (",".join(map(str, (*numbers, *more))) for numbers, more in zip(measured, others, strict=True))
            file.write("\n".join(lines) + "\n")


def timed(what: str, work: Callable[[], Result]) -> tuple[Result, float]:
    """Return a result and the seconds of CPU that it took."""
    start = time.process_time()
    result = work()
    seconds = time.process_time() - start
    print(f"{what:<34} {seconds:7.2f} s of CPU", flush=True)
    return result, seconds


def same(a: RawSilo, b: RawSilo) -> bool:
    """Whether two silos are equal to the last bit."""
    if a.columns != b.columns or a.dates != b.dates or a.y.dtype != b.y.dtype or set(a.words) != set(b.words):
        return False
    words = all(np.array_equal(a.words[column], b.words[column]) for column in a.words)
    return words and a.x.tobytes() == b.x.tobytes() and a.y.tobytes() == b.y.tobytes()


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="fedamp-bench-") as made:
        path = Path(made) / "silo.csv"
        write(path, rows)
        small = Path(made) / "small.csv"
        write(small, 20)
        timed("pyarrow is loaded, once", lambda: read_silo(small))
        print(f"{rows} rows x {COLUMNS} columns, {path.stat().st_size / 1e6:.0f} MB")
        silo, whole = timed("a silo's file, as fedamp reads it", lambda: read_silo(path))
        content, wanted = path.read_bytes(), Wanted("label")
        quick, fast = timed("  of this, by pyarrow", lambda: read_by_arrow(content, ",", wanted))
        slowly: Table
        slowly, slow = timed("line by line", lambda: read_by_lines(content, ",", wanted))
        for table in (quick, slowly):
            assert same(silo, silos_of(table, "silo", wanted)[0]), "the two ways differ"
        print(f"the same bits; line by line takes {slow / fast:.1f} times as long (whole: {slow / whole:.1f})")
        schema, _ = timed("its schema", lambda: make_schema([silo]))
        timed("the digests of its rows", lambda: row_digests(silo))
        timed("its rows under the schema", lambda: apply_schema(schema, silo))


if __name__ == "__main__":
    main()
