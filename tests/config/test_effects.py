"""What would be ignored is refused where it is asked for; records and grids may hold it."""

import json
from pathlib import Path

import pytest

from fedamp.config import RunConfig
from fedamp.config.effects import check_effects
from fedamp.errors import UserError

USELESS = [{"noisy_clients": (3,)}, {"poison_scale": 2.0}]


@pytest.mark.parametrize("useless", USELESS)
def test_one_of_several_runs_that_uses_it_is_enough(useless):
    """A grid may have a point without noise beside the others."""
    idle, busy = RunConfig(**useless), RunConfig(**useless, label_noise=0.2, poisoned=(1,))
    check_effects([idle, busy])
    check_effects([RunConfig()])
    with pytest.raises(UserError):
        check_effects([idle, RunConfig(label_noise=0.2, poisoned=(1,))])  # that one does without it


@pytest.mark.parametrize("useless", USELESS)
def test_records_that_hold_it_are_resumed_and_shown(fedamp_command, useless):
    quick = ["--rounds", "1", "--steps", "1", "--clients", "10"]
    assert fedamp_command("run", *quick, "--out", "here")[0] == 0
    path = Path("here/description.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **useless}))
    assert fedamp_command("resume", "here")[0] == 0
    assert fedamp_command("report", "here")[0] == 0


def test_a_grid_over_the_noise_begins_at_none(fedamp_command):
    quick = ["--rounds", "1", "--steps", "1", "--clients", "10", "--methods", "fedavg"]
    code, _, err = fedamp_command("compare", *quick, "--noisy-clients", "3", "--grid", "label_noise=0.0,0.3")
    assert code == 0, err
