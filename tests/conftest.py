import sys

import pytest
import torch

# The tests' models are too small to gain by more threads.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_first_values():
    """Let a model that a test builds begin at the same values, whichever tests ran before."""
    torch.manual_seed(0)


@pytest.fixture
def fedamp_command(monkeypatch, tmp_path, capsys):
    """Call the command line in an empty folder; return exit code, stdout, stderr."""
    from fedamp.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDAMP_DATA", str(tmp_path / "data"))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedamp", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call
