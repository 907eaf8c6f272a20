"""A silo whose promise is spent is out: the others go on, or the server pauses; it is welcome when it allows more."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from fedamp.federation.plan_files import write_federation
from fedamp.federation.processes import locks
from fedamp.federation.server import attendance
from fedamp.federation.server.app import serve
from fedamp.federation.server.live import look
from fedamp.federation.server.place import place_of
from fedamp.federation.silo import diary
from fedamp.federation.silo.privacy_ledger import PrivacyLedger
from fedamp.federation.wire.phrases import SPENT_PRIVACY
from fedamp.records.reading import read_lines
from federation.inprocess import LocalGrid
from federation.private import cost, lose_patience, protect
from federation.watched import Watched

pytestmark = pytest.mark.many
"""Run after the fast tests, on all cores: these train."""

NAMES = ["able", "baker", "charlie"]


class StoppedError(Exception):
    """The server's machine is switched off."""


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    lose_patience(monkeypatch)
    monkeypatch.setattr(attendance, "POLL", 0.001)


def trio(tmp_path, rounds: int, spent_after: int, min_silos: int) -> Watched:
    """Return three private silos, of which baker can pay for `spent_after` rounds."""
    local = Watched(tmp_path, NAMES, rounds=rounds, method="fedamp", epochs=1)
    local.rules = replace(local.rules, min_silos=min_silos)
    write_federation(tmp_path, local.federation)
    protect(local, 0, 2)
    protect(local, 1, limit=(cost(local, 1, spent_after) + cost(local, 1, spent_after + 1)) / 2)
    return local


def play(local: Watched) -> LocalGrid:
    grid = local.grid()
    serve(grid, local.federation, local.folder / "record")
    return grid


def asked(grid: LocalGrid) -> Counter:
    return Counter((NAMES[one.metadata.dst_node_id - 100], one.metadata.message_type) for one in grid.sent)


def paid(local: Watched) -> list[list[int]]:
    ledgers = [PrivacyLedger(house.folder) for house in local.houses.values()]
    return [[each.round for each in ledger.account().rounds] for ledger in ledgers]


def status(tmp_path) -> dict:
    return json.loads((tmp_path / "record/status.json").read_text())


def states(tmp_path) -> list[str]:
    return [silo["state"] for silo in status(tmp_path)["silos"]]


def raise_promise(local: Watched) -> None:
    ledger = PrivacyLedger(local.houses[1].folder)
    ledger.promise(replace(ledger.account().promise, limit=100.0))


def test_the_others_go_on_to_the_last_round(tmp_path):
    local = trio(tmp_path, rounds=5, spent_after=2, min_silos=2)
    grid = play(local)
    lines = read_lines(tmp_path / "record/rounds.jsonl")
    assert [line["present"][1] for line in lines[1:6]] == [True, True, False, False, False]
    assert [line["absent"] for line in lines[1:6]] == [{}, {}, *[{"baker": SPENT_PRIVACY}] * 3]
    assert paid(local) == [[1, 2, 3, 4, 5], [1, 2], [1, 2, 3, 4, 5]]
    assert asked(grid)["baker", "train"] == 3  # not again after it has said no
    assert asked(grid)["able", "train"] == 5
    log = (tmp_path / "record/log.txt").read_text()
    assert log.count(f"baker is out: {SPENT_PRIVACY}; no round waits for it until its operator allows more") == 1
    assert f"round 5/5: 2 of 3 silos, baker is out ({SPENT_PRIVACY})" in log
    assert states(tmp_path) == ["in", "out", "in"]
    assert status(tmp_path)["silos"][1]["reason"] == SPENT_PRIVACY


def test_who_is_out_still_gets_the_last_model(tmp_path):
    local = trio(tmp_path, rounds=3, spent_after=1, min_silos=2)
    grid = play(local)
    assert asked(grid)["baker", "evaluate"] == 1
    received = json.loads((local.houses[1].folder / "models/received.json").read_text())
    assert received["score"]["round"] == 3
    assert diary.rounds(local.houses[1].folder)[-1]["ended"]


def test_what_people_are_told_while_it_plays(tmp_path):
    seen = []
    local = trio(tmp_path, rounds=3, spent_after=1, min_silos=2)

    def note(number, reply):
        seen.append(look(tmp_path).values["lead"])
        return reply

    local.tamper = note
    with running(tmp_path):
        play(local)
    assert seen[-1].startswith("Round 3 of 3 is under way")
    assert seen[-1].endswith(f"2 of 3 silos are here. No round waits for baker ({SPENT_PRIVACY}).")


