"""Schemas as files: what is written is read again, and whatever else is there is an error in one line."""

import json
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from silo_files import FUZZ, one_line, refusals, silo, table_schema, write

from fedamp.data.silos.read import read_silos
from fedamp.data.silos.schema import Schema, make_schema
from fedamp.data.silos.schema.differences import schema_differences
from fedamp.data.silos.schema_file import read_schema, schema_from_json, schema_to_json, write_schema
from fedamp.data.silos.schema_form import SchemaForm


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
    ({"labels": ...}, "field 'labels' is missing; expected a list of strings"),
    ({"version": 3, "more": 1}, "field 'version' is 3; expected 1 or 2: update"),
    ({"version": True}, "field 'version' is True; expected a whole number"),
    ({"task": "guess"}, "field 'task' is 'guess'; expected classification or regression"),
    ({"task": ["regression"]}, r"field 'task' is \['regression'\]; expected classification or regression"),
    ({"task": "regression"}, "expected labels for classification only"),
    ({"labels": None}, "expected labels for classification only"),
    ({"labels": "ab"}, "field 'labels' is 'ab'; expected a list of strings"),
    ({"labels": []}, r"field 'labels' is \[\]; .*at least one"),
    ({"labels": [0, 1]}, r"field 'labels\[0\]' is 0; expected a list of strings"),
    ({"labels": ["a", "a"]}, "have 'a' twice"),
    ({"labels": ["a", ""]}, "1 to 200 characters"),
    ({"labels": ["a", "\ud800"]}, "1 to 200 characters"),
    ({"columns": None}, "categories of the schema name 'sex'"),
    ({"columns": ["v", "sex"]}, "input_shape of the schema is .4,.; expected .3,."),
    ({"columns": 7}, "field 'columns' is 7; expected a list of strings"),
    ({"categories": []}, r"field 'categories' is \[\]; expected an object"),
    ({"categories": {"age": ["F"]}}, "categories of the schema name 'age'"),
    ({"categories": {"sex": "FM"}}, r"categories\['sex'\].* is 'FM'; .*list of strings"),
    ({"categories": {"sex": [["F"]]}}, r"categories\['sex'\]\[0\].* is \['F'\]; .*list of strings"),
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


def test_bad_schema_files_are_refused(tmp_path):
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


def test_a_file_without_the_label_column_is_an_older_one():
    values = json.loads(schema_to_json(table_schema()))
    del values["label"]
    assert schema_from_json(json.dumps(values)) == table_schema()


def test_the_form_of_a_file_has_the_fields_of_a_schema():
    assert [*SchemaForm.model_fields] == [field.name for field in fields(Schema)]


@pytest.mark.slow
def test_only_a_schema_file_needs_pydantic(tmp_path):
    for name in "ab":
        write(tmp_path / f"{name}.csv", "u,label\n" + "1,0\n2,1\n" * 10)
    write_schema(tmp_path / ".schema.json", make_schema(read_silos(tmp_path)))
    code = (
        "import sys, fedamp; fedamp.run(data=sys.argv[1], model='logistic', rounds=1, steps=1, {}); print(*sys.modules)"
    )
    for settings_of_run, needed in (("", False), (f"schema={str(tmp_path / '.schema.json')!r}", True)):
        command = [sys.executable, "-c", code.format(settings_of_run), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path.parent)
        assert ("pydantic" in done.stdout.split()) == needed
