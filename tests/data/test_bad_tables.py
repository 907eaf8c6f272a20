"""Files that can't be read as a table, each refused in one line: file, line and column."""

import datetime
import gzip
import io

import pyarrow as pa
import pytest
from pyarrow import parquet
from silo_files import one_line

from fedamp.data.silos.files import content
from fedamp.data.silos.read import read_silo, read_silos

CSV = {
    "no label column": (b"age,labels\n1,2\n", "no label column 'label' .did you mean 'labels'.*'age', 'labels'"),
    "ragged row": (b"age,label\n1,2\n\n1,2,3\n", "line 4 has 3 cells; expected 2"),
    "ragged after a long cell": (b'age,label\n"a\nb",2\n1\n', "line 4 has 1 cell; expected 2"),
    "word among numbers": (b"age,label\n1,0\nold,1\n", "line 3, column 'age' is 'old', which is not a number"),
    "empty cell": (b"age,label\n1,0\n,1\n", "line 3, column 'age' is empty"),
    "empty word": (b"sex,label\nF,0\n ,1\n", "line 3, column 'sex' is empty"),
    "nan cell": (b"age,label\nNaN,0\n", "line 2, column 'age' is 'NaN'"),
    "inf cell": (b"age,label\n1,0\n-inf,0\n", "line 3, column 'age' is '-inf'"),
    "overflowing cell": (b"age,label\n1e999,0\n", "line 2, column 'age' is '1e999'"),
    "overflowing whole number": (b"age,label\n" + b"9" * 400 + b",0\n", "line 2, column 'age' is '9+"),
    "missing label": (b"age,label\n1,\n", "line 2, column 'label' is empty; expected a label"),
    "nan label": (b"age,label\n1,nan\n", "line 2, column 'label' is 'nan'"),
    "free text": (
        b"note,label\n" + b"x" * 201 + b",1\n",
        "text of 201 characters.*leave the column out with --drop note",
    ),
    "long label": (b"age,label\n1," + b"x" * 201 + b"\n", "line 2, column 'label' has 201 characters"),
    "empty csv": (b"", "the file is empty"),
    "blank csv": (b"\n\n", "the file is empty"),
    "header only": (b"age,label\n", "a header but there are no rows"),
    "labels only": (b"label\n1\n", "the only column is 'label'"),
    "rubbish": (bytes(range(256)) * 4, "line 2 is not text in utf-8 .byte 0x80.*--encoding cp1252"),
    "latin-1": ("größe,label\n1,2\n".encode("latin-1"), "line 1 is not text in utf-8 .byte 0xf6.*--encoding cp1252"),
    "zero byte": (b"age,label\n1,\x002\n", "line 2 has a zero byte"),
    "open quote": (b'age,label\n"1,2\n3,4\n', "line 2 is not csv .unexpected end of data"),
    "huge cell": (b"age,label\n" + b"x" * 200_000 + b",1\n", "line 2 is not csv .field larger"),
    "column twice": (b"age,age,label\n1,2,3\n", "column 'age' appears twice"),
    "column without a name": (b",age,label\n0,1,2\n", "column 1 has no name.*index=False"),
    "long column": (b"x" * 500 + b",label\n1,2\n", "column 1 has 500 characters"),
    "mark of a missing number": (
        b"age,label\n1,0\n-,1\n",
        "line 3, column 'age' is '-'; .*--missing fill.*--missing drop",
    ),
    "n/a among words": (b"sex,label\nF,0\nN/A,1\n", "line 3, column 'sex' is 'N/A'"),
    "question mark": (b"sex,label\nF,0\n?,1\n", "line 3, column 'sex' is '\\?'"),
    "nothing but dashes": (b"rh,label\n-,0\n-,1\n", "line 2, column 'rh' is '-', and no row has anything else"),
    "below a limit": (
        b"crp;label\n1,5;0\n<0,5;1\n",
        "line 3, column 'crp' is '<0,5', which is not a number, but 1 of 2",
    ),
    "blood group called 0": (b"blood,label\nA,0\n0,1\n", "line 2, column 'blood' is 'A', which is not a number"),
    "quoted decimal comma": (b'v,label\n"1,5",0\n', "line 2, column 'v' is '1,5', a number with a mark"),
    "thousands with commas": (b'v,label\n"1,234,567",0\n', "line 2, column 'v' is '1,234,567', a number with a mark"),
    "thousands and decimals": (b"v;label\n1.234,5;0\n", "line 2, column 'v' is '1.234,5', a number with a mark"),
    "thousands beside decimals": (
        b"v;label\n0,5;0\n1.234,5;1\n",
        "line 3, column 'v' is '1.234,5', which is not a number",
    ),
    "comma that could be either": (
        b"v;label\n1,234;0\n",
        "line 2, column 'v' is '1,234', which could be 1.234 or 1234",
    ),
    "point that could be either": (
        b"v;label\n1.234;0\n",
        "line 2, column 'v' is '1.234', which could be 1.234 or 1234",
    ),
    "point among commas": (b"v;label\n0,5;0\n1.234;1\n", "line 3, column 'v' is '1.234', which could be 1.234 or 1234"),
    "comma among points": (b"v;label\n0.5;0\n1,234;1\n", "line 3, column 'v' is '1,234', which could be 1.234 or 1234"),
    "point in a file of commas": (b"u\tv\tlabel\n0,5\t1.234\t0\n", "line 2, column 'v' is '1.234', which could be"),
    "decimal commas with words": (
        b"v\tlabel\n0,5\ta\nhigh\tb\n",
        "line 3, column 'v' is 'high', which is not a number",
    ),
    "days or months": (b"d,label\n03/04/2021,0\n", "line 2, column 'd' is '03/04/2021': .*day/month or month/day"),
    "days and months": (
        b"d,label\n13/04/2021,0\n04/13/2021,1\n",
        "line 3, column 'd' is '04/13/2021': .*day/month or month/day",
    ),
    "no such day": (
        b"d,label\n2021-02-28,0\n2021-02-30,1\n",
        "line 3, column 'd' is '2021-02-30', which is not a date",
    ),
    "word among dates": (
        b"d,label\n2021-02-28,0\n\nsoon,1\n",
        "line 4, column 'd' is 'soon', which is not a date, but 1",
    ),
    "some time zones": (
        b"d,label\n2021-02-28 10:00,0\n2021-02-28 10:00+01:00,1\n",
        "line 2, column 'd' .*some of its times have a time zone",
    ),
    "ragged with semicolons": (b"age;label\n1;2\n1;2;3\n", "line 3 has 3 cells; expected 2"),
    "open quote with tabs": (b'age\tlabel\n"1\t2\n', "line 2 is not csv .*expected tabs and closed quotes"),
    "text after a quote": (b'age,label\n"1"2,3\n', "line 2 is not csv"),
    "utf-16 without a mark": ("age,label\n1,2\n".encode("utf-16-le"), "line 1 has a zero byte.*utf-16-le"),
    "utf-16, cut": ("age,label\n1,2\n".encode("utf-16")[:-1], "line 2 is not text in utf-16-le"),
    "two bytes of utf-8, cut": ("v,label\n1,é\n".encode()[:-2] + b"\n", "line 2 is not text in utf-8 .byte 0xc3"),
}


