"""A grid: its names, which of them validation chooses and which make blocks, and what the table says of it."""

import csv
import io
import json
from pathlib import Path

import pytest

from fedamp.config import RunConfig
from fedamp.errors import UserError
from fedamp.records.reading import read_runs
from fedamp.runs import compare
from fedamp.runs.compare import grid, playing

QUICK = ["--rounds", "2", "--epochs", "1", "--clients", "5"]
HAVING = compare.hyperparameters(["separate", "fedamp", "fedprox"])


def axis(text):
    (found,) = compare.parse_axes([text], HAVING)
    return found.place, found.values, found.method


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lr=0.01,0.001", ("lr", [0.01, 0.001], None)),
        ("batch-size=10,20", ("batch_size", [10, 20], None)),
        ("optimizer=adam,sgd", ("optimizer", ["adam", "sgd"], None)),
        ("model=mlp,logistic", ("model", ["mlp", "logistic"], None)),
        ("model.hidden=[64, 32],[128]", ("model.hidden", [[64, 32], [128]], None)),
        ("method.sigma=1,inf", ("method.sigma", [1, float("inf")], None)),
        ("fedamp.sigma=1,10", ("method.sigma", [1, 10], "fedamp")),
        ("fedamp:method.sigma=1,10", ("method.sigma", [1, 10], "fedamp")),
        ("fedprox:lr=1", ("lr", [1], "fedprox")),
        ("setting.share=0.6,0.9", ("setting.share", [0.6, 0.9], None)),
    ],
)
def test_names_of_what_is_tried(text, expected):
    assert axis(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr", "expected NAME=VALUE,VALUE"),
        ("lr=", "expected NAME=VALUE,VALUE"),
        ("lrr=1,2", "did you mean 'lr'"),
        ("seed=1,2", "unknown name 'seed' of what to vary"),
        ("sigma=1,10", "written method.sigma"),
        ("method.sgima=1,2", "did you mean 'sigma'"),
        ("fedprox.sigma=1,2", "unknown hyperparameter 'sigma' of fedprox"),
        ("fedapm.sigma=1,2", "did you mean 'fedamp'"),
        ("fedapm:lr=1,2", "did you mean 'fedamp'"),
        ("fedavg:lr=1,2", "unknown method 'fedavg' of this comparison"),
        ("fedamp:setting.share=0.6,0.9", "the same data"),
        ("model.name=mlp", "model=VALUE"),
        ("method.=3", "expected a parameter after the dot"),
    ],
)
def test_a_wrong_name_is_one_line_with_the_cure(text, words):
    with pytest.raises(UserError) as caught:
        axis(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_field_is_tuned_or_swept_or_neither():
    fields = {*RunConfig.__dataclass_fields__}
    assert {*grid.TUNED, *grid.SWEPT} <= fields
    assert not {*grid.TUNED} & {*grid.SWEPT}
    assert [
        key for key in ("lr", "model.hidden", "method.sigma", "setting.share", "clients") if grid.is_tuned(key)
    ] == [
        "lr",
        "model.hidden",
        "method.sigma",
    ]


def test_what_is_for_one_method_wins_over_what_is_for_all():
    axes = compare.parse_axes(["fedamp:lr=1,2", "lr=3", "method.sigma=5,6", "method.mu=7"], HAVING)
    assert compare.points_of("separate", axes, HAVING) == [{"lr": 3}]
    assert compare.points_of("fedprox", axes, HAVING) == [{"lr": 3, "method.mu": 7}]
    assert compare.points_of("fedamp", axes, HAVING) == [
        {"lr": lr, "method.sigma": sigma} for lr in (1, 2) for sigma in (5, 6)
    ]


def test_a_point_is_put_into_its_places():
    base = RunConfig(model={"name": "mlp", "hidden": 7}, method={"name": "fedamp", "sigma": 1})
    there = compare.at_point(base, {"model.hidden": 9, "model": "mlp", "method.sigma": 2, "lr": 0.5, "steps": 3})
    assert (there.model.parameters, there.method.parameters) == ({"hidden": 9}, {"sigma": 2})
    assert (there.lr, there.steps, there.epochs) == (0.5, 3, None)
    assert compare.at_point(base, {"model": "logistic"}).model.parameters == {}, "the parameters were the other model's"
    assert compare.at_point(base, {"epochs": 2}).steps is None


def test_silos_bring_their_own_partition():
    with pytest.raises(UserError, match=r"setting.share is varied, but the clients bring their own samples"):
        compare.at_point(RunConfig(setting="given", data="given"), {"setting.share": 0.5})


def test_values_that_a_folders_name_can_not_tell_apart_have_two_folders():
    axes = [compare.Axis("model.name_of", ["a/b", "a:b"])]
    runs = compare.plan(lambda name: RunConfig(method=name, validation=0.2), {"separate": []}, [0], axes)
    assert len({run.name for run in runs}) == 2
    assert all("/" not in run.name and ":" not in run.name for run in runs)


@pytest.mark.many
def test_the_table_says_what_was_chosen_and_of_how_many(fedamp_command):
    tried = ["--grid", "lr=0.01,1e-7", "--grid", "fedamp.sigma=1,10", "--grid", "model=mlp,logistic"]
    given = ["compare", *QUICK, "--methods", "fedamp", *tried, "--validation", "0.2", "--out", "here"]
    code, out, err = fedamp_command(*given, "--format", "csv")
    assert code == 0, err
    assert "12 runs: separate at 4 points, fedamp at 8 points, 1 seed\n" in err
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(out))}
    assert {name: row["tried"] for name, row in rows.items()} == {"separate": "4", "fedamp": "8"}
    assert {row["block"] for row in rows.values()} == {""}, "models that validation chose make no blocks"
    assert rows["fedamp"]["against"] == "separate"
    assert all("lr=0.01" in row["tuned"] for row in rows.values()), "at 1e-7 nothing is learned"
    assert rows["fedamp"]["training"] == "", "what was tuned is no hidden difference"
    # Every point, and nothing else, stands in the folder, and the chosen one is what validation says.
    everything = read_runs(Path("here"), everything=True)
    mine = [record for record in everything if record.config["method"]["name"] == "fedamp"]
    best = max(mine, key=lambda record: compare.validation_score(record, "accuracy"))
    for key, value in (("lr", best.config["lr"]), ("sigma", best.config["method"]["sigma"])):
        assert f"{key}={value}" in rows["fedamp"]["tuned"]
    assert f"model={best.config['model']['name']}" in rows["fedamp"]["tuned"]
    # The report of the folder says the same, in all its forms.
    text, markdown = (fedamp_command("report", "here", "--format", form)[1] for form in ("text", "markdown"))
    assert f"{rows['fedamp']['tuned']} (of 8)" in text
    assert "(of 8)" in markdown
    assert "Not the same effort: points that were tried for each method: separate 4; fedamp 8." in text
    assert "Test samples decide nothing" in text
    fedamp_command("report", "here")
    assert "chosen by validation" in Path("here/report.html").read_text()
    # Asked again, nothing is played.
    assert "12 of them are finished" in fedamp_command(*given)[2]


