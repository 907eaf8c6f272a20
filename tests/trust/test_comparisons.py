"""What is compared was run on the same data, its table says what was not the same, and validation alone chooses."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedamp.cli.terminal import mean_of
from fedamp.config import Named
from fedamp.data.clients import Clients
from fedamp.records.reading import RunRecord, read_runs
from fedamp.report import as_markdown, as_text, comparison_table, write_report
from fedamp.runs import compare, handed_over, material, setup
from fedamp.runs.compare import playing
from paper import experiments, results
from paper import run as paper_run
from paper.distil import distil
from run_folders import write_run

QUICK = ["--rounds", "2", "--epochs", "1", "--clients", "5"]
SCORES = [(0.5, 0.6, 0.7)]


# Each method may have rounds, a learning rate and a precision of its own


def digits(name, method):
    """Return a preset as the paper's are: SCAFFOLD has more rounds than the others."""
    told = {"clients": 5, "epochs": 1, "setting": {"name": "practical", "groups": 2}, "method": method}
    return {**told, "rounds": 4 if method == "scaffold" else 2}


def test_a_preset_whose_methods_have_other_rounds_is_one_comparison(fedamp_command, monkeypatch):
    monkeypatch.setattr("fedamp.config.presets.preset", digits)
    given = ["compare", "--preset", "paper/mnist-practical", "--methods", "scaffold,fedamp", "--out", "here"]
    code, out, err = fedamp_command(*given, "--format", "csv")
    assert code == 0, err
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(out))}
    assert {row["block"] for row in rows.values()} == {""}
    assert rows["scaffold"]["against"] == "separate"
    assert rows["scaffold"]["p"] or rows["scaffold"]["p_note"] == "all clients equal"
    assert rows["scaffold"]["worse_off"] != ""
    assert [rows[name]["training"] for name in ("separate", "fedamp", "scaffold")] == [
        "rounds=2",
        "rounds=2",
        "rounds=4",
    ]
    text = fedamp_command("report", "here", "--format", "text")[1]
    assert "separate, fedamp with rounds=2; scaffold with rounds=4" in text
    fedamp_command("report", "here")
    assert "2 (separate, fedamp); 4 (scaffold)" in Path("here/report.html").read_text()


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"rounds": 90}, "rounds=90"),
        ({"epochs": 9}, "epochs=9"),
        ({"steps": 7, "epochs": None}, "steps=7"),
        ({"batch_size": 99}, "batch_size=99"),
        ({"lr": 0.5}, "lr=0.5"),
        ({"optimizer": "sgd", "momentum": 0.9}, "momentum=0.9"),
        ({"precision": "bf16"}, "precision=bf16"),
    ],
)
def test_what_is_a_methods_own_does_not_part_it_from_the_others_and_is_told(tmp_path, changed, word):
    write_run(tmp_path / "s", "separate", accuracies=SCORES)
    write_run(tmp_path / "a", "fedamp", accuracies=[(0.6, 0.7, 0.9)], **changed)
    rows = comparison_table(read_runs(tmp_path))
    assert [row.block for row in rows] == ["", ""]
    assert rows[1].worse_off == 0
    assert rows[1].p is not None
    for text in (as_text(rows), as_markdown(rows).replace("\\", ""), write_report([tmp_path]).read_text()):
        assert "Not trained in the same way, so a difference" in text
        assert word in text


@pytest.mark.parametrize(
    "changed",
    [
        {"data": "mnist"},
        {"setting": {"name": "practical", "share": 0.6}},
        {"model": "logistic"},
        {"label_noise": 0.2},
        {"noisy_clients": (1,)},
        {"poisoned": (1,)},
        {"absent": 0.5},
        {"validation": 0.2},
        {"init": "own"},
        {"held_out": 0.3},
        {"model_code": "abc"},
    ],
)
def test_what_was_done_to_data_and_model_does(tmp_path, changed):
    write_run(tmp_path / "s", "separate", accuracies=SCORES)
    write_run(tmp_path / "a", "fedamp", accuracies=SCORES, **changed)
    rows = comparison_table(read_runs(tmp_path))
    assert len({row.block for row in rows}) == 2
    assert next(row for row in rows if row.method == "fedamp").p_note == ""
    assert "compare methods only within a setting" in as_text(rows)


