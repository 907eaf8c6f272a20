"""`fedamp list methods`: the methods in groups, each with what it does, its parameters and when to use it."""

import sys

import pytest

from fedamp.cli.method_words import by_group, in_words
from fedamp.methods import METHODS
from fedamp.methods.base import GROUPS
from fedamp.runs.compare.twins import trained_as


def test_methods_are_listed_group_by_group(fedamp_command):
    code, out, _ = fedamp_command("list", "methods")
    assert code == 0
    blocks = dict.fromkeys(GROUPS)
    for block in out.split("\n\n"):
        head, about, *methods = block.splitlines()
        blocks[head.lower()] = [line.split()[0] for line in methods if line.startswith("  ") and line[2] != " "]
        assert about == GROUPS[head.lower()]
    used = [group for group in GROUPS if blocks[group]]
    assert [block.splitlines()[0].lower() for block in out.split("\n\n")] == used
    assert sorted(name for group in used for name in blocks[group]) == sorted(METHODS)
    for group in used:
        assert {METHODS[name].group for name in blocks[group]} == {group}


def test_a_listed_method_says_what_it_does_its_parameters_and_when_to_use_it(fedamp_command):
    lines = fedamp_command("list", "methods")[1].splitlines()
    at = lines.index("  fedprox  FedAvg whose clients stay near the global model.")
    assert lines[at + 1] == "      mu=0.01"
    assert lines[at + 2] == f"      when: {METHODS['fedprox'].when}"
    assert "  mu = 0.01" in fedamp_command("list", "methods", "fedprox")[1].splitlines()


@pytest.mark.parametrize("name", ["clusters", "personal parts", "personal-parts", "one-model-for-all", "fine-tuned"])
def test_one_group_is_shown_as_in_the_list(fedamp_command, name):
    code, out, _ = fedamp_command("list", "methods", name)
    assert code == 0
    assert out.splitlines()[0].lower().replace(" ", "-") == name.replace(" ", "-")
    assert out.rstrip("\n") in fedamp_command("list", "methods")[1].split("\n\n")[:-1] or name == "clusters"
    assert out.count("when: ") == len(
        [each for each in METHODS.values() if each.group.replace("-", " ") == name.replace("-", " ")]
    )


@pytest.mark.parametrize("name", METHODS)
def test_one_method_is_shown_with_when_to_use_it_and_its_source(fedamp_command, name):
    code, out, _ = fedamp_command("list", "methods", name)
    assert code == 0
    assert out.startswith(f"{name}  {in_words(name).what}\n")
    assert f"  when to use it: {METHODS[name].when}\n" in out
    assert f"  scored at: {METHODS[name].scored}\n" in out
    assert ("\n  source: " in out) == (name != "separate")


@pytest.mark.parametrize("name", [name for name in METHODS if name != "separate" and not trained_as(name)])
def test_a_methods_file_names_its_source(name):
    assert "Source" in (sys.modules[METHODS[name].__module__].__doc__ or "")


def test_a_form_of_a_method_has_its_source(fedamp_command):
    assert 'source: Li et al., "Federated Optimization' in fedamp_command("list", "methods", "fedprox-ft")[1]
    assert "source: ours" in fedamp_command("list", "methods", "autoamp")[1]


def test_a_method_in_words():
    found = in_words("scaffold")
    assert (found.group, found.scored, found.trained) == ("one model for all", "own", "SGD 0.01")
    assert found.equation.startswith("x += ")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_does_in_a_sentence(name):
    what = in_words(name).what
    assert what.endswith("."), f"the first line of {METHODS[name].__module__} is to be 'Name: what it does.'"
    assert what[0].isupper()


def test_all_methods_are_in_a_group():
    assert sorted(each.name for methods in by_group().values() for each in methods) == sorted(METHODS)


def test_an_unknown_method_is_one_line_with_the_nearest_name(fedamp_command):
    code, _, err = fedamp_command("list", "methods", "fedamq")
    assert code == 2
    assert err.startswith("fedamp: unknown method 'fedamq' (did you mean 'fedamp'?); choose from apfl, ")
    assert err.count("\n") == 1


def test_the_help_of_run_does_not_list_all_methods_but_says_where_they_are(fedamp_command):
    code, out, _ = fedamp_command("run", "--help")
    assert code == 0
    assert "fedamp list methods" in " ".join(out.replace("│", " ").split())
    assert not [name for name in METHODS if f" {name}," in out]
