"""Which models a silo has at home: its best by its own validation samples, and those of the last rounds."""

import json

import pytest

from fedamp.federation.silo import kept_models
from fedamp.federation.silo.round import open_silo
from fedamp.records.reading import read_lines
from fedamp.records.take_home import ENTRIES, HeldOut
from federation.inprocess import Local, plan_of, write_silos


@pytest.fixture
def made(monkeypatch) -> dict:
    """All models that were ever at home: bytes by silo, entry and the round that made them."""
    found = {}
    real = kept_models.keep_best

    def noted(folder, k, scores, held_out):
        for path in folder.glob("*.json"):
            if path.stem in ENTRIES:
                made_in = json.loads(path.read_text())["score"]["round"]
                found[folder.parent.name, path.stem, made_in] = path.with_suffix(".safetensors").read_bytes()
        real(folder, k, scores, held_out)

    monkeypatch.setattr(kept_models, "keep_best", noted)
    return found


def test_the_best_is_what_its_own_validation_samples_say(tmp_path, made):
    """Said by the server's lines of that silo alone, and the file is that very model."""
    data = write_silos(tmp_path / "data", seed=4)
    local = Local(tmp_path, plan_of(data, "fedavg", rounds=4, validation=0.3, lr=0.3), data)
    scored = local.serve().state.method.scored
    lines, choices = read_lines(tmp_path / "record/rounds.jsonl"), set()
    for i, house in local.houses.items():
        silo = open_silo(house.config, house.data, house.folder)
        own = [
            {**line, "validation": {entry: alone(by, i) for entry, by in line.get("validation", {}).items()}}
            for line in lines
        ]
        choice = HeldOut((len(silo.setup.clients.validation[0]),), "accuracy", scored).over(own).choice
        spec = json.loads((house.folder / "models/best.json").read_text())
        assert {**spec["best"]} == {**vars(choice), "samples": len(silo.setup.clients.validation[0])}
        assert (spec["score"]["round"], spec["score"]["validation"]) == (choice.round, choice.score)
        kept = (house.folder / "models/best.safetensors").read_bytes()
        assert kept == made[house.folder.name, choice.entry, choice.round]
        choices.add((choice.entry, choice.round))
    assert {("own", 1), ("received", 4)} <= choices, "an earlier and the very last model: else this shows little"


def alone(by, i):
    return {what: [values[i]] for what, values in by.items()}


def test_test_samples_never_choose(tmp_path):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=1), data)
    local.serve()
    folder = local.houses[0].folder / "models"
    assert not list(folder.glob("best*"))
    house = local.houses[1]
    silo = open_silo(house.config, house.data, house.folder)
    held_out = HeldOut((9,), "accuracy", "own")
    scores = {f"{on}.own.{what}": 1.0 for on in ("test", "first.validation") for what in ("accuracy", "loss")}
    kept_models.keep_best(silo.models, 4, scores, held_out)
    assert not (silo.models / "best.json").exists()


def test_the_last_rounds_are_kept_with_their_scores(tmp_path):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=4, validation=0.2), data)
    local.serve()
    lines = read_lines(tmp_path / "record/rounds.jsonl")
    for i, house in local.houses.items():
        rounds = house.folder / "models/rounds"
        assert sorted(path.name for path in rounds.iterdir()) == ["0002", "0003", "0004"]
        for k in (2, 3, 4):
            folder = rounds / f"{k:04d}"
            assert {path.name for path in folder.iterdir()} == {
                f"{e}{end}" for e in ENTRIES for end in kept_models.ENDINGS
            }
            for entry in ENTRIES:
                score = json.loads((folder / f"{entry}.json").read_text())["score"]
                assert score["round"] == k - (entry == "received")
                for on in ("test", "validation"):
                    assert score[on] == lines[k][on][entry]["accuracy"][i]
        newest = house.folder / "models/own.safetensors"
        assert (rounds / "0004/own.safetensors").read_bytes() == newest.read_bytes()
        assert (rounds / "0003/own.safetensors").read_bytes() != newest.read_bytes()


def write_models(folder, word: str) -> None:
    for ending in kept_models.ENDINGS:
        path = folder / f".own{ending}"
        path.write_text(word)
        path.replace(folder / f"own{ending}")


