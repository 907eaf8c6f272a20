"""Flags are the fields of a configuration: names, defaults and help come from there, once."""

from dataclasses import fields

import pytest
import typer.main

from fedamp.cli import main
from fedamp.config import Named, RunConfig
from fedamp.config.reply_limits import Rules
from fedamp.config.run_config import FAULTS, MACHINE, PRIVACY
from fedamp.fields import default_of, explained

FIELDS = {each.name: each for each in fields(RunConfig)}
ABOUT = explained(RunConfig)


def command(*names):
    found = typer.main.get_command(main.app)
    for name in names:
        found = found.commands[name]
    return found


def flags(*names):
    return {param.name: param for param in command(*names).params if param.param_type_name == "option"}


@pytest.mark.parametrize("name", ABOUT)
def test_a_field_is_a_flag_of_run_with_its_default_and_its_meaning(name):
    flag, default = flags("run")[name], default_of(FIELDS[name])
    assert flag.opts == [f"--{name.replace('_', '-')}"]
    assert flag.help == ABOUT[name].meaning
    assert flag.default == (default.name if isinstance(default, Named) else None if default == () else default)


def test_compare_has_the_flags_of_run_but_the_method():
    shared = {name for name in flags("compare") if name in ABOUT}
    assert shared == set(ABOUT) - {"method"}
    for name in shared:
        assert flags("compare")[name].help == flags("run")[name].help


def test_a_federation_has_the_flags_that_real_silos_leave_open():
    mine = flags("federation", "init")
    simulated = {name for name, about in ABOUT.items() if about.group in (FAULTS, MACHINE, PRIVACY)}
    own = {
        "data",
        "setting",
        "clients",
        "alone",
        "then_alone",
        "newcomers",
        "silo_column",
        "columns",
        "drop",
        "encoding",
    }
    assert {name for name in mine if name in ABOUT} == set(ABOUT) - simulated - own
    for name, about in explained(Rules).items():
        assert name == "samples_factor" or mine[name].help == about.meaning


def test_help_shows_defaults(fedamp_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = fedamp_command("run", "--help")
    assert code == 0
    for name in ("rounds", "batch_size", "momentum", "seed"):
        (line,) = [line for line in out.splitlines() if f"--{name.replace('_', '-')} " in line]
        assert f"[default: {default_of(FIELDS[name])}]" in line


def test_only_what_was_given_replaces_a_file(fedamp_command, tmp_path):
    (tmp_path / "run.toml").write_text("rounds = 2\nclients = 10\nsteps = 1\nseed = 5\n")
    code, _, err = fedamp_command("run", "--config", "run.toml", "--seed", "0", "--out", "here", "--json")
    assert code == 0, err
    from fedamp.records.reading import read_run

    config = read_run(tmp_path / "here").config
    assert (config["rounds"], config["clients"], config["steps"], config["seed"]) == (2, 10, 1, 0)


def test_a_flag_without_a_value_is_one_line(fedamp_command):
    code, out, err = fedamp_command("run", "--rounds")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--rounds" in err
