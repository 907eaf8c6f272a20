"""Two readers of text, one answer: wherever pyarrow reads a file, the line reader gives the same bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedamp.data.silos.files import arrow_columns
from fedamp.data.silos.files.arrow_csv import DoubtfulError, read_by_arrow
from fedamp.data.silos.files.csv_file import read_by_lines
from fedamp.data.silos.files.separator import find_separator
from fedamp.data.silos.files.table import Wanted
from fedamp.data.silos.read import read_silo

NUMBERS = ["1", "-2.5", "1e3", "+4", "-0", "007", " 8 ", "1.", ".5", "1e-400", "9007199254740993", "1.234", "12.345"]
COMMAS = ["1,5", "-0,25", ",5", "1,234", "12,345", "3"]
WORDS = ["F", " M", "M ", "0x1A", "1_0", "+", "nan(1)", "é", "٣", "a b", "none", "-", "true", '"a ""b"""', '"x\ny"']
MISSING = ["", " ", "NA", "NaN", "?", ".", "-", "None", "null", "\u00a0"]
DATES = ["2024-01-31", "1969-12-31 06:00", "9999-12-31", "31.1.2024", "2024-01-31T08:30:00.123456", "0001-01-01"]
KINDS = [NUMBERS, COMMAS, WORDS, DATES, [*NUMBERS, *MISSING], [*COMMAS, *MISSING], [*WORDS, *MISSING]]
TIMES = ["2024-02-29 08:30", "1969-12-31T23:59:59.999999", "9999-12-31 23:59", "0100-01-01 00:00:00.5"]
KINDS += [TIMES, [*TIMES, *MISSING], [*TIMES, "2023-02-29 08:30"], [*TIMES, "2024-01-01 24:00"]]
KINDS += [[*DATES, *MISSING], MISSING, [*NUMBERS, *WORDS], ["inf", "1e999", "1"]]


def cells(rows):
    return st.sampled_from(KINDS).flatmap(lambda kind: st.lists(st.sampled_from(kind), min_size=rows, max_size=rows))


@st.composite
def tables(draw):
    separator, end = draw(st.sampled_from([",", ";", "\t", "|"])), draw(st.sampled_from(["\n", "\r\n", "\r", "\n\n"]))
    rows = draw(st.integers(1, 6))
    columns = [draw(cells(rows)) for _ in range(draw(st.integers(1, 3)))] + [draw(cells(rows))]
    header = [*(f"c{i}" for i in range(len(columns) - 1)), "label"]
    rows_of_cells = [[_quoted(cell, separator) for cell in row] for row in zip(*columns, strict=True)]
    last = draw(st.sampled_from([b"", end.encode()]))
    return end.join(separator.join(row) for row in [header, *rows_of_cells]).encode() + last


def _quoted(cell, separator):
    return f'"{cell}"' if separator in cell and '"' not in cell else cell


def answer(reader, content, separator, wanted):
    try:
        return reader(content, separator, wanted), ""
    except DoubtfulError:
        return None, "doubtful"
    except ValueError as error:
        return None, str(error)


def assert_same(quick, slow):
    assert list(quick.features) == list(slow.features)
    for a, b in zip([*quick.features.values(), quick.labels], [*slow.features.values(), slow.labels], strict=True):
        assert a.values.dtype == b.values.dtype
        assert a.values.tobytes() == b.values.tobytes()
        assert a.dates == b.dates
        np.testing.assert_array_equal(
            *(np.zeros(len(c.values), bool) if c.lacking is None else c.lacking for c in (a, b))
        )


@pytest.mark.parametrize("few", [0, arrow_columns.FEW], ids=["many different cells", "few different cells"])
@settings(max_examples=200, deadline=None)
@given(
    content=tables() | st.text(alphabet='1,;"ab\n\r\t .-', max_size=30).map(lambda t: b"c0,label\n" + t.encode()),
    missing=st.sampled_from(["refuse", "keep", "drop"]),
)
def test_both_readers_agree(content, few, missing):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_columns, "FEW", few)
        wanted = Wanted("label", missing=missing)
        separator = find_separator(content, wanted.named)
        quick, why = answer(read_by_arrow, content, separator, wanted)
        slow, refusal = answer(read_by_lines, content, separator, wanted)
        assert why in ("", "doubtful", refusal)
        if quick is not None:
            assert not refusal
            assert_same(quick, slow)


def test_a_usual_table_is_read_by_pyarrow(tmp_path, monkeypatch):
    from fedamp.data.silos.files import csv_file

    monkeypatch.setattr(csv_file, "read_by_lines", None)
    path = tmp_path / "a.csv"
    path.write_text('age;crp;sex;"in";label\r\n41;1,5;F;31.1.2024;0\r\n7;NA;"M";1.2.2024;1\r\n')
    read = read_silo(path, missing="keep")
    np.testing.assert_array_equal(read.x, [[41, 1.5, 19753], [7, np.nan, 19754]])
    assert (read.dates, read.words["sex"].tolist(), read.y.tolist()) == (("in",), ["F", "M"], [0, 1])


def test_without_pyarrow_the_line_reader_reads(tmp_path, monkeypatch):
    import sys

    path = tmp_path / "a.csv"
    path.write_text("age,label\n41,0\n")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert read_silo(path).x.tolist() == [[41.0]]
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match="pip install pyarrow"):
        read_silo(tmp_path / "a.parquet")
