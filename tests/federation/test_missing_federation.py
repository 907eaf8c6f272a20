"""Silos that lack cells: a federation under a merged schema computes what a simulation of the same files computes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedamp.data.silos.read import read_silo
from fedamp.data.silos.schema import make_schema, merge_schemas
from fedamp.data.silos.schema.missing import READING
from fedamp.data.silos.schema_file import schema_from_json, schema_to_json
from fedamp.errors import UserError
from fedamp.federation.configure import configured_for
from fedamp.federation.plan import Plan, SiloConfig
from fedamp.federation.plan_files import read_silo_config, write_silo_config
from fedamp.federation.silo.checkup import _data
from fedamp.federation.silo.kept_setup import DataError, kept_setup
from fedamp.runs.material import load_material
from federation.inprocess import Local, engine_rounds


def write_tables(folder, lacking=True):
    """Write three silos' tables; the first has all cells, and the last no word at all."""
    stream = np.random.default_rng(3)
    folder.mkdir()
    for place in range(3):
        lines = ["age,seen,sex,outcome"]
        for _ in range(24 + 6 * place):
            age, day, late = stream.normal(50 + place, 9), stream.integers(1, 29), stream.random(2)
            cells = [f"{age:.2f}", f"2024-0{stream.integers(1, 10)}-{day:02d}", "FM"[stream.integers(2)]]
            if lacking and place:
                cells = ["" if each < 0.2 else cell for each, cell in zip([*late, place - 1.5], cells, strict=True)]
                cells[2] = "" if place == 2 else cells[2] or "M"
            lines.append(",".join([*cells, "sick" if age > 50 else "well"]))
        (folder / f"silo-{place}.csv").write_text("\n".join(lines) + "\n")
    return folder


def merged(data, missing, indicate):
    """The schema as silos that never meet come to it: each makes a file, and the files are merged."""
    silos = [read_silo(path, "outcome", missing=READING[missing]) for path in sorted(data.iterdir())]
    texts = [schema_to_json(make_schema([silo], missing=missing, indicate=indicate)) for silo in silos]
    return merge_schemas([schema_from_json(text) for text in texts])


def plan_for(data, missing="fill", indicate=False):
    schema = merged(data, missing, indicate)
    flags = {"rounds": 2, "batch_size": 7, "method": "fedamp", "model": "logistic"}
    config = configured_for("test", 3, schema, None, flags, [])
    assert (config.missing, config.indicate_missing) == (missing, indicate)
    return Plan("test", replace(config, data=str(data)), schema)


@pytest.mark.parametrize("indicate", [False, True], ids=["filled", "filled and indicated"])
def test_a_federation_equals_the_simulation(tmp_path, indicate):
    data = write_tables(tmp_path / "data")
    plan = plan_for(data, indicate=indicate)
    simulated = load_material(plan.config)
    assert simulated.schema == plan.schema
    assert ("sex is missing" in plan.schema.features) == indicate
    local = Local(tmp_path, plan, data)
    record = local.serve()
    last = engine_rounds(plan)[-1]
    assert record.state.method_state.rows.keys() == last.server.rows.keys()
    for name, rows in record.state.method_state.rows.items():
        assert torch.equal(rows.params, last.server.rows[name].params)
    for place, house in local.houses.items():
        setup = kept_setup(house.config, house.data, trains_alone=False)
        own = simulated.clients.take(torch.tensor([place]))
        assert torch.equal(setup.clients.x[setup.clients.train[0]], own.x[own.train[0]])
        assert torch.equal(setup.clients.x[setup.clients.test[0]], own.x[own.test[0]])


def test_a_silo_drops_rows_as_the_schema_says(tmp_path):
    data = write_tables(tmp_path / "data")
    (data / "silo-2.csv").unlink()  # no row of it is complete
    silo = SiloConfig(plan_for(data, "drop"), "s", 1, "nowhere:1")
    setup = kept_setup(silo, data / "silo-1.csv", trains_alone=False)
    rows = [line.split(",") for line in (data / "silo-1.csv").read_text().splitlines()[1:]]
    assert len(setup.clients.y) == sum(all(row) for row in rows) < len(rows)


def test_a_silo_that_lacks_cells_where_nothing_was_agreed_is_told(tmp_path):
    data = write_tables(tmp_path / "data")
    silo = SiloConfig(plan_for(write_tables(tmp_path / "whole", lacking=False), "refuse"), "s", 1, "nowhere:1")
    with pytest.raises(DataError, match=r"silo-1\.csv.*line \d+, column 'age'"):
        kept_setup(silo, data / "silo-1.csv", trains_alone=False)


def test_what_a_silo_is_told_of_its_cells(tmp_path):
    data = write_tables(tmp_path / "data")
    silo = SiloConfig(plan_for(data), "s", 2, "nowhere:1")
    write_silo_config(tmp_path, silo)
    assert read_silo_config(tmp_path) == silo
    text = _data(silo, data / "silo-2.csv")
    assert "column 'sex': 40 % missing, filled with 'M'" in text
    assert "warning: column 'sex' has no cell in 'silo-2'" in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"missing": "drop"}, "missing is 'drop', but the schema was made with --missing fill; leave it out"),
        ({"indicate_missing": True}, "indicate_missing is True, but the schema was made with --missing fill;"),
    ],
)
def test_a_plan_has_the_schemas_way(tmp_path, flags, message):
    schema = merged(write_tables(tmp_path / "data"), "fill", indicate=False)
    assert configured_for("test", 3, schema, None, {}, []).missing == "fill"
    with pytest.raises(UserError, match=message):
        configured_for("test", 3, schema, None, flags, [])
