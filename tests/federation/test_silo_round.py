"""The models that a silo keeps for itself."""

import json

import torch

from fedamp.federation.plan import Plan, SiloConfig
from federation.inprocess import Local, plan_of, write_silos


def test_every_silo_has_its_own_model_at_home(tmp_path):
    from safetensors.torch import load_file

    data = write_silos(tmp_path / "data")
    plan = plan_of(data, rounds=2)
    local = Local(tmp_path, plan, data)
    record = local.serve()
    own = load_file(local.houses[1].folder / "models" / "own.safetensors")
    flat = torch.cat([own[f"{layer}.{what}"].reshape(-1) for layer in (1, 3) for what in ("weight", "bias")])
    assert torch.equal(flat, record.state.method_state.rows["w"].params[1])


def test_a_silos_model_can_be_fed_from_its_own_json(tmp_path):
    """From a csv row to a prediction, with torch and safetensors alone."""
    from safetensors.torch import load_file

    from fedamp.config import Named, RunConfig
    from fedamp.data.silos.read import read_silo
    from fedamp.data.silos.schema import make_schema
    from fedamp.federation.silo.app import House

    folder = tmp_path / "data"
    folder.mkdir()
    for name in "ab":
        rows = "".join(f"{20 + i},{'xy'[i % 2]}w,{i * 0.5},{'no' if i < 15 else 'yes'}\n" for i in range(30))
        (folder / f"{name}.csv").write_text("age,ward,dose,outcome\n" + rows)
    silos = [read_silo(folder / f"{name}.csv", "outcome") for name in "ab"]
    config = RunConfig(
        data="x", setting=Named("natural"), clients=2, label="outcome", rounds=6, model=Named("mlp"), batch_size=5
    )
    plan = Plan("test", config, make_schema(silos))
    local = Local(tmp_path, plan, folder)
    local.paths = [folder / "a.csv", folder / "b.csv"]
    local.houses = {
        i: House(SiloConfig(plan, f"silo-{i}", i, "nowhere:1"), path, tmp_path / f"house-{i}")
        for i, path in enumerate(local.paths)
    }
    local.serve()
    how = json.loads((tmp_path / "house-0/models/own.json").read_text())
    state = load_file(tmp_path / "house-0/models/own.safetensors")
    model = torch.nn.Sequential(*[getattr(torch.nn, name)(**options) for name, options in how["layers"]])
    model.load_state_dict(state)
    row = {"age": 48.0, "ward": "xw", "dose": 14.0}
    values = []
    for name in how["inputs"]:
        column, equals, word = name.partition("=")
        values.append(float(row[column] == word) if equals and column in how["words"] else row[name])
    x = (torch.tensor(values) - torch.tensor(how["shift"])) / torch.tensor(how["scale"])
    assert how["labels"][int(model(x[None]).argmax())] == "yes"
