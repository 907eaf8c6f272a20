"""The section "Who helps whom, and why": there for methods that say it, in order, and safe."""

import html
import json
import re

import pytest

from fedamp.report import write_report
from run_folders import EVIL, write_run

FOUND = {
    "spectrum": [5.0, 0.1, -0.2], "rank": 1.0, "noise": 0.5, "noise_share": 0.31, "self_weight": [0.5, 0.4, 1.0],
    "effective_clients": [2.0, 2.5, 1.0], "expected_gain": [0.4, 0.25, 0.0],
}  # fmt: skip
SECTION = "Who helps whom, and why"


def with_findings(folder, found=FOUND, **more):
    return write_run(folder, accuracies=[(0.5, 0.6, 0.7)] * 2, found=found, **more)


def data_of(text: str, name: str):
    return json.loads(html.unescape(re.search(f'data-{name}="([^"]*)"', text)[1]))


def test_the_section_tells_what_was_found(tmp_path):
    text = write_report([with_findings(tmp_path / "a", names=["north", "south", "east"])]).read_text()
    assert SECTION in text
    assert "Clients differ in 1 direction; noise is 31\N{NO-BREAK SPACE}% of what differs; 2 clients" in text
    assert data_of(text, "spectrum") == {"values": [5.0, 0.1, -0.2], "rank": 1}
    assert data_of(text, "clients") == {
        "names": ["north", "south", "east"], "others": [1.0, 1.5, 0.0], "gain": [40.0, 25.0, 0.0],
    }  # fmt: skip
    assert '<th scope="row">south</th><td>1.5</td><td>0.40</td><td>25</td>' in text


def test_methods_that_do_not_say_get_no_section(tmp_path):
    assert SECTION not in write_report([write_run(tmp_path / "a")]).read_text()
    with_findings(tmp_path / "b", method="autoamp")
    both = write_report([tmp_path]).read_text()
    assert both.count("How far clients differ") == 1


def test_names_can_not_break_it(tmp_path):
    text = write_report([with_findings(tmp_path / "a", names=[EVIL, "b", "c"])]).read_text()
    assert "<img" not in text.split('<script type="application/json"')[0]
    assert data_of(text, "clients")["names"][0] == EVIL


@pytest.mark.parametrize("found", [{"expected_gain": [0.1]}, {"rank": None}, {"spectrum": 3}, {"self_weight": 1.0}])
def test_damage_is_one_line(tmp_path, found):
    run = with_findings(tmp_path / "a", {**FOUND, **found})
    with pytest.raises(ValueError, match="the folder is damaged") as caught:
        write_report([run])
    assert "\n" not in str(caught.value)


def test_a_run_says_it_at_the_end_and_its_report_shows_it(fedamp_command, tmp_path):
    asked = "run --method autoamp --clients 4 --rounds 3 --setting iid --steps 2 --out here"
    _, out, _ = fedamp_command(*asked.split())
    assert "who helps whom" in out
    assert SECTION in write_report([tmp_path / "here"]).read_text()
    _, out, _ = fedamp_command(*asked.replace("autoamp", "fedamp").replace("here", "there").split())
    assert "who helps whom" not in out
