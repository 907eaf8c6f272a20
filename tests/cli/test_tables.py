"""Tables as they are, at the command line and from Python: what is read is what is trained on."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fedamp
from fedamp.config import RunConfig
from fedamp.data.silos.schema_file import read_schema

QUICK = ["--rounds", "2", "--epochs", "1", "--model", "logistic"]


def patients(path="patients.csv", rows=60):
    """Write a table of three hospitals: an id, ages that are missing here and there, decimal commas, dates."""
    draw = np.random.default_rng(0)
    lines = ["id;hospital;age;crp;sex;admitted;died"]
    for i in range(rows):
        age = "NA" if i % 20 == 7 else str(draw.integers(20, 90))
        crp = f"{draw.gamma(2, 3):.2f}".replace(".", ",")
        day = np.datetime64("2024-01-01") + int(draw.integers(0, 300))
        lines.append(f"{i};{(1, 2, 10)[i % 3]};{age};{crp};{'FM'[i % 2]};{day};{draw.integers(0, 2)}")
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


ONE = ["run", "--data", "patients.csv", "--silo-column", "hospital", "--label", "died", *QUICK]


def test_one_file_is_the_same_run_as_a_folder_of_its_parts(fedamp_command):
    patients()
    header, *rows = Path("patients.csv").read_text().splitlines()
    Path("silos").mkdir()
    for name in ("1", "2", "10"):
        mine = [row for row in rows if row.split(";")[1] == name]
        Path(f"silos/{name}.csv").write_text("\n".join([header, *mine]) + "\n")
    more = ["--missing", "fill", "--json"]
    code, _, err = fedamp_command(*ONE, "--drop", "id", *more, "--out", "one")
    assert code == 0, err
    code, _, err = fedamp_command(
        "run", "--data", "silos", "--label", "died", *QUICK, "--drop", "id,hospital", *more, "--out", "many"
    )
    assert code == 0, err
    assert _rounds("one") == _rounds("many")
    config = json.loads(Path("one/description.json").read_text())
    assert (config["silo_column"], config["drop"]) == ("hospital", ["id"])
    assert read_schema(Path("one/schema.json")).dates == ("admitted",)


def _rounds(run):
    lines = map(json.loads, Path(f"{run}/rounds.jsonl").read_text().splitlines())
    return [{name: value for name, value in line.items() if "seconds" not in name} for line in lines]


def test_rows_that_are_left_out_are_told(fedamp_command):
    patients()
    code, _, err = fedamp_command(*ONE, "--columns", "age,sex", "--missing", "drop", "--out", "run")
    assert code == 0
    assert "rows with a missing cell are left out: 1 of 20 in 1, 1 of 20 in 10, 1 of 20 in 2" in " ".join(err.split())
    assert read_schema(Path("run/schema.json")).columns == ("age", "sex")


FAULTS = {
    "missing cell": ((), "patients.csv: line 9, column 'age' is 'NA'"),
    "column to drop": (("--missing", "drop", "--drop", "idd"), "unknown column to drop 'idd' (did you mean 'id'?)"),
    "column to use": (("--columns", "agee"), "there is no column 'agee' (did you mean 'age'?)"),
    "label to drop": (("--drop", "died"), "column 'died' is to be dropped, but it is the one to predict"),
    "silo column to drop": (("--drop", "hospital"), "column 'hospital' says whose row it is"),
    "encoding": (("--encoding", "latin1x"), "unknown encoding 'latin1x'"),
    "clients": (("--clients", "3"), "clients is 3, but patients.csv"),
}


@pytest.mark.parametrize(("flags", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_bad_flags_are_one_line(fedamp_command, flags, message):
    patients()
    code, out, err = fedamp_command(*ONE, *flags)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert message in err
    assert not Path("runs").exists()


def test_files_that_are_not_there_or_not_enough(fedamp_command):
    patients()
    assert "there is no file patient.csv" in fedamp_command("run", "--data", "patient.csv")[2]
    assert "with --silo-column" in fedamp_command("run", "--data", "patients.csv", "--label", "died")[2]
    _, _, err = fedamp_command("run", "--drop", "id")
    assert "drop is ('id',), but the data is digits, which has no columns" in err
    Path("silos").mkdir()
    np.savez("silos/a.npz", x=np.zeros((2, 2)), y=[0, 1])
    assert "drop is 'id', but no silo has columns" in fedamp_command("run", "--data", "silos", "--drop", "id")[2]


def test_a_hidden_link_that_leads_nowhere_is_ignored(fedamp_command):
    """Editors keep such links beside a file that is open."""
    patients()
    Path("silos").mkdir()
    Path("silos/a.csv").write_text(Path("patients.csv").read_text())
    Path("silos/.#a.csv").symlink_to("somebody@somewhere")
    flags = ["--label", "died", "--missing", "fill", "--drop", "id", "--method", "separate"]
    code, _, err = fedamp_command("run", "--data", "silos", *flags, *QUICK)
    assert code == 0, err


def test_from_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    patients()
    asked = {"data": "patients.csv", "silo_column": "hospital", "label": "died", "missing": "fill"}
    with_list = fedamp.run(**asked, drop=["id"], model="logistic", rounds=1)
    with_text = fedamp.run(**asked, drop="id", model="logistic", rounds=1)
    assert with_list.config.drop == with_text.config.drop == ("id",)
    assert with_list.config == with_text.config
    with pytest.raises(ValueError, match=r"drop is .*; expected names of columns"):
        RunConfig(drop=[1.5])
    with pytest.raises(ValueError, match=r"drop is .*clients are given with their samples"):
        fedamp.run(clients=[(np.zeros((4, 2)), [0, 1, 0, 1])], drop=["id"])


def test_pictures_by_class(fedamp_command):
    draw = np.random.default_rng(0)
    for silo in ("a", "b"):
        for label, mean in (("ill", 60), ("well", 190)):
            folder = Path("scans") / silo / label
            folder.mkdir(parents=True)
            for i in range(8):
                pixels = np.clip(draw.normal(mean, 20, (8, 8, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    flags = ["--model", "cnn-small", "--rounds", "2", "--epochs", "1", "--out", "run"]
    code, _, err = fedamp_command("run", "--data", "scans", *flags)
    assert code == 0, err
    schema = read_schema(Path("run/schema.json"))
    assert (schema.input_shape, schema.labels, schema.pictures) == ((3, 8, 8), ("ill", "well"), True)


def test_a_schema_of_one_file_leaves_out_what_is_not_used(fedamp_command):
    patients()
    asked = ["--label", "died", "--columns", "age,sex", "--missing", "fill", "--yes"]
    code, _, err = fedamp_command("data", "schema", "patients.csv", *asked, "--out", "s.json")
    assert code == 0, err
    schema = read_schema(Path("s.json"))
    assert (schema.columns, schema.dropped) == (("age", "sex"), ("id", "hospital", "crp", "admitted"))
    code, _, err = fedamp_command(*ONE[:-2], "--model", "logistic", "--schema", "s.json", "--missing", "fill")
    assert code == 0, err
