"""What silos agree on: schemas made, merged, applied, and what is refused in one line."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from silo_files import PLAIN, A, W, one_line, silo, table_schema

from fedamp.data.silos.cells import label_name
from fedamp.data.silos.schema import apply_schema, make_schema, merge_schemas, schema_notes
from fedamp.data.silos.schema.definition import CONSTANT
from fedamp.data.silos.schema.differences import schema_differences
from fedamp.errors import UserError


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
    assert schema.scale[4] == CONSTANT
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
    assert (schema.shift, schema.spread, schema.scale) == ((0.1,), (0.0,), (CONSTANT,))
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
    assert schema_differences(c, d) == ["columns are in a different order: 'w', 'v' and 'v', 'w'"]
    e = make_schema([silo([[1.0, 1.0]], [0.5])])
    assert "one has columns and the other has none" in schema_differences(a, e)


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


def test_pictures_have_one_scale():
    schema = make_schema([silo(np.zeros((2, 3), np.uint8), [0, 1])])
    with pytest.raises(ValueError, match="expected 0 and 255 for pictures"):
        replace(schema, spread=(1.0,))


def test_words_that_name_rows_are_refused_before_they_fill_the_memory():
    rows = 40_000
    ids = silo(np.zeros((rows, 1)), np.arange(rows) % 2, columns=("age", "id"), id=[f"p{i}" for i in range(rows)])
    schema = make_schema([ids])
    with pytest.raises(UserError, match=r"column 'id' has 40000 words, .* 40001 inputs are 6 GiB; .*--drop id"):
        apply_schema(schema, ids)
