"""A silo's own limit on rounds: it holds whatever the server does, and is not held against the silo."""

import json
from dataclasses import replace

import pytest

from fedamp.federation.silo import app, connect
from fedamp.federation.silo.ledger import Ledger
from fedamp.federation.silo.unwilling import UnwillingError
from fedamp.federation.wire.phrases import TRAINED_ENOUGH
from fedamp.records.reading import read_lines
from federation.inprocess import Local, plan_of, write_silos
from federation.provisioned import NAMES


def limited(tmp_path, most: int, **more) -> Local:
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=4), data, **more)
    local.houses[1] = replace(local.houses[1], max_rounds=most)
    return local


def test_after_its_last_round_it_is_absent_and_not_bad(tmp_path):
    local = limited(tmp_path, 2)
    record = local.serve()
    lines = read_lines(tmp_path / "record/rounds.jsonl")
    assert [line["present"] for line in lines[1:5]] == [[True] * 3] * 2 + [[True, False, True]] * 2
    assert [line["absent"] for line in lines[3:5]] == [{"silo-1": TRAINED_ENOUGH}] * 2
    standing = record.state.standing(local.federation.members[1].key)
    assert (standing.strikes, standing.aside, standing.since, standing.accepted) == (0, False, 3, 2)
    log = (local.houses[1].folder / "log.txt").read_text()
    assert "round 2: this was the last of the 2 rounds that --max-rounds allows" in log
    assert "not taking part: it has trained 2 rounds, and --max-rounds is 2; to go on, start it with more" in log


def test_the_count_survives_a_restart_and_can_be_raised(tmp_path):
    local = limited(tmp_path, 2)
    local.serve(rounds=3)
    local.houses[1] = replace(local.houses[1], max_rounds=3)  # a new process, with another limit
    record = local.serve()
    assert record.state.standing(local.federation.members[1].key).accepted == 4
    assert json.loads((local.houses[1].folder / "ledger.json").read_text()) == {"rounds": 3}
    assert Ledger(local.houses[0].folder).trained == 4  # counted without a limit too


def test_a_round_counts_before_its_reply_leaves(tmp_path):
    """Replies that are lost on the way have left the silo, and count."""
    seen = []

    def lose(number, reply):
        if number != 1 or "refusal" in reply.content.config_records:
            return reply
        seen.append(Ledger(local.houses[1].folder).trained)
        return None

    local = limited(tmp_path, 3, tamper=lose)
    record = local.serve()
    assert seen == [1, 2, 3]
    assert record.state.standing(local.federation.members[1].key).accepted == 0


def test_no_count_no_reply(tmp_path, monkeypatch):
    """A disk that is full keeps the silo from training more than it can count."""
    local = limited(tmp_path, 9)

    def full(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Ledger, "count", full)
    local.online = lambda: [1]
    monkeypatch.setattr("fedamp.federation.server.strategy.time.sleep", stop)
    with pytest.raises(TimeoutError):
        local.serve()
    assert not (local.houses[1].folder / "ledger.json").exists()


def stop(_: float) -> None:
    raise TimeoutError


def test_two_at_once_do_not_exceed_the_limit(tmp_path):
    first, second = Ledger(tmp_path, 1), Ledger(tmp_path, 1)
    first.check()
    second.check()
    assert first.count() == 1
    with pytest.raises(UnwillingError):
        second.count()
    assert first.trained == 1


def test_a_silo_that_has_no_rounds_left_does_not_join(tmp_path):
    local = limited(tmp_path, 1)
    Ledger(local.houses[1].folder).count()
    local.serve()
    assert f"silo-1 is out: {TRAINED_ENOUGH}" in (tmp_path / "record/log.txt").read_text()


@pytest.mark.parametrize("most", [None, 7])
def test_the_limit_reaches_the_app(federation, tmp_path, most):
    import tomllib
    from types import SimpleNamespace

    bundle = federation / "bundles" / NAMES[0]
    connect.command_of(bundle, tmp_path / "own.npz", max_rounds=most)
    told = tomllib.loads((bundle / "run/node.toml").read_text())
    assert app.house_of(SimpleNamespace(node_config=told)).max_rounds == most
