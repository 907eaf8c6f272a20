"""Data sets by name: all are listed, those of the package are loaded."""

import pytest

from fedamp.data import DATA, SOURCES, describe_data, load_data


@pytest.mark.parametrize("name", DATA)
def test_every_data_set_can_be_listed_without_its_files(name):
    line = describe_data(name)
    assert 20 < len(line) <= 115
    assert "\n" not in line


@pytest.mark.parametrize("name", DATA.keys() - SOURCES.keys())
def test_every_data_set_that_comes_with_the_package_can_be_loaded(name):
    data = load_data(name)
    assert data.name == name
    assert data.about
    assert data.note == ""


@pytest.mark.parametrize("ask", [load_data, describe_data])
def test_unknown_name_lists_the_choices(ask):
    with pytest.raises(
        ValueError,
        match=r"unknown data set 'digit' \(did you mean 'digits'\?\); choose from cifar100, digits, .*mnist",
    ):
        ask("digit")
