"""Amounts are not classes, and one class is not two: what is guessed or looks wrong is a warning, with its cure."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import fedamp
from fedamp.data.silos.read import read_silos
from fedamp.data.silos.schema import make_schema

ROWS = 40
QUICK = {"model": "logistic", "method": "separate", "rounds": 1, "steps": 1}
FLAGS = ["--model", "logistic", "--method", "separate", "--rounds", "1", "--steps", "1"]


def amounts(silo=0):
    """Whole numbers, nearly all different: as the diabetes data has them, 25 to 346."""
    return np.random.default_rng(silo).permutation(np.arange(25, 347))[:ROWS]


def inputs(silo=0):
    return np.random.default_rng(10 + silo).normal(size=(ROWS, 3))


def write_csv(folder, spell, silos=3, column="y"):
    """Write silos whose targets are `spell(silo, row)`."""
    Path(folder).mkdir()
    for silo in range(silos):
        cells = [[*map(str, x), spell(silo, row)] for row, x in enumerate(inputs(silo))]
        text = "\n".join(",".join(row) for row in [["a", "b", "c", column], *cells])
        Path(folder, f"{'uvw'[silo]}.csv").write_text(text + "\n")


def run_as_json(command, *arguments):
    code, out, err = command("run", *arguments, *FLAGS, "--json")
    assert code == 0, err
    return json.loads(out)


WHOLE_FLOATS = "y has whole numbers, written as floats"


# A regression stays one ------------------------------------------------------------------------------------------


def test_whole_amounts_are_a_regression_in_csv(fedamp_command):
    write_csv("silos", lambda silo, row: f"{amounts(silo)[row]}.0")
    result = run_as_json(fedamp_command, "--data", "silos", "--label", "y")
    assert result["metric"] == "rmse"
    assert [warning for warning in result["warnings"] if WHOLE_FLOATS in warning and "--task classification" in warning]
    record = json.loads(Path(result["folder"], "result.json").read_text())
    assert record["warnings"] == result["warnings"]
    for task, metric in (("classification", "accuracy"), ("regression", "rmse")):
        named = run_as_json(fedamp_command, "--data", "silos", "--label", "y", "--task", task)
        assert (named["metric"], named["warnings"]) == (metric, [])


def test_whole_amounts_are_a_regression_in_npz(fedamp_command):
    Path("silos").mkdir()
    for silo in range(3):
        np.savez(f"silos/{silo}.npz", x=inputs(silo), y=amounts(silo).astype(np.float64))
    result = run_as_json(fedamp_command, "--data", "silos")
    assert result["metric"] == "rmse"
    assert any(WHOLE_FLOATS in warning for warning in result["warnings"])


@pytest.mark.parametrize("make", [torch.tensor, np.asarray], ids=["torch", "numpy"])
@pytest.mark.parametrize("targets", [amounts, lambda silo: np.arange(ROWS) % 2], ids=["amounts", "0 and 1"])
def test_whole_floats_are_a_regression_in_python(make, targets):
    clients = [(make(inputs(silo)), make(targets(silo).astype(float))) for silo in range(3)]
    result = fedamp.run(clients=clients, **QUICK)
    assert result.summary.metric == "rmse"
    assert any(WHOLE_FLOATS in warning and "task='classification'" in warning for warning in result.warnings)
    for task, metric in (("classification", "accuracy"), ("regression", "rmse")):
        named = fedamp.run(clients=clients, task=task, **QUICK)
        assert (named.summary.metric, named.warnings) == (metric, [])


def test_one_float_among_the_clients_is_enough():
    clients = [(inputs(0), np.arange(ROWS) % 2), (inputs(1), np.arange(ROWS) % 2.0)]
    result = fedamp.run(clients=clients, **QUICK)
    assert result.summary.metric == "rmse"
    assert any(WHOLE_FLOATS in warning for warning in result.warnings)


def test_the_terminal_tells_a_guess(fedamp_command):
    write_csv("silos", lambda silo, row: f"{amounts(silo)[row]}.0")
    for command in (["run"], ["run", "--dry-run"], ["compare", "--methods", "separate"]):
        flags = [flag for flag in FLAGS if flag not in ("--method", "separate")]
        code, _, err = fedamp_command(*command, "--data", "silos", "--label", "y", *flags)
        assert code == 0, err
        assert f"warning: {WHOLE_FLOATS}" in err, command


def test_whole_numbers_that_are_nearly_all_different_are_a_guess(fedamp_command):
    write_csv("silos", lambda silo, row: str(amounts(silo)[row]))
    result = run_as_json(fedamp_command, "--data", "silos", "--label", "y")
    assert any("taken as classes; for amounts give --task regression" in warning for warning in result["warnings"])
    clients = [(inputs(silo), amounts(silo)) for silo in range(3)]
    assert any("taken as classes" in warning for warning in fedamp.run(clients=clients, **QUICK).warnings)
    for name, spell in (
        ("words", lambda silo, row: "ill" if row % 2 else "well"),
        ("classes", lambda silo, row: str(row % 3)),
        ("fractions", lambda silo, row: f"{row + 0.5}"),
    ):
        write_csv(name, spell)
        nothing_to_guess = run_as_json(fedamp_command, "--data", name, "--label", "y")
        assert nothing_to_guess["warnings"] == [], name
    for y in (np.arange(ROWS) % 3, np.arange(ROWS) % 2 > 0):
        assert fedamp.run(clients=[(inputs(), y)] * 2, **QUICK).warnings == []


def test_a_word_among_amounts_is_warned_of(fedamp_command):
    write_csv("silos", lambda silo, row: f"{amounts(silo)[row]}.5" if row else "gone")
    warnings = run_as_json(fedamp_command, "--data", "silos", "--label", "y")["warnings"]
    assert any("besides 'gone': taken as classes; for amounts correct those words" in warning for warning in warnings)


def test_missing_labels_are_warned_of(fedamp_command):
    write_csv("silos", lambda silo, row: ("yes", "no", "NA")[row % 3])
    (warning,) = run_as_json(fedamp_command, "--data", "silos", "--label", "y")["warnings"]
    assert "'NA' count as classes" in warning


# From Python: class numbers --------------------------------------------------------------------------------------


def test_classes_are_not_cut_to_whole_numbers():
    with pytest.raises(ValueError, match=r"client 1 has the label 0\.5; expected classes numbered from 0"):
        fedamp.run(
            clients=[(inputs(), np.arange(ROWS) % 2), (inputs(), np.arange(ROWS) / 2)], task="classification", **QUICK
        )
    with pytest.raises(ValueError, match=r"client 0 has the label -1\.0"):
        fedamp.run(clients=[(inputs(), np.arange(ROWS) % 2 - 1.0)], task="classification", **QUICK)


def test_negative_whole_numbers_are_a_regression_where_that_is_asked_for():
    result = fedamp.run(clients=[(inputs(), np.arange(ROWS) - 20)] * 2, task="regression", **QUICK)
    assert result.summary.metric == "rmse"


def test_amounts_as_class_numbers_are_refused_before_they_fill_the_memory():
    with pytest.raises(ValueError, match=r"largest label is 4000000000000.*task='regression'"):
        fedamp.run(clients=[(inputs(), np.arange(ROWS) + 4 * 10**12 - ROWS + 1)] * 2, **QUICK)


def test_a_regression_has_one_output():
    with pytest.raises(ValueError, match=r"expected \(2, 1\).*task='classification'"):
        fedamp.run(clients=[(inputs(), np.arange(ROWS) % 2.0)] * 2, **{**QUICK, "model": torch.nn.Linear(3, 2)})


def test_one_class_in_all_is_warned_of():
    (warning,) = fedamp.run(clients=[(inputs(), np.ones(ROWS, int))] * 2, **QUICK).warnings
    assert "all targets are 1" in warning


# What silos agree on apart ---------------------------------------------------------------------------------------


def test_a_schema_tells_its_guess(fedamp_command):
    write_csv("silos", lambda silo, row: f"{amounts(silo)[row]}.0")
    code, out, err = fedamp_command("data", "schema", "silos/u.csv", "--label", "y")
    assert (code, json.loads(out)["task"]) == (0, "regression")
    assert f"warning: {WHOLE_FLOATS}" in err
    _, _, err = fedamp_command("data", "schema", "silos/u.csv", "--label", "y", "--task", "regression")
    assert err == ""


def test_silos_described_apart_do_not_disagree_in_silence(fedamp_command):
    write_csv("silos", lambda silo, row: f"{row % 2}.0" if silo else f"{row % 2}")
    for name in "uv":
        fedamp_command("data", "schema", "--yes", f"silos/{name}.csv", "--label", "y", "--out", f"{name}.json")
    merge = ["data", "schema", "silos/u.csv", "--label", "y", "--merge", "v.json"]
    code, _, err = fedamp_command(*merge)
    assert code == 2
    assert "v.json is regression and that of silos/u.csv is classification" in err
    named = ["--task", "classification", "--out", "v.json", "--yes"]
    fedamp_command("data", "schema", "silos/v.csv", "--label", "y", *named)
    code, out, _ = fedamp_command(*merge)
    assert (code, json.loads(out)["labels"]) == (0, ["0", "1"])


@pytest.mark.skipif(not find_spec("flwr"), reason="the deployment is an extra")
def test_a_federation_tells_what_its_schemas_leave_in_doubt(fedamp_command):
    write_csv("silos", lambda silo, row: (("no", "yes"), ("NO", "YES"), ("0", "1"))[silo][row % 2])
    schemas = []
    for name in "uvw":
        fedamp_command("data", "schema", "--yes", f"silos/{name}.csv", "--label", "y", "--out", f"{name}.json")
        schemas += ["--schema", f"{name}.json"]
    code, _, err = fedamp_command("federation", "init", "fed", "--silos", "u,v,w", "--make-keys", *schemas)
    assert code == 0, err
    assert "'no' (in 'u.json') and 'NO' (in 'v.json')" in err
    assert "labels of 'w.json' occur in no other silo" in err
    code, out, _ = fedamp_command("silo", "check", "fed/bundles/v", "--data", "silos/v.csv", "--offline")
    assert code == 0, out
    assert "warning: labels look alike" in out
    assert "'YES' (in 'v', 'the schema')" in out


# Labels that look alike ------------------------------------------------------------------------------------------


def test_labels_of_other_case_are_warned_of(fedamp_command):
    write_csv("silos", lambda silo, row: (("no", "yes"), ("NO", "YES"), (" no ", "yes"))[silo][row % 2])
    result = run_as_json(fedamp_command, "--data", "silos", "--label", "y")
    assert result["facts"]["num_outputs"] == 4, "they are warned of, and not merged"
    (warning,) = result["warnings"]
    assert "'NO' (in 'v')" in warning
    assert "'no' (in 'u', 'w')" in warning
    assert warning.endswith("write them the same way in all silos")
    _, _, err = fedamp_command("data", "schema", "--yes", "silos", "--label", "y", "--out", "s.json")
    assert f"warning: {warning}" in err
    fedamp_command("data", "schema", "--yes", "silos/v.csv", "--label", "y", "--out", "v.json")
    _, _, err = fedamp_command("data", "schema", "silos/u.csv", "--label", "y", "--merge", "v.json")
    assert "'no' (in 'silos/u.csv') and 'NO' (in 'v.json')" in err
    agreed = run_as_json(fedamp_command, "--data", "silos", "--label", "y", "--schema", "s.json")
    assert agreed["warnings"] == [warning]
    # Numbers are one label however they are spelled, so that nothing looks alike.
    write_csv("numbers", lambda silo, row: (("0", "1"), ("0.0", "1.0"), ("00", "1e0"))[silo][row % 2])
    result = run_as_json(fedamp_command, "--data", "numbers", "--label", "y", "--task", "classification")
    assert (result["facts"]["num_outputs"], result["warnings"]) == (2, [])


def test_labels_that_no_other_silo_has_are_warned_of(fedamp_command):
    write_csv("silos", lambda silo, row: (("no", "yes"), ("no", "yes"), ("0", "1"))[silo][row % 2])
    (warning,) = run_as_json(fedamp_command, "--data", "silos", "--label", "y")["warnings"]
    assert "labels of 'w' occur in no other silo ('w' has '0', '1'; 'u' has 'no', 'yes')" in warning


def test_words_of_inputs_that_look_alike_are_warned_of(tmp_path, fedamp_command):
    Path("silos").mkdir()
    for name, words in (("u", "FM"), ("v", "fm")):
        rows = "".join(f"{row % 7},{words[row % 2]},{row % 3 % 2}\n" for row in range(ROWS))
        Path(f"silos/{name}.csv").write_text(f"a,sex,label\n{rows}")
    (warning,) = run_as_json(fedamp_command, "--data", "silos")["warnings"]
    assert "words of column 'sex' look alike" in warning
    assert "'F' (in 'u') and 'f' (in 'v')" in warning
    assert make_schema(read_silos(Path("silos"))).categories == {"sex": ("F", "M", "f", "m")}
