"""The operator's commands: status, stop, admit, and which keys `up` registers."""

import json
import re

import pytest

from fedamp.federation import provision
from fedamp.federation.server import commands, flower_server
from federation.provisioned import NAMES


def test_admit_is_for_members(fedamp_command, federation):
    assert fedamp_command("federation", "admit", federation, NAMES[1])[0] == 0
    assert (federation / "admit" / NAMES[1]).exists()
    code, _, err = fedamp_command("federation", "admit", federation, "stranger")
    assert code == 2
    assert "has no silo 'stranger'" in err


def test_status_shows_who_is_in(fedamp_command, federation):
    code, out, _ = fedamp_command("federation", "status", federation)
    assert (code, out) == (0, "the server is not up\nno round has been played yet\n")
    silo = {"name": NAMES[0], "number": 0, "state": "missing", "since": 3, "strikes": 1, "reason": "NaN", "samples": 7}
    said = {"state": "running", "round": 4, "rounds": 9, "updated": "2030-01-01T00:00:00", "silos": [silo]}
    (federation / "record").mkdir()
    (federation / "record/status.json").write_text(json.dumps(said))
    code, out, _ = fedamp_command("federation", "status", federation)
    assert "running: round 4 of 9" in out
    assert re.search(rf"{NAMES[0]}\W+missing\W+3\W+7\W+1\W+NaN", out)
    assert fedamp_command("federation", "stop", federation)[1] == "the server is not up\n"
    assert "is not a federation" in fedamp_command("federation", "status", "elsewhere")[2]


def test_a_reason_from_elsewhere_can_not_break_the_status(federation, fedamp_command):
    (federation / "record").mkdir()
    silo = {"name": "a", "state": "missing", "since": 2, "samples": 3, "strikes": 1, "reason": "[/red] gone [link=x]"}
    (federation / "record/status.json").write_text(
        json.dumps({"state": "running", "round": 1, "rounds": 2, "updated": "now", "silos": [silo]})
    )
    code, out, err = fedamp_command("federation", "status", federation)
    assert code == 0, err
    assert "[/red]" in out


@pytest.mark.parametrize("port", ["0", "-1", "99999"])
def test_a_port_that_is_none_is_one_line(federation, fedamp_command, port):
    code, _, err = fedamp_command("federation", "up", federation, "--port", port)
    assert (code, "from 1 to 65535" in err) == (2, True)


def test_only_keys_that_are_new_and_there_are_registered(federation, monkeypatch):
    asked = []
    monkeypatch.setattr(flower_server.FlowerServer, "register", lambda self, name: asked.append(name))
    server, said = flower_server.server_of(federation), []
    server.run.mkdir()
    commands._register_all(server, said.append)
    provision.add(federation, ["wombat-institute"])
    commands._register_all(server, said.append)
    assert (asked, said) == ([*NAMES, "wombat-institute"], [])
    (federation / "server/keys" / f"{NAMES[0]}.pub").unlink()
    (server.run / flower_server.REGISTERED).unlink()
    commands._register_all(server, said.append)
    assert asked[4:] == [*NAMES[1:], "wombat-institute"]
    assert said == [f"{NAMES[0]} is left out: server/keys/{NAMES[0]}.pub does not exist"]
