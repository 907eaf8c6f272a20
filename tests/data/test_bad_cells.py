"""Cells that can't be used, and silos that disagree about them: each is one line that says what and where."""

import json
from pathlib import Path

import numpy as np
import pytest
from silo_files import one_line

import fedamp
from fedamp.config import RunConfig
from fedamp.data.silos.leaving import described
from fedamp.data.silos.read import read_silo
from fedamp.data.silos.schema import make_schema, merge_schemas
from fedamp.data.silos.schema.missing import READING
from fedamp.data.silos.schema_file import read_schema, schema_to_json, write_schema
from fedamp.errors import UserError
from fedamp.runs.material import load_material

HEAD = "age,sex,seen,y"
WHOLE = ["41,F,2024-01-31,ill", "52,M,2024-02-01,well", "63,F,2024-03-01,ill"]


def folder_of(tmp_path, **silos):
    """Write a csv file for each silo: the usual rows, and those that a test adds or has instead."""
    folder = tmp_path / "silos"
    folder.mkdir()
    for name, rows in silos.items():
        (folder / f"{name}.csv").write_text("\n".join([HEAD, *rows]) + "\n", encoding="utf-8")
    return folder


def refused(folder, **settings):
    with pytest.raises(UserError) as raised:
        load_material(RunConfig(data=str(folder), **{"label": "y", **settings}))
    return one_line(raised)


CELLS = {
    "an empty number": (",F,2024-01-31,ill", {}, "b.csv: line 5, column 'age' is empty"),
    "an empty word": ("1,,2024-01-31,ill", {}, "b.csv: line 5, column 'sex' is empty"),
    "an empty date": ("1,F,,ill", {}, "b.csv: line 5, column 'seen' is empty"),
    "an empty label, to be filled": ("1,F,2024-01-31,", {"missing": "fill"}, "b.csv: line 5, column 'y' is empty"),
    "infinity, to be filled": ("inf,F,2024-01-31,ill", {"missing": "fill"}, "b.csv: line 5, column 'age' is 'inf'"),
    "a word among numbers": ("old,F,2024-01-31,ill", {"missing": "fill"}, "b.csv: line 5, column 'age' is 'old'"),
    "a number among words": ("1,7,2024-01-31,ill", {"missing": "fill"}, "b.csv: line 2, column 'sex' is 'F'"),
    "a word among dates": ("1,F,soon,ill", {"missing": "fill"}, "b.csv: line 5, column 'seen' is 'soon'"),
    "a day that is none": ("1,F,2023-02-29,ill", {"missing": "fill"}, "b.csv: line 5, column 'seen' is '2023-02-29'"),
    "a cell too many": ("1,F,2024-01-31,ill,7", {"missing": "drop"}, "b.csv: line 5 has 5 cells; expected 4"),
}


@pytest.mark.parametrize(("row", "settings", "message"), CELLS.values(), ids=CELLS)
def test_a_cell_that_is_refused_is_named_by_file_line_and_column(tmp_path, row, settings, message):
    folder = folder_of(tmp_path, a=WHOLE, b=[*WHOLE, row])
    assert message in refused(folder, **settings)


SILOS = {
    "a column that nobody has": (
        [f"{age},,2024-01-31,{y}" for age, y in ((1, "ill"), (2, "well"))],
        [f"{age},,2024-01-31,{y}" for age, y in ((1, "ill"), (2, "well"))],
        "no row of any silo has a cell of column 'sex'; leave it out with --drop sex",
    ),
    "dates here and words there": (
        WHOLE,
        ["1,F,early,ill"],
        "silo 'b' doesn't fit silo 'a': column 'seen' has words, expected dates; write it the same way in all silos",
    ),
    "dates here and numbers there": (WHOLE, ["1,F,45322,ill"], "column 'seen' has numbers, expected dates"),
    "numbers here and dates there": (
        WHOLE,
        ["2024-01-31,F,2024-01-31,ill"],
        "column 'age' has dates, expected numbers",
    ),
    "words here and numbers there": (WHOLE, ["1,1,2024-01-31,ill"], "column 'sex' has numbers, expected words"),
}


@pytest.mark.parametrize(("a", "b", "message"), SILOS.values(), ids=SILOS)
def test_silos_that_disagree(tmp_path, a, b, message):
    assert message in refused(folder_of(tmp_path, a=a, b=b), missing="fill")


def test_a_column_that_the_only_silo_lacks(tmp_path):
    folder = folder_of(tmp_path, a=["1,,2024-01-31,ill", "2,,2024-01-31,well"])
    assert "leave it out with --drop sex" in refused(folder, missing="fill")


def test_a_silo_of_which_no_row_is_complete(tmp_path):
    folder = folder_of(tmp_path, a=WHOLE, b=[",F,2024-01-31,ill"])
    assert "b.csv" in refused(folder, missing="drop")


SETTINGS = {
    "a word for it that is none": ({"missing": "filll"}, "unknown missing 'filll' (did you mean 'fill'?)"),
    "indicated, but not filled": ({"indicate_missing": True, "missing": "drop"}, "give --missing fill too"),
    "indicated by a word": ({"indicate_missing": "yes", "missing": "fill"}, "indicate_missing is 'yes'"),
    "of a data set": (
        {"missing": "fill", "data": "digits", "label": None},
        "of which nothing is missing; leave it out",
    ),
}


@pytest.mark.parametrize(("settings", "message"), SETTINGS.values(), ids=SETTINGS)
def test_settings_that_make_no_sense(tmp_path, settings, message):
    with pytest.raises(UserError) as raised:
        load_material(RunConfig(**{"data": str(folder_of(tmp_path, a=WHOLE)), "label": "y", **settings}))
    assert message in one_line(raised)


