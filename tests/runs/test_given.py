"""What people hand over from Python: tables as their csv files would be, data sets, names, words as classes."""

import functools

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

import fedamp
from fedamp.data.silos.schema_file import write_schema
from fedamp.errors import UserError

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
datasets = pytest.importorskip("datasets")

QUICK = {"model": "logistic", "method": "fedamp", "rounds": 2, "steps": 3}
TABLES = {"label": "died", "missing": "fill"}
ROWS = 40


def table(seed: int, rows: int = ROWS):
    """Numbers, words, dates and missing cells, as a hospital has them."""
    rng = np.random.default_rng(seed)
    days = pd.to_timedelta(rng.integers(0, 999, rows), "D")
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 90, rows),
            "pressure": rng.normal(120, 10, rows).round(2),
            "sex": rng.choice(["F", "M"], rows),
            "since": pd.to_datetime("2020-01-01") + days,
            "died": rng.integers(0, 2, rows),
        }
    )
    frame.loc[3, "pressure"] = np.nan
    frame.loc[5, "sex"] = None
    return frame


A, B = table(0), table(1)


def assert_same(result, expected):
    assert result.summary == expected.summary
    assert torch.equal(result.models["own"].params, expected.models["own"].params)
    assert result.schema == expected.schema


@pytest.fixture(scope="module")
def from_csv(tmp_path_factory):
    """The run on a folder of the same tables as csv files."""
    folder = tmp_path_factory.mktemp("silos")
    for name, frame in (("a", A), ("b", B)):
        frame.to_csv(folder / f"{name}.csv", index=False, date_format="%Y-%m-%d")
    return fedamp.run(data=f"{folder}/", **TABLES, **QUICK)


def polars(frame):
    return pytest.importorskip("polars").from_pandas(frame)


def hugging_face(frame):
    return pytest.importorskip("datasets").Dataset.from_pandas(frame)


KINDS = {
    "pandas": lambda frame: frame,
    "pandas with an index": lambda frame: frame.set_index(np.arange(ROWS) * 2),
    "pandas with categories": lambda frame: frame.astype({"sex": "category"}),
    "polars": polars,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "Hugging Face": hugging_face,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_what_its_csv_file_is(from_csv, kind):
    result = fedamp.run(clients={"a": KINDS[kind](A), "b": KINDS[kind](B)}, **TABLES, **QUICK)
    assert_same(result, from_csv)
    assert result.facts.names == ["a", "b"]


def test_one_table_with_the_rows_of_all(from_csv):
    both = pd.concat([B.assign(hospital="b"), A.assign(hospital="a")], ignore_index=True)
    result = fedamp.run(data=both, silo_column="hospital", **TABLES, **QUICK)
    assert result.facts.names == ["a", "b"]
    assert result.summary == from_csv.summary


def test_one_table_under_the_schema_that_it_gave(tmp_path):
    both = pd.concat([A.assign(hospital="a"), B.assign(hospital="b")], ignore_index=True)
    first = fedamp.run(data=both, silo_column="hospital", **TABLES, **QUICK)
    write_schema(tmp_path / "schema.json", first.schema)  # it leaves out the column that says whose row it is
    again = fedamp.run(data=both, silo_column="hospital", schema=tmp_path / "schema.json", label="died", **QUICK)
    assert_same(again, first)


def test_a_structured_array_is_a_table():
    rng = np.random.default_rng(0)
    rows = np.zeros(ROWS, dtype=[("age", "f8"), ("sex", "S1"), ("died", "i8")])
    rows["age"], rows["sex"], rows["died"] = rng.normal(size=ROWS), rng.choice([b"F", b"M"], ROWS), np.arange(ROWS) % 2
    frame = pd.DataFrame({"age": rows["age"], "sex": rows["sex"].astype(str), "died": rows["died"]})
    one, other = (fedamp.run(clients=[each, each], label="died", **QUICK) for each in (rows, frame))
    assert_same(one, other)


NUMBERED = {
    "tables": lambda numbers, words: ({"clients": [numbers] * 2, "label": 4}, {"clients": [words] * 2, "label": "4"}),
    "one table": lambda numbers, words: (
        {"data": numbers, "silo_column": 2, "label": np.int64(4)},
        {"data": words, "silo_column": "2", "label": "4"},
    ),
    "some columns": lambda numbers, words: (
        {"clients": [numbers] * 2, "label": "4", "columns": [0, "1"]},
        {"clients": [words] * 2, "label": "4", "columns": "0,1"},
    ),
    "without some": lambda numbers, words: (
        {"clients": [numbers] * 2, "label": 4, "drop": np.array([2, 3])},
        {"clients": [words] * 2, "label": "4", "drop": "2,3"},
    ),
}


@pytest.mark.parametrize("kind", NUMBERED)
def test_columns_that_are_numbers_are_called_by_them(kind):
    numbers = A.fillna({"sex": "F"}).set_axis(range(5), axis=1)
    given, same = NUMBERED[kind](numbers, numbers.rename(columns=str))
    result = fedamp.run(**given, missing="fill", **QUICK)
    assert_same(result, fedamp.run(**same, missing="fill", **QUICK))
    known = numbers[[int(name) for name in result.schema.columns]]
    assert result.predict(known, 0).to_dict() == result.predict(known.rename(columns=str), 0).to_dict()


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_inputs_may_be_a_table_of_numbers(library):
    build = {"pandas": pd.DataFrame, "polars": pytest.importorskip("polars").DataFrame, "pyarrow": pa.table}[library]
    given = [(build({name: A[name] + i / 2 for name in ("age", "died")}), Y) for i in range(2)]
    arrays = [(np.stack([A["age"] + i / 2, A["died"] + i / 2], 1).astype("float32"), Y) for i in range(2)]
    assert_same(fedamp.run(clients=given, **QUICK), fedamp.run(clients=arrays, **QUICK))


def test_drop_and_columns_choose_among_a_tables_columns():
    dropped = fedamp.run(clients={"a": A, "b": B}, drop="since,sex", **TABLES, **QUICK)
    chosen = fedamp.run(clients={"a": A, "b": B}, columns="age,pressure", **TABLES, **QUICK)
    assert dropped.schema.columns == chosen.schema.columns == ("age", "pressure")


X = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
Y = np.arange(ROWS) % 2


@functools.cache
def expected():
    return fedamp.run(clients=[(X, Y)] * 2, **QUICK)


class Pairs(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, place):
        return X[place], int(Y[place])


def tensors():
    return TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


def turned():
    """The rows the other way round, looked up in the other order again."""
    return Subset(TensorDataset(torch.from_numpy(X[::-1].copy()), torch.from_numpy(Y[::-1].copy())), range(ROWS)[::-1])


def arrays(kind=None):
    datasets = pytest.importorskip("datasets")
    given = datasets.Dataset.from_dict({"picture": X.tolist(), "label": Y.tolist()})
    return given.with_format(kind) if kind else given


def named_classes():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"picture": datasets.Sequence(datasets.Value("float32")), "label": datasets.ClassLabel(names=["ill", "well"])}
    )
    return datasets.Dataset.from_dict({"picture": X.tolist(), "label": Y.tolist()}, features=features)


