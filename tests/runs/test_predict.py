"""A model in use says what it said when it was scored: by `predict`, the command line, safetensors and ONNX."""

import csv
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import fedamp
from fedamp.runs.in_use.export import export_client
from fedamp.runs.in_use.predictor import BATCH
from runs.hospitals import HEADER, held_out, run_hospitals, write_rows


@pytest.fixture(scope="module")
def amounts(tmp_path_factory):
    """The same of a regression."""
    folder = tmp_path_factory.mktemp("amounts")
    run_hospitals(folder, "regression", method="fedavg")
    return folder


def accuracy(labels, truth):
    return 100 * float(np.mean([str(label) == wanted for label, wanted in zip(labels, truth, strict=True)]))


def read_columns(path):
    with Path(path).open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_every_way_gives_the_score_of_the_run(place, number, tmp_path, fedamp_command):
    run = fedamp.load(place / "run")
    name, score = run.facts.names[number], run.chosen.scores[number]
    rows, truth = held_out(place, run.config, number)
    new = write_rows(tmp_path / "new.csv", rows, skip=("target", "patient"))
    said = run.predict(new, client=name)
    assert accuracy(said.labels, truth) == pytest.approx(score, abs=1e-9)
    code, out, err = fedamp_command("predict", place / "run", "--client", name, new, "--out", "mine.csv")
    assert (code, out, err) == (0, "mine.csv\n", "")
    told = read_columns("mine.csv")
    assert list(told) == ["row", "prediction", "p(low)", "p(mid)", "p(top)"]
    assert told["prediction"] == said.labels.tolist()
    assert [float(share) for share in told["p(mid)"]] == said.probabilities[:, 1].tolist()
    path = export_client(place / "run", name, tmp_path / "exported")
    assert accuracy(by_the_documented_lines(path, rows), truth) == pytest.approx(score, abs=1e-9)
    others = [run.predict(new, client=other).probabilities for other in range(3) if other != number]
    assert all(np.abs(other - said.probabilities).max() > 0.01 for other in others), "each client has its own"


def test_of_a_run_that_has_not_finished_it_is_said_how_far_it_came(tmp_path, fedamp_command):
    run_hospitals(tmp_path, rounds=3, observer=lambda line: line["round"] < 2)
    new = write_rows(tmp_path / "new.csv", [["p0", "50", "20000001", "f", "low"]], skip=("target", "patient"))
    code, out, err = fedamp_command("predict", tmp_path / "run", "--client", "north", new, "--out", "-")
    assert code == 0
    assert len(out.splitlines()) == 2
    assert f"warning: {tmp_path / 'run'} has not finished: 2 of its 3 rounds were played; fedamp resume" in err
    assert fedamp_command("resume", tmp_path / "run")[0] == 0
    assert "finished" not in fedamp_command("predict", tmp_path / "run", "--client", "north", new, "--out", "-")[2]


def by_the_documented_lines(path, rows):
    """What docs/use.md says to do with torch and safetensors alone."""
    spec = json.loads(path.with_suffix(".json").read_text())
    model = nn.Sequential(*[getattr(nn, name)(**options) for name, options in spec["layers"]])
    model.load_state_dict(load_file(path))
    x = (np.array([encoded(spec, row) for row in rows]) - spec["shift"]) / spec["scale"]
    outputs = model.eval()(torch.from_numpy(x).float())
    return [spec["labels"][place] for place in outputs.argmax(1).tolist()] if spec["labels"] else outputs


def encoded(spec, row):
    cells = dict(zip(HEADER, row, strict=True))
    return [
        float(cells[name]) if name in spec["columns"] else float(cells[name.split("=")[0]] == name.split("=")[1])
        for name in spec["inputs"]
    ]


def test_a_regression_answers_in_its_own_unit(amounts, tmp_path):
    run = fedamp.load(amounts / "run")
    rows, truth = held_out(amounts, run.config, 1)
    said = run.predict(write_rows(tmp_path / "new.csv", rows, skip=("target", "patient")), 1)
    assert said.labels is said.probabilities is None
    errors = said.values - np.array(truth, dtype=float)
    assert float(np.sqrt((errors**2).mean())) == pytest.approx(run.chosen.scores[1], rel=1e-5)
    assert 500 < said.values.mean() < 1500
    assert said.to_pandas().columns.tolist() == ["row", "prediction"]


