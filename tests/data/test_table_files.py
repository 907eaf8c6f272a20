"""Tables as people have them: separators, encodings, decimal commas, dates, gzip, parquet, one file of all silos."""

import datetime
import decimal
import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from silo_files import write

from fedamp.data.silos.read import count_silos, find_silos, read_silo, read_silos
from fedamp.data.silos.schema import apply_schema, make_schema
from fedamp.data.silos.unlabelled_tables import encode_file, read_cells
from fedamp.errors import UserError

TEXT = "größe,sex,label\n1.5,F,0\n2.5,Ö,1\n"


def assert_read(read):
    assert read.columns == ("größe", "sex")
    np.testing.assert_array_equal(read.x, [[1.5], [2.5]])
    assert (read.words["sex"].tolist(), read.y.tolist()) == (["F", "Ö"], [0, 1])


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"], ids=["comma", "semicolon", "tab", "bar"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["unix", "windows", "mac"])
def test_separators_and_line_ends(tmp_path, separator, end):
    text = TEXT.replace(",", separator).replace("\n", end)
    (tmp_path / "a.csv").write_bytes(text.encode())
    assert_read(read_silo(tmp_path / "a.csv"))


@pytest.mark.parametrize(
    ("header", "row", "columns"),
    [
        ("size, cm;weight, kg;label", "1,5;2,5;0", ("size, cm", "weight, kg")),
        ("a,b;c,label", "1,2;3,4", ("a", "b;c")),
        ('"a,b";label', '"x,y";0', ("a,b",)),
        ("a|b,c|d,label", "x|y,z|w,0", ("a|b", "c|d")),
    ],
)
def test_the_separator_is_the_one_that_gives_the_label(tmp_path, header, row, columns):
    assert read_silo(write(tmp_path / "a.csv", f"{header}\n{row}\n")).columns == columns


@pytest.mark.parametrize(
    ("encoding", "given"),
    [
        ("utf-8", None),
        ("utf-8-sig", None),
        ("utf-16", None),
        ("cp1252", "cp1252"),
        ("latin-1", "latin-1"),
        ("utf-16-le", "utf-16-le"),
        ("utf-8", "cp1252"),  # one flag is for all files, and this one needs none
        ("utf-8-sig", "latin-1"),
        ("utf-16", "cp1252"),
    ],
)
def test_encodings(tmp_path, encoding, given):
    (tmp_path / "a.csv").write_bytes(TEXT.encode(encoding))
    assert_read(read_silo(tmp_path / "a.csv", encoding=given))


def test_gzip_tsv_and_parquet_are_the_same_table(tmp_path):
    table = pa.table({"größe": [1.5, 2.5], "sex": ["F", "Ö"], "label": [0, 1]})
    parquet.write_table(table, tmp_path / "d.parquet")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    (tmp_path / "b.tsv.GZ").write_bytes(gzip.compress(TEXT.replace(",", "\t").encode()))
    write(tmp_path / "c.tsv", TEXT.replace(",", "\t"))
    assert list(find_silos(tmp_path)) == ["a", "b", "c", "d"]
    for read in read_silos(tmp_path):
        assert_read(read)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("v;label\n1,5;0\n-2;1\n", [1.5, -2]),
        ("v;label\n1,234;0\n0,5;1\n", [1.234, 0.5]),  # a comma that is clear settles the other
        ("v;w;label\n1,234;0,5;0\n2,345;1;1\n", [1.234, 2.345]),
        ("v;w;label\n1.234;0.5;0\n2.345;1;1\n", [1.234, 2.345]),
        ("v\tlabel\n1.234\t0\n2.345\t1\n", [1.234, 2.345]),
        ("v\tlabel\n1,5\t0\n,5e1\t1\n", [1.5, 5]),
        ("v,label\n1.234,0\n2.345,1\n", [1.234, 2.345]),
    ],
)
def test_decimal_marks(tmp_path, text, numbers):
    read = read_silo(write(tmp_path / "a.csv", text))
    assert read.x[:, read.numeric.index("v")].tolist() == numbers


