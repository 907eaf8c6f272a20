"""A user's mistake is one line and exit code 2; a fault of ours keeps its traceback."""

import pytest

from fedamp.errors import UserError


def test_a_fault_of_ours_keeps_its_traceback(fedamp_command, monkeypatch):
    def broken(*args, **kwargs):
        raise ValueError("zip() argument 2 is shorter than argument 1")

    monkeypatch.setattr("fedamp.runs.loop.play_round", broken)
    with pytest.raises(ValueError, match="zip"):
        fedamp_command("run", "--rounds", "1")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--rounds", "0"),
        ("--set", "method.sigma=-1"),
        ("--model", "mlp", "--set", "model.hidden=none"),
        ("--data", "nowhere/"),
        ("--clients", "100000"),
    ],
)
def test_a_mistake_is_one_line(fedamp_command, arguments):
    code, out, err = fedamp_command("run", *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("fedamp: ")
    assert err.count("\n") == 1


def test_who_caught_a_value_error_still_does():
    assert issubclass(UserError, ValueError)
