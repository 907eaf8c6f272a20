"""A silo runs its own app, or none."""

import os
import sys
from pathlib import Path

import pytest

from fedamp.federation.silo import guard


def test_a_bundle_whose_programs_can_not_run_is_not_connected(tmp_path):
    """Else Flower would find its own program further on, and run the app that the server sends."""
    folder = tmp_path / "bin"
    guard.write_programs(folder)
    flower = Path(sys.executable).parent
    path = guard.guarded_path(folder, os.pathsep.join([str(flower), "/usr/bin", "/bin"]))
    assert path.split(os.pathsep)[0] == str(folder)
    assert str(flower) not in path.split(os.pathsep)
    (folder / guard.OURS).chmod(0o600)  # as on a file system without programs
    with pytest.raises(ValueError, match="can't be run"):
        guard.guarded_path(folder, str(flower))
    (folder / guard.OURS).write_text("#!/bin/sh\necho something else\n")
    (folder / guard.OURS).chmod(0o700)
    with pytest.raises(ValueError, match="something else"):
        guard.guarded_path(folder, "/usr/bin:/bin")
    with pytest.raises(ValueError, match="move the bundle"):
        guard.guarded_path(tmp_path / "a:b", "/usr/bin")
