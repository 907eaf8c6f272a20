"""Missing cells and dates under a schema: what fills them, that it merges as one schema of all rows, and digests."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from silo_files import one_line, silo, table_schema

from fedamp.config import RunConfig
from fedamp.data.silos.leaving import described, listing
from fedamp.data.silos.raw import RawSilo
from fedamp.data.silos.read import read_silo
from fedamp.data.silos.row_digests import row_digests
from fedamp.data.silos.schema import apply_schema, make_schema, merge_schemas, schema_notes
from fedamp.data.silos.schema.differences import schema_differences
from fedamp.data.silos.schema.missing import with_kinds_of
from fedamp.data.silos.schema_file import schema_from_json, schema_to_json
from fedamp.data.silos.warnings import schema_warnings, silo_warnings
from fedamp.runs.in_use.export import how_to_encode
from fedamp.runs.material import load_material

NAN = np.nan
COLUMNS = ("age", "sex", "seen")


def table(age, sex, seen, name="a", y=None, dates=("seen",)):
    """A silo with numbers, words and dates; None is a missing cell."""
    x = np.array([age, seen], dtype=float).T
    words = {"sex": np.array([word or "" for word in sex])}
    return RawSilo(name, x, np.array(range(len(age)) if y is None else y), COLUMNS, words, "y", (), dates)


A = table([1.0, NAN, 5.0], ["F", "M", None], [0.0, 10.0, NAN], "a")
B = table([NAN, 9.0], ["M", "F"], [20.0, 30.0], "b", [0, 1])


def fill(*silos, **more):
    return make_schema(silos, "classification", missing="fill", **more)


def test_filled_by_hand():
    schema = fill(A, B, indicate=True)
    assert schema.features == ("age", "age is missing", "sex=F", "sex=M", "sex is missing", "seen", "seen is missing")
    assert schema.missing_cells == {"age": 2, "sex": 1, "seen": 1}
    assert schema.word_counts == {"sex": (2, 2)}
    assert schema.fills == {"age": 5.0, "sex": "F", "seen": 15.0}  # of two words with as many rows, the first
    assert schema.dates == ("seen",)
    age, seen = np.std([1, 5, 9]), np.std([0, 10, 20, 30])
    np.testing.assert_allclose(
        apply_schema(schema, A)[0],
        [
            [-4 / age, 0, 1, 0, 0, -15 / seen, 0],
            [0, 1, 0, 1, 0, -5 / seen, 0],
            [0, 0, 1, 0, 1, 0, 1],
        ],
        rtol=1e-6,
    )


def test_what_follows_from_a_schema_is_worked_out_once():
    """Each is asked for by column: worked out anew, a wide table would take the cube of its columns."""
    schema = fill(A, B, indicate=True)
    for name in ("inputs", "indicated", "unknown", "fills"):
        assert getattr(schema, name) is getattr(schema, name), name


def test_a_silo_without_missing_cells_gets_the_same_inputs():
    whole = table([1.0, 2.0], ["F", "F"], [0.0, 1.0], "whole", [0, 1])
    schema = fill(A, whole, indicate=True)
    x, _ = apply_schema(schema, whole)
    assert x.shape == apply_schema(schema, A)[0][:2].shape
    assert not x[:, [schema.features.index(f"{column} is missing") for column in COLUMNS]].any()
    assert fill(whole, indicate=True).features == ("age", "sex=F", "seen")


def test_the_most_frequent_word_is_that_of_all_silos():
    # In each of two silos another word leads; over all rows it is the third.
    a = table([0.0] * 5, ["F", "F", "F", "X", "X"], [0.0] * 5, "a")
    b = table([0.0] * 5, ["M", "M", "M", "X", "X"], [0.0] * 5, "b")
    assert fill(a, b).fills["sex"] == "X"
    assert merge_schemas([fill(a), fill(b)]).fills["sex"] == "X"


cells = st.none() | st.floats(-1e6, 1e6) | st.integers(-5, 5).map(float)
words = st.none() | st.sampled_from(["F", "M", "X", "Ä"])
labels = st.integers(0, 2)


def of_rows(rows, name):
    age, sex, seen, y = zip(*rows, strict=True)
    numbers = [[NAN if cell is None else cell for cell in column] for column in (age, seen)]
    return table(numbers[0], sex, numbers[1], name, y)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.tuples(cells, words, cells, labels), min_size=1, max_size=6), min_size=2, max_size=4),
    st.booleans(),
)
def test_merging_gives_what_all_rows_give(silos, indicate):
    # A row of each class and with all cells: what no silo has at all is refused, see below.
    silos[0] += [(1.0, "F", 2.0, 0), (1.0, "F", 3.0, 1)]
    parts = [of_rows(rows, f"silo {place}") for place, rows in enumerate(silos)]
    together = fill(of_rows([row for rows in silos for row in rows], "all"), indicate=indicate)
    partial = [schema_from_json(schema_to_json(fill(part, indicate=indicate))) for part in parts]
    for merged in (merge_schemas(partial), merge_schemas(partial[::-1]), fill(*parts, indicate=indicate)):
        exact = ("features", "categories", "word_counts", "missing_cells", "count", "labels", "dates", "version")
        for name in exact:
            assert getattr(merged, name) == getattr(together, name), name
        assert merged.fills["sex"] == together.fills["sex"]
        for name in ("shift", "spread"):
            np.testing.assert_allclose(getattr(merged, name), getattr(together, name), rtol=1e-9, atol=1e-3)
    # The same in a simulation, which has all silos, and in a federation, which merges files: to the last bit.
    assert merge_schemas(partial) == fill(*parts, indicate=indicate)
    for part in parts:
        x, _ = apply_schema(together, part)
        assert x.isfinite().all()


def test_a_column_that_a_silo_lacks_takes_the_agreed_kind():
    empty = [NAN, NAN]
    for b in (table(empty, ["", ""], empty, "b", [0, 1], ()), table(empty, ["", ""], empty, "b", [0, 1])):
        for schema in (fill(A, b), fill(b, A), merge_schemas([fill(b), fill(A)])):
            assert schema.fills == {"age": 3.0, "sex": "F", "seen": 5.0}
            assert schema.dates == ("seen",)
            np.testing.assert_allclose(apply_schema(schema, b)[0], [[0, 1, 0, 0]] * 2)


def test_a_column_without_a_cell_may_come_as_numbers_or_as_words():
    numbers = RawSilo("b", np.full((2, 3), NAN), np.array([0, 1]), COLUMNS, {}, "y")
    wordy = RawSilo("b", np.empty((2, 0)), np.array([0, 1]), COLUMNS, {c: np.array(["", ""]) for c in COLUMNS}, "y")
    assert fill(A, numbers) == fill(A, wordy) == fill(A, table([NAN] * 2, ["", ""], [NAN] * 2, y=[0, 1]))
    schema = fill(A, numbers)
    for each in (numbers, wordy):
        np.testing.assert_array_equal(apply_schema(schema, each)[0], [[0, 1, 0, 0]] * 2)
        assert with_kinds_of(schema, each).numeric == ("age", "seen")
    assert row_digests(with_kinds_of(schema, numbers)) == row_digests(with_kinds_of(schema, wordy))


def test_digests_depend_neither_on_the_fill_nor_on_the_rest_of_the_file():
    schemas = fill(A, B), fill(A, table([100.0], ["M"], [0.0], "c", [1]))
    assert schemas[0].fills != schemas[1].fills
    whole = [row_digests(with_kinds_of(schema, A)) for schema in schemas]
    assert whole[0] == whole[1]
    # The last row alone has no known word, and its file none at all.
    last = table([5.0], [None], [NAN], "a", [1])
    alone = replace(last, x=np.array([[5.0, NAN, NAN]]), words={}, dates=())
    for each in (last, alone):
        assert row_digests(with_kinds_of(schemas[0], each)) == whole[0][2:]
    other = np.array([[5.0, np.frombuffer(b"\x01\0\0\0\0\0\xf8\xff", "<f8")[0]]])  # nan, written in other bits
    assert row_digests(replace(last, x=other)) == whole[0][2:]
    assert len({*whole[0]}) == 3


def test_a_row_stays_on_its_side_when_its_file_gets_its_first_word(tmp_path):
    columns, rows = "age,sex,y", [f"{age},,{age % 2}" for age in range(40, 80)]
    (tmp_path / "a.csv").write_text("\n".join([columns, "1,F,0", "2,M,1"]))
    digests = []
    for more in ([], ["99,F,1"]):
        (tmp_path / "b.csv").write_text("\n".join([columns, *rows, *more]))
        clients = load_material(RunConfig(data=str(tmp_path), label="y", missing="fill")).clients
        digests.append(clients.digests[2 : 2 + len(rows)])
    assert digests[0] == digests[1]


def test_newcomers_do_not_enter_the_schema():
    schema = fill(A, B)
    newcomer = table([1000.0, NAN], ["M", "M"], [NAN, 99.0], "new", [0, 1])
    before = schema_to_json(schema)
    x, _ = apply_schema(schema, newcomer)
    assert schema_to_json(schema) == before
    assert x[1, 0] == 0  # the members' mean, not its own


def test_a_schema_without_missing_cells_and_dates_is_the_file_it_was():
    text = schema_to_json(table_schema())
    assert '"version": 1' in text
    assert not [name for name in ("dates", "missing", "indicate", "word_counts") if name in text]
    assert schema_from_json(text) == table_schema()


@pytest.mark.parametrize("missing", ["fill", "drop"])
def test_a_schema_of_the_new_kind_is_read_again_and_marked(missing):
    whole = table([1.0, 2.0], ["F", "M"], [0.0, 1.0], dates=())
    for schema in (make_schema([whole], missing=missing), make_schema([replace(whole, dates=("age",))])):
        assert schema.version == 2  # which an earlier version refuses: "expected 1: update fedamp"
        assert schema_from_json(schema_to_json(schema)) == schema


def test_dates_beyond_what_nanoseconds_hold():
    late = table([0.0, 1.0], ["F", "M"], [200_000.0, 200_010.0])
    assert "mean 2517-08-06" in "\n".join(listing(fill(late)))
    assert "1e+10 days after" in "\n".join(listing(fill(table([0.0], ["F"], [9999999999.0]))))


def test_what_the_owner_is_shown_before_a_schema_leaves():
    lines = "\n".join(listing(fill(A, B)))
    assert "'F' (2 rows), 'M' (2 rows); missing in 1 row" in lines
    assert "a date; mean 1970-01-16" in lines
    whole = replace(B, x=np.ones((2, 2)))
    assert "rows)" not in "\n".join(listing(make_schema([whole], "classification")))
    assert schema_notes(fill(A, B, indicate=True))[1:4] == [
        "column 'age': 40 % missing, filled with 5, with an input that says so",
        "column 'sex': 20 % missing, filled with 'F', with an input that says so",
        "column 'seen': 20 % missing, filled with 1970-01-16, with an input that says so",
    ]


def test_few_known_numbers_do_not_leave():
    many = table([1.0, 2.0] + [NAN] * 8, ["F"] * 10, [0.5 * i for i in range(10)], y=[0, 1] * 5)
    with pytest.raises(ValueError, match=r"fewer than 5 rows have a number in 'age'.*--drop age") as raised:
        described([many], "classification", 5, (), (), "fill")
    one_line(raised)
    assert described([many], "classification", 2, (), (), "fill").fills["age"] == 1.5


def test_rare_words_stay_at_home_with_their_counts():
    some = table([0.5 * i for i in range(10)], ["F"] * 6 + ["X", "M", "M", None], [0.5] * 10, y=[0, 1] * 5)
    schema = described([some], "classification", 5, (), (), "fill")
    assert schema.word_counts == {"sex": (6,)}
    assert schema.others == ("sex",)
    x, _ = apply_schema(schema, some)
    assert x[:, schema.features.index("sex=F")].tolist() == [1] * 6 + [0] * 3 + [1]


def test_the_export_says_what_fills():
    how = how_to_encode(fill(A, B, indicate=True))
    assert how["fill"] == {"age": 5.0, "sex": "F", "seen": 15.0}
    assert how["indicators"]["sex is missing"] == "sex"
    assert how["dates"] == ["seen"]
    assert not {"fill", "indicators", "dates"} & set(how_to_encode(table_schema()))


def test_a_silo_whose_cells_are_all_filled_is_named():
    empty = table([NAN] * 2, ["F", "M"], [1.0, 2.0], "b", [0, 1])
    lines = silo_warnings([A, empty], fill(A, empty), "classification")
    assert "column 'age' has no cell in 'b': all of its rows are filled with 3; look at the file" in lines
    lacks = table([1.0] * 2, ["", ""], [1.0, 2.0], "b", [0, 1])
    assert schema_warnings([fill(lacks), fill(A)], ["b", "a"], "classification") == []


def test_differences_between_schemas_in_words():
    lines = "; ".join(schema_differences(fill(A), fill(table([1.0, 2.0, 5.0], "FFM", [0.0, 10.0, 20.0]))))
    assert "'age' is missing in 1 rows of the first and 0 of the second" in lines
    assert "how often words of 'sex' occur differs: 'F'" in lines
    plain = silo([[1.0]], [0], "p", ("u",))
    assert schema_differences(make_schema([plain]), make_schema([replace(plain, dates=("u",))])) == [
        "version is 1 in the first and 2 in the second",
        "dates only in the second: 'u'",
    ]


def test_of_many_columns_a_note_says_how_many_cells_they_lack(tmp_path):
    columns = [f"c{i}" for i in range(6)]
    rows = [",".join("" if (row + i) % 4 == 0 and i else str(row * i + row) for i in range(6)) for row in range(8)]
    (tmp_path / "a.csv").write_text(
        "\n".join([",".join([*columns, "y"]), *(f"{row},{i % 2}" for i, row in enumerate(rows))])
    )
    silo = read_silo(tmp_path / "a.csv", "y", missing="keep")
    (note,) = schema_notes(make_schema([silo], missing="fill", indicate=True))
    assert note.startswith("5 columns lack 25 to 25 % of their cells, filled with the mean or the most frequent word")
    assert "each with an input that says so: 'c1', 'c2', 'c3', 'c4'" in note
