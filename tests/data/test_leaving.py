"""What leaves a silo with its schema: no names, no rare words, nothing that its owner has not read."""

import io
import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from fedamp.data.silos.leaving import listing
from fedamp.data.silos.read import read_silo
from fedamp.data.silos.schema import apply_schema, make_schema
from fedamp.data.silos.schema_file import read_schema
from helpers import Terminal

federated = pytest.mark.skipif(not find_spec("flwr"), reason="the deployment is an extra")
SCHEMA = ["data", "schema", "--label", "outcome"]
DROP = ["--drop", "record,name", "--drop", "born"]
PEOPLE = ("name", "born", "record")
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def patients(path, rows=40, seed=0, start=1000):
    """Write a table of patients: with record numbers, names and birthdays, as words; ward C is rare."""
    stream = np.random.default_rng(seed)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    lines = ["record,name,born,age,sex,ward,dose,outcome"]
    for i in range(rows):
        year, month, day = stream.integers(30, 99), stream.integers(1, 12), stream.integers(1, 28)
        born = f"{day} {MONTHS[month - 1]} 19{year}"
        numbers = f"{stream.integers(20, 90)},{'FM'[i % 2]},{'C' if i in (3, 7) else 'AB'[i % 3 > 0]}"
        lines.append(f"{start + i},Patient{seed}x{i},{born},{numbers},{stream.normal():.3f},{'no' if i % 3 else 'yes'}")
    Path(path).write_text("\n".join(lines) + "\n")


def test_a_column_of_names_does_not_travel(fedamp_command):
    patients("p.csv")
    code, out, err = fedamp_command(*SCHEMA, "p.csv", "--out", "a.json", "--yes")
    assert (code, len(err.splitlines()), out) == (2, 1, "")
    assert all(f"{column!r} (" in err for column in PEOPLE)  # all in one go
    assert "--drop name,born,record" in err
    assert "--keep name,born,record" in err
    assert not Path("a.json").exists()
    code, out, _ = fedamp_command(*SCHEMA, "p.csv")
    assert (code, out) == (2, "")  # nor is it printed


def test_what_is_dropped_and_what_is_rare_is_not_in_the_file(fedamp_command):
    patients("p.csv")
    code, _, err = fedamp_command(*SCHEMA, "p.csv", *DROP, "--out", "a.json", "--yes")
    assert code == 0, err
    text = Path("a.json").read_text()
    assert "Patient" not in text
    schema = read_schema(Path("a.json"))
    assert schema.columns == ("age", "sex", "ward", "dose")
    assert schema.categories["ward"] == ("A", "B")
    assert (set(schema.dropped), schema.others) == (set(PEOPLE), ("ward",))
    x, _ = apply_schema(schema, read_silo(Path("p.csv"), "outcome", schema.dropped))
    ward = x[:, 3:5]
    assert ward.sum(1).tolist() == [0.0 if i in (3, 7) else 1.0 for i in range(40)]


def test_a_word_that_is_neither_known_nor_rare_is_still_an_error(fedamp_command):
    patients("p.csv")
    fedamp_command(*SCHEMA, "p.csv", *DROP, "--out", "a.json", "--yes")
    schema = read_schema(Path("a.json"))
    raw = read_silo(Path("p.csv"), "outcome", schema.dropped)
    raw.words["sex"][5] = "X"
    with pytest.raises(ValueError, match="'X', unknown to the schema"):
        apply_schema(schema, raw)


def test_a_kept_column_travels_and_later_checks_know_it(fedamp_command):
    patients("p.csv")
    flags = [*SCHEMA, "p.csv", "--drop", "name,record", "--keep", "born", "--out", "a.json", "--yes"]
    code, _, err = fedamp_command(*flags)
    assert code == 2
    assert "no word of 'born' is in 5 rows" in err  # that it may travel does not make its words frequent
    assert fedamp_command(*flags, "--min-count", "1")[0] == 0
    schema = read_schema(Path("a.json"))
    assert schema.kept == ("born",)
    assert len(schema.categories["born"]) > 30
    assert fedamp_command(*SCHEMA, "p.csv", *DROP, "--merge", "a.json")[0] == 2  # dropped here, and kept there


def test_of_a_date_that_can_be_read_only_the_mean_travels(fedamp_command):
    patients("p.csv")
    text = Path("p.csv").read_text()
    for number, month in enumerate(MONTHS, 1):
        text = re.sub(rf"(\d+) {month} (\d+)", lambda found, n=number: f"{found[2]}-{n:02}-{int(found[1]):02}", text)
    Path("p.csv").write_text(text)
    code, _, err = fedamp_command(*SCHEMA, "p.csv", "--drop", "name,record", "--out", "a.json", "--yes")
    assert code == 0, err
    schema = read_schema(Path("a.json"))
    assert (schema.dates, list(schema.categories)) == (("born",), ["sex", "ward"])
    assert not re.search(r"\d{4}-\d\d-\d\d", Path("a.json").read_text())


def test_flags_that_name_no_column(fedamp_command):
    patients("p.csv")
    _, _, err = fedamp_command(*SCHEMA, "p.csv", "--drop", "nam")
    assert "unknown column to drop 'nam' (did you mean 'name'?)" in err
    _, _, err = fedamp_command(*SCHEMA, "p.csv", "--keep", "nam")
    assert "unknown column to keep 'nam' (did you mean 'name'?)" in err
    _, _, err = fedamp_command(*SCHEMA, "p.csv", "--drop", "outcome")
    assert "the one to predict; leave it out of --drop" in err


