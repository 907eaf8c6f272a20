"""The operator's commands: status, stop, admit, and where `up` listens."""

import json
import re

import pytest

from fedamp.config.reply_limits import Rules
from fedamp.federation import provision
from fedamp.federation.plan_files import read_silo_config
from fedamp.federation.server.place import place_of
from federation.provisioned import HOSTS, NAMES, make_plan


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


@pytest.mark.parametrize(("state", "shown"), [("running", "away"), ("waiting", "away"), ("finished", "in")])
def test_without_a_server_nobody_is_in(fedamp_command, federation, state, shown):
    """A finished federation is another matter: its silos were in to the end."""
    silo = {"name": NAMES[0], "number": 0, "state": "in", "samples": 7, "strikes": 0, "seen": "2030-01-01T00:00:00"}
    said = {"state": state, "round": 4, "rounds": 9, "updated": "2030-01-02T00:00:00", "silos": [silo]}
    (federation / "record").mkdir()
    (federation / "record/status.json").write_text(json.dumps(said))
    _, out, _ = fedamp_command("federation", "status", federation)
    assert re.search(rf"{NAMES[0]}\W+{shown}\W+2030-01-01", out)
    told = json.loads(fedamp_command("federation", "status", federation, "--json")[1])
    assert told["silos"][0]["state"] == shown


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


def test_silos_find_the_server_where_they_knock(federation, tmp_path):
    """Behind nginx it listens on the next port of the loopback interface; without it, on the port that silos know."""
    written = read_silo_config(federation / "bundles" / NAMES[0]).server
    assert written == f"{HOSTS[0]}:9092"
    assert (place_of(federation).host, place_of(federation).port) == ("0.0.0.0", 9092)
    assert (place_of(federation, "127.0.0.1").port, place_of(federation, "192.0.2.7").port) == (9093, 9092)
    alone = tmp_path / "alone"
    provision.init(alone, NAMES, make_plan(), Rules(), ["localhost"], 9092, None)
    assert (place_of(alone).host, place_of(alone).port) == ("127.0.0.1", 9092)
