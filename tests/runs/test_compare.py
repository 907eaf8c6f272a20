"""Comparing methods: fairly, once for each trajectory, and chosen by validation alone."""

import json
from pathlib import Path

import pytest

import fedamp
from fedamp.config import RunConfig
from fedamp.methods import METHODS, USUAL
from fedamp.methods.base import GROUPS
from fedamp.records.reading import read_runs
from fedamp.runs import compare
from fedamp.runs.compare import playing

QUICK = ["--rounds", "2", "--epochs", "1", "--clients", "10"]


@pytest.mark.many
def test_all_methods(fedamp_command):
    code, out, err = fedamp_command("compare", *QUICK, "--methods", "all", "--against", "heurfedamp", "--out", "all")
    assert code == 0, err
    assert len(read_runs(Path("all"))) == len(METHODS)
    for name in METHODS:
        assert name in out
    single = fedamp.run(method="fedamp", rounds=2, epochs=1, clients=10)
    record = json.loads(Path("all/fedamp-seed0/result.json").read_text())
    assert record["per_client"] == single.summary.per_client


def test_one_trajectory_is_trained_once_and_scored_twice(fedamp_command, monkeypatch):
    played = []
    real = playing.play
    monkeypatch.setattr(playing, "play", lambda d, *rest: played.append(d.method.name) or real(d, *rest))
    fedamp_command("compare", *QUICK, "--methods", "fedavg,fedavg-ft,fedprox,fedprox-ft", "--out", "four")
    assert played == ["separate", "fedavg", "fedprox"]
    for name in ("fedavg-ft", "fedprox-ft"):
        alone = fedamp.run(method=name, rounds=2, epochs=1, clients=10)
        result = json.loads(Path(f"four/{name}-seed0/result.json").read_text())
        assert result["per_client"] == alone.summary.per_client
        assert (result["bmta"], result["scored"]) == (alone.bmta, "own")
        assert result["metrics"] == alone.to_dict()["metrics"]  # of its own models, not of those of its twin


