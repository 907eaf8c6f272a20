"""What the live pages, `status --json` and the metrics say, and what a silo's must not say."""

import json
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedamp.federation.processes import locks
from fedamp.federation.server import live as server_live
from fedamp.federation.server import overview as server_overview
from fedamp.federation.server import recovery
from fedamp.federation.server.overview import overview, see
from fedamp.federation.silo import diary
from fedamp.federation.silo import live as silo_live
from fedamp.federation.silo import overview as silo_overview
from fedamp.federation.watch import page
from federation.provisioned import NAMES
from federation.watched import Watched
from run_folders import EVIL

SERVER_KEYS = {
    "federation", "method", "up", "process", "state", "round", "rounds", "updated", "last_round", "round_seconds",
    "seconds_left", "min_silos", "metric", "mean", "worst", "worst_silo", "refused_replies", "warnings", "silos",
}  # fmt: skip
SERVER_SILO_KEYS = {
    "name", "number", "state", "since", "seen", "samples", "strikes", "refused", "reason", "withholds",
    "score",
}  # fmt: skip
SILO_KEYS = {
    "silo", "federation", "server", "method", "up", "process", "connection", "connection_since", "connection_reason",
    "round", "rounds", "ended", "last_round", "round_seconds", "seconds_left", "train_seconds", "samples", "metric",
    "scores", "models_folder", "models", "privacy", "refused", "refusals",
}  # fmt: skip


def lie(number, reply):
    """Silo 2 claims a sample count that can't be."""
    if number == 2:
        reply.content["metrics"]["num-examples"] = -4
    return reply


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> Watched:
    made = Watched(tmp_path_factory.mktemp("watched"), NAMES, lie, alone=[0], rounds=4, validation=0.25)
    made.play()
    return made


def all_bytes(view) -> bytes:
    return b"\n".join(name.encode() + resource.body() for name, resource in page.resources(view).items())


def families(view) -> dict[str, dict[tuple[str, ...], float]]:
    text = page.resources(view)["metrics"].body().decode()
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(text)
    }