@pytest.mark.parametrize(("table", "message"), CSV.values(), ids=CSV.keys())
def test_bad_text_is_refused(tmp_path, table, message):
    path = tmp_path / "a.csv"
    path.write_bytes(table)
    with pytest.raises(ValueError, match=message) as raised:
        read_silos(tmp_path)
    assert one_line(raised).startswith(f"{path}: ")


GOOD = b"age,sex,label\n1,F,0\n2,,1\n,M,1\n"
ASKED = {
    "label": ({"label": "lable"}, "no label column 'lable' .did you mean 'label'"),
    "columns": ({"columns": ["aeg"]}, "no column 'aeg' .did you mean 'age'.*correct --columns"),
    "label among columns": (
        {"columns": ["label"]},
        "column 'label' is to be learned from, but it is the one to predict",
    ),
    "label to drop": ({"drop": ["label"]}, "column 'label' is to be dropped, but it is the one to predict"),
    "columns to use and to drop": ({"columns": ["age"], "drop": ["age"]}, "'age' is to be used and to be dropped"),
    "all dropped": ({"drop": ["age", "sex"]}, "the only column is 'label'"),
    "encoding": ({"encoding": "cp1225"}, "unknown encoding 'cp1225' .did you mean 'cp125"),
    "encoding of something else": ({"encoding": "rot13"}, "unknown encoding 'rot13'"),
    "way": ({"missing": "fill"}, "unknown way with missing cells 'fill'"),
}


@pytest.mark.parametrize(("asked", "message"), ASKED.values(), ids=ASKED.keys())
def test_what_a_table_can_not_give_is_refused(tmp_path, asked, message):
    (tmp_path / "a.csv").write_bytes(GOOD)
    with pytest.raises(ValueError, match=message) as raised:
        read_silo(tmp_path / "a.csv", **asked)
    one_line(raised)


def test_rows_that_all_lack_a_cell(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"age,crp,label\n1,,0\n2,NA,1\n")
    with pytest.raises(
        ValueError, match=r"none of the 2 rows of silo 'a' is complete.*column 'crp' lacks 2 cells"
    ) as raised:
        read_silo(tmp_path / "a.csv", missing="drop")
    assert one_line(raised).startswith(str(tmp_path / "a.csv"))


