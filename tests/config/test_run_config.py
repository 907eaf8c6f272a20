"""A configuration's own checks: what can't be meant is one line."""

import pytest

from fedamp.config import RunConfig
from fedamp.errors import UserError


@pytest.mark.parametrize("columns", [["b", "a"], ("b", "a"), "b, a", (each for each in "ba"), iter(["b", "a"])])
def test_names_of_columns_keep_their_order(columns):
    assert RunConfig(drop=columns).drop == ("b", "a")


@pytest.mark.parametrize("name", ["columns", "drop"])
def test_a_column_that_is_named_twice_may_be_a_slip(name):
    with pytest.raises(UserError, match=f"{name} has 'age' twice; name each column once"):
        RunConfig(**{name: "age, sex,age"})


def test_those_of_a_set_have_none():
    assert RunConfig(drop={"b", "a"}).drop == RunConfig(drop=frozenset("ba")).drop == ("a", "b")


def test_a_whole_number_is_a_columns_name():
    config = RunConfig(label=6, silo_column=7, columns=[0, "1"], drop={8})
    assert (config.label, config.silo_column, config.columns, config.drop) == ("6", "7", ("0", "1"), ("8",))


@pytest.mark.parametrize("name", ["label", "silo_column"])
@pytest.mark.parametrize("value", [1.5, True, ["a"]])
def test_what_is_no_columns_name(name, value):
    with pytest.raises(UserError, match=f"{name} is .* expected a column's name"):
        RunConfig(**{name: value})


@pytest.mark.parametrize("value", [5, {"a": 1}, [1.5], [True], [None]])
def test_what_names_no_column(value):
    with pytest.raises(UserError, match=r"columns is .* expected names of columns"):
        RunConfig(columns=value)


@pytest.mark.parametrize("metric", [5, None, ["auc"], "acuracy"])
def test_what_is_no_metric(metric):
    with pytest.raises(UserError, match="unknown metric"):
        RunConfig(metric=metric)
