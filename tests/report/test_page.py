"""The page: what it says, that no name can break it, and that a damaged folder is one line."""

import base64
import html
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedamp.methods import METHODS
from fedamp.report import comparison_table, write_report
from run_folders import EVIL, grouped_xi, write_run


def test_page_tells_what_was_run(tmp_path):
    groups = [0, 0, 1, 1]
    scores = [(0.5, 0.7, 0.6, 0.6), (0.6, 0.8, 0.7, 0.7)]
    xi = grouped_xi(2, groups)
    write_run(tmp_path / "a", {"name": "fedamp", "sigma": 25.0}, 0, scores, groups=groups, xi=xi, warnings=["lower it"])
    write_run(tmp_path / "s", "separate", 0, scores, groups=groups, finished=False)
    path = write_report([tmp_path])
    assert path == tmp_path / "report.html"
    text = path.read_text()
    assert "fedamp run --data digits" in text
    assert "sigma=25.0" in text
    assert "lower it" in text
    assert "did not finish" in text
    assert "separate*" in text
    data = page_data(text)
    amp = next(method for method in data[0]["methods"] if method["name"] == "fedamp")
    assert amp["curve"]["mean"] == pytest.approx([60, 70])
    assert amp["recovery"]["mean"] == [0.0, 1.0]
    assert amp["xi"]["rounds"] == [1, 2]
    assert "src=" not in text.split('<script type="application/json"')[0]


def header(folder):
    return " ".join(write_report([folder]).read_text().split("<header>")[1].split("</header>")[0].split())


def test_how_far_runs_have_come_stands_at_the_top(tmp_path):
    write_run(tmp_path / "a", rounds=12, finished=False)
    assert "This run has not finished: 2 of its 12 rounds were played, and all numbers are of these." in header(
        tmp_path
    )
    write_run(tmp_path / "b", "separate", rounds=12, accuracies=[(0.5, 0.6)] * 12)
    assert (
        "1 of 2 runs has not finished, and what is said of them is of the rounds so far: fedamp, seed 0, 2 of its 12 "
        "rounds."
    ) in header(tmp_path)
    for seed in range(1, 6):
        write_run(tmp_path / f"s{seed}", seed=seed, rounds=12, result=False)
    assert "6 of 7 runs have not finished" in header(tmp_path)
    assert "; and 2 more." in header(tmp_path)
    assert "finished" not in header(tmp_path / "b")


def test_one_of_a_thing_is_in_the_singular(tmp_path):
    write_run(tmp_path / "a", epochs=1)
    write_run(tmp_path / "a again", epochs=1)
    write_run(tmp_path / "b", "apfl", steps=1, epochs=None)
    write_run(tmp_path / "c", data="given", setting="given", epochs=2)
    text = write_report([tmp_path]).read_text()
    assert "1 epoch, batches of 10 (fedamp)" in text
    assert "1 minibatch, batches of 10 (apfl)" in text
    assert "2 epochs, batches of 10" in text
    assert "Left out: 1 run that repeats a method and seed." in text
    assert "1 run had clients from a Python program or a federation" in text


def page_data(text: str):
    return json.loads(text.split('<script type="application/json" id="data">')[1].split("</script>")[0])


def test_weights_survive_a_byte_each(tmp_path):
    xi = np.random.default_rng(0).dirichlet(np.ones(5), size=(3, 5)).astype(np.float32)
    write_run(tmp_path / "a", accuracies=[(0.5,) * 5] * 3, xi=xi)
    data = page_data(write_report([tmp_path / "a"]).read_text())[0]["methods"][0]["xi"]
    steps = np.frombuffer(base64.b64decode(data["bytes"]), dtype=np.uint8).reshape(3, 5, 5)
    order = [int(name.split()[1]) for name in data["clients"]]
    assert np.abs(data["top"] * (steps / 255) ** 2 - xi[np.ix_(range(3), order, order)]).max() < 0.005


def test_page_stays_small(tmp_path):
    rng = np.random.default_rng(0)
    groups = [i % 5 for i in range(62)]
    for name in (*METHODS, "own-one", "own-two"):
        scores = rng.uniform(size=(90, 62)).tolist()
        xi = rng.dirichlet(np.ones(62), size=(90, 62)) if name in tuple(METHODS)[:10] else None
        write_run(tmp_path / name, name, 0, scores, rounds=90, groups=groups, xi=xi)
    path = write_report([tmp_path])
    assert len(page_data(path.read_text())[0]["methods"]) == len(METHODS) + 2
    assert path.stat().st_size < 8e6
    assert len(page_data(path.read_text())[0]["methods"][0]["xi"]["rounds"]) == 90


def test_more_than_a_page_holds_leaves_out_rounds_not_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("fedamp.report.figures.XI_BYTES", 4 * 4 * 5)
    write_run(tmp_path / "a", accuracies=[(0.5,) * 4] * 20, xi=grouped_xi(20, [0, 0, 1, 1]))
    rounds = page_data(write_report([tmp_path]).read_text())[0]["methods"][0]["xi"]["rounds"]
    assert len(rounds) == 5
    assert (rounds[0], rounds[-1]) == (1, 20)


