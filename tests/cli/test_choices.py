"""What can be chosen is explained: every parameter, with default, meaning, range and source."""

import runpy
from pathlib import Path

import pytest

from fedamp.cli.choices import KINDS, Parameter, entries, explain


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in KINDS[kind]])
def test_the_explanation_has_every_parameter_of_the_list(kind, name):
    listed = {own: parameters for own, parameters, _ in entries(kind)}[name]
    assert ", ".join(f"{each.name}={each.default}" for each in explain(kind, name)) == listed


@pytest.mark.parametrize("kind", ["methods", "attention", "models"])
def test_every_parameter_has_meaning_range_and_source(kind):
    for name in KINDS[kind]:
        for each in explain(kind, name):
            assert each.meaning.endswith("."), (name, each)
            assert each.range, (name, each)
            assert each.source, (name, each)


def test_a_field_of_a_method():
    found = {each.name: each for each in explain("methods", "heurfedamp")}
    assert list(found) == ["lam", "alpha", "alpha_every", "start", "sharpness", "sketch", "sigma", "self_weight"]
    assert found["alpha_every"] == Parameter(
        "alpha_every",
        "30",
        "Rounds after which the alpha of `paper` falls to a tenth; fewer for shorter runs.",
        "rounds",
        "1 or more",
        "Huang et al. 2021, Experiments",
    )
    assert "Eq. 9" in found["sigma"].source


def test_an_argument_of_a_model():
    assert explain("models", "mlp") == [
        Parameter("hidden", "64", "Units of the hidden layer.", range="1 or more", source="ours")
    ]
    assert explain("models", "cnn") == []


def test_a_wrong_name_lists_the_right_ones():
    with pytest.raises(ValueError, match="choose from"):
        explain("methods", "fedamq")
    with pytest.raises(ValueError, match="attention"):
        explain("atention", "mcp")


def test_the_tables_of_the_page_are_up_to_date():
    """After a change of a field: python docs/parameters.py."""
    docs = Path(__file__).parents[2] / "docs"
    page, script = (docs / "methods.md").read_text(encoding="utf-8"), runpy.run_path(str(docs / "parameters.py"))
    assert script["written"](page) == page
    overview = page.partition("<!-- overview -->")[2].partition("<!-- end -->")[0]
    for name in KINDS["methods"]:
        assert f"| `{name}` |" in overview
        if explain("methods", name):
            assert f"<!-- parameters: methods {name.removesuffix('-ft')} -->" in page