def test_a_round_is_whole_or_not_there(tmp_path, monkeypatch):
    folder, rounds = tmp_path / "models", tmp_path / "models/rounds"
    folder.mkdir()
    for k in (1, 2, 3, 4):
        write_models(folder, f"of {k}")
        kept_models.keep_round(folder, k, ["own"])
    real, calls = kept_models._link, []

    def fails(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError("full")
        real(source, target)

    monkeypatch.setattr(kept_models, "_link", fails)
    write_models(folder, "of 5")
    with pytest.raises(OSError, match="full"):
        kept_models.keep_round(folder, 5, ["own"])
    assert not (rounds / "0005").exists()
    assert (rounds / "0002/own.json").read_text() == "of 2"
    kept_models.keep_round(folder, 5, ["own"])
    assert sorted(path.name for path in rounds.iterdir()) == ["0003", "0004", "0005"]
    kept_models.keep_round(folder, 4, ["own"])  # the server went back, and plays it again
    assert sorted(path.name for path in rounds.iterdir()) == ["0003", "0004"]
    assert (rounds / "0004/own.json").read_text() == "of 5"


def test_a_best_model_is_not_rewritten_for_nothing_nor_told_with_anothers_scores(tmp_path, monkeypatch):
    """A disk that is full in the middle leaves none, rather than a wrong one."""
    (tmp_path / "own.safetensors").write_text("first")
    (tmp_path / "own.json").write_text(json.dumps({"entry": "own"}))
    held_out = HeldOut((10,), "accuracy", "own")

    def keep(k, score):
        kept_models.keep_best(tmp_path, k, {"validation.own.accuracy": score, "validation.own.loss": 1.0}, held_out)

    keep(1, 0.5)
    (tmp_path / "own.safetensors").write_text("worse")
    keep(2, 0.4)
    keep(3, 0.5)  # as good: the earlier one stays
    assert (tmp_path / "best.safetensors").read_text() == "first"
    assert json.loads((tmp_path / "best.json").read_text())["best"]["round"] == 1
    monkeypatch.setattr(kept_models, "write_json", lambda *_: (_ for _ in ()).throw(OSError("full")))
    (tmp_path / "own.safetensors").write_text("second")
    with pytest.raises(OSError, match="full"):
        keep(3, 0.9)
    assert not (tmp_path / "best.json").exists()
    monkeypatch.undo()
    keep(4, 0.3)
    assert json.loads((tmp_path / "best.json").read_text())["best"]["round"] == 4
    held_out = HeldOut((11,), "accuracy", "own")  # other samples: scores of before can't be compared
    keep(5, 0.1)
    assert json.loads((tmp_path / "best.json").read_text())["best"]["round"] == 5


def test_an_engineer_sees_them_with_their_scores(tmp_path, fedamp_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    data = write_silos(tmp_path / "data")
    for name, settings in (("with", {"validation": 0.3}), ("without", {})):
        local = Local(tmp_path / name, plan_of(data, rounds=2, **settings), data)
        local.serve()
        local.houses[0].folder.rename(tmp_path / name / "run")
    code, out, err = fedamp_command("silo", "models", tmp_path / "with")
    assert code == 0, err
    order = ["best (", "chosen (", "own ", "received ", "between ", "rounds/0002/own ", "rounds/0001/own "]
    places = [out.index(f"│ {name}") for name in order]
    assert places == sorted(places)
    spec = json.loads((tmp_path / "with/run/models/best.json").read_text())
    (row,) = [line for line in out.splitlines() if " best (" in line]
    assert f"{100 * spec['score']['validation']:.2f} %" in row
    assert "choose by validation samples" in out
    assert f"best: by your own {spec['best']['samples']} validation samples" in out
    code, out, _ = fedamp_command("silo", "models", tmp_path / "without")
    assert (code, "no best one is kept: the plan holds out no validation samples" in out) == (0, True)
    for path in (tmp_path / "with/run/models").rglob("*.json"):  # as if its own samples were of one class
        spec = json.loads(path.read_text())
        path.write_text(json.dumps({**spec, "score": {**spec["score"], "metric": "auc", "validation": None}}))
    for path in (tmp_path / "with/run/models").glob("best.*"):
        path.unlink()
    code, out, _ = fedamp_command("silo", "models", tmp_path / "with")
    assert (code, "no best one is kept: your own validation samples define no AUC" in out) == (0, True)
    code, _, err = fedamp_command("silo", "models", tmp_path / "nowhere")
    assert (code, err.count("\n"), "no models yet" in err) == (2, 1, True)
