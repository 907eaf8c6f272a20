"""Facts keep their names and values on their way to result.json and back."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import fedamp
from fedamp.records.facts import WRITTEN_AS_NULL, Facts

OLD = Path(__file__).parent / "old_runs"


@pytest.mark.parametrize("name", ["finished", "interrupted", "of_silos"])
def test_old_facts_are_read_and_written_as_they_were(name):
    there = json.loads((OLD / name / "result.json").read_text())["facts"]
    facts = Facts.of(there)
    assert facts.to_dict() == there
    assert list(facts.to_dict()) == list(there)
    assert (facts.names == ["north", "south", "west"]) == (name == "of_silos")


def test_every_run_writes_known_facts_only(tmp_path):
    clients = [(torch.randn(9, 2), torch.arange(9) % 2)] * 2
    result = fedamp.run(clients=clients, model="logistic", rounds=1, steps=1, out=tmp_path)
    written = json.loads((tmp_path / "result.json").read_text())["facts"]
    assert written == result.facts.to_dict()
    assert Facts.of(written) == result.facts
    assert [written[name] for name in WRITTEN_AS_NULL] == [None, None, None]


def test_what_another_version_wrote_besides_is_passed_over():
    assert Facts.of({"sizes": [3, 4], "weather": "fine"}) == Facts(sizes=[3, 4])
    with pytest.raises(TypeError, match="weather"):
        Facts(weather="fine")


def test_fields_written_as_null_are_fields():
    assert set(WRITTEN_AS_NULL) <= {each.name for each in fields(Facts)}
