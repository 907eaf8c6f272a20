"""Every command of docs/tutorial.md, in order, and what the page says that they print.

The figures may be others in the last digits; those of the comparison and of the newcomer, from which the page
concludes, are checked.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import fedamp
from fedamp.config import RunConfig
from fedamp.runs.material import load_material

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```(bash|text|python)\n(.*?)```", re.S)
REFUSED = 2


def blocks() -> list[tuple[str, str]]:
    return [(kind, text) for kind, text in BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"))]


def without_figures(text: str) -> str:
    """Return a text with a mark for each number, and for which of the models was chosen, in which round."""
    text = re.sub(r"(own|received) model [wu]|midpoint of w and u", "MODEL", text)
    return re.sub(r"\d+(\.\d+)?", "#", " ".join(text.split()))


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The folder in which all commands were run, and what each kind of block was followed by."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "examples").symlink_to(ROOT / "examples")
    tools = {"fedamp": [sys.executable, "-m", "fedamp"], "python": [sys.executable]}
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    printed: list[tuple[str, str]] = []
    for kind, text in blocks():
        if kind == "text":
            printed.append(("said", text))
            continue
        commands = [[sys.executable, "-c", text]] if kind == "python" else []
        if kind == "bash":
            commands = [[*tools[line.split()[0]], *line.split()[1:]] for line in text.strip().splitlines()]
        for command in commands:
            done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
            bare = command[-2:] == ["--label", "readmitted"]
            assert done.returncode == (REFUSED if bare else 0), f"{command}: {done.stdout}{done.stderr}"
            shown = done.stdout + done.stderr
            if (folder / "hospitals" / "predictions.csv").exists() and "predict" in command:
                shown += (folder / "hospitals" / "predictions.csv").read_text()
            printed.append(("printed", shown))
    return folder / "hospitals", printed


@pytest.mark.slow
def test_what_commands_print_is_what_the_page_says(played):
    _, printed = played
    checked = 0
    for i, (kind, text) in enumerate(printed):
        if kind == "said":
            actual = without_figures(printed[i - 1][1])
            for line in text.strip().splitlines():
                assert without_figures(line) in actual, f"{line!r} is not in {printed[i - 1][1]!r}"
                checked += 1
    assert checked >= 12


@pytest.mark.slow
def test_the_comparison_has_the_figures_from_which_the_page_concludes(played):
    """Not checked is what the page says of the same command without `--validation`: it takes as long again."""
    _, printed = played
    (place,) = [i for i, (kind, text) in enumerate(printed) if kind == "said" and text.startswith("method ")]
    shown, page = printed[place - 1][1], printed[place][1]
    rows = {line.split()[0]: line for line in shown.splitlines() if line}
    said = {line.split()[0]: [float(figure) for figure in line.split()[1:]] for line in page.strip().splitlines()[1:]}
    assert set(said) == {"separate", "fedavg", "fedavg-ft", "autoamp"}
    for method, figures in said.items():
        actual = [float(figure) for figure in rows[method].split()[1 : len(figures) + 1]]
        assert actual == pytest.approx(figures, abs=0.003), method
        assert method == "separate" or "0 of 3" in rows[method]


@pytest.mark.slow
def test_the_newcomer_has_the_figures_that_the_page_shows(played):
    """Scores, weights and what joining is worth, within what few test rows and another machine's digits may change."""
    _, printed = played
    (place,) = [i for i, (kind, text) in enumerate(printed) if kind == "said" and text.startswith("  alone ")]
    actual, said = (newcomers_figures(printed[i][1]) for i in (place - 1, place))
    assert set(said) == {"alone", "received", "own", "chosen", "joining", "south", "west", "north", "itself"}
    assert {name: actual[name] for name in said} == pytest.approx(said, abs=0.003)


def newcomers_figures(text: str) -> dict[str, float]:
    """Return the scores, the weights as shares, and the gain that `fedamp join` prints."""
    scores = re.findall(r"^ +(\w+) +AUC (\S+) ", text, re.M)
    weights = [(name, int(share) / 100) for name, share in re.findall(r"(\w+) (\d+)%", text)]
    (gain,) = re.findall(r"joining pays.*: ([+-]\S+)", text)
    return {name: float(figure) for name, figure in [*scores, *weights, ("joining", gain)]}