DATASETS = {
    "TensorDataset": tensors,
    "Dataset": Pairs,
    "Subset": turned,
    "DataLoader": lambda: DataLoader(Pairs(), batch_size=7),
    "shuffling DataLoader": lambda: DataLoader(tensors(), shuffle=True),
    "Hugging Face, lists": arrays,
    "Hugging Face, torch": lambda: arrays("torch"),
    "Hugging Face, numpy": lambda: arrays("numpy"),
    "Hugging Face, classes": named_classes,
    "frame and series": lambda: (pd.DataFrame(X, columns=list("abc")), pd.Series(Y)),
}


@pytest.mark.parametrize("kind", DATASETS)
def test_data_sets_hold_the_same_samples(kind):
    result = fedamp.run(clients=[DATASETS[kind]()] * 2, **QUICK)
    assert_same(result, expected())


def test_arrays_with_a_label_need_no_schema(tmp_path):
    result = fedamp.run(clients=[arrays()] * 2, label="label", out=tmp_path, **QUICK)
    again = fedamp.load(tmp_path)
    assert again.predict(X, 0).probabilities.tolist() == result.predict(X, 0).probabilities.tolist()
    assert fedamp.join(tmp_path, (X, Y)).finished


def test_a_data_set_to_train_on_and_one_to_test_on():
    result = fedamp.run(clients=[(tensors(), tensors())] * 2, **QUICK)
    assert_same(result, fedamp.run(clients=[(X, Y, X, Y)] * 2, **QUICK))


def test_a_mapping_names_the_clients(tmp_path):
    named = {"hospital-b": (X, Y), "hospital-a": (X, Y)}
    result = fedamp.run(clients=named, out=tmp_path / "run", **QUICK)
    assert result.facts.names == ["hospital-b", "hospital-a"]
    assert_same(result, expected())
    with pytest.raises(UserError, match="another run"):
        fedamp.run(clients={"x": (X, Y), "y": (X, Y)}, out=tmp_path / "run", **QUICK)


@pytest.mark.parametrize("kind", ["list", "array", "objects", "Series"])
def test_words_are_classes(kind):
    words = ["no" if each else "yes" for each in Y]  # in the order of their names: no, yes
    given = {"list": words, "array": np.array(words), "objects": np.array(words, object), "Series": pd.Series(words)}
    result = fedamp.run(clients=[(X, given[kind])] * 2, **QUICK)
    assert result.facts.labels == ["no", "yes"]
    assert_same(result, fedamp.run(clients=[(X, 1 - Y)] * 2, **QUICK))


