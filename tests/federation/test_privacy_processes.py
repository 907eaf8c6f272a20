"""Privacy over real processes: a silo spends its promise, the others go on, and repeated rounds cost nothing."""

import json
import subprocess

import pytest

from fedamp.config.reply_limits import Rules
from fedamp.federation.demo import NAMES
from fedamp.federation.silo.privacy_ledger import PrivacyLedger
from fedamp.federation.wire.phrases import SPENT_PRIVACY
from fedamp.records.reading import read_lines
from federation.test_federation import FEDAMP, Cast, stack

pytestmark = pytest.mark.slow
__all__ = ["stack"]

FIRST, SPENT, THIRD = NAMES
ROUNDS = 8


def paid(cast: Cast, name: str) -> list[int]:
    account = PrivacyLedger(cast.folder / "bundles" / name / "run").account()
    return [each.round for each in account.rounds]


def played(cast: Cast, name: str) -> list[int]:
    """Return the rounds in which the server has taken a silo's reply."""
    lines = read_lines(cast.folder / "record/rounds.jsonl")
    return [line["round"] for line in lines if line.get("present", [False] * 3)[NAMES.index(name)]]


def command(cast: Cast, *words: str) -> str:
    done = subprocess.run([*FEDAMP, *words], env=cast.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def finished(cast: Cast) -> int:
    return cast.log().count("finished: all silos keep their scores at home")


def test_a_promise_is_spent_and_the_others_go_on_at_no_cost_for_repeats(tmp_path, stack):
    cast = Cast(tmp_path, stack, Rules(min_silos=2, reply_timeout=60), rounds=ROUNDS, model="logistic", method="fedamp")
    cast.server_up()
    for name in (FIRST, THIRD):
        cast.silo_up(name, "--dp-noise", "3", "--dp-spent", "0")
    cast.silo_up(SPENT, "--dp-epsilon", "2", "--dp-rounds", "2", "--dp-spent", "0")
    cast.wait(lambda: f"{SPENT} is out: {SPENT_PRIVACY}" in cast.log(), 120, "a silo that is out")
    cast.kill("server")  # in the midst of a round, perhaps: its replies are lost
    cast.server_up()
    cast.wait(lambda: finished(cast) == 1, 180, "the last round")
    cast.running["server"].wait(30)
    spent, first = paid(cast, SPENT), paid(cast, FIRST)
    assert len(spent) == len(set(spent)) == 2
    assert first[-6:] == list(range(ROUNDS - 5, ROUNDS + 1))
    for name in NAMES:
        assert paid(cast, name) == played(cast, name)
    status = json.loads(command(cast, "federation", "status", str(cast.folder), "--json"))
    assert {silo["name"]: silo["state"] for silo in status["silos"]} == {FIRST: "in", SPENT: "out", THIRD: "in"}
    assert f"round {ROUNDS}/{ROUNDS}: 2 of 3 silos" in cast.log()
    assert f"{SPENT} is out ({SPENT_PRIVACY})" in cast.log()

    # The server goes back two rounds: they are played again, with the replies that have left before.
    command(cast, "federation", "rewind", str(cast.folder), str(ROUNDS - 2))
    cast.server_up()
    cast.wait(lambda: finished(cast) == 2, 180, "the last round again")
    cast.running["server"].wait(30)
    assert cast.log().count(f" round {ROUNDS}/{ROUNDS}: 2 of 3") == 2
    assert paid(cast, FIRST) == first
    assert paid(cast, THIRD) == played(cast, THIRD)
    assert cast.silo_log(FIRST).count("gets the same reply; it costs nothing") >= 2

    # Its operator allows more, and it is welcome again.
    plan = json.loads((cast.folder / "federation.json").read_text())
    plan["description"]["rounds"] = 100_000
    (cast.folder / "federation.json").write_text(json.dumps(plan))
    cast.kill(SPENT)
    cast.server_up()
    cast.wait(lambda: f" round {ROUNDS + 1}/" in cast.log(), 120, "a round more")
    cast.silo_up(SPENT, "--dp-epsilon", "50")
    cast.wait(lambda: f"{SPENT} is back, and trains again" in cast.log(), 120, "the one that was out")
    cast.wait(lambda: len(paid(cast, SPENT)) > 3, 120, "its rounds")
    assert "3 of 3 silos" in cast.log().split(f"{SPENT} is back")[1]
    assert paid(cast, SPENT)[:2] == spent
