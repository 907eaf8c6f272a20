"""`fedamp.join` and `fedamp join`: a new silo, its own data, and the folder of a finished run."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import fedamp
from fedamp.config import RunConfig
from fedamp.data import load_data
from fedamp.data.silos.schema_file import write_schema
from fedamp.errors import UserError
from fedamp.methods import FedAvg
from fedamp.methods.newcomer import Joining
from fedamp.records.beside_alone import sign_test
from fedamp.records.newcomers import FEW, two_sided
from fedamp.runs.newcomers.newcomer import ROUNDS, kept_out
from helpers import silos

RUN = {"label": "ill", "rounds": 3, "epochs": 2, "model": "logistic", "device": "cpu", "engine": "loop"}
FLAGS = [part for name, value in RUN.items() for part in (f"--{name}", str(value))]


def write_hospital(path, seed, rows=60, rule=1.0, sexes="MF"):
    stream = np.random.default_rng(seed)
    age, pressure = stream.normal(50, 15, rows), stream.normal(120, 15, rows)
    sex = stream.choice(list(sexes), rows)
    ill = rule * ((age - 50) / 15 + (pressure - 120) / 15 + (sex == "M")) > 0.5
    lines = [f"{a:.3f},{b:.3f},{s},{'yes' if y else 'no'}" for a, b, s, y in zip(age, pressure, sex, ill, strict=True)]
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("\n".join(["age,pressure,sex,ill", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of three hospitals whose files are gone, and a fourth hospital's file."""
    folder = tmp_path_factory.mktemp("joined")
    for i, name in enumerate("abc"):
        write_hospital(folder / "silos" / f"hospital-{name}.csv", i)
    fedamp.run(data=str(folder / "silos"), method="autoamp", validation=0.2, out=folder / "run", **RUN)
    shutil.rmtree(folder / "silos")
    write_hospital(folder / "hospital-d.csv", 9)
    return folder


@pytest.fixture
def here(finished, tmp_path):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path