def test_a_table_may_come_as_anything_that_is_one(place, tmp_path):
    pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    run = fedamp.load(place / "run")
    rows, _ = held_out(place, run.config, 0)
    wanted = run.predict(write_rows(tmp_path / "new.csv", rows, skip=("target", "patient")), "hospital a")
    shuffled = ["sex", "target", "year", "age"]
    frame = pandas.DataFrame(rows, columns=HEADER)[shuffled].astype({"age": float, "year": int})
    columns = {name: frame[name].tolist() for name in shuffled}
    by_number = np.array([[row[1], row[2], row[3]] for row in rows], dtype=object)
    for table in (
        frame,
        polars.from_pandas(frame),
        pyarrow.table(columns),
        columns,
        by_number,
        str(tmp_path / "new.csv"),
    ):
        said = run.predict(table, "hospital a")
        assert (said.labels == wanted.labels).all()
        assert (said.probabilities == wanted.probabilities).all()
    whole = frame.astype({"age": "Float64", "year": "Int64", "sex": "category"})  # of pandas' own types
    assert (run.predict(whole, 0).probabilities == wanted.probabilities).all()


def test_ids_are_copied_and_are_no_input(place, tmp_path, fedamp_command):
    run = fedamp.load(place / "run")
    rows, _ = held_out(place, run.config, 2)
    new = write_rows(tmp_path / "new.csv", rows)
    said = run.predict(new, "north", id="patient")
    assert said.to_dict()["patient"] == [row[0] for row in rows]
    code, out, _ = fedamp_command("predict", place / "run", new, "--client", "north", "--id", "patient")
    assert (code, out) == (0, f"{tmp_path / 'new-predictions.csv'}\n")
    told = read_columns(tmp_path / "new-predictions.csv")
    assert list(told)[:3] == ["patient", "row", "prediction"]
    assert told["row"] == [str(place) for place in range(1, len(rows) + 1)]


def test_a_dash_is_standard_output(place, tmp_path, fedamp_command):
    run = fedamp.load(place / "run")
    new = write_rows(tmp_path / "new.csv", held_out(place, run.config, 2)[0])
    code, out, err = fedamp_command("predict", place / "run", new, "--client", "north", "--id", "patient", "--out", "-")
    assert (code, out, err) == (0, run.predict(new, "north", id="patient").to_csv(), "")
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_a_word_that_was_never_seen_is_none_of_its_words(place):
    run = fedamp.load(place / "run")
    rows = {"age": [50, 50, 50], "year": [20_000_003] * 3, "sex": ["f", "unknown", "U"]}
    with pytest.warns(UserWarning, match=r"column 'sex' .* in 2 of 3 rows \('U', 'unknown'\).*\('f', 'm', 'x'\)"):
        said = run.predict(rows, "north")
    np.testing.assert_allclose(said.probabilities[1], said.probabilities[2], atol=1e-6)
    assert np.abs(said.probabilities[0] - said.probabilities[1]).max() > 1e-4
    model, schema = run.client_model("north"), run.schema
    x = (np.array([50, 20_000_003, 0, 0, 0]) - schema.shift) / schema.scale
    np.testing.assert_allclose(
        model(torch.from_numpy(x).float()[None]).softmax(-1)[0].detach(), said.probabilities[1], atol=1e-6
    )


def test_many_rows_are_taken_in_parts(place):
    run = fedamp.load(place / "run")
    count = BATCH + 3
    stream = np.random.default_rng(0)
    rows = {"age": stream.normal(50, 10, count), "year": np.full(count, 20_000_001), "sex": ["m"] * count}
    whole = run.predict(rows, 0)
    last = run.predict({name: cells[-3:] for name, cells in rows.items()}, 0)
    assert len(whole) == count
    np.testing.assert_allclose(whole.probabilities[-3:], last.probabilities, atol=1e-6)


