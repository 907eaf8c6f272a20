"""federation.json and silo.json: what is written is read, and every fault is one line that names it."""

import json

import pytest

from fedamp.config.reply_limits import Rules
from fedamp.errors import UserError
from fedamp.federation.plan import Federation, Member, SiloConfig
from fedamp.federation.plan_files import read_federation, read_silo_config, write_federation, write_silo_config
from federation.provisioned import make_plan


@pytest.fixture
def folder(tmp_path):
    plan = make_plan()
    write_federation(tmp_path, Federation(plan, (Member("a", 0, "ab"), Member("b", 1, "cd")), Rules(strikes=4)))
    write_silo_config(tmp_path, SiloConfig(plan, "a", 0, "fed.example.org:9092"))
    return tmp_path


def change(path, **fields):
    """Change fields of a JSON file; `rules__strikes` is the field `strikes` of `rules`."""
    value = json.loads(path.read_text())
    for name, entry in fields.items():
        *outer, last = name.split("__")
        place = value
        for key in outer:
            place = place[key]
        place[last] = entry
    path.write_text(json.dumps(value))


def test_what_is_written_is_read(folder):
    federation, silo_config = read_federation(folder), read_silo_config(folder)
    assert federation.plan == silo_config.plan == make_plan()
    assert federation.members == (Member("a", 0, "ab"), Member("b", 1, "cd"))
    assert federation.rules == Rules(strikes=4)
    assert (silo_config.name, silo_config.number, silo_config.server) == ("a", 0, "fed.example.org:9092")


def test_the_files_keep_their_fields(folder):
    federation = json.loads((folder / "federation.json").read_text())
    assert list(federation) == ["format", "name", "description", "silos", "rules"]
    assert federation["silos"][1] == {"name": "b", "number": 1, "key": "cd", "former": []}
    assert list(json.loads((folder / "silo.json").read_text())) == [
        *("format", "federation", "name", "number", "server", "description"),
    ]


def test_unknown_fields_are_ignored_and_missing_rules_have_their_defaults(folder):
    change(folder / "federation.json", rules={"strikes": 4, "mood": "good"}, comment="from a later version")
    assert read_federation(folder).rules == Rules(strikes=4)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rules": []}, "rules is []; expected an object"),
        ({"silos": 3}, "silos is 3; expected a list"),
        ({"description": []}, "description is []; expected an object"),
        ({"name": None}, "name is None; expected a string"),
        ({"rules__min_silos": "two"}, "rules.min_silos is 'two'; expected a whole number"),
        ({"rules__min_silos": True}, "rules.min_silos is True; expected a whole number"),
        ({"rules__min_silos": 2.5}, "rules.min_silos is 2.5; expected a whole number"),
        ({"rules__reply_timeout": "600"}, "rules.reply_timeout is '600'; expected a number"),
        ({"rules__min_silos": 0}, "in rules, min_silos is 0; expected a whole number of 1 or more"),
        ({"silos": [{"name": "a", "number": 0}]}, "silos[0].key is missing"),
        ({"silos": [{"name": "a"}]}, "silos[0].number is missing (and one more fault)"),
        ({"silos": [{"name": "a", "number": 0, "key": "ab"}] * 2}, "two silos have the same name (['a', 'a'])"),
        ({"description__roundz": 1}, "'roundz' of a run (did you mean 'rounds'?)"),
        ({"description__rounds": 0}, "rounds is 0; expected a whole number of 1 or more"),
    ],
)
def test_a_fault_of_the_servers_file_names_file_field_and_value(folder, fields, words):
    change(folder / "federation.json", **fields)
    with pytest.raises(UserError) as error:
        read_federation(folder)
    assert str(error.value).startswith(f"{folder / 'federation.json'}: ")
    assert words in str(error.value)
    assert str(error.value).endswith("; correct it, or restore it from a backup")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"server": 9092}, "server is 9092; expected a string"),
        ({"server": "fed.example.org"}, "server is 'fed.example.org'; expected host:port"),
        ({"number": -1}, "number of the silo is -1; expected a whole number of 0 or more"),
        ({"number": "1"}, "number is '1'; expected a whole number"),
    ],
)
def test_a_fault_of_a_silos_file_says_to_unpack_the_bundle_again(folder, fields, words):
    change(folder / "silo.json", **fields)
    with pytest.raises(UserError) as error:
        read_silo_config(folder)
    assert str(error.value).startswith(f"{folder / 'silo.json'}: ")
    assert words in str(error.value)
    assert str(error.value).endswith("; unpack the bundle again")


@pytest.mark.parametrize("number", [2, "1", None])
def test_another_format_is_refused(folder, number):
    change(folder / "federation.json", format=number)
    with pytest.raises(UserError, match=f"format is {number!r}; this version of fedamp reads 1"):
        read_federation(folder)


def test_a_folder_without_the_file_is_not_a_federation(tmp_path):
    with pytest.raises(UserError, match=r"has no federation\.json, so it is not a federation"):
        read_federation(tmp_path)
    with pytest.raises(UserError, match=r"has no silo\.json, so it is not a silo's bundle"):
        read_silo_config(tmp_path)


@pytest.mark.parametrize("fields", [{"rules": []}, {"silos": 3}, {"description": []}])
def test_a_damaged_federation_is_one_line(federation, fedamp_command, fields):
    change(federation / "federation.json", **fields)
    code, _, err = fedamp_command("federation", "status", federation)
    assert (code, err.count("\n")) == (2, 1), err
