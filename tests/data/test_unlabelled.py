"""New rows are encoded as training encodes them: missing cells, dates, words, however they are handed over."""

import gzip
from datetime import date, datetime

import numpy as np
import pytest
import torch

from fedamp.data.silos.read import read_silo
from fedamp.data.silos.schema import apply_schema, make_schema
from fedamp.data.silos.unlabelled import encode_table
from fedamp.data.silos.unlabelled_tables import encode_file, read_cells, table_in_memory
from fedamp.errors import UserError

HEADER = ["age", "admitted", "smoker", "weight", "ill"]
ROWS = [
    ["50", "2024-01-31", "none", "70.5", "yes"],
    ["", "2024-02-01", "daily", "81", "no"],
    ["61", "", "", "NA", "no"],
    ["-", "2023-12-31", "daily", "66", "yes"],
]


def write(path, rows, header=HEADER, separator=","):
    text = "\n".join(separator.join(cells) for cells in [header, *rows]) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.fixture(params=[False, True], ids=["filled", "indicated"])
def learned(request, tmp_path):
    """A silo's rows as training has them, and its schema."""
    silo = read_silo(write(tmp_path / "silo.csv", ROWS), "ill", missing="keep")
    schema = make_schema([silo], missing="fill", indicate=request.param)
    return schema, apply_schema(schema, silo)[0]


def test_a_file_in_any_form(learned, tmp_path):
    schema, x = learned
    unlabelled = [row[:-1] for row in ROWS]
    comma = [[cell.replace(".", ",") for cell in row] for row in unlabelled]
    for path in (
        write(tmp_path / "new.csv", unlabelled, HEADER[:-1]),
        write(tmp_path / "labelled.csv.gz", ROWS),
        write(tmp_path / "semicolons.csv", comma, HEADER[:-1], ";"),
        write(tmp_path / "turned.tsv", [row[::-1] for row in unlabelled], HEADER[:-1][::-1], "\t"),
    ):
        found, lines = encode_file(schema, path)
        assert torch.equal(found, x), path
        assert lines == []
    # Cell by cell, as the schema says, which is what explains a file that can't be read quickly.
    assert torch.equal(encode_table(schema, read_cells(tmp_path / "new.csv"))[0], x)


def test_a_single_row_is_read_as_the_column_that_it_belongs_to(learned, tmp_path):
    """Alone, "none" may be a missing value, "-" may be a word, and nothing at all may be anything."""
    schema, x = learned
    for i, row in enumerate(ROWS):
        comma = [cell.replace(".", ",") for cell in row[:-1]]
        for cells, separator in ((row[:-1], ","), (comma, ";")):
            found, _ = encode_file(schema, write(tmp_path / "one.csv", [cells], HEADER[:-1], separator))
            assert torch.equal(found, x[i : i + 1])


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_a_single_row_may_have_a_decimal_comma_too(learned, tmp_path, separator):
    schema, x = learned
    for row, expected in zip(ROWS, x, strict=True):
        for age in (row[0], row[0].replace("50", "50,0")):
            one = write(tmp_path / "one.csv", [[age, *row[1:3], row[3].replace(".", ",")]], HEADER[:-1], separator)
            if age != "-":  # a row of its own does not tell what this is
                assert torch.equal(encode_file(schema, one)[0][0], expected)
    doubtful = write(tmp_path / "one.csv", [["1,234", "2024-01-31", "none", "70"]], HEADER[:-1], separator)
    with pytest.raises(UserError, match="1,234"):
        encode_file(schema, doubtful)


def test_a_table_in_memory(learned, tmp_path):
    pandas, parquet, pyarrow = (pytest.importorskip(name) for name in ("pandas", "pyarrow.parquet", "pyarrow"))
    schema, x = learned
    days = [datetime(2024, 1, 31), datetime(2024, 2, 1), None, datetime(2023, 12, 31)]
    columns = {
        "age": [50, None, 61, None],
        "admitted": days,
        "smoker": ["none", "daily", None, "daily"],
        "weight": [70.5, 81, float("nan"), 66],
    }
    frame = pandas.DataFrame(columns)
    assert frame["admitted"].dtype.kind == "M"
    dated = {**columns, "admitted": [day and date(day.year, day.month, day.day) for day in days]}
    for table in (columns, frame, frame.astype({"age": "Int64"}), pyarrow.table(columns), dated):
        found, _ = encode_table(schema, table_in_memory(table))
        assert torch.equal(found, x)
    parquet.write_table(pyarrow.table(columns), tmp_path / "new.parquet")
    assert torch.equal(encode_file(schema, tmp_path / "new.parquet")[0], x)
    parquet.write_table(pyarrow.table(columns)[:1], tmp_path / "one.parquet")
    assert torch.equal(encode_file(schema, tmp_path / "one.parquet")[0], x[:1])