@pytest.mark.parametrize("known", ["9f3a5c7721aa", None])
def test_other_samples_under_one_name_are_other_data(tmp_path, known):
    write_run(tmp_path / "s", "separate", accuracies=SCORES)
    write_run(tmp_path / "a", "fedamp", accuracies=SCORES)
    for name, digest in (("s", "04b1d2e88c11"), ("a", known)):
        if digest is not None:
            (tmp_path / name / "inputs.json").write_text(json.dumps({"data": digest}))
    rows = comparison_table(read_runs(tmp_path))
    assert {row.block for row in rows} == {"other data (1)", "other data (2)"}
    assert all(row.p is None and row.worse_off is None for row in rows)
    for text in (as_text(rows), write_report([tmp_path]).read_text()):
        assert "Other data: the samples themselves are not the same" in text
        assert "04b1d2e8" not in text, "a digest of private rows is not shown"


def test_who_was_trained_as_long_is_who_a_method_is_measured_by(tmp_path):
    for rounds, alone, mine in ((30, 0.5, 0.6), (90, 0.8, 0.7)):
        write_run(tmp_path / f"s{rounds}", "separate", accuracies=[(alone,) * 6], rounds=rounds)
        write_run(tmp_path / f"a{rounds}", "fedamp", accuracies=[(mine,) * 6], rounds=rounds)
    for against in (None, "separate"):
        rows = {row.method: row for row in comparison_table(read_runs(tmp_path), against)}
        assert rows["fedamp (rounds=30)"].against == "separate (rounds=30)"
        assert (rows["fedamp (rounds=30)"].worse_off, rows["fedamp (rounds=90)"].worse_off) == (0, 6)
    assert "p against separate  " in as_text(list(rows.values()))
    assert "against separate (rounds=30), separate (rounds=90)" in as_text(list(rows.values()))


# A refused comparison leaves nothing


@pytest.mark.parametrize(
    ("mistake", "word"),
    [
        (["--set", "method.sigmo=7"], "sigmo"),
        (["--set", "method.sigma=-1"], "sigma"),
        (["--set", "method.self_weight=[0.5,0.5]"], "self_weight"),
        (["--set", "setting.nope=1"], "nope"),
        (["--set", "model.hidden=none"], "hidden"),
        (["--optimizer", "adam"], "plain SGD"),
        (["--data", "mnist"], "mnist"),
        (["--data", "nowhere/"], "nowhere"),
        (["--grid", "method.sigma=1,10"], "--validation"),
        (["--grid", "method.sigma=1,-10", "--validation", "0.2"], "sigma"),
        (["--poisoned", "7"], "poisoned client is 7"),
        (["--attack", "labels"], "nobody is poisoned"),
        (["--model", "nope"], "nope"),
        (["--batch-size", "0"], "batch_size"),
        (["--seeds", "0"], "seeds"),
    ],
)
@pytest.mark.many
def test_a_refused_comparison_writes_nothing_and_the_corrected_one_runs(fedamp_command, monkeypatch, mistake, word):
    real = playing.play
    monkeypatch.setattr(playing, "play", lambda *_: pytest.fail("a run was played"))
    clients = [] if "nowhere/" in mistake else QUICK[-2:]
    code, _, err = fedamp_command(
        "compare", *QUICK[:-2], *clients, "--methods", "fedavg,scaffold,fedamp", *mistake, "--out", "here"
    )
    assert code == 2, err
    assert word in err
    assert not Path("here").exists()
    monkeypatch.setattr(playing, "play", real)
    code, _, err = fedamp_command("compare", *QUICK, "--methods", "fedamp", "--out", "here")
    assert code == 0, err