def test_a_setting_is_swept_and_needs_no_validation(fedamp_command):
    swept = ["--grid", "setting.share=0.5,0.9", "--grid", "label_noise=0.0,0.5"]
    code, out, err = fedamp_command(
        "compare", *QUICK, "--methods", "fedamp", *swept, "--out", "here", "--format", "csv"
    )
    assert code == 0, err
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len({row["block"] for row in rows}) == 4
    assert [row["method"] for row in rows] == ["separate", "fedamp"] * 4
    assert {row["tried"] for row in rows} == {"1"}
    assert len(read_runs(Path("here"))) == 8, "nothing is chosen among problems"


def test_each_block_of_a_sweep_is_tuned_by_itself(fedamp_command):
    given = ["--grid", "setting.share=0.5,0.9", "--grid", "lr=0.01,0.0001", "--validation", "0.2", "--out", "here"]
    code, out, err = fedamp_command("compare", *QUICK, "--methods", "fedamp", *given, "--format", "csv")
    assert code == 0, err
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["method"], row["tried"]) for row in rows] == [("separate", "2"), ("fedamp", "2")] * 2
    assert len(read_runs(Path("here"))) == 4


def test_set_may_be_for_one_method(fedamp_command):
    details = ["--set", "fedamp:lr=0.02", "--set", "fedamp.sigma=7", "--set", "fedprox:epochs=2", "--set", "lr=0.03"]
    code, _, err = fedamp_command("compare", *QUICK, "--methods", "fedamp,fedprox", *details, "--out", "here")
    assert code == 0, err
    told = {run.config["method"]["name"]: run.config for run in read_runs(Path("here"))}
    assert {name: one["lr"] for name, one in told.items()} == {"separate": 0.03, "fedamp": 0.02, "fedprox": 0.03}
    assert {name: one["epochs"] for name, one in told.items()} == {"separate": 1, "fedamp": 1, "fedprox": 2}
    assert told["fedamp"]["method"] == {"name": "fedamp", "sigma": 7}


@pytest.mark.parametrize(
    "tried", ["lr=0.01,-1", "batch_size=10,0", "model=mlp,nope", "model.hidden=64,no", "steps=1,x"]
)
def test_a_wrong_value_is_found_before_anything_runs(fedamp_command, monkeypatch, tried):
    monkeypatch.setattr(playing, "play", lambda *_: pytest.fail("a run was played"))
    given = ["compare", *QUICK, "--methods", "fedamp", "--grid", tried, "--validation", "0.2", "--out", "here"]
    code, _, err = fedamp_command(*given)
    assert code == 2, err
    assert err.count("\n") == 1
    assert not Path("here").exists()


def test_without_validation_nothing_is_chosen(fedamp_command):
    code, _, err = fedamp_command("compare", *QUICK, "--methods", "fedamp", "--grid", "lr=0.1,0.01")
    assert code == 2
    assert "never by test: give --validation" in err


def test_points_are_chosen_by_the_seeds_that_all_have(tmp_path):
    """A point that was tried with one seed more, an easy one, is no better for it."""

    def record(sigma, seed, score):
        line = {"test": {}, "validation": {"own": {"accuracy": [score]}}}
        told = {"method": {"name": "fedamp", "sigma": sigma}, "seed": seed, "poisoned": []}
        return compare.choosing.RunRecord(tmp_path / f"{sigma}-{seed}", told, [{"round": 1, **line}], {"scored": "own"})

    records = [record(1, 0, 0.8), record(2, 0, 0.7), record(2, 1, 1.0)]
    assert [each.tuned for each in compare.choose(records)] == [{"sigma": 1}]


def test_a_comparison_from_before_is_still_read(fedamp_command):
    given = ["--grid", "method.mu=0.0,1000.0", "--validation", "0.2", "--out", "here"]
    fedamp_command("compare", *QUICK, "--methods", "fedprox", *given)
    kept = json.loads(Path("here/chosen.json").read_text())
    Path("here/chosen.json").write_text(json.dumps({"runs": kept["runs"]}))
    assert [record.path.name for record in read_runs(Path("here"))] == sorted(kept["runs"])
    code, out, _ = fedamp_command("report", "here", "--format", "text")
    assert (code, "fedprox" in out) == (0, True)