def test_names_can_not_break_the_page(tmp_path):
    plain = write_report([write_run(tmp_path / "plain")]).read_text()
    write_run(
        tmp_path / "a", EVIL, accuracies=[(0.5, 0.6)], names=[EVIL, "b"], warnings=[EVIL], data=f"./{EVIL}",
        xi=grouped_xi(1, [0, 1]), setting="natural", model=EVIL,
    )  # fmt: skip
    text = write_report([tmp_path / "a"]).read_text()
    assert "<img" not in text.split('<script type="application/json"')[0]
    assert "alert(1)</script>" not in text
    for sign in ("<script", "</script"):
        assert text.count(sign) == plain.count(sign)
    assert page_data(text)[0]["methods"][0]["name"] == EVIL


def test_plain_signs_are_shown_as_they_are(tmp_path):
    sign = 'a & b\'s "c" <d> %'
    write_run(tmp_path / "a", sign, warnings=[sign], data=f"./{sign}", setting="natural")
    text = write_report([tmp_path]).read_text().split('<script type="application/json"')[0]
    assert sign not in text
    assert html.unescape(text).count(sign) >= 6  # title twice, sentence, two tables, warning


def test_out_says_where(tmp_path):
    run = write_run(tmp_path / "a")
    assert write_report([run], tmp_path / "new" / "page.html").name == "page.html"
    assert write_report([run], tmp_path) == tmp_path / "report.html"
    with pytest.raises(ValueError, match="can't write the report to"):
        write_report([run], run / "description.json" / "page.html")


def damage(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("description.json", "{}"),
        ("description.json", '{"method": "fedamp", "seed": 0}'),
        ("description.json", "[1]"),
        ("description.json", "{cut"),
        ("rounds.jsonl", '{"round": 1, "test": {"own": {"accuracy": ["x"]}}}\n'),
        ("rounds.jsonl", '{"round": 1, "test": {"own": {"loss": [1]}}}\n'),
        ("rounds.jsonl", '{"round": 1, "test": [1]}\n'),
        ("rounds.jsonl", "".join(f'{{"round": {k}, "test": {{"own": {{"accuracy": {[1] * k}}}}}}}\n' for k in (1, 2))),
        ("rounds.jsonl", '{"nothing": 1}\n'),
        ("rounds.jsonl", '{"round": 1, "bytes": [1], "test": {"own": {"accuracy": [1, 1]}}}\n'),
        ("rounds.jsonl", '{"round": 1, "seconds": "long", "test": {"own": {"accuracy": [1, 1]}}}\n'),
        ("rounds.jsonl", '{"round": 1, "test": {"own": {"accuracy": [1, 1], "loss": "much"}}}\n'),
        ("rounds.jsonl", '{"round": 1, "test": {"own": {"accuracy": [1, 1]}, "alone": {"accuracy": 1}}}\n'),
        ("result.json", '"x"'),
        ("result.json", '{"finished": true, "facts": [1], "metric": "accuracy"}'),
        ("result.json", '{"finished": true, "facts": {"groups": [1]}, "metric": "accuracy"}'),
        ("result.json", '{"finished": true, "warnings": 3, "metric": "accuracy"}'),
        ("result.json", '{"finished": true, "metric": "taste"}'),
        ("xi.safetensors", "no tensors"),
    ],
)  # fmt: skip
def test_damaged_folders_are_one_line(tmp_path, name, text):
    run = write_run(tmp_path / "a", xi=grouped_xi(2, [0, 1]))
    damage(run, name, text)
    with pytest.raises(ValueError, match=str(tmp_path)) as caught:
        write_report([run])
    assert "\n" not in str(caught.value)


def test_foreign_weights_and_folders_are_one_line(tmp_path):
    write_run(tmp_path / "a", xi=grouped_xi(2, [0, 1, 2]))
    with pytest.raises(ValueError, match=r"weights of shape \(2, 3, 3\)"):
        write_report([tmp_path / "a"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no run"):
        write_report([tmp_path / "empty"])
    with pytest.raises(ValueError, match="is not a folder"):
        write_report([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="got no folders"):
        write_report([])
    with pytest.raises(ValueError, match="got no runs"):
        comparison_table([])


def test_a_report_needs_no_torch():
    code = "import sys, fedamp.report; print(*{'torch', 'pandas', 'matplotlib', 'sklearn'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == []


def test_a_newcomers_headline_has_no_digest(tmp_path):
    setting = {"name": "newcomer", "run": "here", "state": "724cb70894a35064", "silo": "delta"}
    text = write_report([write_run(tmp_path / "a", data="new/delta.csv", setting=setting)]).read_text()
    title = "new/delta.csv, newcomer (run=here, silo=delta)"
    assert re.search(r"<title>(.*?)</title>", text)[1].count(title) == 1
    assert re.search(r"<h1>(.*?)</h1>", text)[1] == title
