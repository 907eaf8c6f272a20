"""A federation as `fedamp federation init` writes it."""

from pathlib import Path

import pytest


@pytest.fixture
def federation(tmp_path) -> Path:
    from fedamp.config.reply_limits import Rules
    from fedamp.federation import provision
    from federation.provisioned import HOSTS, NAMES, make_plan

    folder = tmp_path / "fed"
    assert provision.init(folder, NAMES, make_plan(), Rules(), HOSTS, 9092, None) == []
    return folder