SPLIT = {
    "folder": (".", "hospital", "is a folder, with an entry for each silo; leave out --silo-column"),
    "no such file": ("b.csv", "hospital", "there is no file"),
    "arrays": ("a.npz", "hospital", "has no columns"),
    "no such column": ("a.csv", "hospitals", "no silo column 'hospitals' .did you mean 'hospital'"),
    "the column to predict": ("a.csv", "label", "'label' is the one to predict, so it can't say whose row it is"),
    "row of nobody": ("a.csv", "hospital", "line 3, column 'hospital' is empty; expected a silo's name in every row"),
}


@pytest.mark.parametrize(("name", "column", "message"), SPLIT.values(), ids=SPLIT.keys())
def test_bad_silo_columns_are_refused(tmp_path, name, column, message):
    (tmp_path / "a.csv").write_bytes(b"age,hospital,label\n1,x,0\n2,,1\n")
    (tmp_path / "a.npz").write_bytes(b"")
    with pytest.raises(ValueError, match=message) as raised:
        read_silos(tmp_path / name, silo_column=column)
    one_line(raised)


def packed(**columns):
    buffer = io.BytesIO()
    parquet.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


LABELS = pa.array([0, 1])
DAY = datetime.date(2024, 1, 31)
PARQUET = {
    "not parquet": (b"age,label\n1,0\n", "not a readable parquet file"),
    "empty parquet": (b"", "not a readable parquet file"),
    "cut parquet": (packed(v=[1, 2], label=LABELS)[:-9], "not a readable parquet file"),
    "no rows in parquet": (packed(v=pa.array([], pa.int64()), label=pa.array([], pa.int64())), "there are no rows"),
    "lists": (packed(v=[[1], [2]], label=LABELS), "column 'v' has the type 'list.*leave it out with --drop v"),
    "structs": (packed(v=[{"a": 1}] * 2, label=LABELS), "column 'v' has the type 'struct"),
    "bytes": (packed(v=[b"a", b"b"], label=LABELS), "column 'v' has the type 'binary'"),
    "times of day": (packed(v=[datetime.time(1), datetime.time(2)], label=LABELS), "column 'v' has the type 'time64"),
    "null": (packed(v=[1, None], label=LABELS), "row 2, column 'v' is empty; .*--missing fill"),
    "nan in parquet": (packed(v=[1.0, float("nan")], label=LABELS), "row 2, column 'v' is empty"),
    "null word": (packed(v=["a", None], label=LABELS), "row 2, column 'v' is empty"),
    "infinity in parquet": (packed(v=[float("inf"), 1.0], label=LABELS), "row 1, column 'v' is inf"),
    "null label": (packed(v=[1, 2], label=[1, None]), "row 2, column 'label' is empty; expected a label"),
    "dates as labels": (packed(v=[1, 2], label=[DAY, DAY]), "column 'label' has dates; expected labels"),
    "no label in parquet": (packed(v=[1, 2], lable=LABELS), "no label column 'label' .did you mean 'lable'"),
}


@pytest.mark.parametrize(("table", "message"), PARQUET.values(), ids=PARQUET.keys())
def test_bad_parquet_is_refused(tmp_path, table, message):
    path = tmp_path / "a.parquet"
    path.write_bytes(table)
    with pytest.raises(ValueError, match=message) as raised:
        read_silos(tmp_path)
    assert one_line(raised).startswith(f"{path}: ")


GZIPPED = gzip.compress(b"age,label\n" + b"1,2\n" * 1000)
GZ = {
    "not gzip": (b"age,label\n1,2\n", "not a readable gzip file"),
    "cut gzip": (GZIPPED[:-10], "not a readable gzip file"),
    "damaged gzip": (GZIPPED[:20] + b"\xff" * 9 + GZIPPED[29:], "not a readable gzip file"),
    "too large unpacked": (GZIPPED, "unpacks to more than"),
    "bad row in gzip": (gzip.compress(b"age,label\n1,2\n3\n"), "line 3 has 1 cell; expected 2"),
}


@pytest.mark.parametrize(("table", "message"), GZ.values(), ids=GZ.keys())
def test_bad_gzip_is_refused(tmp_path, monkeypatch, table, message):
    monkeypatch.setattr(content, "MOST_UNPACKED", 1000)
    path = tmp_path / "a.csv.gz"
    path.write_bytes(table)
    with pytest.raises(ValueError, match=message) as raised:
        read_silos(tmp_path)
    assert one_line(raised).startswith(f"{path}: ")
