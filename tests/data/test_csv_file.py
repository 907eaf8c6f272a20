"""Silos of csv: numbers and words as they stand, and errors that name line and column."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from silo_files import FUZZ, one_line, read_and_agree, write

from fedamp.data.silos.read import read_silo, read_silos


def test_csv_has_numbers_and_words(tmp_path):
    text = '\ufeffage,"ward, floor",sex, outcome \r\n41,"A, 1",F,ill\r\n\r\n 7.5 ,"B ""x""",M,well\r\n'
    read = read_silo(write(tmp_path / "a.csv", text), "outcome")
    assert read.columns == ("age", "ward, floor", "sex")
    assert read.numeric == ("age",)
    np.testing.assert_array_equal(read.x, [[41.0], [7.5]])
    assert {column: cells.tolist() for column, cells in read.words.items()} == {
        "ward, floor": ["A, 1", 'B "x"'],
        "sex": ["F", "M"],
    }
    assert read.y.tolist() == ["ill", "well"]


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (("1", "2"), "i", [1, 2]),
        (("1", "2.0"), "f", [1.0, 2.0]),
        (("1", "b"), "U", ["1", "b"]),
        (("9" * 30, "1"), "U", ["9" * 30, "1"]),
    ],
)
def test_csv_labels_are_numbers_where_all_are(tmp_path, cells, kind, values):
    read = read_silo(write(tmp_path / "a.csv", f"v,label\n0,{cells[0]}\n0,{cells[1]}\n"))
    assert read.y.dtype.kind == kind
    assert read.y.tolist() == values


BAD_CSV = {
    "no label column": (b"age,labels\n1,2\n", "no label column 'label' .did you mean 'labels'.*'age', 'labels'"),
    "semicolons": (b"age;label\n1;2\n", "expected commas between cells"),
    "ragged row": (b"age,label\n1,2\n\n1,2,3\n", "line 4 has 3 cells; expected 2"),
    "ragged after a long cell": (b'age,label\n"a\nb",2\n1\n', "line 4 has 1 cell; expected 2"),
    "word among numbers": (b"age,label\n1,0\nn/a,1\n", "line 3, column 'age' is 'n/a', which is not a number"),
    "empty cell": (b"age,label\n1,0\n,1\n", "line 3, column 'age' is empty"),
    "empty word": (b"sex,label\nF,0\n ,1\n", "line 3, column 'sex' is empty"),
    "nan cell": (b"age,label\nNaN,0\n", "line 2, column 'age' is 'NaN'"),
    "inf cell": (b"age,label\n1,0\n-inf,0\n", "line 3, column 'age' is '-inf'"),
    "overflowing cell": (b"age,label\n1e999,0\n", "line 2, column 'age' is '1e999'"),
    "overflowing whole number": (b"age,label\n" + b"9" * 400 + b",0\n", "line 2, column 'age' is '9+"),
    "missing label": (b"age,label\n1,\n", "line 2, column 'label' is empty; expected a label"),
    "nan label": (b"age,label\n1,nan\n", "line 2, column 'label' is 'nan'"),
    "free text": (b"note,label\n" + b"x" * 201 + b",1\n", "text of 201 characters.*drop the column"),
    "long label": (b"age,label\n1," + b"x" * 201 + b"\n", "line 2, column 'label' has 201 characters"),
    "empty csv": (b"", "the file is empty"),
    "blank csv": (b"\n\n", "the file is empty"),
    "header only": (b"age,label\n", "a header but there are no rows"),
    "labels only": (b"label\n1\n", "the only column is 'label'"),
    "rubbish": (bytes(range(256)) * 4, "expected text, in utf-8|not text in utf-8"),
    "latin-1": ("größe,label\n1,2\n".encode("latin-1"), "not text in utf-8"),
    "utf-16": ("age,label\n1,2\n".encode("utf-16"), "not text in utf-8"),
    "zero byte": (b"age,label\n1,\x002\n", "line 2 has a zero byte"),
    "open quote": (b'age,label\n"1,2\n3,4\n', "line 2 is not csv .unexpected end of data"),
    "huge cell": (b"age,label\n" + b"x" * 200_000 + b",1\n", "line 2 is not csv .field larger"),
    "column twice": (b"age,age,label\n1,2,3\n", "column 'age' appears twice"),
    "column without a name": (b",age,label\n0,1,2\n", "column 1 has no name.*index=False"),
    "long column": (b"x" * 500 + b",label\n1,2\n", "column 1 has 500 characters"),
}


@pytest.mark.parametrize(("content", "message"), BAD_CSV.values(), ids=BAD_CSV.keys())
def test_bad_csv_files_are_refused_by_name(tmp_path, content, message):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        read_silos(tmp_path)
    assert one_line(raised).startswith(str(path))


cells = st.sampled_from(["1", "-2.5", "1e308", "nan", "", "F", "1_0", '"', '"a,b"', "\0", "é", " ", "\u2028", "٣"])


csv_texts = st.lists(st.lists(cells, min_size=1, max_size=3).map(",".join), max_size=5).map(
    lambda lines: "\n".join(["u,v,label", *lines]).encode()
)


@FUZZ
@given(content=st.binary(max_size=300) | st.text().map(str.encode) | csv_texts)
def test_any_bytes_as_csv(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    read_and_agree(tmp_path / "a.csv")
