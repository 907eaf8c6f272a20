"""The faults in `mutants.py` can still be put in; `make mutants` puts them in and sees that tests notice."""

import json

import pytest

import fedamp
from mutants import MUTANTS, ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.after.strip()[:40]}")
def test_the_text_stands_where_it_is_said_to_stand(mutant):
    assert (ROOT / "src" / "fedamp" / mutant.file).read_text().count(mutant.before) == 1


def test_a_record_with_missing_rounds_begins_anew(tmp_path):
    settings = {"data": "digits", "clients": 5, "rounds": 4, "epochs": 1}
    fedamp.run(out=tmp_path / "run", observer=lambda line: line["round"] < 3, **settings)
    path = tmp_path / "run" / "rounds.jsonl"
    lines = [text for text in path.read_text().splitlines(keepends=True) if json.loads(text)["round"] != 2]
    path.write_text("".join(lines))
    result = fedamp.run(out=tmp_path / "run", **settings)
    assert [line["round"] for line in result.history] == [0, 1, 2, 3, 4, 5]