def test_a_plan_of_which_nothing_has_begun_is_given_up(fedamp_command, monkeypatch):
    """As an older version, or a machine that went down, leaves it."""
    given = ["compare", *QUICK, "--methods", "fedamp", "--out", "here"]
    with monkeypatch.context() as patch:
        patch.setattr(playing, "play", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert fedamp_command(*given, "--lr", "0.5", "--set", "method.sigma=7")[0] == 130
    assert Path("here/comparison.json").exists()
    code, _, err = fedamp_command(*given)
    assert code == 0, err
    plan = json.loads(Path("here/comparison.json").read_text())
    assert plan["fedamp-seed0"]["method"] == {"name": "fedamp"}
    assert {record.config["lr"] for record in read_runs(Path("here"))} == {None}


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_run_that_failed_before_its_first_round_is_in_nobodys_way(fedamp_command, monkeypatch, command):
    given = [command, *QUICK, "--method" + "s" * (command == "compare"), "fedamp", "--out", "here"]
    with monkeypatch.context() as patch:
        patch.setattr("fedamp.runs.loop.play_round", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("no memory")))
        with pytest.raises(RuntimeError):
            fedamp_command(*given, "--lr", "0.5", "--seed", "3")
    assert list(Path("here").rglob("description.json"))
    code, _, err = fedamp_command(*given, "--lr", "0.1")
    assert code == 0, err
    records = read_runs(Path("here"))
    assert {(record.config["seed"], record.config["lr"]) for record in records} == {(0, 0.1)}
    assert all(record.finished for record in records)


def test_what_has_begun_stays_as_it_is(fedamp_command, monkeypatch):
    given = ["compare", *QUICK, "--methods", "fedamp", "--out", "here"]
    real, played = playing.play, []

    def second_fails(*rest):
        played.append(rest)
        if len(played) == 2:
            raise KeyboardInterrupt
        return real(*rest)

    monkeypatch.setattr(playing, "play", second_fails)
    assert fedamp_command(*given)[0] == 130
    before = Path("here/separate-seed0/result.json").read_text()
    code, _, err = fedamp_command(*given, "--absent", "0.5")
    assert code == 2
    assert "for separate-seed0, absent is 0.0 there and 0.5 here" in err
    # FedAMP has not begun: it alone may be planned anew.
    code, _, err = fedamp_command(*given, "--set", "method.sigma=7")
    assert code == 0, err
    assert Path("here/separate-seed0/result.json").read_text() == before
    told = {record.config["method"]["name"]: record.config["method"] for record in read_runs(Path("here"))}
    assert told["fedamp"] == {"name": "fedamp", "sigma": 7}


def test_a_command_for_a_part_of_a_comparison_leaves_the_rest(fedamp_command):
    fedamp_command("compare", *QUICK, "--methods", "fedamp,fedavg", "--out", "here")
    plan = Path("here/comparison.json").read_text()
    code, _, err = fedamp_command("compare", *QUICK, "--methods", "fedamp", "--out", "here")
    assert code == 0, err
    assert Path("here/comparison.json").read_text() == plan
    assert len(read_runs(Path("here"))) == 3


def test_what_is_done_needs_no_data_any_more(fedamp_command, monkeypatch):
    given = ["compare", *QUICK, "--methods", "fedamp", "--out", "here"]
    fedamp_command(*given)
    monkeypatch.setattr(
        "fedamp.runs.handed_over.assemble", lambda *_, **__: pytest.fail("it was made ready for nothing")
    )
    assert fedamp_command(*given)[0] == 0


# A grid is chosen by the validation samples of honest clients


def line(k, validation, test=(0.5, 0.5, 0.5)):
    scores = {"own": {"accuracy": list(validation)}, "received": {"accuracy": list(validation)}}
    return {"round": k, "events": [], "seconds": 0.0, "validation": scores, "test": {"own": {"accuracy": list(test)}}}


def test_poisoned_clients_have_no_say_in_the_choice():
    def record(sigma, scores):
        told = {"method": {"name": "fedamp", "sigma": sigma}, "poisoned": [0], "seed": 0}
        return RunRecord(Path(f"fedamp-{sigma}"), told, [line(0, (0, 0, 0)), line(1, scores)], {"metric": "accuracy"})

    good, bad = record(1.0, (0.0, 0.8, 0.8)), record(10.0, (1.0, 0.7, 0.7))
    for order in ([good, bad], [bad, good]):
        (chosen,) = compare.choose(order)
        assert (chosen.path, chosen.tuned, chosen.tried) == (good.path, {"sigma": 1.0}, 2)


def test_nor_in_the_papers_tuning():
    config = experiments.Cell("x", "y", {"clients": 3, "poisoned": (0,), "validation": 0.2}).config
    lines = [line(0, (0, 0, 0)), line(1, (1.0, 0.4, 0.6)), line(2, (0.0, 0.5, 0.6)), line(3, (0, 0, 0))]
    assert distil(config, lines, None, None)["validation"] == {"own": 55.0, "received": 55.0}


class Ended(Exception):  # noqa: N818
    pass