def held_out_rows(folder: Path) -> dict[str, tuple[list[dict[str, str]], np.ndarray]]:
    """Return each hospital's test rows as its table has them, and who of them came back."""
    config = RunConfig.of(json.loads((folder / "run" / "description.json").read_text()))
    material = load_material(config)
    clients, found, begin = material.clients, {}, 0
    for i, name in enumerate(material.facts.names):
        table = ROWS[name](folder)
        places = clients.test[i].numpy() - begin
        begin += len(table)
        rows = [table[place] for place in places]
        found[name] = rows, np.array([row["readmitted"] == "yes" for row in rows])
    return found


def of_text(text: str, separator: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines(), delimiter=separator))


def packed(path: Path) -> str:
    import gzip

    return gzip.decompress(path.read_bytes()).decode()


ROWS = {
    "north": lambda folder: of_text((folder / "silos" / "north.csv").read_text(), ";"),
    "south": lambda folder: of_text((folder / "silos" / "south.csv").read_text(), ","),
    "west": lambda folder: of_text(packed(folder / "silos" / "west.csv.gz"), ","),
}


@pytest.mark.slow
def test_predictions_and_exported_models_have_the_scores_of_the_run(played, monkeypatch):
    """`fedamp predict` and ONNX Runtime, each asked about every hospital's test rows, against result.json's AUC."""
    folder, _ = played
    monkeypatch.chdir(folder.parent)
    import onnxruntime

    result = json.loads((folder / "run" / "result.json").read_text())
    run = fedamp.load(folder / "run")
    for i, (name, (rows, positive)) in enumerate(held_out_rows(folder).items()):
        recorded = result["take_home"]["scores"][i]
        assert result["metrics"]["auc"]["per_client"][i] == pytest.approx(recorded, abs=1e-9)
        new = folder / f"{name}-test-rows.csv"
        with new.open("w", newline="") as file:
            columns = [column for column in rows[0] if column != "readmitted"]
            out = csv.DictWriter(file, columns, delimiter=";", extrasaction="ignore")
            out.writeheader()
            out.writerows(rows)
        target = folder / f"{name}-said.csv"
        command = [sys.executable, "-m", "fedamp", "predict", "hospitals/run", "--client", name, str(new)]
        subprocess.run([*command, "--out", str(target)], check=True, capture_output=True, timeout=120)
        said = [float(row["p(yes)"]) for row in of_text(target.read_text(), ",")]
        assert roc_auc_score(positive, said) == pytest.approx(recorded, abs=1e-9)

        (model,) = (folder / "models").glob(f"*{name}*.onnx")
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        inputs = encoded(json.loads(model.with_suffix(".json").read_text()), rows)
        (feed,) = session.get_inputs()
        answer = session.run(None, {feed.name: inputs.astype(np.float64 if "double" in feed.type else np.float32)})[0]
        assert roc_auc_score(positive, answer[:, 1]) == pytest.approx(recorded, abs=1e-6)
        np.testing.assert_allclose(answer[:, 1], said, atol=1e-5)
        assert run.facts.names[i] == name


def encoded(how: dict, rows: list[dict[str, str]]) -> np.ndarray:
    """Encode rows by the JSON beside a model alone, as another program would."""
    fill, days = how["fill"], np.datetime64("1970-01-01")

    def number(column: str, cell: str) -> float:
        if column in how["dates"]:
            return float((np.datetime64(cell) - days) / np.timedelta64(1, "D"))
        return fill[column] if cell in ("", "NA") else float(cell.replace(",", "."))

    def inputs(row: dict[str, str]) -> list[float]:
        values = []
        for column in how["columns"]:
            if column in how["words"]:
                cell = row[column] if row[column] not in ("", "NA") else fill[column]
                values += [float(cell == word) for word in how["words"][column]]
            else:
                values.append(number(column, row[column]))
        return values

    return np.array([inputs(row) for row in rows])