def test_rare_labels_are_refused_until_kept(fedamp_command):
    patients("p.csv")
    text = Path("p.csv").read_text().splitlines()
    text[5] = text[5].rpartition(",")[0] + ",died"
    Path("p.csv").write_text("\n".join(text) + "\n")
    code, _, err = fedamp_command(*SCHEMA, "p.csv", *DROP)
    assert (code, "labels 'died' of 'outcome' have fewer than 5 rows" in err) == (2, True)
    code, out, _ = fedamp_command(*SCHEMA, "p.csv", *DROP, "--keep", "outcome")
    assert (code, json.loads(out)["labels"]) == (0, ["died", "no", "yes"])


def test_few_rows_are_refused(fedamp_command):
    patients("p.csv", rows=4)
    code, _, err = fedamp_command(*SCHEMA, "p.csv", "--drop", "name,born,record,sex,ward", "--keep", "outcome")
    assert (code, "there are 4 rows" in err) == (2, True)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_the_owner_reads_it_and_is_asked(fedamp_command, monkeypatch, answer, code):
    patients("p.csv")
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    got, out, _ = fedamp_command(*SCHEMA, "p.csv", *DROP, "--out", "a.json")
    assert (got, Path("a.json").exists()) == (code, code == 0)
    for told in ("'F', 'M'", "age", "mean", "left out", "record, name, born", "rarer words stay here (1, in 2 rows)"):
        assert told in out
    assert "'C'" not in out


def test_without_a_terminal_nothing_is_written(fedamp_command, monkeypatch):
    patients("p.csv")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    code, out, err = fedamp_command(*SCHEMA, "p.csv", *DROP, "--out", "a.json")
    assert (code, Path("a.json").exists(), len(err.splitlines())) == (2, False, 1)
    assert "--yes" in err
    assert "'F', 'M'" in out


def test_a_listing_shows_arrays_too():
    from data.silo_files import silo

    text = "\n".join(listing(make_schema([silo(np.zeros((6, 2, 3)), [0.5, 1.5] * 3)])))
    assert "numbers of shape (2, 3)" in text
    assert "mean 1, standard deviation 0.5" in text


def test_silos_in_one_place_run_under_such_a_schema(fedamp_command):
    """A dropped column may hold anything: it is not even looked at."""
    for seed, name in enumerate("ab"):
        patients(f"silos/{name}.csv", seed=seed)
    Path("silos/a.csv").write_text(Path("silos/a.csv").read_text().replace("Patient0x1,", ","))
    fedamp_command(*SCHEMA, "silos", *DROP, "--out", "s.json", "--yes")
    code, out, err = fedamp_command(
        "run", "--data", "silos", "--schema", "s.json", "--model", "logistic", "--rounds", "1", "--out", "r", "--json"
    )
    assert code == 0, err
    assert sum(json.loads(out)["facts"]["sizes"] + json.loads(out)["facts"]["test_sizes"]) == 80


@federated
def test_a_federation_under_such_schemas(fedamp_command):
    flags = []
    for seed, name in enumerate("ab"):
        patients(f"{name}.csv", seed=seed)
        assert fedamp_command(*SCHEMA, f"{name}.csv", *DROP, "--out", f"{name}.json", "--yes")[0] == 0
        flags += ["--schema", f"{name}.json"]
    code, _, err = fedamp_command("federation", "init", "fed", "--silos", "a,b", "--make-keys", *flags)
    assert code == 0, err
    code, out, _ = fedamp_command("silo", "check", "fed/bundles/a", "--data", "a.csv", "--offline")
    assert code == 0, out
    assert "column 'ward': 2 rows have a rare word" in out


@federated
def test_a_column_that_one_silo_drops_and_another_has(fedamp_command):
    for seed, name in enumerate("ab"):
        patients(f"{name}.csv", seed=seed)
    fedamp_command(*SCHEMA, "a.csv", *DROP, "--drop", "ward", "--out", "a.json", "--yes")
    fedamp_command(*SCHEMA, "b.csv", *DROP, "--out", "b.json", "--yes")
    for order in ("ab", "ba"):
        flags = [flag for name in order for flag in ("--schema", f"{name}.json")]
        code, _, err = fedamp_command("federation", "init", "fed", "--silos", "a,b", "--make-keys", *flags)
        assert (code, len(err.splitlines())) == (2, 1)
        assert "b.json has column 'ward', which a.json leaves out" in err
        assert "make the schema of b.json again with --drop ward" in err


@federated
def test_an_older_schema_with_names_is_refused(fedamp_command):
    from fedamp.data.silos.schema_file import write_schema

    for seed, name in enumerate("ab"):
        patients(f"{name}.csv", seed=seed)
        write_schema(Path(f"{name}.json"), make_schema([read_silo(Path(f"{name}.csv"), "outcome")]))
    flags = ["--schema", "a.json", "--schema", "b.json"]
    code, _, err = fedamp_command("federation", "init", "fed", "--silos", "a,b", "--make-keys", *flags)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "'name' in a.json (40 different words in 40 rows)" in err
    assert "'born' in b.json (dates)" in err