def running(tmp_path):
    """Hold the lock by which a page knows that the server is up."""
    place = place_of(tmp_path)
    place.lock.parent.mkdir(parents=True, exist_ok=True)
    return locks.only_one(place.lock, "the federation")


def test_too_few_are_left_and_the_server_pauses_until_more_is_allowed(tmp_path):
    """The others are not asked in vain; the round that did not count costs them nothing when it is played again."""
    local, looks, leads = trio(tmp_path, rounds=3, spent_after=1, min_silos=3), [], []

    def online():
        if (tmp_path / "record/status.json").exists() and status(tmp_path)["state"] == "paused":
            looks.append(states(tmp_path))
            leads.append(look(tmp_path).values["lead"])
        if len(looks) == 5:
            raise_promise(local)
        return [0, 1, 2]

    local.online, local.since = online, lambda i: "again" if i == 1 and len(looks) >= 8 else "first"
    with running(tmp_path):
        grid = play(local)
    assert len(looks) == 8  # raised after five; but only when it is started again is it asked
    assert looks[0] == ["in", "out", "in"]
    assert leads[0] == (
        f"Paused: 3 silos are needed, and fewer can still train. No round waits for baker ({SPENT_PRIVACY})."
    )
    log = (tmp_path / "record/log.txt").read_text()
    words = (
        "paused after round 1: a round needs 3 silos (min_silos), and 2 can still train; "
        f"out: baker: {SPENT_PRIVACY}. It goes on when"
    )
    assert log.count(words) == 1
    assert log.count("paused") == 1
    assert "baker is back, and trains again" in log
    assert asked(grid)["able", "train"] == 4  # round 2 twice
    assert paid(local) == [[1, 2, 3]] * 3
    assert states(tmp_path) == ["in"] * 3


@pytest.mark.parametrize("min_silos", [2, 3])
def test_it_survives_a_restart_of_the_server(tmp_path, min_silos):
    local, paused = trio(tmp_path, rounds=4, spent_after=1, min_silos=min_silos), []

    def until_it_is_paused():
        if (tmp_path / "record/status.json").exists():
            now = status(tmp_path)
            if now["state"] == "paused" or now["round"] == 3:
                raise StoppedError
        return [0, 1, 2]

    local.online = until_it_is_paused
    with pytest.raises(StoppedError):
        play(local)

    def until_it_is_paused_again():
        paused.append((status(tmp_path)["state"], states(tmp_path)[1]))
        if len(paused) > 3 and min_silos == 3:
            raise StoppedError
        return [0, 1, 2]

    local.online = until_it_is_paused_again
    grid = local.grid()
    if min_silos == 3:
        with pytest.raises(StoppedError):
            serve(grid, local.federation, tmp_path / "record")
        assert paid(local) == [[1, 2], [1], [1, 2]]
        assert paused[-1] == ("paused", "out")
    else:
        serve(grid, local.federation, tmp_path / "record")
        assert paid(local) == [[1, 2, 3, 4], [1], [1, 2, 3, 4]]
    assert paused[0][1] == "out"  # from the first moment
    assert asked(grid)["baker", "train"] == 0
    assert asked(grid)["baker", "query"] == 1


def test_after_a_restart_the_one_that_allows_more_is_welcome(tmp_path):
    local = trio(tmp_path, rounds=4, spent_after=1, min_silos=2)
    full, local.plan = local.plan, replace(local.plan, config=replace(local.plan.config, rounds=2))
    play(local)
    local.plan = full
    raise_promise(local)
    play(local)
    assert paid(local) == [[1, 2, 3, 4], [1, 3, 4], [1, 2, 3, 4]]
    assert states(tmp_path) == ["in"] * 3


def test_who_does_not_answer_while_it_is_out_stays_out_for_the_same_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(attendance, "ASK_AGAIN", 0.0)
    local = trio(tmp_path, rounds=4, spent_after=1, min_silos=2)
    grid = local.grid()
    app = grid.apps[1]

    def silent(message, context):
        if message.metadata.message_type == "query" and asked(grid)["baker", "query"] > 1:
            raise RuntimeError("it hangs")
        return app(message, context)

    grid.apps[1] = silent
    serve(grid, local.federation, tmp_path / "record")
    assert asked(grid)["baker", "query"] > 2
    assert status(tmp_path)["silos"][1]["reason"] == SPENT_PRIVACY
    assert states(tmp_path)[1] == "out"