def test_nor_in_when_a_run_of_the_paper_ends(monkeypatch, tmp_path):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    told = {"clients": 3, "rounds": 9, "epochs": 1, "method": "separate", "poisoned": (0,), "setting": "iid"}
    cell = experiments.Cell("digits", "separate-seed0", told, patience=2)
    # Honest clients stand still from the first round on; the poisoned one alone gets better.
    lines = [line(k, (0, 0, 0), test=(k / 10, 0.5, 0.5)) for k in range(10)]

    def play(config, setup, folder, watch):
        for each in lines:
            if watch(each) is False:
                raise Ended
        raise AssertionError("nobody ended it")

    monkeypatch.setattr(paper_run, "play", play)
    with pytest.raises(Ended):
        paper_run.Runner().play(cell)


def test_nor_in_the_mean_beside_the_bar():
    assert mean_of(line(1, (0, 0, 0), test=(0.0, 0.5, 0.7)), "own", (0,)) == "60.00 %"


def scramble(clients, on):
    """Return clients whose test or validation samples have wrong labels, and whose other samples are as they were."""
    y = clients.y.clone()
    for positions in getattr(clients, on):
        y[positions] = (y[positions] + 1) % 10
    return replace(clients, y=y)


@pytest.fixture
def nonsense(monkeypatch):
    """Give the labels of the `test` or the `validation` samples of all runs to come a wrong value."""
    real = Clients.hold_out

    def hold_out(clients, share, seed, on="validation", called=None):
        return scramble(real(clients, share, seed, on), on)

    def load_material(*given, _load=material.load_material):
        material = _load(*given)
        return replace(material, clients=scramble(material.clients, "test"))

    def begin(on):
        if on == "validation":
            monkeypatch.setattr(Clients, "hold_out", hold_out)
        elif on == "test":
            for where in (setup, material, handed_over, paper_run):
                monkeypatch.setattr(where, "load_material", load_material)

    return begin


GRID = ["--grid", "method.mu=0.0,1000.0", "--validation", "0.2"]
"""A pull of 1000 keeps everyone at the first model: by true labels the worse choice, by wrong ones the better."""


@pytest.mark.parametrize(("wrong", "chosen"), [("nothing", "0.0"), ("test", "0.0"), ("validation", "1000.0")])
def test_a_grid_never_sees_a_test_sample(fedamp_command, nonsense, wrong, chosen):
    nonsense(wrong)
    code, _, err = fedamp_command("compare", *QUICK, "--methods", "fedprox-ft", *GRID, "--out", "grid")
    assert code == 0, err
    shown = {record.path.name: record for record in read_runs(Path("grid"))}
    assert set(shown) == {"separate-seed0", f"fedprox-ft-mu={chosen}-seed0"}
    best = shown["separate-seed0"].result["best"]
    assert best < 20 if wrong == "test" else best > 40  # the test labels are wrong where that is said, and only there


@pytest.mark.parametrize(("wrong", "chosen"), [("nothing", 0.0), ("test", 0.0), ("validation", 1000.0)])
def test_nor_does_the_papers_tuning(tmp_path, monkeypatch, nonsense, wrong, chosen):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setitem(experiments.GRIDS, "fedprox", ("mu", (1000.0, 0.0)))
    nonsense(wrong)
    for mu in (0.0, 1000.0):
        told = {"clients": 5, "rounds": 2, "epochs": 1, "validation": 0.2, "method": Named("fedprox", {"mu": mu})}
        cell = experiments.Cell("tune-digits", experiments.label_of("fedprox", mu), told)
        paper_run.Runner().play(cell)
    assert experiments.tuned("digits", "fedprox", "own") == chosen
    best = json.loads((tmp_path / "tune-digits" / "fedprox-mu-0.json").read_text())["own"]["best"]
    assert best < 20 if wrong == "test" else best > 40


def test_a_method_that_comes_later_is_in_the_report_too(fedamp_command):
    fedamp_command("compare", *QUICK, "--methods", "fedprox-ft", *GRID, "--out", "grid")
    code, _, err = fedamp_command("compare", *QUICK, "--methods", "fedavg", "--validation", "0.2", "--out", "grid")
    assert code == 0, err
    shown = {record.path.name for record in read_runs(Path("grid"))}
    assert shown == {"separate-seed0", "fedprox-ft-mu=0.0-seed0", "fedavg-seed0"}