def files(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


@pytest.mark.parametrize("method", ["autoamp", "fedamp", "fedavg", "separate"])
def test_joining_by_a_file_is_joining_in_the_simulation(method, tmp_path):
    """Two ways: five silos of which the last is kept out, and four silos whose run the fifth joins."""
    names = [f"hospital-{name}" for name in "abcde"]
    for i, name in enumerate(names):
        write_hospital(tmp_path / "five" / f"{name}.csv", i, rows=40 + 7 * i)
    seed = next(seed for seed in range(50) if kept_out(RunConfig.of({"newcomers": 1, "seed": seed}), 5) == [4])
    settings = {**RUN, "method": method, "validation": 0.2, "seed": seed}
    simulated = fedamp.run(data=str(tmp_path / "five"), newcomers=1, **settings)
    shutil.copytree(tmp_path / "five", tmp_path / "four")
    shutil.move(tmp_path / "four" / "hospital-e.csv", tmp_path / "hospital-e.csv")
    four = fedamp.run(data=str(tmp_path / "four"), out=tmp_path / "run", **settings)
    assert four.schema == simulated.schema
    assert four.summary == simulated.summary
    joined = fedamp.join(tmp_path / "run", tmp_path / "hospital-e.csv")
    assert joined.joined == simulated.newcomers.each[0]
    assert joined.schema == four.schema
    in_memory = fedamp.join(four, tmp_path / "hospital-e.csv")
    assert torch.equal(in_memory.chosen.models.params, joined.chosen.models.params)


def test_at_the_command_line(here, fedamp_command):
    before = files("run")
    code, out, err = fedamp_command("join", "run", "--data", "hospital-d.csv")
    assert (code, err) == (0, "")
    shown = out.splitlines()
    assert shown[0].startswith("hospital-d joins run: ")
    assert [line.split()[0] for line in shown[1:5]] == ["alone", "received", "own", "chosen"]
    record = json.loads(Path("run/newcomers/hospital-d/result.json").read_text())["joined"]
    assert shown[5].startswith(f"listens to, as of its round {record['round']}: ")
    assert "hospital-a" in shown[5]
    assert "test rows" in shown[6]
    assert files("run") == before  # nobody else's model moved, and nothing of theirs was written
    assert {"result.json", "schema.json", "models.safetensors"} <= files("run/newcomers/hospital-d").keys()
    assert (Path("run/schema.json").read_bytes()) == Path("run/newcomers/hospital-d/schema.json").read_bytes()
    assert fedamp_command("join", "run", "--data", "hospital-d.csv")[1] == out  # shown again
    code, out, _ = fedamp_command("join", "run", "--data", "hospital-d.csv", "--name", "other", "--rounds", 2, "--json")
    assert code == 0
    assert json.loads(out)["joined"]["rounds"] == 2
    assert fedamp_command("report", "run/newcomers/hospital-d")[0] == 0


def test_its_model_is_exported_as_a_runs_is(here, fedamp_command):
    result = fedamp.join("run", "hospital-d.csv", out="mine")
    code, out, _ = fedamp_command("export", "mine", "--client", "0")
    assert code == 0
    spec = json.loads(Path(out.strip()).with_suffix(".json").read_text())
    assert spec["score"]["test"] == pytest.approx(result.joined.chosen)
    module = result.client_model(0)
    for name, value in load_file(out.strip()).items():
        assert torch.equal(module.state_dict()[name], value)


def test_a_newcomer_whose_held_out_rows_have_one_class_joins_all_the_same(tmp_path, fedamp_command):
    """A rare disease: none of the held-out patients has it, so no AUC chooses or compares; the last round is taken."""
    for i, name in enumerate("ab"):
        write_hospital(tmp_path / "silos" / f"hospital-{name}.csv", i)
    fedamp.run(data=str(tmp_path / "silos"), metric="auc", validation=0.2, out=tmp_path / "run", **RUN)
    lines = write_hospital(tmp_path / "hospital-d.csv", 9).read_text().splitlines()
    (tmp_path / "hospital-d.csv").write_text("\n".join(line for line in lines if not line.endswith("yes")) + "\n")
    code, out, err = fedamp_command("join", "run", "--data", "hospital-d.csv")
    assert code == 0
    assert "of its round 5" in out
    assert "whether joining pays can't be told: no score to compare" in out
    assert [line.split(" is not defined for ")[1].split()[0] for line in err.splitlines()] == ["hospital-d:"] * 2
    assert "--metric" not in err  # the run's metric is not a newcomer's to choose


def test_names_that_are_alike_have_records_of_their_own(here, fedamp_command):
    for name in ("hospital-d", "hospital d", "Hospital-D", "hospital/d", "../d", ".d"):
        assert fedamp_command("join", "run", "--data", "hospital-d.csv", "--name", name, "--rounds", 1)[0] == 0
    records = [json.loads(path.read_text()) for path in Path("run/newcomers").glob("*/result.json")]
    assert len({record["joined"]["name"] for record in records}) == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,pressure,sex,ill\n50,120,M,perhaps\n60,130,F,no\n", "labels 'perhaps', unknown to the schema"),
        (
            "age,sex,ill\n50,M,yes\n60,F,no\n",
            "there is no column 'pressure'; the columns are 'age', 'sex', 'ill'; add it",
        ),
        (
            "age,pressure,sex\n50,120,M\n",
            "there is no label column 'ill'; the columns are 'age', 'pressure', 'sex'; add it",
        ),
        ("age,pressure,sex,ill\n50,high,M,yes\n60,130,F,no\n", "pressure"),
        ("age,pressure,sex,ill\n50,120,M,yes\n", "of its 1 samples to train on"),
        ("", "new.csv"),
    ],
)
def test_rows_that_do_not_fit(here, fedamp_command, text, message):
    Path("new.csv").write_text(text)
    code, _, err = fedamp_command("join", "run", "--data", "new.csv")
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not Path("run/newcomers").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--data", "nowhere.csv"], "there is no file or folder"),
        (["nowhere", "--data", "hospital-d.csv"], "there is no folder nowhere"),
        (["run", "--data", "hospital-d.csv", "--name", "hospital-a"], "has a client 'hospital-a' already"),
        (["run", "--data", "hospital-d.csv", "--name", " "], "name is ' '"),
        (["run", "--data", "hospital-d.csv", "--name", "x" * 101], "expected a text of 1 to 100 characters"),
        (["run", "--data", "hospital-d.csv", "--rounds", "0"], "rounds is 0"),
        (["run", "--data", "hospital-d.csv", "--validation", "1.5"], "validation is 1.5"),
        (["run", "--data", "hospital-d.csv", "--device", "tpu"], "device is 'tpu'"),
        (["run", "--data", "hospital-d.csv", "--out", "run"], "holds another run"),
        (["run"], "--data"),
    ],
)
def test_what_cannot_be(here, fedamp_command, arguments, message):
    code, _, err = fedamp_command("join", *arguments)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_runs_that_cannot_be_joined(here, fedamp_command):
    def error():
        code, _, err = fedamp_command("join", "run", "--data", "hospital-d.csv")
        assert code == 2
        assert len(err.strip().splitlines()) == 1
        return err

    state = Path("run/state.safetensors")
    whole = state.read_bytes()
    state.write_bytes(whole[:100])
    assert "the folder is damaged" in error()
    state.unlink()
    assert "kept nothing for newcomers; run it again" in error()
    state.write_bytes(whole)
    tensors = load_file(state)
    save_file({name: tensors[name] for name in list(tensors)[1:]}, state)
    assert "the folder is damaged" in error()
    state.write_bytes(whole)
    result = json.loads(Path("run/result.json").read_text())
    Path("run/result.json").write_text(json.dumps({**result, "finished": False}))
    assert "has not finished" in error()
    Path("run/result.json").write_text(json.dumps(result))
    description = json.loads(Path("run/description.json").read_text())
    Path("run/description.json").write_text(json.dumps({**description, "setting": {"name": "federation"}}))
    assert "the record of a federation" in error()
    Path("run/description.json").write_text(json.dumps({**description, "model": {"name": "mlp"}}))
    assert "not the one that was trained" in error()
    Path("run/description.json").write_text(json.dumps(description))
    assert fedamp_command("join", "run", "--data", "hospital-d.csv")[0] == 0
    code, _, err = fedamp_command("join", "run/newcomers/hospital-d", "--data", "hospital-d.csv", "--name", "e")
    assert code == 2
    assert "is a newcomer's own record" in err
    code, _, err = fedamp_command("resume", "run/newcomers/hospital-d")
    assert (code, "which joined the run run" in err) == (2, True)


