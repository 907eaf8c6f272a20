"""`--dry-run`: what a run needs, from shapes alone."""

import json

import torch

from fedamp import seeds
from fedamp.config import RunConfig
from fedamp.methods import make_method
from fedamp.rows import Rows
from fedamp.runs import needs
from fedamp.runs.setup import assemble
from fedamp.training.batches import Batching


def test_states_are_counted():
    w = Rows.of(torch.zeros(10, 1000))
    stack = 10 * 1000 * 4
    # FedAMP keeps a stack on either side; old and new, and a message each way.
    assert needs.models(make_method("fedamp"), w) == 2 * 2 * stack + 2 * stack
    # SCAFFOLD keeps the client's model and its control; on the server two rows alone.
    assert needs.models(make_method("scaffold"), w) == 2 * (2 * stack + 2 * 4000) + 2 * stack


def test_passes_are_those_of_the_batches():
    setup = assemble(RunConfig(clients=5, epochs=3))
    sizes = [len(positions) for positions in setup.clients.train]
    assert needs.needs(setup, 7).passes == 7 * 3 * sum(sizes)
    for size in (1, 5, 9, 20):
        for batching in (Batching(4, epochs=2), Batching(4, steps=7)):
            drawn = batching.draw(size, seeds.generator(0, "batches", 0, 1))
            assert batching.samples(size) == sum(len(batch) for batch in drawn)


def test_activations_are_each_layers_outputs_and_gradients():
    setup = assemble(RunConfig(clients=5, model="mlp"))
    x, _ = setup.clients.samples(setup.clients.train[0][:1])
    values = 64 + 64 + 64 + 10  # flattened, hidden, rectified, out
    assert needs.activations(setup.trainer.model, x) == 2 * 4 * values
    assert not any(part._forward_hooks for part in setup.trainer.model.module.modules())


def test_dry_run_says_it_and_runs_nothing(fedamp_command, tmp_path):
    code, out, _ = fedamp_command("run", "--clients", "5", "--dry-run")
    assert code == 0
    assert "stacked (5 at once) on cpu in fp32" in out
    assert "warning" not in out
    assert not list(tmp_path.iterdir())


def test_dry_run_warns_where_it_will_not_fit(fedamp_command, monkeypatch):
    monkeypatch.setattr(needs, "free_memory", lambda device: 1000)
    _, out, _ = fedamp_command("run", "--clients", "5", "--dry-run")
    assert "warning: this run needs about" in out


def test_free_memory_is_told():
    free = needs.free_memory(torch.device("cpu"))
    assert free is None or free > 0


def test_needs_as_json(fedamp_command, tmp_path):
    code, out, err = fedamp_command("run", "--clients", "5", "--rounds", "2", "--dry-run", "--json")
    assert code == 0, err
    need = json.loads(out)
    assert need["fits"]
    assert need["total"] == need["data"] + need["models"] + need["training"]
    assert not (tmp_path / "runs").exists()
