"""What people may hand to a model by mistake: each is one line that says what and where, and nothing is written."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import fedamp
from fedamp.errors import UserError

GOOD = "age,year,sex\n50,20000001,f\n61.5,20000002,m\n"


@pytest.fixture(scope="module")
def digits():
    return fedamp.run(clients=5, rounds=1, epochs=1, model="logistic")


FILES = {
    "no such file": (None, "there is no file new.csv"),
    "an empty file": ("", "new.csv: the file is empty; expected a header and rows"),
    "a header alone": ("age,year,sex\n", "new.csv has no rows; expected at least one"),
    "a column is missing": ("age,sex\n50,f\n", "new.csv: column 'year' is missing; expected the columns"),
    "a column too many": ("age,year,sex,ward\n50,1,f,3\n", "column 'ward' is not expected; .*--id"),
    "columns under other names": (
        "Age,year,Sex\n50,1,f\n",
        "columns 'age', 'sex' are missing and columns 'Age', 'Sex' are not expected",
    ),
    "no header": (
        "50,20000001,f\n61,20000002,m\n",
        "columns 'age', 'year', 'sex' are missing",
    ),
    "a column twice": ("age,year,sex,age\n50,1,f,2\n", "column 'age' appears twice"),
    "a column without a name": (",age,year,sex\n0,50,1,f\n", "column 1 has no name in the header"),
    "a mark that could be for decimals or thousands": (
        "age;year;sex\n1.234;1;f\n",
        "line 2, column 'age' is '1.234', which",
    ),
    "too few cells": ("age,year,sex\n50,1,f\n61,m\n", "new.csv: line 3 has 2 cells; expected 3"),
    "too many cells": ("age,year,sex\n50,1,f,9\n", "new.csv: line 2 has 4 cells; expected 3"),
    "a word among numbers": (
        "age,year,sex\n50,1,f\nold,1,m\n",
        "new.csv, line 3, column 'age' is 'old'; expected",
    ),
    "a decimal comma": ('age,year,sex\n"50,5",1,f\n', "new.csv, line 2, column 'age' is '50,5'; expected a finite"),
    "a word among decimal commas": (
        "age;year;sex\n50,5;1;f\nold;1;m\n",
        "new.csv, line 3, column 'age' is 'old'; expected a finite",
    ),
    "a point among decimal commas, and no word": (
        "age;year;sex\n0,5;1;7\n1.234;1;7\n",
        "new.csv: line 3, column 'age' is '1.234', which could be",
    ),
    "an empty number": ("age,year,sex\n50,1,f\n61,,m\n", "new.csv, line 3, column 'year' is empty"),
    "an empty word": ("age,year,sex\n50,1,\n", "new.csv, line 2, column 'sex' is empty"),
    "not a number": (
        "age,year,sex\nnan,1,f\n",
        "new.csv, line 2, column 'age' is 'nan'; expected a value in every row",
    ),
    "infinity": ("age,year,sex\n50,1,f\n50,-inf,f\n", "new.csv, line 3, column 'year' is '-inf'; expected a finite"),
    "a number beyond all": ("age,year,sex\n1e999,1,f\n", "new.csv, line 2, column 'age' is '1e999'; expected a"),
    "numbers far from all that was learned": ("age,year,sex\n1e300,1,f\n", "too far from the schema's mean"),
    "a text in place of a word": (f"age,year,sex\n50,1,{'f' * 300}\n", "column 'sex' has a text of 300 characters"),
    "a quote left open": ('age,year,sex\n50,1,"f\n61,1,m\n', "is not csv"),
    "another encoding": (GOOD.replace("f", "ü").encode("latin-1"), "new.csv: line 2 .*utf-8 .*--encoding"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "new.csv: "),
}


@pytest.mark.parametrize("kind", FILES)
def test_files(place, kind, fedamp_command):
    content, words = FILES[kind]
    if content is not None:
        Path("new.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    before = sorted(Path().iterdir())
    code, out, err = fedamp_command("predict", place / "run", "--client", "north", "new.csv", "--out", "it.csv")
    assert (code, out) == (2, "")
    assert err.startswith("fedamp: ")
    assert err.count("\n") == 1
    with pytest.raises(UserError, match=words):
        fedamp.load(place / "run").predict("new.csv", "north")
    assert sorted(Path().iterdir()) == before


ARGUMENTS = {
    "a folder": (["."], r"\. is a folder; expected a file with the rows"),
    "an array for a table's run": (["x.npz"], r"data has shape \(2, 2\); expected \(rows, 3\) with the columns 'age'"),
    "no client": (["new.csv"], "no client is named; expected 'hospital a', 'hospital-a', 'north', or a number"),
    "a client who is not there": (["new.csv", "--client", "nort"], r"client is 'nort' \(did you mean 'north'\?\)"),
    "a number beyond the clients": (["new.csv", "--client", "3"], "client is '3'; expected .* a number from 0 to 2"),
    "over its own rows": (["new.csv", "--client", "0", "--out", "new.csv", "--force"], "the file with the rows"),
    "over a file that is there": (["new.csv", "--client", "0", "--out", "x.npz"], "is there already; give --force"),
    "into a folder that is not there": (["new.csv", "--client", "0", "--out", "no/it.csv"], "there is no folder no"),
    "onto a folder": (["new.csv", "--client", "0", "--out", "there"], "out is there, which is a folder"),
    "an id that is not there": (
        ["new.csv", "--client", "0", "--id", "patient"],
        "has no column 'patient' to take",
    ),
    "an id called like a prediction": (["new.csv", "--client", "0", "--id", "row"], "the id column is called 'row'"),
    "a choice that was not made": (["new.csv", "--client", "0", "--take-home", "best"], "unknown take_home 'best'"),
    "models that were not trained": (["new.csv", "--client", "0", "--take-home", "alone"], "no models trained alone"),
}


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_arguments(place, kind, fedamp_command):
    Path("new.csv").write_text(GOOD)
    Path("there").mkdir()
    np.savez("x.npz", x=np.zeros((2, 2)))
    arguments, words = ARGUMENTS[kind]
    client = [] if "client" in kind or "--client" in arguments else ["--client", "0"]
    before = {path: path.read_bytes() for path in Path().glob("*.*")}
    code, out, err = fedamp_command("predict", place / "run", *arguments, *client)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    with pytest.raises(UserError, match=words):
        raise UserError(err)
    assert {path: path.read_bytes() for path in Path().glob("*.*")} == before


IN_MEMORY = {
    "columns of unequal length": ({"age": [1, 2], "year": [1], "sex": ["f", "m"]}, "unequal numbers of cells"),
    "a column that is one cell": ({"age": 1, "year": [1], "sex": ["f"]}, "a column of the table is 1"),
    "None among numbers": ({"age": [1, None], "year": [1, 2], "sex": ["f", "m"]}, "row 1, column 'age' is empty"),
    "nan among numbers": ({"age": np.array([np.nan]), "year": [1], "sex": ["f"]}, "row 0, column 'age' is .*nan"),
    "an array of another width": (np.zeros((2, 4)), r"data has shape \(2, 4\); expected \(rows, 3\)"),
    "a single row": (np.zeros(3), r"data has shape \(3,\); expected \(rows, 3\)"),
    "nothing at all": (None, "data is a NoneType; expected an array, a table, or the path"),
    "a number": (5, "data is a int; expected an array"),
    "an empty table": ({"age": [], "year": [], "sex": []}, "the table has no rows"),
}


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_tables_in_memory(place, kind):
    data, words = IN_MEMORY[kind]
    with pytest.raises(UserError, match=words):
        fedamp.load(place / "run").predict(data, 0)


SAMPLES = {
    "another shape": (torch.zeros(3, 8, 9), r"data has shape \(3, 8, 9\); expected \(samples, 8, 8\)$"),
    "one sample alone": (torch.zeros(8, 8), r"expected \(samples, 8, 8\): one sample alone is x\[None\]"),
    "no samples": (torch.zeros(0, 8, 8), "data has no samples"),
    "not a number": (torch.full((2, 8, 8), torch.nan), "data is not finite in sample 0"),
    "words": (np.full((1, 8, 8), "a"), "data has type <U1; expected numbers"),
    "a table's file": ("new.csv", r"new.csv is no .npz file, and the model learned from arrays of shape \(8, 8\)"),
    "an npz file without x": ("y.npz", "y.npz has no array 'x', but 'y'"),
    "a damaged npz file": ("bad.npz", "bad.npz is not a readable npz file"),
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_samples(digits, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("new.csv").write_text(GOOD)
    Path("bad.npz").write_bytes(b"rubbish")
    np.savez("y.npz", y=np.zeros(3))
    data, words = SAMPLES[kind]
    with pytest.raises(UserError, match=words):
        digits.predict(data, 0)
    with pytest.raises(UserError, match="id is 'patient', but the rows come as an array"):
        digits.predict(torch.zeros(1, 8, 8), 0, id="patient")


def test_a_model_that_has_diverged_has_no_answer(digits):
    digits.chosen.models.params[2] = torch.nan
    with pytest.raises(UserError, match="the model of client 2 gives numbers that are not finite for 3 of 3 rows"):
        digits.predict(torch.zeros(3, 8, 8), 2)
    digits.predict(torch.zeros(3, 8, 8), 1)


def test_good_ones_beside_them(place, tmp_path):
    """So that the lists above fail for what they name: blanks, quotes, any order, a label that is not needed."""
    run = fedamp.load(place / "run")
    wanted = run.predict(_file(tmp_path, GOOD), 0)
    for text in (
        GOOD.replace(",", " , "),
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace(",", ";"),
        GOOD.replace(",", "\t").replace("61.5", "61,5"),
        "sex,target,age,year\nf,?,50,20000001\nm,,61.5,20000002\n",
        GOOD.replace("50,", "5e1,").replace("f\n", '"f"\n\n'),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (run.predict(_file(tmp_path, text), 0).probabilities == wanted.probabilities).all()


def _file(folder, text):
    path = folder / "good.csv"
    path.write_bytes(text.encode())
    return path