def test_other_rows_in_the_same_record_are_refused(here, fedamp_command):
    assert fedamp_command("join", "run", "--data", "hospital-d.csv", "--rounds", 1)[0] == 0
    write_hospital(Path("hospital-d.csv"), 10)
    code, _, err = fedamp_command("join", "run", "--data", "hospital-d.csv", "--rounds", 1)
    assert code == 2
    assert "holds another run: the data are not those that it learned from" in err
    assert "(fedamp join --out, or out= in Python)" in err
    code, _, err = fedamp_command("join", "run", "--data", "hospital-d.csv", "--rounds", 2)
    assert (code, "rounds is 1 there and 2 here" in err, "fedamp run" in err) == (2, True, False)


def test_an_interrupted_newcomer_goes_on(here, fedamp_command, monkeypatch):
    straight = fedamp.join("run", "hospital-d.csv")
    calls, original = [], Joining.server_receive

    def stop(self, *args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(Joining, "server_receive", stop)
    code, _, err = fedamp_command("join", "run", "--data", "hospital-d.csv")
    assert code == 130
    assert "the same command continues" in err
    code, out, _ = fedamp_command("join", "run", "--data", "hospital-d.csv", "--json")
    assert code == 0
    assert len(calls) == 3 + ROUNDS - 2
    assert json.loads(out)["joined"] == straight.joined.to_dict()


def test_own_samples_model_and_method():
    """What was given from Python joins from Python: as arrays, with an own module, an own method, a regression."""

    class Mine(FedAvg):
        """FedAvg under another name."""

    pairs = [part[:2] for part in silos([30, 30, 30, 40])]
    model = nn.Sequential(nn.Linear(20, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5))
    settings = {"rounds": 2, "epochs": 1, "device": "cpu"}
    result = fedamp.run(clients=pairs[:3], model=model, method=Mine(), **settings)
    own = fedamp.join(result, pairs[3], name="d")
    assert torch.equal(own.models["received"].params[0], result.models["received"].params[0])
    assert own.joined.tested == 8
    assert own.client_model(0)(pairs[3][0]).shape == (40, 5)
    amounts = [(x, x[:, 0] + 0.1 * i) for i, (x, _) in enumerate(pairs)]
    result = fedamp.run(clients=amounts[:3], model="logistic", method="fedamp", **settings)
    own = fedamp.join(result, amounts[3], rounds=2)
    assert own.joined.metric == "rmse"
    assert "in RMSE" in own.joined.verdict
    assert own.joined.error > 0


def test_a_folder_of_a_model_given_from_python(tmp_path):
    pairs = [part[:2] for part in silos([30, 30, 30])]
    model = nn.Linear(20, 5)
    fedamp.run(clients=pairs[:2], model=model, method="fedamp", rounds=1, epochs=1, out=tmp_path / "run")
    with pytest.raises(UserError, match="given from Python"):
        fedamp.join(tmp_path / "run", pairs[2])
    with pytest.raises(UserError, match="not the one that was trained"):
        fedamp.join(tmp_path / "run", pairs[2], model=nn.Sequential(nn.Linear(20, 5)))
    assert fedamp.join(tmp_path / "run", pairs[2], model=model).joined.name == "newcomer"


def test_a_data_sets_run_takes_arrays(tmp_path):
    settings = {"clients": 5, "rounds": 2, "epochs": 1, "model": "logistic", "device": "cpu", "method": "fedavg"}
    result = fedamp.run(**settings, out=tmp_path / "run")
    digits = load_data("digits")
    x, y = digits.x[:40].numpy(), digits.y[:40].numpy()
    np.savez(tmp_path / "new.npz", x=x, y=y)
    own = fedamp.join(tmp_path / "run", tmp_path / "new.npz", rounds=1)
    assert torch.equal(own.models["received"].params[0], result.models["received"].params[0])
    assert (own.facts.shift, own.facts.scale) == (result.facts.shift, result.facts.scale)
    for data, message in (
        ((x[:, :4], y), r"have shape \(4, 8\); expected \(8, 8\)"),
        ((x, y + 10), "has the label 1., which the run does not know"),
        ((x, y - 0.5), "has the label -0.5"),
        ((x,), "has 1 parts"),
        (x, "is of type ndarray"),
    ):
        with pytest.raises(UserError, match=message):
            fedamp.join(result, data)
    for header in ("a,label", "a,b"):
        (tmp_path / "new.csv").write_text(f"{header}\n1,2\n2,3\n")
        with pytest.raises(UserError, match=r"is a table, but the run learned from arrays.*expected an npz file"):
            fedamp.join(result, tmp_path / "new.csv")


def test_a_table_does_not_join_silos_of_arrays(tmp_path):
    for name in "ab":
        (tmp_path / "silos").mkdir(exist_ok=True)
        np.savez(tmp_path / "silos" / f"{name}.npz", x=np.arange(80.0).reshape(40, 2), y=np.arange(40) % 2)
    fedamp.run(data=f"{tmp_path}/silos/", out=tmp_path / "run", **{**RUN, "label": None})
    (tmp_path / "new.csv").write_text("a,b\n1,2\n2,3\n")
    with pytest.raises(UserError, match="is a table, but the run learned from arrays"):
        fedamp.join(tmp_path / "run", tmp_path / "new.csv")


def test_tables_are_joined_by_files(finished):
    with pytest.raises(UserError, match="expected a file or a table of its rows, not arrays"):
        fedamp.join(finished / "run", (np.ones((5, 4)), np.ones(5)))


def of_words(words, seed, rows=60):
    """Samples whose class, a word, can be told from the column that its place has."""
    stream, places = np.random.default_rng(seed), {"cold": 0, "flu": 1, "well": 2}
    y = stream.choice(words, rows)
    return stream.normal(size=(rows, 3)) + 6 * np.eye(3)[[places[word] for word in y]], y


def test_words_from_python_are_the_classes_that_the_run_numbered():
    words = ["cold", "flu", "well"]
    run = fedamp.run(
        clients={"a": of_words(words, 0), "b": of_words(words, 1)}, method="fedavg", rounds=4, model="logistic", lr=0.1
    )
    lacking = of_words(["flu", "well"], 2)  # numbered by its own words, these would be the classes 0 and 1
    joined = fedamp.join(run, lacking, name="c", rounds=1)
    assert joined.joined.received > 90
    assert joined.facts.labels == words
    with pytest.raises(UserError, match="'c' has labels 'mumps', unknown to the run; expected 'cold', 'flu', 'well'"):
        fedamp.join(run, (lacking[0], ["mumps"] * 60), name="c")
    with pytest.raises(UserError, match="unknown to the run"):
        fedamp.join(run, (lacking[0], [0, 1] * 30), name="c")


def test_words_are_refused_where_the_run_has_numbers():
    x, y = of_words(["cold", "flu"], 0)
    run = fedamp.run(clients=[(x, (y == "flu") * 1)], method="separate", rounds=1, model="logistic")
    with pytest.raises(UserError, match="words, 'cold', 'flu', but the run's are numbers"):
        fedamp.join(run, (x, y), name="c")


def test_a_loss_and_a_metric_of_ones_own_are_given_again(tmp_path):
    def wrong(outputs, y):
        return (outputs.argmax(-1) != y).double().mean()

    def steep(outputs, y):
        return 2 * nn.functional.cross_entropy(outputs, y, reduction="none")

    def other(outputs, y):
        return nn.functional.cross_entropy(outputs, y, reduction="none")

    pairs = [part[:2] for part in silos([30, 30, 30])]
    settings = {"model": "logistic", "method": "fedamp", "rounds": 1, "epochs": 1, "device": "cpu"}
    cost = fedamp.Metric("cost", wrong, higher_is_better=False)
    run = fedamp.run(clients=pairs[:2], loss=steep, metric=cost, out=tmp_path / "run", **settings)
    own = fedamp.join(tmp_path / "run", pairs[2], loss=steep, metric=cost).joined
    assert own.metric == "own:lower:cost"
    assert own.to_dict() == fedamp.join(run, pairs[2], loss=steep, metric=cost).joined.to_dict()
    for given, message in (
        ({"metric": cost}, r"has a loss of its own .* join there, with fedamp.join\(..., loss=...\)"),
        ({"loss": steep}, "has a metric of its own"),
        ({"loss": other, "metric": cost}, "loss is not the one of"),
        ({"loss": steep, "metric": fedamp.Metric("gain", wrong)}, "metric is not the one of"),
        ({"loss": steep, "metric": "auc"}, "metric is 'auc'; a newcomer is judged as the run was"),
    ):
        with pytest.raises(UserError, match=message):
            fedamp.join(tmp_path / "run", pairs[2], **given)
    plain = fedamp.run(clients=pairs[:2], **settings)
    with pytest.raises(UserError, match="loss is not the one of the result"):
        fedamp.join(plain, pairs[2], loss=steep)


def test_a_newcomer_without_a_score_joins_and_is_told(tmp_path):
    """Its test rows are all of one class: no AUC is defined, and its model is its own all the same."""
    several = 400  # so many that two models that never differ would be worth a sentence
    for i, name in enumerate("abc"):
        write_hospital(tmp_path / "silos" / f"{name}.csv", i)
    fedamp.run(data=str(tmp_path / "silos"), metric="auc", out=tmp_path / "run", **RUN)
    lines = write_hospital(tmp_path / "all.csv", 9, rows=several).read_text().splitlines()
    (tmp_path / "d.csv").write_text("\n".join([lines[0], *(line for line in lines if line.endswith("no"))]) + "\n")
    own = fedamp.join(tmp_path / "run", tmp_path / "d.csv")
    assert (own.joined.chosen, own.joined.gain, own.facts.undefined) == (None, None, [0])
    assert own.joined.verdict.startswith("whether joining pays can't be told: no score to compare")
    assert any("ROC AUC is not defined for d: its test samples have only one class" in text for text in own.warnings)
    assert own.joined.tested >= FEW
    said = own.predict(tmp_path / "all.csv")
    assert len(said) == several
    assert set(said.labels) <= {"yes", "no"}
    both = fedamp.join(tmp_path / "run", tmp_path / "all.csv").joined  # by AUC, not by who is better on more rows
    assert both.p is not None
    assert both.p != pytest.approx(two_sided(sign_test(both.better, both.worse), sign_test(both.worse, both.better)))


def test_a_word_that_the_run_never_saw_counts_as_none(finished, tmp_path):
    """As in predictions: the columns of the words that it saw are all 0, and the newcomer is told."""
    path = write_hospital(tmp_path / "hospital-e.csv", 9, sexes="MX")
    joined = fedamp.join(finished / "run", path, rounds=1)
    assert any("words that the run never saw, 'X', in" in line for line in joined.warnings)
    assert joined.schema.others == ()  # the run's schema stays as it is
    assert len(joined.predict(path, client=0).labels) == 60


def test_a_newcomer_in_whom_a_column_varies_that_never_did_is_told(tmp_path):
    """Its model takes no notice of that column: nobody's has learned from it."""
    for name, year in {"a": ["2024"] * 20, "b": ["2024"] * 20, "c": ["2023", "2024"] * 10}.items():
        rows = [["age", "year", "label"], *([str(30 + i), of, "yn"[i % 3 == 0]] for i, of in enumerate(year))]
        path = tmp_path / ("silos" if name != "c" else "") / f"{name}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(",".join(row) + "\n" for row in rows))
    usual = {"rounds": 1, "steps": 2, "model": "logistic"}
    run = fedamp.run(data=str(tmp_path / "silos"), **usual)
    assert "and is not in" not in " ".join(run.warnings)
    joined = fedamp.join(run, tmp_path / "c.csv")
    words = (
        "column 'year' was 2024 in all rows behind the schema, and is not in 'c'; models take no notice of other "
        "values, unless a schema is made of these rows too"
    )
    assert words in joined.warnings
    write_schema(tmp_path / "schema.json", run.schema)
    shutil.move(tmp_path / "c.csv", tmp_path / "silos")
    assert words in fedamp.run(data=str(tmp_path / "silos"), schema=tmp_path / "schema.json", **usual).warnings