@pytest.mark.parametrize(
    ("cells", "days"),
    [
        (("1970-01-02", "1969-12-31"), [1, -1]),
        (("1970-01-02 06:00", "1970-01-02T12:00:00.5Z"), None),  # with a zone and without
        (("1970-01-02 06:00Z", "1970-01-02T06:00+06:00"), [1.25, 1]),
        (("1970-01-02T00:00:00.5", "1970/1/3"), [1 + 0.5 / 86400, 2]),
        (("2.1.1970", "31.12.1969"), [1, -1]),
        (("2/1/1970", "31/12/1969"), [1, -1]),
        (("1/2/1970", "12/31/1969"), [1, -1]),
        (("9999-12-31", "0001-01-01"), [2932896, -719162]),
    ],
)
def test_dates_are_days(tmp_path, cells, days):
    path = write(tmp_path / "a.csv", "d,label\n" + "".join(f"{cell},{i}\n" for i, cell in enumerate(cells)))
    if days is None:
        with pytest.raises(ValueError, match="some of its times have a time zone"):
            read_silo(path)
        return
    read = read_silo(path)
    assert (read.x[:, 0].tolist(), read.dates) == (days, ("d",))


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1", "-", "NA", "2"], [1, None, None, 2]),
        (["2024-01-31", ".", "None", "?"], [19753, None, None, None]),
        (["+", "-", "", "-"], ["+", "-", "", "-"]),
        (["none", "mild", "n/a", "None"], ["none", "mild", "", "None"]),
        (["", "NA", " ", "null"], [None] * 4),
    ],
    ids=["numbers", "dates", "signs", "complications", "nothing"],
)
def test_what_is_missing_depends_on_the_column(tmp_path, cells, values):
    rows = "".join(f"{cell},{i}\n" for i, cell in enumerate(cells))
    path = write(tmp_path / "a.csv", f"v,label\n{rows}")
    read = read_silo(path, missing="keep")
    found = read.words["v"].tolist() if "v" in read.words else [None if np.isnan(x) else x for x in read.x[:, 0]]
    assert found == values
    complete = [i for i, value in enumerate(values) if value not in (None, "")]
    if complete:
        kept = read_silo(path, missing="drop")
        assert (kept.y.tolist(), kept.left_out) == (complete, len(cells) - len(complete))


def test_a_row_without_a_label_is_left_out_if_asked(tmp_path):
    read = read_silo(write(tmp_path / "a.csv", "v,label\n1,0\n2,\n3,NA\n4,1\n"), missing="drop")
    assert (read.x.tolist(), read.y.tolist(), read.y.dtype.kind, read.left_out) == ([[1], [4]], [0, 1], "i", 2)


def test_types_of_parquet(tmp_path):
    noon = datetime.datetime(1970, 1, 2, 12)
    table = {
        "whole": pa.array([1, None], pa.int32()),
        "part": pa.array([0.5, float("nan")], pa.float32()),
        "truth": [True, False],
        "money": pa.array([decimal.Decimal("1.50"), None]),
        "day": pa.array([datetime.date(1970, 1, 2), None]),
        "noon": pa.array([noon, None], pa.timestamp("ns")),
        "zoned": pa.array([noon.astimezone(datetime.UTC).replace(tzinfo=datetime.UTC, day=2, hour=12), None]),
        "late": pa.array([datetime.datetime(9999, 12, 31), None], pa.timestamp("us")),
        "word": pa.array(["a", None]).dictionary_encode(),
        "text": pa.array(["1,5", "x"], pa.large_string()),
        "number": ["7", "-"],
        "label": pa.array(["yes", "no"]).dictionary_encode(),
        "list": [[1], [2]],
    }
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    read = read_silo(tmp_path / "a.parquet", drop=["list"], missing="keep")
    known = dict(zip(read.numeric, read.x[0].tolist(), strict=True))
    assert known == {
        **{"whole": 1, "part": 0.5, "truth": 1, "money": 1.5, "day": 1, "noon": 1.5, "zoned": 1.5, "late": 2932896},
        "number": 7,
    }
    assert read.dates == ("day", "noon", "zoned", "late")
    assert [column for column, rows in read.missing.items() if rows.tolist() == [False, True]] == [
        *("whole", "part", "money", "day", "noon", "zoned", "late", "word", "number")
    ]
    assert {column: cells.tolist() for column, cells in read.words.items()} == {"word": ["a", ""], "text": ["1,5", "x"]}
    assert (read.y.tolist(), read.dropped) == (["yes", "no"], ("list",))


def test_the_row_numbers_that_pandas_writes_are_no_column(tmp_path):
    frame = pd.DataFrame({"age": [40, 50, 60], "label": [0, 1, 1]}, index=[7, 3, 5])
    frame.to_parquet(tmp_path / "a.parquet")
    assert "__index_level_0__" in parquet.read_schema(tmp_path / "a.parquet").names
    read = read_silo(tmp_path / "a.parquet")
    assert (read.columns, read.dropped) == (("age",), ())
    schema = make_schema([read])
    assert torch.equal(encode_file(schema, tmp_path / "a.parquet")[0], apply_schema(schema, read)[0])
    assert list(read_cells(tmp_path / "a.parquet").columns) == ["age", "label"]
    frame.rename_axis("patient").to_parquet(tmp_path / "b.parquet")  # one that has a name is a column
    assert read_silo(tmp_path / "b.parquet").columns == ("age", "patient")