def test_samples_from_python_have_no_cells_to_fill():
    with pytest.raises(UserError, match=r"missing is 'fill', but clients are given with their samples, as \(x, y\)"):
        fedamp.run(clients=[(np.zeros((4, 2)), np.array([0, 1, 0, 1]))], missing="fill")


@pytest.mark.parametrize("missing", ["fill", "drop"])
def test_arrays_have_no_missing_cells(tmp_path, missing):
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2)), y=np.array([0, 1, 0]))
    assert "silo 'a' has arrays (npz), not a table; leave it out" in refused(tmp_path, missing=missing, label=None)


def test_nan_in_an_array_is_not_filled(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([[1.0], [np.nan]]), y=np.array([0, 1]))
    assert "a.npz: x of silo 'a' is nan in row 1" in refused(tmp_path, missing="fill", label=None)


def schema_of(tmp_path, rows, name="a", missing="fill", indicate=False):
    path = tmp_path / f"{name}.csv"
    path.write_text("\n".join([HEAD, *rows]) + "\n", encoding="utf-8")
    return make_schema([read_silo(path, "y", missing=READING[missing])], missing=missing, indicate=indicate)


AGREED = {
    "agreed without filling": ("refuse", {}, "b.csv: line 2, column 'age' is empty"),
    "filled, where rows are to be dropped": ("fill", {"missing": "drop"}, "made with --missing fill; leave it out"),
    "not indicated": ("fill", {"indicate_missing": True}, "indicate_missing is True, but the schema was made"),
}


@pytest.mark.parametrize(("missing", "settings", "message"), AGREED.values(), ids=AGREED)
def test_a_run_that_disagrees_with_its_schema(tmp_path, missing, settings, message):
    folder = folder_of(tmp_path, b=[",F,2024-01-31,ill", *WHOLE])
    write_schema(tmp_path / "agreed.json", schema_of(tmp_path, WHOLE, missing=missing))
    assert message in refused(folder, schema=str(tmp_path / "agreed.json"), **settings)


MERGED = {
    "one fills and one refuses": ({"missing": "refuse"}, "b was made with --missing refuse and a with --missing fill;"),
    "one fills and one drops": ({"missing": "drop"}, "make the schemas again with the same flags in all silos"),
    "one indicates": ({"indicate": True}, "b was made with --missing fill --indicate-missing and a with"),
}


@pytest.mark.parametrize(("settings", "message"), MERGED.values(), ids=MERGED)
def test_schemas_that_treat_missing_cells_differently(tmp_path, settings, message):
    parts = [schema_of(tmp_path, WHOLE), schema_of(tmp_path, WHOLE, "b", **settings)]
    with pytest.raises(UserError) as raised:
        merge_schemas(parts, ["a", "b"])
    assert message in one_line(raised)


FIELDS = {
    "dates that are words": ({"dates": ["sex"]}, "dates of the schema name 'sex'; expected columns of numbers"),
    "new fields in an old file": ({"version": 1}, "version of the schema is 1, with missing 'fill'"),
    "a version to come": ({"version": 3}, "field 'version' is 3; expected 1 or 2: update fedamp"),
    "more missing cells than rows": ({"missing_cells": {"age": 9}}, "missing_cells of the schema have 9 for 'age'"),
    "missing cells of no column": ({"missing_cells": {"ward": 1}}, "missing_cells of the schema have 1 for 'ward'"),
    "a count of too few words": ({"word_counts": {"sex": [2]}}, "expected one for each of its 2 words"),
    "more words than rows": ({"word_counts": {"sex": [2, 9]}}, "and at most 3 in all"),
    "no counts of words": ({"word_counts": {}}, "word_counts of the schema are of none; expected 'sex'"),
    "counts that are not needed": ({"missing": "drop"}, "expected these with 'fill' only"),
    "a way that is none": ({"missing": "guess"}, "field 'missing' is 'guess'; expected refuse, fill or drop"),
    "half a cell": ({"missing_cells": {"age": 0.5}}, "field \"missing_cells['age']\" is 0.5"),
    "an indicator without inputs": ({"indicate": True, "missing_cells": {"age": 1}}, "input_shape of the schema"),
}


@pytest.mark.parametrize(("changes", "message"), FIELDS.values(), ids=FIELDS)
def test_a_schema_file_that_contradicts_itself(tmp_path, changes, message):
    values = json.loads(schema_to_json(schema_of(tmp_path, WHOLE))) | changes
    path = Path(tmp_path / "schema.json")
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(UserError) as raised:
        read_schema(path)
    assert message in one_line(raised)
    assert "schema.json: " in one_line(raised)


def test_an_earlier_version_is_told_to_update(tmp_path):
    """It knows version 1 alone, and looks at the version first, so no new field can confuse it."""
    assert json.loads(schema_to_json(schema_of(tmp_path, WHOLE)))["version"] == 2
    assert json.loads(schema_to_json(schema_of(tmp_path, WHOLE, missing="refuse")))["version"] == 2  # it has dates
    plain = [",".join([*row.split(",")[:2], "1.5", row.split(",")[3]]) for row in WHOLE]
    assert json.loads(schema_to_json(schema_of(tmp_path, plain, missing="refuse")))["version"] == 1


def test_dates_in_sequence_are_no_row_numbers(tmp_path):
    rows = [f"{40 + i % 7},{'FM'[i % 2]},2024-01-{i + 1:02d},{'ill' if i % 3 else 'well'}" for i in range(30)]
    path = folder_of(tmp_path, a=rows) / "a.csv"
    schema = described([read_silo(path, "y")], "auto", 5, (), ())
    assert schema.dates == ("seen",)