@pytest.mark.parametrize("rule", ["scored", "chosen", "alone"])
def test_what_a_client_takes_home_is_asked(tmp_path, rule):
    run = run_hospitals(tmp_path, alone=True)
    again = fedamp.load(tmp_path / "run")
    rows, truth = held_out(tmp_path, run.config, 1)
    new = write_rows(tmp_path / "new.csv", rows, skip=("target", "patient"))
    said = again.predict(new, 1, take_home=rule)
    entry, kept = again.taken_home(rule)
    assert accuracy(said.labels, truth) == pytest.approx(kept.scores[1], abs=1e-9)
    assert (entry == "alone") == (rule == "alone")
    here = run.predict(new, "hospital-a", take_home=rule)
    assert (said.probabilities == here.probabilities).all()


def test_pictures_are_scaled_as_in_training():
    from fedamp.runs.material import load_material

    run = fedamp.run(clients=5, rounds=1, epochs=1, model="cnn-small", method="fedamp")
    clients = load_material(run.config).clients
    test = clients.test[3]
    said = run.predict(clients.x[test], 3)  # bytes, as they were published
    right = 100 * float((torch.tensor(said.labels) == clients.y[test]).double().mean())
    assert right == pytest.approx(run.chosen.scores[3])
    expected = run.client_model(3)(clients.samples(test)[0]).softmax(-1).detach()
    np.testing.assert_allclose(said.probabilities, expected, atol=1e-6)
    assert said.classes == tuple(range(10))
    assert said.labels.dtype.kind == "i"


def test_samples_from_python_are_taken_as_they_are():
    """Words as numbers go to an Embedding; numbers that happen to be whole go to a Linear as amounts."""
    torch.manual_seed(0)
    words = [(torch.randint(0, 7, (40, 3)), torch.arange(40) % 2) for _ in range(2)]
    net = nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(12, 2))
    run = fedamp.run(clients=words, model=net, rounds=1, epochs=1)
    x = words[0][0][:5]
    expected = run.client_model(0)(x).softmax(-1).detach()
    np.testing.assert_allclose(run.predict(x, 0).probabilities, expected, atol=1e-6)
    amounts = [(torch.randn(40, 2), torch.arange(40) % 2) for _ in range(2)]
    linear = fedamp.run(clients=amounts, model="logistic", rounds=1, epochs=1)
    said = linear.predict([[1, 2], [3, 4]], 1)
    expected = linear.client_model(1)(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).softmax(-1).detach()
    np.testing.assert_allclose(said.probabilities, expected, atol=1e-6)


def test_numbers_are_as_wide_as_in_training(tmp_path):
    torch.set_default_dtype(torch.float64)
    try:
        clients = [(torch.randn(30, 2), torch.randn(30)) for _ in range(2)]
        run = fedamp.run(clients=clients, model="mlp", rounds=1, epochs=1, out=tmp_path / "run")
    finally:
        torch.set_default_dtype(torch.float32)
    again = fedamp.load(tmp_path / "run")
    x = clients[0][0]
    assert again.client_model(0)(x).dtype == torch.float64
    assert (again.predict(x, 0).values == run.client_model(0)(x)[:, 0].detach().numpy()).all()


def test_new_files_are_in_the_encoding_of_the_old_ones(tmp_path):
    rows = [f"{'Süd' if i % 2 else 'Nord'},p{i},{150 + i},{'ja' if i % 3 else 'nein'}" for i in range(60)]
    text = "\n".join(["klinik,patient,größe,krank", *rows])
    (tmp_path / "all.csv").write_bytes(text.encode("cp1252"))
    run = fedamp.run(
        data=str(tmp_path / "all.csv"), silo_column="klinik", label="krank", drop=["patient"], encoding="cp1252",
        rounds=1, out=tmp_path / "run",
    )  # fmt: skip
    said = fedamp.load(tmp_path / "run").predict(tmp_path / "all.csv", "Süd", id="patient")
    utf8 = tmp_path / "new.csv"
    utf8.write_text("größe\n150\n151\n", encoding="utf-8")
    assert said.ids[1][:2] == ["p0", "p1"]
    np.testing.assert_allclose(run.predict(utf8, "Süd").probabilities, said.probabilities[:2], atol=1e-6)


def test_nothing_is_said_where_nothing_is_wrong(place):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fedamp.load(place / "run").predict({"age": [1], "year": [2], "sex": ["f"]}, 0)
