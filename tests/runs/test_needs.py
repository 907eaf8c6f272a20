"""`--dry-run`: what a run needs, measured with a miniature of it, or counted from shapes."""

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedamp import row_store, rows, seeds
from fedamp.config import RunConfig
from fedamp.methods import make_method
from fedamp.rows import Rows
from fedamp.runs.memory import counted, needs, process_memory
from fedamp.runs.memory.miniature import play_miniature
from fedamp.runs.setup import assemble
from fedamp.training.batches import Batching


def test_states_are_counted():
    w = Rows.of(torch.zeros(10, 1000))
    stack = 10 * 1000 * 4
    # FedAMP keeps a stack on either side and a number a client; old and new, and a message each way.
    assert counted.models(make_method("fedamp"), w) == 2 * (2 * stack + 10 * 8) + 2 * stack
    # SCAFFOLD keeps the client's model and its control; on the server two rows alone.
    assert counted.models(make_method("scaffold"), w) == 2 * (2 * stack + 2 * 4000) + 2 * stack


def test_passes_are_those_of_the_batches():
    config = RunConfig(clients=5, epochs=3, rounds=7)
    setup = assemble(config)
    sizes = [len(positions) for positions in setup.clients.train]
    assert needs.needs(config, setup).passes == 7 * 3 * sum(sizes)
    for size in (1, 5, 9, 20):
        for batching in (Batching(4, epochs=2), Batching(4, steps=7)):
            drawn = batching.draw(size, seeds.generator(0, "batches", 0, 1))
            assert batching.samples(size) == sum(len(batch) for batch in drawn)


def test_activations_are_each_layers_outputs_and_gradients():
    setup = assemble(RunConfig(clients=5, model="mlp"))
    x, _ = setup.clients.samples(setup.clients.train[0][:1])
    values = 64 + 64 + 64 + 10  # flattened, hidden, rectified, out
    assert counted.activations(setup.trainer.model, x) == 2 * 4 * values
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
    free = row_store.free_memory(torch.device("cpu"))
    assert free is None or free > 0


def test_needs_as_json(fedamp_command, tmp_path):
    code, out, err = fedamp_command("run", "--clients", "5", "--rounds", "2", "--dry-run", "--json")
    assert code == 0, err
    need = json.loads(out)
    assert need["fits"]
    assert need["measured"] == (needs.peak() is not None)
    assert need["total"] > need["models"] > 0
    assert not (tmp_path / "runs").exists()


def test_a_miniature_is_a_run_of_some_clients():
    """With the method's own states: what is kept from round to round is there, for fewer clients."""
    for settings in ({}, {"alone": True, "validation": 0.2}, {"poisoned": (0,), "absent": 0.3}):
        config = RunConfig(clients=10, rounds=5, **settings)
        result = play_miniature(config, assemble(config), 4)
        assert [line["round"] for line in result.history] == [0, 1, 2, 3]
        assert len(result.models["own"].params) == 4


@pytest.mark.parametrize("method", ["autoamp", "fedavg"])
def test_newcomers_are_asked_about_too(fedamp_command, method):
    flags = ["--clients", "5", "--model", "logistic", "--method", method, "--newcomers", "1", "--rounds", "1"]
    code, out, err = fedamp_command("run", *flags, "--dry-run")
    assert code == 0, err
    assert "memory" in out


def test_an_oracle_is_asked_about_fewer_clients():
    config = RunConfig(clients=10, rounds=2, method={"name": "fedamp", "self_weight": "oracle"})
    assert len(play_miniature(config, assemble(config), 4).models["own"].params) == 4


def test_a_miniatures_bounds_are_in_proportion(monkeypatch):
    seen = []
    config = RunConfig(clients=10, rounds=1)
    setup = assemble(config)
    setup = replace(setup, trainer=setup.trainer.changed(chunk=5))
    usual = rows.BLOCK

    def watched(config, small):
        seen.append((rows.BLOCK, small.trainer.chunks.size, sorted(map(len, small.clients.train))))

    monkeypatch.setattr("fedamp.runs.memory.miniature.play", watched)
    play_miniature(config, setup, 2)
    sizes = sorted(map(len, setup.clients.train))
    assert seen == [(usual // 5, 1, [sizes[0], sizes[-1]])]
    assert usual == rows.BLOCK


def test_how_many_clients_are_tried():
    assert needs.miniatures(3, 1000) == [3]
    assert needs.miniatures(100, 1000) == [12, 25]
    assert needs.miniatures(20, 1 << 26) == [2, 4], "large models: few clients"


def test_memory_that_is_freed_again_is_seen():
    if not process_memory.forget_peak():
        pytest.skip("the system does not tell")
    before = process_memory.peak()
    assert before < process_memory.resident() + (1 << 26)
    del_me = bytearray(1 << 28)
    del del_me
    assert process_memory.peak() - before > 0.9 * (1 << 28)


def test_where_the_system_does_not_tell_it_is_counted(monkeypatch):
    monkeypatch.setattr(process_memory, "STATUS", Path("/nowhere"))
    config = RunConfig(clients=5)
    setup = assemble(config)
    need = needs.needs(config, setup, process_memory.resident())
    assert not need.measured
    assert need.total == need.data + need.models + counted.training(setup.trainer, setup.clients)
    assert "counted from shapes" in "".join(needs.in_words(need, config, setup)[0])


@pytest.mark.slow
@pytest.mark.skipif(not process_memory.forget_peak(), reason="the system does not tell how much a process holds")
@pytest.mark.parametrize("case", ["mlp 512 x 300", "cnn-small x 100", "mlp x 100, looped"])
def test_what_is_said_is_what_is_used(tmp_path, case):
    """Within a quarter: the run and its dry run, each in a process of its own."""
    measure = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "memory.py"))
    said = measure["said"](measure["CASES"][case], tmp_path)
    used, _ = measure["used"](measure["CASES"][case], tmp_path)
    assert abs(said / used - 1) < 0.25
