"""A run from Python: what depends on the seed, what does not depend on the method, what comes back."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedamp
from fedamp.config import RunConfig
from fedamp.methods import FedAMP, FedAvg
from fedamp.methods.base import ABOUT
from fedamp.records.differences import differences
from fedamp.records.folder import RunFolder
from fedamp.records.inputs import Inputs
from fedamp.runs.identity import slug
from fedamp.runs.setup import assemble
from helpers import ALL, silos

TABLES = Path(__file__).parents[2] / "examples" / "hospital_tables.py"
"""It writes the tutorial's tables, and trains nothing."""
QUICK = {"rounds": 2, "epochs": 1, "clients": 10}
EXAMPLES = sorted(set((Path(__file__).parents[2] / "examples").glob("*.py")) - {TABLES})


NOTHING = Inputs("", "", "", "")


def test_partition_first_models_and_batches_do_not_depend_on_the_method():
    made = [assemble(RunConfig(method=name, clients=10, init="own", seed=5)) for name in ALL]
    for other in made[1:]:
        assert torch.equal(other.w.params, made[0].w.params)
        for a, b in zip(
            other.clients.train + other.clients.test, made[0].clients.train + made[0].clients.test, strict=True
        ):
            assert torch.equal(a, b)
        locals_ = [fed.trainer.local(fed.clients, 3) for fed in (other, made[0])]
        for a, b in zip(locals_[0].batches(4), locals_[1].batches(4), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.many
def test_every_method_runs_and_learns(name):
    result = fedamp.run(method=name, rounds=4, clients=10, lr=0.05 if name in ("scaffold", "apfl") else None)
    assert result.scores.shape == (4, 10)
    assert result.bmta > 40
    assert result.models["own"].params.shape == (10, 4810)
    mixing = ("fedamp", "heurfedamp", "autoamp", "pfedgraph", "fedfomo", "ifca", "ifca-ft", "cfl", "cfl-ft")
    assert (result.xi is not None) == (name in mixing)
    assert len(result.warnings) == (name == "fedbn")  # which is told that this model has no normalisation


def test_engines_agree_on_a_whole_run():
    a, b = (fedamp.run(engine=engine, **QUICK) for engine in ("loop", "stacked"))
    np.testing.assert_allclose(a.scores, b.scores, atol=3)
    torch.testing.assert_close(a.models["own"].params, b.models["own"].params, rtol=1e-3, atol=1e-4)


def test_own_clients_and_own_module():
    g = torch.Generator().manual_seed(0)
    clients = [(torch.randn(30, 5, generator=g), torch.randint(2, (30,), generator=g)) for _ in range(3)]
    module = nn.Linear(5, 2)
    before = module.weight.detach().clone()
    result = fedamp.run(clients=clients, model=module, rounds=3)
    assert torch.equal(module.weight, before), "a module that is given is not changed"
    mine = result.client_model(1)
    assert torch.equal(mine.weight.flatten(), result.models["received"].params[1][:10])
    assert not mine.training
    assert result.facts.sizes == [24] * 3
    assert result.facts.test_sizes == [6] * 3


def test_own_clients_with_own_test_sets():
    x, y = np.random.default_rng(0).normal(size=(20, 4)), np.arange(20) % 2
    result = fedamp.run(clients=[(x, y, x[:7], y[:7])] * 2, model="logistic", rounds=1)
    assert result.facts.test_sizes == [7, 7]
    assert result.facts.sizes == [20, 20]


def test_own_method_object():
    result = fedamp.run(method=FedAMP(sigma=3.0), **QUICK)
    assert result.config.method.parameters["sigma"] == 3.0


def test_own_init_needs_a_builder():
    with pytest.raises(ValueError, match="give a function that builds"):
        fedamp.run(clients=[(torch.ones(5, 2), torch.ones(5))], model=nn.Linear(2, 2), init="own")
    result = fedamp.run(
        clients=[(torch.randn(9, 2), torch.ones(9).long())] * 2, model=lambda: nn.Linear(2, 2), init="own", rounds=1
    )
    assert result.models["own"].params.shape == (2, 6)


def test_oracle_self_weight_comes_from_the_settings_groups():
    result = fedamp.run(method={"name": "heurfedamp", "self_weight": "oracle"}, **QUICK)
    assert result.history[1]["self_weight"] == pytest.approx([1 / 2] * 10)  # five groups of two


def test_absent_clients_keep_their_last_accuracy():
    result = fedamp.run(absent=0.5, method="fedavg-ft", rounds=5, clients=10, epochs=1)
    table = result.scores
    for k in range(1, 5):
        away = ~np.array(result.history[k + 1]["present"])
        np.testing.assert_array_equal(table[k][away], table[k - 1][away])
    assert not np.isnan(table).any()


def test_received_of_the_last_round_is_scored():
    result = fedamp.run(method="fedavg", **QUICK)
    assert [line["round"] for line in result.history] == [0, 1, 2, 3]
    assert result.scores.shape == (2, 10)
    assert result.scores[-1].tolist() == pytest.approx(
        [100 * value for value in result.history[-1]["test"]["received"]["accuracy"]]
    )


def test_a_diverging_run_gets_a_word_and_ends():
    result = fedamp.run(method="fedavg", optimizer="sgd", lr=1e30, out=None, **QUICK)
    assert any("is not finite" in warning for warning in result.warnings)


def test_record_from_python(tmp_path):
    result = fedamp.run(out=tmp_path / "run", **QUICK)
    folder = RunFolder(tmp_path / "run")
    assert folder.lines() == result.history
    assert folder.result()["bmta"] == result.bmta
    with (tmp_path / "run" / "rounds.jsonl").open("a") as file:
        file.write('{"round": 7, "te')  # a crash in the middle of a line
    assert folder.lines() == result.history


def test_descriptions():
    a = RunConfig(method={"name": "fedamp", "sigma": 3})
    assert RunConfig.of(a.to_dict()) == a
    b = RunConfig(method={"name": "fedamp", "sigma": 4}, seed=2)
    assert differences(a.to_dict(), b.to_dict()) == [
        "method.sigma is 3 there and 4 here",
        "seed is 0 there and 2 here",
    ]
    assert slug(a, NOTHING) != slug(b, NOTHING)
    assert slug(a, NOTHING) == slug(RunConfig.of(a.to_dict()), NOTHING)


@pytest.mark.parametrize(
    ("pairs", "word"),
    [
        ([], "no clients"),
        ([(torch.ones(5, 2),)], "1 parts"),
        ([(torch.ones(2, 2), torch.ones(2))], "held out"),
    ],
)
def test_own_clients_that_can_not_be(pairs, word):
    with pytest.raises(ValueError, match=word):
        fedamp.run(clients=pairs, model=nn.Linear(2, 2), held_out=0.1)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples(example, capsys):
    runpy.run_path(str(example))
    assert "%" in capsys.readouterr().out


@pytest.mark.slow
def test_the_demos_claim():
    """In the demo's setting FedAMP or HeurFedAMP beats training alone by 3 points or more, mean of 3 seeds."""

    def mean(name):
        return np.mean([fedamp.run(method=name, seed=seed).bmta for seed in range(3)])

    alone = mean("separate")
    assert mean("fedamp") >= alone + 3 or mean("heurfedamp") >= alone + 3


def test_a_sigma_without_end_is_written_down_and_read_again(fedamp_command, tmp_path):
    """No attention at all: uniform weights beside the self weight. JSON has no infinity."""
    command = (
        "run",
        "--method",
        "fedamp",
        "--set",
        "method.sigma=inf",
        "--clients",
        "5",
        "--rounds",
        "2",
        "--out",
        "here",
    )
    code, out, err = fedamp_command(*command)
    assert code == 0, err
    code, out, err = fedamp_command("resume", "here", "--json")
    assert code == 0, err
    assert json.loads((tmp_path / "here" / "description.json").read_text())["method"]["sigma"] == "inf"
    code, out, err = fedamp_command(*command)
    assert (code, "already finished" in out) == (0, True)


@pytest.mark.parametrize("named", [True, False])
def test_warnings_call_clients_by_their_names(named):
    """What a method says about a client, what is not finite and what is refused: by name, or by number."""

    class Telling(FedAvg):
        """FedAvg with something to say about the second client."""

        def diagnostics(self, state):
            return {**super().diagnostics(state), ABOUT: [(1, "it is odd"), (0, "new"), (2, "new")]}

    pairs = [part[:2] for part in silos([30, 30, 30])]
    pairs[0] = (torch.full_like(pairs[0][0], 1e38), pairs[0][1])
    clients = dict(zip(("north", "south", "east"), pairs, strict=True)) if named else pairs
    settings = {"model": "logistic", "rounds": 1, "epochs": 1, "poisoned": [2], "poison_scale": 1e6}
    with pytest.warns(fedamp.FedampWarning):
        said = fedamp.run(clients=clients, method=Telling(), **settings).warnings
    north, south, east = ("north", "south", "east") if named else ("client 0", "client 1", "client 2")
    new = "north, east: new" if named else "client 0, 2: new"
    loss, reply = f"the training loss of {north} is not", f"the reply of {east} is refused"
    for begin in (new, f"{south}: it is odd", loss, reply):
        assert any(text.startswith(begin) for text in said), said