def test_status_as_json(watched, fedamp_command):
    code, out, err = fedamp_command("federation", "status", watched.folder, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found.keys() == SERVER_KEYS
    assert (found["state"], found["round"], found["rounds"], found["up"]) == ("finished", 4, 4, False)
    good, _, bad = found["silos"]
    assert {key for silo in found["silos"] for key in silo} == SERVER_SILO_KEYS
    assert (good["name"], good["state"], bad["state"], bad["refused"]) == (NAMES[0], "in", "set aside", 3)
    assert found["refused_replies"] == 3
    assert "sample count is -4" in bad["reason"]
    assert good["seen"] == found["last_round"]
    assert 0 <= good["score"] <= 1
    assert bad["score"] is None
    assert found["worst"] == min(silo["score"] for silo in found["silos"][:2])


def test_a_federation_that_has_not_begun_has_the_same_keys(tmp_path, fedamp_command):
    Watched(tmp_path, NAMES)
    found = json.loads(fedamp_command("federation", "status", tmp_path, "--json")[1])
    assert found.keys() == SERVER_KEYS
    assert {key for silo in found["silos"] for key in silo} == SERVER_SILO_KEYS
    assert (found["state"], found["round"], found["mean"]) == ("not begun", 0, None)
    assert "No round has been scored yet" in page.resources(server_live.view(tmp_path))[""].body().decode()
    assert (
        "is not running" in json.loads(page.resources(server_live.view(tmp_path))["data.json"].body())["parts"]["head"]
    )
    bundle = tmp_path / "bundles" / NAMES[0]
    found = json.loads(fedamp_command("silo", "status", bundle, "--json")[1])
    assert found.keys() == SILO_KEYS
    assert fedamp_command("silo", "status", bundle)[1] == "The silo is not running. No round has been played yet.\n"


def test_refused_replies_are_counted_over_restarts(tmp_path):
    made = Watched(tmp_path, NAMES, lie, rounds=3)
    made.serve(rounds=2)
    before = overview(see(tmp_path))
    assert before["refused_replies"] == 2
    record = made.serve()
    after = overview(see(tmp_path))
    assert (after["refused_replies"], after["silos"][2]["refused"]) == (3, 3)
    assert before["last_round"] <= after["last_round"]
    record.begin()
    assert overview(see(tmp_path))["last_round"] == after["last_round"]


@pytest.mark.parametrize(
    ("state", "up", "left"),
    [
        ("running", True, 6.0), ("paused", True, None), ("waiting", True, None), ("running", False, None),
        ("finished", False, 0.0),
    ],
)  # fmt: skip
def test_the_time_left_is_told_only_while_rounds_are_played(state, up, left):
    assert server_overview._left(state, up, 2.0, 3) == left


def test_a_silo_tells_how_long_short_rounds_take_and_no_time_left_while_none_is_played(tmp_path, monkeypatch):
    made = Watched(tmp_path, NAMES, rounds=500)
    made.serve(rounds=3)
    bundle = made.bundle(0)
    rounds = bundle / "run" / diary.ROUNDS
    rounds.write_text("".join(rounds.read_text().splitlines(keepends=True)[:3]))  # they have not ended
    diary.note_connection(bundle / "run", "connected")
    monkeypatch.setattr(silo_overview.locks, "holder", lambda path: 1234)
    found = silo_overview.overview(bundle)
    assert 0 < found["round_seconds"] < 60
    assert found["seconds_left"] == pytest.approx(found["round_seconds"] * 497)
    assert " left" in silo_live.look(bundle).values["lead"]
    later = time.time() + 120  # the server waits for others, or this silo is out
    with monkeypatch.context() as patch:
        patch.setattr(silo_overview.time, "time", lambda: later)
        assert silo_overview.overview(bundle)["seconds_left"] is None
    diary.note_connection(bundle / "run", "trying again")
    assert silo_overview.overview(bundle)["seconds_left"] is None
    lines = [{**line, "time": "2030-01-01T00:00:00+00:00"} for line in diary.rounds(bundle / "run")]
    assert silo_overview._pace(lines) is None  # whole seconds, as they were written before: not known is not 0


def test_a_round_that_did_not_count_is_not_passed_over(tmp_path):
    """The page said that every silo had answered, above a log that said that one had not."""
    lost = []

    def lose(number, reply):
        if number == 1 and not lost:
            return lost.append(number)
        return reply

    Watched(tmp_path, NAMES[:2], lose, rounds=1).play()
    parts = json.loads(page.resources(server_live.view(tmp_path))["data.json"].body())["parts"]
    assert "round 1 does not count" in parts["log"]
    assert "Nobody, in the rounds that counted." in parts["absences"]


def test_a_silo_that_was_removed_is_in_no_mean(tmp_path):
    made = Watched(tmp_path, NAMES, rounds=2)
    made.play()
    before = overview(see(tmp_path))
    gone = before["worst_silo"]
    recovery.remove(tmp_path, gone)
    after = overview(see(tmp_path))
    stay = [silo["score"] for silo in before["silos"] if silo["name"] != gone]
    assert after["worst_silo"] != gone
    assert after["mean"] == pytest.approx(sum(stay) / 2)
    assert [silo["state"] for silo in after["silos"] if silo["name"] == gone] == ["removed"]
    assert "2 of 2 silos" in server_live._lead({**after, "up": True, "state": "waiting"}, 2)


def test_the_servers_page_shows_all_silos(watched):
    found = json.loads(page.resources(server_live.view(watched.folder))["data.json"].body())
    assert found["fault"] == ""
    assert all(name in found["parts"]["silos"] for name in NAMES)
    assert "sample count is -4" in found["parts"]["absences"]
    assert "set aside after 3 bad replies" in found["parts"]["log"]
    lines = found["plots"]["curves"]["lines"]
    assert [line["name"] for line in lines] == ["mean", *NAMES]
    assert lines[1]["x"] == [1, 2, 3, 4]
    assert sorted(found["plots"]["xi"]["clients"]) == sorted(NAMES)
    assert found["plots"]["gains"]["names"] == NAMES


def test_weights_are_shown_while_it_runs(watched, tmp_path):
    """They are in the checkpoint before they are in a file of their own."""
    made = Watched(tmp_path, NAMES, rounds=3)
    made.serve(rounds=2)
    for name in ("xi.safetensors", "result.json"):
        (tmp_path / "record" / name).unlink()
    found = json.loads(page.resources(server_live.view(tmp_path))["data.json"].body())
    assert found["plots"]["xi"]["rounds"] == [1, 2]
    assert sorted(found["plots"]["xi"]["clients"]) == sorted(NAMES)


def test_a_silos_page_shows_what_is_its_own(watched, fedamp_command):
    bundle = watched.bundle(0)
    found = json.loads(page.resources(silo_live.view(bundle))["data.json"].body())
    names = [line["name"] for line in found["plots"]["curves"]["lines"]]
    assert names == [silo_live.WORDS[entry] for entry in ("own", "received", "between", "alone")]
    assert found["plots"]["curves"]["lines"][1]["x"] == [1, 2, 3, 4]  # made by the round before
    assert "alone.safetensors" in found["parts"]["models"]
    status = json.loads(fedamp_command("silo", "status", bundle, "--json")[1])
    assert status.keys() == SILO_KEYS
    assert (status["silo"], status["round"], status["ended"], status["samples"]["train"]) == (NAMES[0], 4, True, 14)
    out = fedamp_command("silo", "status", bundle)[1]
    assert "The federation has ended after 4 rounds." in out
    assert "trained alone: test " in out


def test_a_silos_page_has_nothing_of_the_others(watched):
    """Scores and names that occur nowhere else are all over the server's record, and nowhere on a silo's page."""
    record = watched.folder / "record" / "rounds.jsonl"
    before = record.read_text()
    lines = [json.loads(text) for text in before.splitlines()]
    for line in lines:
        for entry in line.get("test", {}).values():
            entry["accuracy"][1:] = [0.31830988, 0.31830988]
    try:
        record.write_text("".join(json.dumps(line) + "\n" for line in lines))
        markers = [*(name.encode() for name in NAMES[1:]), b"31830988", b"31.83", b"sample count is -4"]
        servers = all_bytes(server_live.view(watched.folder))
        assert all(marker in servers for marker in markers)
        own = all_bytes(silo_live.view(watched.bundle(0)))
        assert NAMES[0].encode() in own
        assert [marker for marker in markers if marker in own] == []
    finally:
        record.write_text(before)


def test_the_connection_of_a_silo(tmp_path):
    from fedamp.federation.silo import diary
    from fedamp.federation.silo.overview import overview as of_silo

    bundle = Watched(tmp_path, NAMES).bundle(0)
    (bundle / "run").mkdir()
    diary.note_connection(bundle / "run", "trying again", "the server does not know this silo's key")
    assert (of_silo(bundle)["up"], of_silo(bundle)["connection"]) == (False, "not running")
    with locks.only_one(bundle / "run/up.lock", "it"):
        assert (of_silo(bundle)["up"], of_silo(bundle)["connection"]) == (True, "trying again")
        assert "does not know this silo" in silo_live.look(bundle).values["lead"]


def test_metrics_of_the_server(watched):
    found = families(server_live.view(watched.folder))
    assert (found["fedamp_up"][()], found["fedamp_round"][()], found["fedamp_rounds"][()]) == (0, 4, 4)
    assert (found["fedamp_silos"]["in",], found["fedamp_silos"]["set aside",]) == (2, 1)
    assert found["fedamp_silos"]["missing",] == 0
    assert found["fedamp_accuracy"].keys() == {(name,) for name in NAMES[:2]}
    assert found["fedamp_refused_replies"][()] == 3
    assert found["fedamp_round_seconds"][()] > 0
    assert found["fedamp_last_round_timestamp_seconds"][()] > 1.7e9


def test_metrics_of_a_silo_are_its_own(watched):
    found = families(silo_live.view(watched.bundle(0)))
    assert found["fedamp_round"][()] == 4
    assert found["fedamp_accuracy"].keys() == {("own",), ("received",), ("between",), ("alone",)}
    assert not {"fedamp_silos", "fedamp_refused_replies"} & found.keys()


def test_texts_from_elsewhere_stay_texts(watched):
    status = watched.folder / "record" / "status.json"
    before = status.read_text()
    try:
        said = json.loads(before)
        said["silos"][2]["reason"] = EVIL
        said["silos"][1]["state"] = EVIL
        status.write_text(json.dumps(said))
        resources = page.resources(server_live.view(watched.folder))
        parts = json.loads(resources["data.json"].body())["parts"]
        assert "<script" not in parts["silos"]
        assert "<img" not in parts["silos"]
        text = resources["metrics"].body().decode()
        assert list(text_string_to_metric_families(text))
    finally:
        status.write_text(before)


def test_a_damaged_folder_is_told_on_the_page(tmp_path):
    made = Watched(tmp_path, NAMES)
    view = server_live.view(made.folder)
    (tmp_path / "record").mkdir()
    (tmp_path / "record/status.json").write_text("{")
    resources = page.resources(view)
    assert "can't be read as JSON" in json.loads(resources["data.json"].body())["fault"]
    assert "can't be read" in json.loads(resources["status.json"].body())["fault"]
    assert b"fedamp_up 0.0" in resources["metrics"].body()


def test_files_are_read_when_they_have_changed_and_once_a_second_at_most(tmp_path, monkeypatch):
    looks = []

    def look():
        looks.append(1)
        return page.Look({"up": False})

    view = page.View("silo", "any", look, [tmp_path / "file", tmp_path], tmp_path / "lock", lambda overview: b"")
    ask = page.resources(view)["status.json"].body
    for _ in range(5):
        ask()
        (tmp_path / "file").write_text(f"{len(looks)}")
    assert len(looks) == 1
    monkeypatch.setattr(page, "NOT_MORE_OFTEN", 0.0)
    for _ in range(5):
        ask()
    assert len(looks) == 2
    (tmp_path / "another").touch()
    ask()
    assert len(looks) == 3
    with locks.only_one(tmp_path / "lock", "it"):
        ask()
        assert len(looks) == 4


def test_watch_says_where_it_is_once_and_ends_with_ctrl_c(watched, fedamp_command, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(page.Watcher, "serve_forever", interrupted)
    for command in (("federation", watched.folder), ("silo", watched.bundle(0))):
        code, out, err = fedamp_command(command[0], "watch", command[1], "--token-file", "token")
        assert (code, err, out.count("http://127.0.0.1:")) == (0, "", 1)
    assert "not a silo's bundle" in fedamp_command("silo", "watch", "elsewhere")[2]
