"""`fedamp.run`: its signature is the configuration, for people, for `help()` and for mypy."""

import inspect
import subprocess
import sys
from dataclasses import fields
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

import fedamp
from fedamp.config import Named, RunConfig
from fedamp.fields import explained

BESIDES = {"data_dir", "out", "on_round", "progress", "track", "observer", "loss"}
UNTIL_ASKED_FOR = {"data", "setting", "clients", "held_out", "dp_delta", "dp_clip"}
"""None in the signature: that nothing was said is not the same as the default, where clients bring their samples, or
where nothing protects them.
"""


def test_every_field_is_an_argument_with_its_default():
    parameters = inspect.signature(fedamp.run).parameters
    assert set(parameters) == {*explained(RunConfig), *BESIDES}
    for each in fields(RunConfig):
        if each.name in parameters and each.name not in UNTIL_ASKED_FOR:
            default = each.default.name if isinstance(each.default, Named) else each.default
            assert parameters[each.name].default == default, each.name


def test_words_to_choose_from_are_the_configurations():
    hints = get_type_hints(fedamp.run)
    literal = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}
    assert literal == {name: about.choices for name, about in explained(RunConfig).items() if about.choices}


def test_help_shows_the_arguments():
    text = inspect.getdoc(fedamp.run) + str(inspect.signature(fedamp.run))
    assert "rounds: 'int' = 30" in text


def test_a_misspelt_argument_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'round'"):
        fedamp.run(round=3)


@pytest.mark.slow
def test_mypy_knows_the_arguments(tmp_path):
    (tmp_path / "good.py").write_text("import fedamp\n\nfedamp.run(method='fedamp', rounds=3, engine='loop')\n")
    (tmp_path / "bad.py").write_text(
        "import fedamp\n\nfedamp.run(round=3)\nfedamp.run(rounds='3')\nfedamp.run(engine='lop')\n"
    )
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        f"--cache-dir={tmp_path}",
        "good.py",
        "bad.py",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    found = [line for line in done.stdout.splitlines() if "error" in line]
    assert [line.split(":")[:2] for line in found[:-1]] == [["bad.py", "3"], ["bad.py", "4"], ["bad.py", "5"]], (
        done.stdout
    )