BAD = {
    "a word in place of a date": (
        ["50", "today", "none", "70"],
        "line 2, column 'admitted' is 'today'; expected a date",
    ),
    "a number in place of a date": (
        ["50", "45000", "none", "70"],
        "line 2, column 'admitted' is '45000'; expected a date",
    ),
    "a date in place of a number": (["50", "2024-01-31", "none", "2024-01-31"], "column 'weight' is '2024-01-31'"),
    "a date that could be two": (["50", "3/4/2024", "none", "70"], "column 'admitted' is '3/4/2024': .*day/month"),
    "no such day": (["50", "2024-02-30", "none", "70"], "column 'admitted' is '2024-02-30'; expected a date"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_of_another_kind_is_said_with_its_place(kind, tmp_path):
    silo = read_silo(write(tmp_path / "silo.csv", ROWS), "ill", missing="keep")
    schema = make_schema([silo], missing="fill")
    row, words = BAD[kind]
    with pytest.raises(UserError, match=f"new.csv, .*{words}"):
        encode_file(schema, write(tmp_path / "new.csv", [row], HEADER[:-1]))


def test_a_column_that_was_left_out_may_be_there(tmp_path):
    silo = read_silo(write(tmp_path / "silo.csv", ROWS[:2]), "ill", drop=("age", "admitted"))
    schema = make_schema([silo])
    for header in (HEADER, HEADER[2:4], HEADER[2:]):
        rows = [[dict(zip(HEADER, row, strict=True))[name] for name in header] for row in ROWS[:2]]
        assert torch.equal(
            encode_file(schema, write(tmp_path / "new.csv", rows, header))[0], apply_schema(schema, silo)[0]
        )


def test_many_rows_go_the_quick_way(tmp_path, monkeypatch):
    """As quick as training reads them: the cells are not looked at one by one."""
    from fedamp.data.silos import unlabelled_tables

    stream = np.random.default_rng(0)
    rows = [[f"{a:.3f}", "fm"[i % 2], "yes" if a > 0 else "no"] for i, a in enumerate(stream.normal(0, 1, 500))]
    silo = read_silo(write(tmp_path / "silo.csv", rows, ["a", "sex", "ill"]), "ill")
    schema = make_schema([silo])
    monkeypatch.setattr(unlabelled_tables, "encode_table", None)
    found, _ = encode_file(schema, tmp_path / "silo.csv")
    assert torch.equal(found, apply_schema(schema, silo)[0])


@pytest.mark.parametrize("empty", ["", ".", "-", "?"])
def test_a_missing_cell_does_not_say_what_a_mark_is_for(tmp_path, empty):
    silo = read_silo(write(tmp_path / "a.csv", [["1.5", "3", "0"], ["2.5", "4", "1"]], ["x", "z", "label"], ";"))
    new = write(tmp_path / "new.csv", [["1.234", "3"], [empty, "3"]], ["x", "z"], ";")
    with pytest.raises(UserError, match=r"1\.234"):
        encode_file(make_schema([silo], missing="fill"), new)


def test_a_column_that_never_varied_takes_no_part_in_what_is_said_of_new_rows(tmp_path):
    """Its weights were drawn and never trained: another value must not reach them."""
    header = ["age", "year", "ill"]
    rows = [["50", "2024", "yes"], ["61", "2024", "no"], ["70", "2024", "no"]]
    silo = read_silo(write(tmp_path / "silo.csv", rows, header), "ill", missing="keep")
    schema = make_schema([silo], missing="fill")
    kept = ["50", "2024"]
    (same, other, none), lines = encode_file(
        schema, write(tmp_path / "new.csv", [kept, ["50", "1999"], ["50", ""]], header[:-1])
    )
    assert torch.equal(same, apply_schema(schema, silo)[0][0])
    torch.testing.assert_close(other, same, atol=1e-20, rtol=1e-6)
    assert torch.equal(none, same)
    assert lines == [
        "column 'year' was 2024 in all rows that the model learned from, and is not in 1 of 3 rows; the model knows "
        "nothing of other values, and takes no notice of them"
    ]
    _, lines = encode_file(schema, write(tmp_path / "same.csv", [kept], header[:-1]))
    assert not lines


def test_a_date_that_never_varied_is_told_as_one(tmp_path):
    header = ["day", "age", "ill"]
    rows = [["2024-03-01", "50", "yes"], ["2024-03-01", "61", "no"], ["2024-03-01", "70", "no"]]
    schema = make_schema([read_silo(write(tmp_path / "silo.csv", rows, header), "ill")])
    _, (line,) = encode_file(schema, write(tmp_path / "new.csv", [["2024-03-02", "50"]], header[:-1]))
    assert line.startswith("column 'day' was 2024-03-01 in all rows")