def test_classes_are_the_same_for_all_clients():
    first, second = np.where(Y, "b", "c"), np.where(Y, "a", "c")
    result = fedamp.run(
        clients=[
            (X, first),
            (
                X,
                second,
            ),
        ],
        **QUICK,
    )
    assert result.facts.labels == ["a", "b", "c"]
    numbers = [(X, np.where(Y, 1, 2)), (X, np.where(Y, 0, 2))]
    assert_same(result, fedamp.run(clients=numbers, **QUICK))


SAME = {
    "tables": lambda: {"clients": {"a": A, "b": B}, **TABLES},
    "one table": lambda: {"data": pd.concat([A.assign(h="a"), B.assign(h="b")]), "silo_column": "h", **TABLES},
    "data sets": lambda: {"clients": {"a": tensors(), "b": Pairs()}},
    "words": lambda: {"clients": [(X, np.where(Y, "a", "b"))] * 2},
}
OTHER = {
    "tables": lambda: {"clients": {"a": A, "b": table(7)}, **TABLES},
    "one table": lambda: {"data": pd.concat([A.assign(h="a"), B.assign(h="c")]), "silo_column": "h", **TABLES},
    "data sets": lambda: {
        "clients": {"a": tensors(), "b": TensorDataset(torch.from_numpy(X + 1), torch.from_numpy(Y))}
    },
    "words": lambda: {"clients": [(X, np.where(Y, "a", "c"))] * 2},
}


@pytest.mark.parametrize("kind", SAME)
def test_a_folder_knows_what_was_given(tmp_path, kind):
    first = fedamp.run(**SAME[kind](), out=tmp_path / "run", **QUICK)
    heard = []
    again = fedamp.run(**SAME[kind](), out=tmp_path / "run", observer=heard.append, **QUICK)
    assert heard == []
    assert again.to_dict() == first.to_dict()
    with pytest.raises(UserError, match="the data are not those that it learned from"):
        fedamp.run(**OTHER[kind](), out=tmp_path / "run", **QUICK)


class Changed(TensorDataset):
    def __getitem__(self, place):
        x, y = super().__getitem__(place)
        return -x, y


def test_a_subclass_decides_what_a_sample_is():
    given = Changed(*tensors().tensors)
    assert_same(fedamp.run(clients=[given] * 2, **QUICK), fedamp.run(clients=[(-X, Y)] * 2, **QUICK))


def part_of(**sampling):
    """Return how a loader that draws only some of the samples, say those to train on, is given with another."""
    return {"clients": [(DataLoader(tensors(), **sampling), tensors())]}


class Endless(IterableDataset):
    def __iter__(self):
        return iter(())


class Triples(Pairs):
    def __getitem__(self, place):
        return X[place], X[place], int(Y[place])


class Ragged(Pairs):
    def __getitem__(self, place):
        return X[place, : 1 + place % 2], int(Y[place])