def test_one_file_has_all_silos(tmp_path):
    path = write(tmp_path / "p.csv", "id,hospital,age,sex,died\n1,10,40,F,0\n2,2,50,M,1\n3,10,60,M,1\n4,1,70,F,0\n")
    asked = {"label": "died", "drop": ["id"], "silo_column": "hospital"}
    silos = read_silos(path, **asked)
    assert [silo.name for silo in silos] == ["1", "10", "2"]
    assert count_silos(path, "hospital") == 3
    assert [silo.x.tolist() for silo in silos] == [[[70]], [[40], [60]], [[50]]]
    assert [silo.words["sex"].tolist() for silo in silos] == [["F"], ["F", "M"], ["M"]]
    assert {silo.columns for silo in silos} == {("age", "sex")}
    assert {silo.dropped for silo in silos} == {("id", "hospital")}
    parquet.write_table(pa.csv.read_csv(path), tmp_path / "p.parquet")
    again = read_silos(tmp_path / "p.parquet", **asked)
    assert [(silo.name, silo.x.tolist(), silo.y.tolist()) for silo in again] == [
        (silo.name, silo.x.tolist(), silo.y.tolist()) for silo in silos
    ]


def test_only_some_columns(tmp_path):
    path = write(tmp_path / "a.csv", "id,age,note,sex,label\nx1,40,,F,0\nx2,50,a very long text,M,1\n")
    read = read_silo(path, columns=["sex", "age"])
    assert (read.columns, read.dropped) == (("age", "sex"), ("id", "note"))


def test_parts_of_a_silo_may_be_of_several_kinds_and_lack_a_column(tmp_path):
    folder = tmp_path / "clinic"
    folder.mkdir()
    write(folder / "1.csv", "age,sex,in,label\n40,,,0\n")
    write(folder / "2.tsv", "age\tsex\tin\tlabel\n,F\t2024-01-31\t1\n".replace(",F", "50\tF"))
    read = read_silo(folder, missing="keep")
    assert (read.words["sex"].tolist(), read.dates) == (["", "F"], ("in",))
    np.testing.assert_array_equal(read.x, [[40, np.nan], [50, 19753]])


def test_a_silo_without_a_whole_row_is_told_which_of_its_own_cells_are_missing(tmp_path):
    path = tmp_path / "all.csv"
    rows = [*["p,,1,no"] * 5, "p,1,1,no", "q,1,,yes", "q,2,,no", "r,1,1,"]
    path.write_text("\n".join(["who,a,b,label", *rows[:-1], ""]))
    with pytest.raises(UserError, match=r"none of the 2 rows of silo 'q' is complete.*'b' lacks 2 cells"):
        read_silos(path, silo_column="who", missing="drop")
    path.write_text("\n".join(["who,a,b,label", *rows[:6], rows[-1], ""]))
    with pytest.raises(UserError, match="none of the 1 rows of silo 'r' is complete: no row has a label"):
        read_silos(path, silo_column="who", missing="drop")


def test_files_of_one_silo_may_lack_a_column_in_any_kind(tmp_path):
    folder = tmp_path / "j"
    folder.mkdir()
    empty = pa.nulls(2, pa.timestamp("us"))
    parquet.write_table(pa.table({"d": empty, "x": [1.0, 2.0], "label": [0, 1]}), folder / "a.parquet")
    parquet.write_table(pa.table({"d": ["F", "M"], "x": [3.0, 4.0], "label": [0, 1]}), folder / "b.parquet")
    (read,) = read_silos(tmp_path, missing="keep")
    assert read.words["d"].tolist() == ["", "", "F", "M"]
    assert (read.dates, read.x.tolist()) == ((), [[1], [2], [3], [4]])


def test_labels_that_no_int64_holds_are_words(tmp_path):
    for last in (2**63, 2**64 - 1):
        labels = pa.array([1, last], pa.uint64())
        parquet.write_table(pa.table({"x": [1.0, 2.0], "label": labels}), tmp_path / "a.parquet")
        assert read_silo(tmp_path / "a.parquet").y.tolist() == ["1", str(last)]
