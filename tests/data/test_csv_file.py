"""Silos of csv: numbers and words as they stand, and errors that name line and column."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from silo_files import FUZZ, read_and_agree, write

from fedamp.data.silos.read import read_silo


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


cells = st.sampled_from(["1", "-2.5", "1e308", "nan", "", "F", "1_0", '"', '"a,b"', "\0", "é", " ", "\u2028", "٣"])


csv_texts = st.lists(st.lists(cells, min_size=1, max_size=3).map(",".join), max_size=5).map(
    lambda lines: "\n".join(["u,v,label", *lines]).encode()
)


@FUZZ
@given(content=st.binary(max_size=300) | st.text().map(str.encode) | csv_texts)
def test_any_bytes_as_csv(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    read_and_agree(tmp_path / "a.csv")