MIXED = pd.DataFrame({"age": [1, "old"] * 5, "died": [0, 1] * 5})
LISTS = pd.DataFrame({"age": [[1], [2]] * 5, "died": [0, 1] * 5})
TWICE = pd.DataFrame([[1, 2, 0]] * 5, columns=["age", "age", "died"])
SPLITS = datasets.DatasetDict({"train": datasets.Dataset.from_pandas(A)})
SOME = SubsetRandomSampler(range(ROWS // 2))
DRAWN = "client 0 is a DataLoader with a sampler of its own.*torch.utils.data.Subset"
BAD = {
    "a sampler of some samples": (part_of(sampler=SOME), DRAWN),
    "batches of some samples": (part_of(batch_sampler=BatchSampler(SOME, 5, False)), DRAWN),
    "an own kind of batches": (part_of(batch_sampler=[[0, 1], [2, 3]]), DRAWN),
    "samples with replacement": (part_of(sampler=RandomSampler(range(ROWS), replacement=True)), DRAWN),
    "no such label": (
        {"clients": {"a": A}, "label": "dead"},
        r"a: there is no label column 'dead' \(did you mean 'died'",
    ),
    "no such number as label": ({"clients": [A.set_axis(range(5), axis=1)], "label": 7}, "no label column '7'"),
    "a label that names no column": ({"clients": [A], "label": 4.0}, "label is 4.0; expected a column's name"),
    "no label": ({"clients": [A]}, "client 0: there is no label column 'label'"),
    "missing cells": ({"clients": {"a": A, "b": B}, "label": "died"}, "a: row 4, column 'pressure' is empty"),
    "a label that is missing": ({"clients": {"a": A.assign(died=np.nan)}, **TABLES}, "a: .*column 'died' is empty"),
    "mixed cells": ({"clients": {"a": MIXED}, **TABLES}, "a: a DataFrame that can't be read as a table.*age"),
    "lists in cells": ({"clients": {"a": LISTS}, **TABLES}, "a: column 'age' has the type"),
    "a name twice": ({"clients": {"a": TWICE}, **TABLES}, "a: .*age"),
    "no rows": ({"clients": {"a": A[:0]}, **TABLES}, "a: .*no rows"),
    "only labels": ({"clients": {"a": A[["died"]]}, **TABLES}, "a: the only column is 'died'"),
    "other columns": ({"clients": {"a": A, "b": B[["age", "died"]]}, **TABLES}, "silo 'b'.*missing"),
    "numbers and words": ({"clients": {"a": A, "b": B.assign(sex=1.0)}, **TABLES}, "sex.*words"),
    "a table among pairs": ({"clients": {"a": A, "b": (X, Y)}, **TABLES}, "a is a table and b is of type tuple"),
    "one table as clients": ({"clients": A, **TABLES}, "clients is one table.*silo_column="),
    "no silo column": ({"data": A, **TABLES}, "name the column that says whose row it is"),
    "a wrong silo column": ({"data": A, "silo_column": "ward", **TABLES}, "data: there is no silo column 'ward'"),
    "a table and clients": ({"data": A, "clients": 3, "silo_column": "sex", **TABLES}, "leave clients out"),
    "an array as data": ({"data": X}, "data is a ndarray; expected"),
    "an encoding": ({"clients": {"a": A}, "encoding": "cp1252", **TABLES}, "encoding is 'cp1252'"),
    "a label of pairs": ({"clients": [(X, Y)], "label": "y"}, "label is 'y', but clients are given with their samples"),
    "columns of pairs": ({"clients": [(X, Y)], "drop": "y"}, "drop is 'y', but clients are given with their samples"),
    "no name": ({"clients": {"": (X, Y)}}, "a client is called ''"),
    "a number as name": ({"clients": {3: (X, Y)}}, "a client is called 3; expected a name"),
    "nobody": ({"clients": {}}, "there are no clients"),
    "one data set": ({"clients": Pairs()}, "clients is one Pairs"),
    "without a length": ({"clients": {"a": Endless()}}, "a is a Endless without a length"),
    "three parts": ({"clients": {"a": Triples()}}, r"sample 0 of a is .*expected a pair \(x, y\)"),
    "of two shapes": ({"clients": {"a": Ragged()}}, r"samples of a have shapes \(1,\) and \(2,\)"),
    "columns in another order": (
        {"clients": [(A[["age", "pressure"]], Y), (A[["pressure", "age"]], Y)]},
        "inputs of client 1 are not like those of client 0: they are in another order",
    ),
    "other columns in pyarrow's tables": (
        {"clients": [(pa.table({"a": X[:, 0]}), Y), (pa.table({"b": X[:, 0]}), Y)]},
        "inputs of client 1 are not like those of client 0: .*'b'",
    ),
    "all splits of a data set": ({"clients": {"a": SPLITS}, **TABLES}, "a: a DatasetDict that can't be read.*split"),
    "an encoding in numbers": ({"data": "some.csv", "silo_column": "x", "encoding": 5}, "encoding is 5; expected a te"),
    "a word that is missing": (
        {"clients": {"a": (X, ["yes"] * (ROWS - 1) + [None])}},
        "row 39 of the targets of a is None; expected a word",
    ),
    "words and numbers": (
        {"clients": {"a": (X, np.array(["yes", 1] * (ROWS // 2), object))}},
        "the targets of a have words and numbers: row 0 is 'yes' and row 1 is 1; expected words in all rows",
    ),
    "words and numbers in a list": (
        {"clients": {"a": (X, ["yes", 1] * (ROWS // 2))}},
        "the targets of a have words and numbers: row 0 is 'yes' and row 1 is 1; expected words in all rows",
    ),
    "words and fractions": ({"clients": [(X, ["yes"] * ROWS), (X, X[:, 0])]}, "client 1.*but other clients have words"),
    "amounts in words": (
        {"clients": [(X, np.where(Y, "a", "b"))], "task": "regression"},
        "task is 'regression', but the targets are words",
    ),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", BAD)
def test_what_can_not_be_used_is_one_line(kind):
    given, words = BAD[kind]
    with pytest.raises(UserError, match=words) as raised:
        fedamp.run(**{**QUICK, **given})
    assert "\n" not in str(raised.value)


def test_without_pyarrow_the_cure_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UserError, match="pip install pyarrow"):
        fedamp.run(clients={"a": A, "b": B}, **TABLES, **QUICK)
