"""A user's own silos: what is read from their files, what they agree on, and what is refused in one line."""

import contextlib
import io
import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedamp.data.silos.cells import as_number, label_name
from fedamp.data.silos.raw import RawSilo
from fedamp.data.silos.read import count_silos, find_silos, read_silo, read_silos
from fedamp.data.silos.schema import Schema, apply_schema, make_schema, merge_schemas, schema_notes
from fedamp.data.silos.schema.differences import schema_differences
from fedamp.data.silos.schema_file import (
    read_schema,
    schema_from_json,
    schema_to_json,
    write_schema,
)


def save(path, x=None, y=None, **more):
    arrays = {"x": x, "y": y} | more
    np.savez(path, **{key: np.asarray(value) for key, value in arrays.items() if value is not None})
    return path


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def silo(x, y, name="a", columns=None, **words):
    return RawSilo(
        name, np.asarray(x), np.asarray(y), columns, {column: np.array(cells) for column, cells in words.items()}
    )


# Reading ---------------------------------------------------------------------------------------------------------


def test_silos_are_ordered_by_name_whatever_their_kind(tmp_path):
    write(tmp_path / "b.csv", "age,label\n1,0\n")
    save(tmp_path / "c.npz", np.zeros((2, 3)), [0, 1])
    (tmp_path / "St. Mary").mkdir()
    write(tmp_path / "St. Mary" / "rows.CSV", "age,label\n1,0\n")
    write(tmp_path / ".hidden", "nothing")
    silos = read_silos(tmp_path)
    assert [s.name for s in silos] == ["St. Mary", "b", "c"]
    assert list(find_silos(tmp_path)) == ["St. Mary", "b", "c"]
    assert count_silos(tmp_path) == 3
    assert [len(s) for s in silos] == [1, 1, 2]


def test_npz_keeps_numbers_and_types(tmp_path):
    x = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
    read = read_silo(save(tmp_path / "a.npz", x, [1, 0, 1, 1], ids=[5, 6, 7, 8]))
    np.testing.assert_array_equal(read.x, x)
    assert read.x.dtype == np.uint8
    assert read.y.tolist() == [1, 0, 1, 1]
    assert read.columns is None
    assert read_silo(save(tmp_path / "b.npz", x.astype(">f4"), ["u", "v", "u", "v"])).x.dtype == np.float32
    assert read_silo(save(tmp_path / "c.npz", x.astype(np.float16), [True, False] * 2)).x.dtype == np.float32


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


def test_files_of_a_sub_folder_follow_one_another(tmp_path):
    folder = tmp_path / "clinic"
    folder.mkdir()
    write(folder / "2.csv", "label,sex,age\nx,M,3\n")
    write(folder / "1.csv", "age,sex,label\n1,F,0\n2,F,1\n")
    read = read_silo(folder)
    assert read.name == "clinic"
    assert read.columns == ("age", "sex")
    assert read.x.tolist() == [[1.0], [2.0], [3.0]]
    assert read.words["sex"].tolist() == ["F", "F", "M"]
    assert read.y.tolist() == ["0", "1", "x"]
    other = tmp_path / "arrays"
    other.mkdir()
    save(other / "b.npz", [[2.0]], [1])
    save(other / "a.npz", [[1.0]], [0])
    assert read_silo(other).x.tolist() == [[1.0], [2.0]]


def test_one_label_has_one_name():
    assert {label_name(value) for value in (1, 1.0, "1", "01", " 1.0", np.float32(1), np.int8(1))} == {"1"}
    assert label_name(0.5) == label_name("0.50") == "0.5"
    assert label_name("1_000") == "1_000"
    assert as_number("nan") != as_number("nan")


# Agreeing --------------------------------------------------------------------------------------------------------


