"""The steps of docs/deploy.md that set a federation up and renew its keys, as they stand there."""

import re
import shlex
import shutil
import zipfile
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[2] / "docs/deploy.md"
NAMES = ["hospital-a", "hospital-b", "hospital-c"]


def step(beginning: str) -> list[str]:
    """Return the words of the page's command that begins so."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return next(shlex.split(line, comments=True) for line in lines if line.startswith(beginning))


def test_from_keys_to_silos_that_are_ready_and_back(fedamp_command, tmp_path, monkeypatch):
    places = {name: tmp_path / f"at-{name}" for name in [*NAMES, "operator"]}
    for place in places.values():
        place.mkdir()

    def at(name: str, beginning: str, silo: str = "hospital-a", more: tuple[str, ...] = ()) -> str:
        monkeypatch.chdir(places[name])
        words = [word.replace("hospital-a", silo) for word in step(beginning)]
        code, out, err = fedamp_command(*words[1:], *more)
        assert code == 0, (words, err, out)
        return out

    def hand_over(file: Path, to: str) -> None:
        shutil.copy(file, places[to])

    def unzip(name: str) -> None:
        hand_over(places["operator"] / f"federation/bundles/{name}.zip", name)
        assert step("unzip")[:2] == ["unzip", "-o"]
        with zipfile.ZipFile(places[name] / f"{name}.zip") as archive:
            archive.extractall(places[name])

    for i, name in enumerate(NAMES):
        ages = np.random.default_rng(i).integers(20, 90, 40)
        who = [f"{n},Patient {n},19{n % 90 + 10}-01-02,2026-03-{n % 28 + 1:02}" for n in range(100, 140)]
        cells = [f"{age},{age % 7},{'yes' if age > 50 else 'no'}" for age in ages]
        rows = "".join(f"{one},{more}\n" for one, more in zip(who, cells, strict=True))
        (places[name] / "patients.csv").write_text("record,name,born,visit,age,dose,outcome\n" + rows)
        at(name, "fedamp silo key hospital-a", name)
        hand_over(places[name] / f"{name}/{name}.pub", "operator")
        at(name, "fedamp data schema patients.csv", name, ("--yes",))
        hand_over(places[name] / f"{name}.json", "operator")
    shown = at("operator", "fedamp federation init federation")
    for name in NAMES:
        unzip(name)
        told = at(name, "fedamp silo check hospital-a", name, ("--offline",))
        prints = re.findall(r"SHA256:\S+|(?:[0-9A-F]{2}:){31}[0-9A-F]{2}", told)
        assert len(prints) == 2
        assert all(one in shown for one in prints)

    at("hospital-a", "fedamp silo key hospital-a --renew")
    hand_over(places["hospital-a"] / "hospital-a/hospital-a.pub", "operator")
    at("operator", "fedamp federation stop federation")
    told = at("operator", "fedamp federation rekey federation hospital-a")
    unzip("hospital-a")
    assert re.findall(r"SHA256:\S+\w", at("hospital-a", "fedamp silo check hospital-a", more=("--offline",)))[0] in told
    renewed = [word for word in step("fedamp federation renew") if not word.endswith("ca.key")]
    monkeypatch.chdir(places["operator"])
    code, _, err = fedamp_command(*renewed[1:], "federation/ca/ca.key")
    assert code == 0, err