def test_what_p_compares_with_is_kept(fedamp_command, monkeypatch):
    """By the report and by whoever goes on after a stop; who asks for something else gets that, and old folders too."""
    given = ["compare", *QUICK, "--methods", "fedamp,fedavg", "--out", "here"]
    with monkeypatch.context() as patch:
        patch.setattr(playing, "play", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert fedamp_command(*given, "--against", "fedamp")[0] == 130
    assert "p against fedamp" in fedamp_command("resume", "here")[1]
    fedamp.compare("fedamp,fedavg", rounds=2, epochs=1, clients=10, against="fedavg", out="python", progress=False)

    def shown(*arguments):
        code, out, err = fedamp_command("report", *arguments, "--format", "markdown")
        assert code == 0, err
        return out.splitlines()[0]

    assert "p against fedamp" in shown("here")
    assert "p against fedavg" in shown("python")
    assert "p against separate" in shown("here", "--against", "separate")
    assert "p against separate" in shown("here/fedamp-seed0", "here/separate-seed0", "here")  # not all were asked so
    assert fedamp_command("report", "here")[0] == 0
    assert "p against fedamp" in Path("here/report.html").read_text()
    assert "p against separate" in fedamp_command(*given)[1]  # the last word counts
    assert "p against separate" in shown("here")
    Path("here/against.json").write_text('{"against": 1}')
    code, _, err = fedamp_command("report", "here")
    assert (code, "names 1 as the method; expected a name" in err) == (2, True)


def test_the_order_of_the_methods_does_not_matter(fedamp_command):
    code, _, err = fedamp_command("compare", *QUICK, "--methods", "fedavg-ft,fedavg", "--out", "two")
    assert code == 0, err
    assert json.loads(Path("two/fedavg-ft-seed0/result.json").read_text())["trained_as"] == "fedavg"


@pytest.mark.parametrize(
    "left_over",
    [[], ["models.safetensors"], ["models.safetensors", "inputs.json", "rounds.jsonl", "description.json"]],
)
def test_a_kill_while_scoring_elsewhere_does_no_harm(fedamp_command, left_over):
    arguments = ["compare", *QUICK, "--methods", "fedavg,fedavg-ft", "--out", "two"]
    fedamp_command(*arguments)
    target = Path("two/fedavg-ft-seed0")
    whole = json.loads((target / "result.json").read_text())
    for path in target.iterdir():
        if path.name not in left_over:
            path.unlink()
    code, _, err = fedamp_command(*arguments)
    assert code == 0, err
    assert json.loads((target / "result.json").read_text()) == whole


def test_a_fine_tuned_method_alone_is_trained_itself(fedamp_command):
    code, _, err = fedamp_command("compare", *QUICK, "--methods", "fedavg-ft", "--out", "one")
    assert code == 0, err
    assert sorted(record.path.name for record in read_runs(Path("one"))) == ["fedavg-ft-seed0", "separate-seed0"]


def test_a_hyperparameter_goes_to_the_methods_that_have_it(fedamp_command):
    details = ["--set", "method.sigma=7", "--set", "method.mu=0.5", "--set", "setting.share=0.6"]
    code, _, err = fedamp_command("compare", *QUICK, "--methods", "fedamp,fedprox", *details, "--out", "set")
    assert code == 0, err
    told = {run.config["method"]["name"]: run.config for run in read_runs(Path("set"))}
    assert told["fedamp"]["method"]["sigma"] == 7
    assert told["fedprox"]["method"]["mu"] == 0.5
    assert told["separate"]["method"] == {"name": "separate"}
    assert {one["setting"]["share"] for one in told.values()} == {0.6}


def test_a_hyperparameter_that_none_has_is_an_error(fedamp_command):
    code, _, err = fedamp_command("compare", *QUICK, "--methods", "fedamp", "--set", "method.sigmo=7", "--out", "no")
    assert code == 2
    assert "sigmo" in err


def test_separate_is_always_in_it():
    assert compare.method_names("fedamp") == ["separate", "fedamp"]
    assert compare.method_names("all") == list(METHODS)
    assert compare.method_names("usual") == list(USUAL)
    assert compare.method_names("autoamp, usual") == ["separate", "autoamp", *USUAL[1:-1]]


def test_a_groups_name_stands_for_its_methods():
    assert compare.method_names("clusters, fedamp") == ["separate", "ifca", "cfl", "fedamp"]
    assert compare.method_names("alone") == ["separate"]
    for group in GROUPS:
        mine = {name for name, kind in METHODS.items() if kind.group == group}
        assert mine
        assert (
            set(compare.method_names(group))
            == set(compare.method_names(group.replace(" ", "-")))
            == {"separate"} | mine
        )
    with pytest.raises(ValueError, match=r"unknown method 'cluster' \(did you mean 'clusters'\?\)"):
        compare.method_names("cluster")


@pytest.mark.many
@pytest.mark.parametrize("goes_on", [lambda given: [*given, "--out", "broken"], lambda given: ["resume", "broken"]])
def test_a_comparison_goes_on_and_ends_the_same(fedamp_command, monkeypatch, goes_on):
    arguments = ["compare", *QUICK, "--methods", "fedamp,scaffold", "--seeds", "2"]
    fedamp_command(*arguments, "--out", "whole")
    real, played = playing.play, []

    def stopping(config, *rest):
        if len(played) == 3:
            raise KeyboardInterrupt
        played.append(config)
        return real(config, *rest)

    monkeypatch.setattr(playing, "play", stopping)
    code, _, err = fedamp_command(*arguments, "--out", "broken")
    assert code == 130
    assert "the same command continues in broken" in err
    monkeypatch.setattr(playing, "play", real)
    assert fedamp_command(*goes_on(arguments))[0] == 0
    for a, b in zip(read_runs(Path("whole")), read_runs(Path("broken")), strict=True):
        assert a.path.name == b.path.name
        assert a.result["per_client"] == b.result["per_client"]


def test_a_grid_is_chosen_by_validation(fedamp_command):
    code, out, err = fedamp_command(
        "compare", *QUICK, "--methods", "fedprox-ft", "--grid", "method.mu=0.0,1000.0", "--validation", "0.2",
        "--out", "grid", "--format", "csv",
    )  # fmt: skip
    assert code == 0, err
    records = {record.path.name: record for record in read_runs(Path("grid"), everything=True)}
    scores = {
        mu: compare.validation_score(records[f"fedprox-ft-mu={mu}-seed0"], "accuracy") for mu in ("0.0", "1000.0")
    }
    best = max(scores, key=scores.get)
    chosen = compare.choose(list(records.values()))
    assert [r.path.name for r in chosen if "fedprox" in r.path.name] == [f"fedprox-ft-mu={best}-seed0"]
    assert best == "0.0", "a pull of 1000 keeps everyone at the first model"
    assert out.count("fedprox-ft") == 1
    # A report of the folder shows what validation chose, and nothing chosen by test.
    assert {record.path.name for record in read_runs(Path("grid"))} == {record.path.name for record in chosen}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--methods", "fedamp,nope"], "'nope'"),
        (["--seeds", "0"], "seeds is 0"),
        (["--against", "nope"], "against is 'nope', which is not among the compared methods: these are separate, "),
        (["--against", "fedavq"], "'fedavq' (did you mean 'fedavg'?)"),
        (["--grid", "method.mu"], "expected NAME=VALUE,VALUE, say lr=0.01"),
        (["--grid", "method.sgima=1,2"], "did you mean 'sigma'"),
        (["--grid", "method.mu=1,2"], "--validation"),
        (["--format", "pdf"], "text"),
    ],
)
def test_mistakes(fedamp_command, arguments, word):
    code, _, err = fedamp_command("compare", *QUICK, *arguments)
    assert code == 2
    assert err.count("\n") == 1
    assert word in err


def test_another_comparisons_folder_is_not_touched(fedamp_command):
    fedamp_command("compare", *QUICK, "--methods", "fedamp", "--out", "here")
    code, _, err = fedamp_command("compare", *QUICK, "--methods", "fedamp", "--out", "here", "--absent", "0.5")
    assert code == 2
    assert "holds another comparison" in err
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("x")
    assert "holds no comparison" in fedamp_command("compare", *QUICK, "--out", "mine")[2]


def test_adding_a_method_to_a_comparison(fedamp_command):
    fedamp_command("compare", *QUICK, "--methods", "fedamp", "--out", "here")
    code, _, err = fedamp_command("compare", *QUICK, "--methods", "fedamp,fedavg", "--seeds", "2", "--out", "here")
    assert code == 0, err
    assert len(read_runs(Path("here"))) == 6


def test_the_folders_name_does_not_depend_on_the_number_of_seeds():
    def described(method):
        return RunConfig(method=method)

    one = compare.plan(described, {"separate": []}, [0])
    three = compare.plan(described, {"separate": []}, [0, 1, 2])
    assert compare.digest(one) == compare.digest(three)