def test_schema_of_a_table_by_hand():
    a = silo([[1.0, 7.0], [3.0, 7.0]], ["b", "a"], "a", ("v", "sex", "w"), sex=["M", "F"])
    b = silo([[7.0, 5.0]], ["c"], "b", ("w", "v", "sex"), sex=["X"])
    schema = make_schema([a, b])
    assert schema.task == "classification"
    assert schema.columns == ("v", "sex", "w")
    assert schema.features == ("v", "sex=F", "sex=M", "sex=X", "w")
    assert schema.input_shape == (5,)
    assert schema.labels == ("a", "b", "c")
    assert schema.categories == {"sex": ("F", "M", "X")}
    assert schema.count == 3
    np.testing.assert_allclose(schema.shift, [3, 0, 0, 0, 7])
    np.testing.assert_allclose(schema.spread, [np.sqrt(8 / 3), 1, 1, 1, 0])
    assert schema.scale[4] == 1.0
    x, y = apply_schema(schema, a)
    assert x.dtype == torch.float32
    assert y.dtype == torch.int64
    assert y.tolist() == [1, 0]
    v = -2 / np.sqrt(8 / 3)
    np.testing.assert_allclose(x, [[v, 0, 1, 0, 0], [0, 1, 0, 0, 0]], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(apply_schema(schema, b)[0], [[-v, 0, 0, 1, 0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("ys", "task", "labels"),
    [
        (([10, 9], [1]), "classification", ("1", "9", "10")),
        (([1.0, 2.0], [3.0]), "regression", None),
        (([1, 2], [3.0]), "regression", None),
        (([1.0, 2.0], ["other"]), "classification", ("1", "2", "other")),
        ((["10", "9"], ["other"]), "classification", ("10", "9", "other")),
        (([1, 2], ["unknown", "1"]), "classification", ("1", "2", "unknown")),
        (([1, 2], [0.5]), "regression", None),
    ],
)
def test_task_and_labels(ys, task, labels):
    silos = [silo(np.zeros((len(y), 1)), y, name) for y, name in zip(ys, "ab", strict=False)]
    schema = make_schema(silos)
    assert (schema.task, schema.labels) == (task, labels)
    if labels is not None:
        for each in silos:
            names = [labels[i] for i in apply_schema(schema, each)[1].tolist()]
            assert names == [label_name(value) for value in each.y.tolist()]


def test_targets_of_regression_are_scaled():
    a, b = silo([[0.0], [0.0]], [1.0, 3.0]), silo([[0.0]], [8.0], "b")
    schema = make_schema([a, b], "regression")
    assert schema.labels is None
    assert schema.target_shift == pytest.approx(4)
    assert schema.target_scale == pytest.approx(np.std([1, 3, 8]))
    y = torch.cat([apply_schema(schema, each)[1] for each in (a, b)])
    assert y.dtype == torch.float32
    torch.testing.assert_close(y * schema.target_scale + schema.target_shift, torch.tensor([1.0, 3.0, 8.0]))
    assert make_schema([silo([[0.0]], [2.0])], "regression").target_scale == 1


def test_bytes_are_pictures():
    schema = make_schema([silo(np.full((2, 3, 4), 51, np.uint8), [0, 1])])
    assert (schema.shift, schema.scale, schema.input_shape) == ((0.0,), (255.0,), (3, 4))
    torch.testing.assert_close(
        apply_schema(schema, silo(np.full((1, 3, 4), 51, np.uint8), [1]))[0].unique(), torch.tensor([0.2])
    )


def test_one_number_each_for_inputs_that_are_not_flat():
    x = np.random.default_rng(0).normal(3, 2, (5, 2, 3))
    schema = make_schema([silo(x[:2], [0, 1]), silo(x[2:], [0, 1, 0], "b")])
    np.testing.assert_allclose(schema.shift, [x.mean()], rtol=1e-12)
    np.testing.assert_allclose(schema.scale, [x.std()], rtol=1e-12)


def test_constant_columns_stay_constant():
    # The mean of 0.1 three times is not 0.1 in floating point: dividing by that difference would be noise.
    silos = [silo(np.full((n, 1), 0.1), np.arange(n), name) for n, name in ((3, "a"), (7, "b"), (11, "c"))]
    schema = make_schema(silos)
    assert (schema.shift, schema.spread, schema.scale) == ((0.1,), (0.0,), (1.0,))
    assert merge_schemas([make_schema([each]) for each in silos]) == schema
    assert apply_schema(schema, silos[0])[0].abs().max() == 0


def test_columns_that_are_constant_in_each_silo_alone_are_not():
    schema = merge_schemas([make_schema([silo([[v]] * 2, [0, 1])]) for v in (1.0, 3.0)])
    assert (schema.shift, schema.spread) == ((2.0,), (1.0,))


words = st.sampled_from(["F", "M", "X", "Ä"])
numbers = st.floats(-1e6, 1e6) | st.integers(-5, 5).map(float)


@st.composite
def tables(draw):
    """Some silos' tables with two columns of numbers and one of words, and their rows."""
    made = []
    for place in range(draw(st.integers(2, 4))):
        rows = draw(st.lists(st.tuples(numbers, numbers, words, st.integers(0, 3)), min_size=1, max_size=6))
        u, v, w, y = zip(*rows, strict=True)
        made.append(silo(np.array([u, v]).T, y, f"silo {place}", ("u", "w", "v"), w=w))
    return made


@settings(max_examples=60, deadline=None)
@given(tables(), st.sampled_from(["classification", "regression"]))
def test_merging_gives_what_all_rows_give(silos, task):
    partial = [make_schema([each], task) for each in silos]
    y = np.concatenate([each.y for each in silos])
    if task == "classification" and len(set(y.tolist())) == 1:
        with pytest.raises(ValueError, match="at least two classes"):
            merge_schemas(partial)
        return
    together, merged = make_schema(silos, task), merge_schemas(partial)
    rows = silo(
        np.concatenate([each.x for each in silos]),
        y,
        "all",
        ("u", "w", "v"),
        w=np.concatenate([each.words["w"] for each in silos]),
    )
    for other in (merged, make_schema([rows], task), merge_schemas(partial[::-1])):
        assert other.labels == together.labels
        assert other.categories == together.categories
        assert (other.count, other.features) == (together.count, together.features)
        for name in ("shift", "spread", "target_shift", "target_spread"):
            size = 1e6 if "target" not in name else 3
            np.testing.assert_allclose(getattr(other, name), getattr(together, name), rtol=1e-9, atol=1e-9 * size)
    if task == "regression":
        assert together.target_shift == pytest.approx(y.mean(), abs=1e-9)
        assert together.target_spread == pytest.approx(y.std(), abs=1e-9)


def test_merging_keeps_digits_where_means_are_large():
    rng = np.random.default_rng(1)
    parts = [1e9 + rng.normal(size=(n, 3)) for n in (10, 1000, 37)]
    merged = merge_schemas([make_schema([silo(x, np.arange(len(x)) % 2)]) for x in parts])
    everything = np.concatenate(parts)
    centred = everything - 1e9
    np.testing.assert_allclose(np.array(merged.shift) - 1e9, centred.mean(0), atol=1e-6)
    np.testing.assert_allclose(merged.spread, centred.std(0), rtol=1e-6)


def test_notes_tell_what_is_allowed_but_odd():
    a = silo([[1.0], [1.0]], [0, 1], "a", ("v", "sex"), sex=["F", "M"])
    b = silo([[1.0]], [1], "b", ("v", "sex"), sex=["M"])
    assert schema_notes(make_schema([a, b]), [a, b]) == [
        "column 'sex' has 2 words ('F', 'M'): each becomes an input",
        "the same in all rows, so of no use: 'v'",
        "silo 'b' has rows of one class only, '1'",
    ]
    many = silo(np.arange(60.0)[:, None], np.arange(60), "c", ("v", "id"), id=[f"n{i}" for i in range(60)])
    assert "shows its words to everyone" in "\n".join(schema_notes(make_schema([many])))
    flat = silo(np.zeros((2, 3), np.uint8), [0, 1])
    assert "divided by 255" in schema_notes(make_schema([flat]))[0]


# JSON ------------------------------------------------------------------------------------------------------------


def table_schema():
    return make_schema([silo([[0.1, 2.0], [0.3, 2.0]], ["böse", "gut\n"], "a", ("v", "sex", "w"), sex=["M", "F"])])


@pytest.mark.parametrize(
    "schema",
    [
        table_schema(),
        make_schema([silo([[1.0], [2.0]], [0.1, 0.7])]),
        make_schema([silo(np.zeros((2, 3, 4), np.uint8), [0, 1])]),
    ],
)
def test_json_gives_the_schema_back(tmp_path, schema):
    assert schema_from_json(schema_to_json(schema)) == schema
    write_schema(tmp_path / "schema.json", schema)
    assert read_schema(tmp_path / "schema.json") == schema
    assert schema_differences(schema, schema) == []


def test_differences_in_words():
    a = table_schema()
    b = make_schema([silo([[0.1, 2.0], [0.5, 2.0]], ["gut", "so"], "a", ("v", "sex", "w"), sex=["M", "F"])])
    lines = schema_differences(a, b)
    assert "labels only in the first: 'böse'" in lines
    assert "labels only in the second: 'so'" in lines
    assert any(line.startswith("shift differs: v 0.2 and 0.3") for line in lines)
    assert any(line.startswith("spread differs: v") for line in lines)
    c = make_schema([silo([[1.0, 1.0]], [0.5], "c", ("w", "v"))])
    assert schema_differences(a, c)[0] == "task is classification in the first and regression in the second"
    assert "columns only in the first: 'sex'" in schema_differences(a, c)
    assert "words of 'sex' only in the first: 'F', 'M'" in schema_differences(a, c)
    d = make_schema([silo([[1.0, 1.0]], [0.5], "c", ("v", "w"))])
    assert schema_differences(c, d) == ["columns are in another order: 'w', 'v' and 'v', 'w'"]
    e = make_schema([silo([[1.0, 1.0]], [0.5])])
    assert "one has columns and the other has none" in schema_differences(a, e)


# What is refused -------------------------------------------------------------------------------------------------


def npz_bytes(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


GOOD = npz_bytes(x=np.zeros((50, 4)), y=np.arange(50))
NPY = io.BytesIO()
np.save(NPY, np.zeros(3))
TEXT_IN_ZIP = io.BytesIO()
with zipfile.ZipFile(TEXT_IN_ZIP, "w") as archive:
    archive.writestr("x", b"not an array")
    archive.writestr("y", b"not an array")

ONE_FILE = {
    "truncated npz": ("npz", GOOD[: len(GOOD) // 2], "not a readable npz file"),
    "damaged npz": ("npz", GOOD[:400] + b"\xff" * 20 + GOOD[420:], "not a readable npz file"),
    "not a zip": ("npz", b"hello, world", "not a readable npz file .it is not a zip archive"),
    "empty npz": ("npz", b"", "not a readable npz file"),
    "npy": ("npz", NPY.getvalue(), r"single array; save with np.savez"),
    "no array inside": ("npz", TEXT_IN_ZIP.getvalue(), "its entry 'x' is not an array"),
    "objects": ("npz", {"x": np.array([[1], [None]]), "y": [0, 1]}, "Python objects, which could run code"),
    "objects as labels": ("npz", {"x": [[1.0]], "y": np.array([None])}, "Python objects"),
    "no y": ("npz", {"x": [[1.0]]}, "no array 'y' in the file, which has 'x'"),
    "no x": ("npz", {"images": [[1.0]], "y": [1]}, "no array 'x' in the file, which has 'images', 'y'"),
    "lengths differ": ("npz", {"x": np.zeros((3, 2)), "y": [0, 1]}, "has 3 rows and y has 2"),
    "no rows": ("npz", {"x": np.zeros((0, 2)), "y": np.zeros(0)}, "silo 'a' has no rows"),
    "no features": ("npz", {"x": np.zeros((2, 0)), "y": [0, 1]}, "no features"),
    "one axis": ("npz", {"x": [1.0, 2.0], "y": [0, 1]}, r"shape \(2,\); expected .samples, features"),
    "no axis": ("npz", {"x": 1.0, "y": 1}, r"shape \(\)"),
    "NaN": ("npz", {"x": [[0.0, 1.0], [0.0, np.nan]], "y": [0, 1]}, r"x of silo 'a' is nan in row 1 at \(1,\)"),
    "infinity": ("npz", {"x": [[np.inf]], "y": [0]}, r"is inf in row 0"),
    "NaN as label": ("npz", {"x": [[1.0]], "y": [np.nan]}, "y of silo 'a' is nan in row 0"),
    "y of two axes": ("npz", {"x": [[1.0]], "y": [[1.0]]}, r"y of silo 'a' has shape \(1, 1\); expected one axis"),
    "complex": ("npz", {"x": [[1j]], "y": [0]}, "x of silo 'a' has type complex128"),
    "dates": ("npz", {"x": [[1.0]], "y": np.array(["2020-01-01"], "M8[D]")}, "expected numbers or text"),
    "empty word as label": ("npz", {"x": [[1.0]], "y": [" "]}, "y of silo 'a' is empty in row 0"),
    "a text as label": ("npz", {"x": [[1.0]], "y": ["x" * 300]}, "300 characters in row 0"),
    "no label column": ("csv", b"age,labels\n1,2\n", "no label column 'label' .did you mean 'labels'.*'age', 'labels'"),
    "semicolons": ("csv", b"age;label\n1;2\n", "expected commas between cells"),
    "ragged row": ("csv", b"age,label\n1,2\n\n1,2,3\n", "line 4 has 3 cells; expected 2"),
    "ragged after a long cell": ("csv", b'age,label\n"a\nb",2\n1\n', "line 4 has 1 cell; expected 2"),
    "word among numbers": ("csv", b"age,label\n1,0\nn/a,1\n", "line 3, column 'age' is 'n/a', which is not a number"),
    "empty cell": ("csv", b"age,label\n1,0\n,1\n", "line 3, column 'age' is empty"),
    "empty word": ("csv", b"sex,label\nF,0\n ,1\n", "line 3, column 'sex' is empty"),
    "nan cell": ("csv", b"age,label\nNaN,0\n", "line 2, column 'age' is 'NaN'"),
    "inf cell": ("csv", b"age,label\n1,0\n-inf,0\n", "line 3, column 'age' is '-inf'"),
    "overflowing cell": ("csv", b"age,label\n1e999,0\n", "line 2, column 'age' is '1e999'"),
    "overflowing whole number": ("csv", b"age,label\n" + b"9" * 400 + b",0\n", "line 2, column 'age' is '9+"),
    "missing label": ("csv", b"age,label\n1,\n", "line 2, column 'label' is empty; expected a label"),
    "nan label": ("csv", b"age,label\n1,nan\n", "line 2, column 'label' is 'nan'"),
    "free text": ("csv", b"note,label\n" + b"x" * 201 + b",1\n", "text of 201 characters.*drop the column"),
    "long label": ("csv", b"age,label\n1," + b"x" * 201 + b"\n", "line 2, column 'label' has 201 characters"),
    "empty csv": ("csv", b"", "the file is empty"),
    "blank csv": ("csv", b"\n\n", "the file is empty"),
    "header only": ("csv", b"age,label\n", "a header but there are no rows"),
    "labels only": ("csv", b"label\n1\n", "the only column is 'label'"),
    "rubbish": ("csv", bytes(range(256)) * 4, "expected text, in utf-8|not text in utf-8"),
    "latin-1": ("csv", "größe,label\n1,2\n".encode("latin-1"), "not text in utf-8"),
    "utf-16": ("csv", "age,label\n1,2\n".encode("utf-16"), "not text in utf-8"),
    "zero byte": ("csv", b"age,label\n1,\x002\n", "line 2 has a zero byte"),
    "open quote": ("csv", b'age,label\n"1,2\n3,4\n', "line 2 is not csv .unexpected end of data"),
    "huge cell": ("csv", b"age,label\n" + b"x" * 200_000 + b",1\n", "line 2 is not csv .field larger"),
    "column twice": ("csv", b"age,age,label\n1,2,3\n", "column 'age' appears twice"),
    "column without a name": ("csv", b",age,label\n0,1,2\n", "column 1 has no name.*index=False"),
    "long column": ("csv", b"x" * 500 + b",label\n1,2\n", "column 1 has 500 characters"),
}


def one_line(raised):
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 1200
    return str(raised.value)


@pytest.mark.parametrize(("kind", "content", "message"), ONE_FILE.values(), ids=ONE_FILE.keys())
def test_bad_files_are_refused_by_name(tmp_path, kind, content, message):
    path = tmp_path / f"a.{kind}"
    path.write_bytes(npz_bytes(**content) if isinstance(content, dict) else content)
    with pytest.raises(ValueError, match=message) as raised:
        read_silos(tmp_path)
    assert one_line(raised).startswith(str(path))


def table(text):
    return lambda path: write(path, text)


def arrays(x, y):
    return lambda path: save(path, x, y)


FOLDERS = {
    "no silos": ({".git": table("")}, "there are no silos in"),
    "foreign file": (
        {"a.csv": table("u,label\n1,2\n"), "notes.txt": table("")},
        "'notes.txt' in .* is not a silo's file",
    ),
    "foreign file in a silo": ({"a/x.csv": table("u,label\n1,2\n"), "a/b.xlsx": table("")}, "'b.xlsx' in .*a is not"),
    "folder in a silo": ({"a/b/x.csv": table("u,label\n1,2\n")}, "'b' in .*a is not a silo's file"),
    "empty silo": ({"a/.keep": table("")}, "is an empty folder"),
    "two kinds in a silo": ({"a/x.csv": table("u,label\n1,2\n"), "a/x.npz": arrays([[1]], [1])}, "files of one kind"),
    "a silo twice": ({"a.csv": table("u,label\n1,2\n"), "a.npz": arrays([[1]], [1])}, "silo 'a' appears twice"),
    "parts of other columns": (
        {"a/1.csv": table("u,label\n1,2\n"), "a/2.csv": table("v,label\n1,2\n")},
        "2.csv doesn't fit '1.csv'.*column 'u' is missing and column 'v' is not expected",
    ),
    "parts with words and numbers": (
        {"a/1.csv": table("u,label\n1,2\n"), "a/2.csv": table("u,label\nF,2\n")},
        "columns with words in one and numbers in the other: 'u'",
    ),
    "parts of other shapes": (
        {"a/1.npz": arrays([[1.0]], [1]), "a/2.npz": arrays([[1.0, 2.0]], [1])},
        r"shape \(2,\) and not \(1,\)",
    ),
    "parts of bytes and numbers": (
        {"a/1.npz": arrays([[1.0]], [1]), "a/2.npz": arrays(np.ones((1, 1), np.uint8), [1])},
        "type uint8 and not float64",
    ),
}


@pytest.mark.parametrize(("files", "message"), FOLDERS.values(), ids=FOLDERS.keys())
def test_bad_folders_are_refused(tmp_path, files, message):
    for name, make in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        make(tmp_path / name)
    with pytest.raises(ValueError, match=message) as raised:
        read_silos(tmp_path)
    one_line(raised)


def test_bad_paths_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"there is no folder .*nowhere") as raised:
        read_silos(tmp_path / "nowhere")
    one_line(raised)
    path = write(tmp_path / "a.csv", "u,label\n1,2\n")
    with pytest.raises(ValueError, match="a file alone is not a federation") as raised:
        read_silos(path)
    one_line(raised)
    with pytest.raises(ValueError, match="there is no silo") as raised:
        read_silo(tmp_path / "b.csv")
    one_line(raised)
    with pytest.raises(ValueError, match="is not a silo's file"):
        read_silo(write(tmp_path / "b.txt", ""))
    (tmp_path / "b.txt").unlink()
    (tmp_path / "c.csv").symlink_to(tmp_path / "gone.csv")
    with pytest.raises(ValueError, match=r"'c.csv' in .* is not a silo's file"):
        read_silos(tmp_path)
    with pytest.raises(ValueError, match="can't be read: No such file"):
        read_schema(tmp_path / "schema.json")
    with pytest.raises(ValueError, match="can't be written: No such file"):
        write_schema(tmp_path / "no" / "schema.json", table_schema())
    (tmp_path / "schema.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not text in utf-8"):
        read_schema(tmp_path / "schema.json")
    write(tmp_path / "schema.json", "[]")
    with pytest.raises(ValueError, match=r"schema.json: the schema is \[\]; expected a JSON object"):
        read_schema(tmp_path / "schema.json")
    for odd in ("a\nb", "a" * 5000, "a\0"):
        with pytest.raises(ValueError, match="there is no folder"):
            read_silos(tmp_path / odd)
    with pytest.raises(ValueError, match="there is no folder") as raised:
        read_silos(tmp_path / "a\nb")
    one_line(raised)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every file")
@pytest.mark.parametrize("name", ["a.csv", "a.npz"])
def test_unreadable_files_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(GOOD)
    (tmp_path / name).chmod(0)
    with pytest.raises(ValueError, match="can't be read: Permission denied") as raised:
        read_silos(tmp_path)
    one_line(raised)


A = silo([[1.0], [2.0]], [0, 1], "a", ("u",))
W = silo(np.zeros((2, 1)), [0, 1], "w", ("u", "sex"), sex=["F", "M"])
PLAIN = silo(np.zeros((2, 3)), [0, 1])
DISAGREEING = {
    "none": ([], "there are no silos"),
    "shapes": (
        [PLAIN, silo(np.zeros((2, 4)), [0, 1], "b")],
        r"silo 'b' doesn't fit silo 'a'.*shape \(4,\), expected \(3,\)",
    ),
    "bytes": (
        [PLAIN, silo(np.zeros((2, 3), np.uint8), [0, 1], "b")],
        r"x holds bytes \(uint8\), expected other numbers",
    ),
    "numbers": ([silo(np.zeros((2, 3), np.uint8), [0, 1]), silo(PLAIN.x, [0, 1], "b")], "expected bytes"),
    "table and arrays": ([A, silo([[1.0]], [1], "b")], r"it has arrays \(npz\), expected a table \(csv\)"),
    "arrays and table": ([PLAIN, silo([[1.0]], [1], "b", ("u",))], r"it has a table \(csv\), expected arrays"),
    "column lacks": ([W, silo([[1.0]], [1], "b", ("u",))], "silo 'b' .* column 'sex' is missing; expected"),
    "column more": (
        [A, silo([[1.0, 2.0]], [1], "b", ("u", "v"))],
        "silo 'b' doesn't fit silo 'a': column 'v' is not expected; expected",
    ),
    "words, not numbers": (
        [A, silo(np.empty((1, 0)), [1], "b", ("u",), u=["F"])],
        "column 'u' has words, expected numbers",
    ),
    "one class over all": (
        [silo([[1.0]], [3], "a"), silo([[1.0]], ["3"], "b")],
        "all rows of all silos have the label '3'",
    ),
    "too large": ([silo([[1e200], [-1e200]], [0, 1], "a", ("u",))], "column 'u' of silo 'a' has numbers too large"),
    "too large together": ([silo([[1.7e308]], [0]), silo([[-1.7e308]], [1], "b")], "x has numbers too large to scale"),
}


@pytest.mark.parametrize(("silos", "message"), DISAGREEING.values(), ids=DISAGREEING.keys())
def test_silos_that_do_not_fit_are_refused(silos, message):
    with pytest.raises(ValueError, match=message) as raised:
        make_schema(silos)
    one_line(raised)


def test_bad_tasks_are_refused():
    with pytest.raises(ValueError, match=r"unknown task 'regresion' .did you mean 'regression'"):
        make_schema([A], "regresion")
    with pytest.raises(ValueError, match="y of silo 'a' has the word 'u'; expected numbers for regression"):
        make_schema([silo([[1.0]], ["u"])], "regression")
    with pytest.raises(ValueError, match="there are no schemas"):
        merge_schemas([])
    whole, halves = make_schema([silo([[1.0]], [1])]), make_schema([silo([[1.0]], [0.5])])
    with pytest.raises(ValueError, match="task of hill is regression and that of vale is classification"):
        merge_schemas([whole, halves], ["vale", "hill"])
    with pytest.raises(ValueError, match="got 1 names for 2 schemas"):
        merge_schemas([whole, halves], ["vale"])
    with pytest.raises(ValueError, match="schema 2 doesn't fit schema 1: it has samples of shape"):
        merge_schemas([whole, make_schema([PLAIN])])
    with pytest.raises(ValueError, match="all rows of all silos have the label '1'"):
        merge_schemas([whole, whole])


NOT_FITTING = {
    "label": (A, silo([[1.0], [1.0]], [1, 7], "b", ("u",)), "silo 'b' has labels '7', unknown .*expected '0', '1'"),
    "word as label": (A, silo([[1.0]], ["ill"], "b", ("u",)), "silo 'b' has labels 'ill'"),
    "category": (W, silo([[1.0]], [0], "b", ("u", "sex"), sex=["D"]), "column 'sex' of silo 'b' has 'D', .*'F', 'M'"),
    "column": (W, silo([[1.0]], [0], "b", ("u",)), "silo 'b' doesn't fit the schema: column 'sex' is missing"),
    "shape": (PLAIN, silo([[1.0]], [0], "b"), r"shape \(1,\), expected \(3,\)"),
    "units": (A, silo([[1e200]], [0], "b", ("u",)), "x of silo 'b' has numbers too far"),
    "target": (silo([[1.0]], [0.5]), silo([[1.0]], [1e300], "b"), "y of silo 'b' has numbers too far"),
    "word for a number": (silo([[1.0]], [0.5]), silo([[1.0]], ["u"], "b"), "has the word 'u'; expected numbers"),
}


@pytest.mark.parametrize(("known", "other", "message"), NOT_FITTING.values(), ids=NOT_FITTING.keys())
def test_rows_that_do_not_fit_a_schema_are_refused(known, other, message):
    with pytest.raises(ValueError, match=message) as raised:
        apply_schema(make_schema([known]), other)
    one_line(raised)


BAD_JSON = {
    "nothing": ("", "the schema is not JSON"),
    "cut": (schema_to_json(table_schema())[:50], "the schema is not JSON"),
    "list": ("[1]", "expected a JSON object"),
    "nested": ("[" * 100_000, "nested too deeply"),
    "NaN": ('{"shift": [NaN]}', "NaN is not a number"),
    "key twice": ('{"task": 1, "task": 2}', "a field appears twice"),
    "long number": ('{"count": ' + "9" * 5000 + "}", "the schema is not JSON"),
}
BAD_VALUES = [
    ({"more": 1}, "field 'more' is unknown; expected 'task', 'columns'"),
    ({"labels": ...}, "field 'labels' is missing; expected a list of texts"),
    ({"version": 2, "more": 1}, "field 'version' is 2; expected 1: update"),
    ({"version": True}, "field 'version' is True; expected a whole number"),
    ({"task": "guess"}, "field 'task' is 'guess'; expected classification or regression"),
    ({"task": ["regression"]}, r"field 'task' is \['regression'\]; expected classification or regression"),
    ({"task": "regression"}, "expected labels for classification alone"),
    ({"labels": None}, "expected labels for classification alone"),
    ({"labels": "ab"}, "field 'labels' is 'ab'; expected a list of texts"),
    ({"labels": []}, r"field 'labels' is \[\]; .*at least one"),
    ({"labels": [0, 1]}, r"field 'labels\[0\]' is 0; expected a list of texts"),
    ({"labels": ["a", "a"]}, "have 'a' twice"),
    ({"labels": ["a", ""]}, "1 to 200 characters"),
    ({"labels": ["a", "\ud800"]}, "1 to 200 characters"),
    ({"columns": None}, "categories of the schema name 'sex'"),
    ({"columns": ["v", "sex"]}, "input_shape of the schema is .4,.; expected .3,."),
    ({"columns": 7}, "field 'columns' is 7; expected a list of texts"),
    ({"categories": []}, r"field 'categories' is \[\]; expected an object"),
    ({"categories": {"age": ["F"]}}, "categories of the schema name 'age'"),
    ({"categories": {"sex": "FM"}}, r"categories\['sex'\].* is 'FM'; .*list of texts"),
    ({"categories": {"sex": [["F"]]}}, r"categories\['sex'\]\[0\].* is \['F'\]; .*list of texts"),
    ({"input_shape": [4.0]}, r"'input_shape\[0\]' is 4.0; expected a list of whole numbers of 1 or more"),
    ({"input_shape": []}, "expected a list of whole numbers of 1 or more, at least one"),
    ({"input_shape": [True]}, "is True; expected a list of whole numbers of 1 or more"),
    ({"shift": [0.0]}, "shift of the schema is .*expected 4 numbers"),
    ({"shift": ["0", 0, 0, 0]}, r"field 'shift\[0\]' is '0'; expected a list of finite numbers"),
    ({"shift": [10**400, 0, 0, 0]}, "expected a list of finite numbers"),
    ({"shift": 1.0}, "expected a list"),
    ({"shift": None}, "expected a list"),
    ({"spread": [-1, 1, 1, 1]}, r"field 'spread\[0\]' is -1; expected a list of finite numbers of 0 or more"),
    ({"spread": [1, 2, 1, 1]}, "words are not scaled"),
    ({"target_shift": "0"}, "field 'target_shift' is '0'; expected a finite number"),
    ({"target_spread": 2.0}, "classes are not scaled"),
    ({"pictures": 1}, "field 'pictures' is 1; expected true or false"),
    ({"pictures": True}, "has columns; expected one or the other"),
    ({"count": 0}, "field 'count' is 0; expected a whole number of 1 or more"),
    ({"count": 1.5}, "field 'count' is 1.5; expected a whole number of 1 or more"),
]


@pytest.mark.parametrize(("text", "message"), BAD_JSON.values(), ids=BAD_JSON.keys())
def test_bad_json_is_refused(text, message):
    with pytest.raises(ValueError, match=message) as raised:
        schema_from_json(text)
    one_line(raised)


@pytest.mark.parametrize(("changes", "message"), BAD_VALUES)
def test_bad_schemas_are_refused(changes, message):
    values = json.loads(schema_to_json(table_schema())) | changes
    with pytest.raises(ValueError, match=message) as raised:
        schema_from_json(json.dumps({key: value for key, value in values.items() if value is not ...}))
    assert ("fedamp data schema" in one_line(raised)) != ("update fedamp" in one_line(raised))


def test_pictures_have_one_scale():
    schema = make_schema([silo(np.zeros((2, 3), np.uint8), [0, 1])])
    with pytest.raises(ValueError, match="expected 0 and 255 for pictures"):
        replace(schema, spread=(1.0,))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"words": {"u": np.array(["F", "M"])}}, "has words but no columns"),
        ({"columns": ("u", "u")}, "expected each name once"),
        ({"columns": ("u", "v", "w")}, "expected one number per row"),
        ({"columns": ("u", "v", "w"), "words": {"w": np.array(["F"])}}, "expected words for each of 2 rows"),
    ],
)
def test_silos_made_by_hand_are_checked_too(values, message):
    with pytest.raises(ValueError, match=message) as raised:
        RawSilo("a", np.zeros((2, 2)), np.array([0, 1]), **values)
    one_line(raised)


# Anything at all -------------------------------------------------------------------------------------------------

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@contextlib.contextmanager
def refusals():
    refused = ""
    try:
        yield
    except ValueError as error:
        refused = str(error)
    assert "\n" not in refused


def read_and_agree(path: Path) -> None:
    """Read and apply; nothing but a ValueError of one line may come of it."""
    with refusals():
        read = read_silo(path)
        schema = make_schema([read])
        x, y = apply_schema(schema, read)
        assert schema_from_json(schema_to_json(schema)) == schema
        assert x.isfinite().all()
        assert len(x) == len(y) == len(read)


cells = st.sampled_from(["1", "-2.5", "1e308", "nan", "", "F", "1_0", '"', '"a,b"', "\0", "é", " ", "\u2028", "٣"])
csv_texts = st.lists(st.lists(cells, min_size=1, max_size=3).map(",".join), max_size=5).map(
    lambda lines: "\n".join(["u,v,label", *lines]).encode()
)


@FUZZ
@given(content=st.binary(max_size=300) | st.text().map(str.encode) | csv_texts)
def test_any_bytes_as_csv(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    read_and_agree(tmp_path / "a.csv")


SMALL = npz_bytes(x=np.array([[1.0, 2.0], [3.0, 5.0]]), y=np.array(["a", "b"]))


@st.composite
def damaged(draw):
    """A good npz file with some bytes changed, perhaps cut."""
    content = bytearray(SMALL)
    for _ in range(draw(st.integers(1, 4))):
        content[draw(st.integers(0, len(SMALL) - 1))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.just(len(SMALL)) | st.integers(0, len(SMALL)))])


@FUZZ
@given(content=st.binary(max_size=300) | st.binary(max_size=100).map(lambda end: b"PK\x03\x04" + end) | damaged())
def test_any_bytes_as_npz(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    read_and_agree(tmp_path / "a.npz")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@FUZZ
@given(content=st.binary(max_size=100) | json_values.map(json.dumps).map(str.encode))
def test_any_bytes_as_schema(tmp_path, content):
    (tmp_path / "schema.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"schema\.json") as raised:
        read_schema(tmp_path / "schema.json")
    one_line(raised)


@FUZZ
@given(st.dictionaries(st.sampled_from([*Schema.__dataclass_fields__]), json_values, min_size=1, max_size=3))
def test_any_values_in_a_schema(changes):
    values = json.loads(schema_to_json(table_schema())) | changes
    with refusals():
        schema = schema_from_json(json.dumps(values))
        assert schema_from_json(schema_to_json(schema)) == schema
