"""Clients that join a run after its end: what they get is the method's own, and nobody else is touched."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import fedamp
from fedamp.config import RunConfig
from fedamp.data.given.samples import given_samples
from fedamp.errors import UserError
from fedamp.methods.newcomer import Joining
from fedamp.records.folder import RunFolder
from fedamp.records.last_state import LastState
from fedamp.records.newcomers import Newcomers
from fedamp.rows import State
from fedamp.runs.identity import inputs_of
from fedamp.runs.loop import play
from fedamp.runs.material import load_material
from fedamp.runs.newcomers.newcomer import ROUNDS, arriving, as_newcomer, kept_out
from fedamp.runs.setup import assemble
from fedamp.training.torch_switches import use_dtype
from helpers import SOME_AT_ONCE, silos

QUICK = {"rounds": 3, "epochs": 1, "clients": 7, "device": "cpu", "model": "logistic"}


def joined(method, its_rounds=ROUNDS, **settings):
    """Return a run's result, and that of its only newcomer's own run."""
    config = RunConfig.of({**QUICK, "newcomers": 1, "method": method, **settings})
    setup = assemble(config)
    result = play(config, setup)
    (one,) = setup.newcomers
    names = result.facts.names
    return result, play(as_newcomer(config, its_rounds), arriving(one, result.last_state, names)), one


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_separates_newcomer_has_what_it_would_have_had_in_the_run(engine):
    with use_dtype(torch.float64):
        settings = {"engine": engine, "rounds": 3, "init": "own", "validation": 0.2}
        _, own, setup = joined("separate", 3, **settings)
        (number,) = setup.clients.numbers
        everyone = fedamp.run(method="separate", **{**QUICK, **settings})
    mine, theirs = own.models["own"].params[0], everyone.models["own"].params[number]
    assert mine.dtype == torch.float64
    assert (mine - theirs).abs().max() < 1e-12
    assert torch.equal(own.models["alone"].params[0], mine)
    assert own.history[3]["test"]["own"]["accuracy"][0] == everyone.history[3]["test"]["own"]["accuracy"][number]


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "scaffold", "apfl"])
def test_a_global_model_is_received_as_the_run_left_it(method):
    result, own, _ = joined(method)
    final = result.models["received"].params[0]
    assert torch.equal(own.models["received"].params[0], final)
    assert all(torch.equal(each, final) for each in result.models["received"].params)


@pytest.mark.parametrize("method", SOME_AT_ONCE)
def test_nothing_that_was_there_moves(method):
    """Whatever the newcomer replies, the state with everyone in it has the run's rows in it, bit for bit."""
    config = RunConfig.of({**QUICK, "newcomers": 1, "method": method})
    setup = assemble(config)
    last = play(config, setup).last_state
    before = last.digest()
    setup = arriving(setup.newcomers[0], last, ["any"] * 6)
    joining = setup.method.method
    state, client = setup.method.server_init(setup.w), setup.method.client_init(setup.w)
    for k in range(1, 4):
        state, message = setup.method.server_send(state, k)
        client, reply = setup.method.client_update(client, message, setup.trainer.local(setup.clients, k))
        state = setup.method.server_receive(state, reply, torch.tensor([True]))
        everyone = joining.federation(state)
        assert everyone.num_clients == last.server.num_clients + 1
        for name, rows in last.server.rows.items():
            assert torch.equal(everyone.rows[name].params[:-1], rows.params)
        for name, rows in last.server.shared.items():
            assert torch.equal(everyone.shared[name].params, rows.params)
    assert last.digest() == before


@pytest.mark.parametrize("method", SOME_AT_ONCE)
def test_the_order_of_the_others_does_not_matter(method):
    order = torch.tensor([4, 2, 5, 0, 1, 3])
    names = [f"silo {i}" for i in range(6)]
    with use_dtype(torch.float64):
        config = RunConfig.of({**QUICK, "newcomers": 1, "method": method, "engine": "loop"})
        setup = assemble(config)
        last = play(config, setup).last_state
        shuffled = LastState(last.k, last.server.take(order))
        mine = as_newcomer(config, 4)
        one, other = (
            play(mine, arriving(setup.newcomers[0], state, who))
            for state, who in ((last, names), (shuffled, [names[i] for i in order.tolist()]))
        )
    for entry, rows in one.models.items():
        torch.testing.assert_close(rows.params, other.models[entry].params, rtol=0, atol=1e-9)
    if one.joined.weights is not None:
        assert one.joined.weights == pytest.approx(other.joined.weights, abs=1e-9)
        assert sum(one.joined.weights.values()) == pytest.approx(1)


def test_autoamp_listens_to_its_own_group():
    pairs = silos([60] * 9, opposite=range(5, 9))
    model = nn.Linear(20, 5)
    result = fedamp.run(method="autoamp", clients=pairs[1:], model=model, rounds=4, lr=0.01)
    mine = fedamp.join(result, pairs[0]).joined
    group = sum(weight for name, weight in mine.weights.items() if name in {f"client {i}" for i in range(4)})
    assert group + mine.weights[mine.name] > 0.97
    assert group > 0.5
    assert mine.gain > 0


@pytest.mark.parametrize(("take_home", "entry"), [("chosen", "received"), ("scored", "own")])
def test_the_weights_are_those_behind_what_it_takes_home(take_home, entry):
    """Mixed by them, the models that there were then are the u that it takes home, or that its w was trained from."""
    pairs = [part[:2] for part in silos([40] * 4)]
    settings = {"model": "logistic", "rounds": 3, "epochs": 1, "lr": 0.3, "device": "cpu"}
    run = fedamp.run(clients=pairs[:3], method="fedamp", validation=0.3, take_home=take_home, **settings)
    mine = fedamp.join(run, pairs[3], name="d", rounds=8)
    told = mine.joined
    assert (told.entry, told.round < 8) == (entry, True)
    before = fedamp.join(run, pairs[3], name="d", rounds=told.round - (entry == "own"))
    models = torch.cat([run.models["own"].params, before.models["own"].params])
    received = before.models["received"].params[0]
    if entry == "received":
        assert torch.equal(received, mine.chosen.models.params[0])

    def mixed(weights):
        return torch.tensor(weights, dtype=models.dtype) @ models  # the run's clients, and itself

    torch.testing.assert_close(mixed(list(told.weights.values())), received, rtol=0, atol=1e-5)
    next_to_it = mine.history[told.round + (entry == "own")]  # a round off is far off
    assert (mixed(next_to_it["listens_to"]) - received).abs().max() > 1e-3


@pytest.mark.parametrize("method", SOME_AT_ONCE)
def test_newcomers_of_every_method(method, tmp_path):
    settings = {**QUICK, "method": method, "newcomers": 2, "validation": 0.2}
    result = fedamp.run(**settings, out=tmp_path / "run")
    config = RunConfig.of(settings)
    out = kept_out(config, 7)
    assert [one.name for one in result.newcomers.each] == [f"client {i}" for i in out]
    assert result.facts.names == [f"client {i}" for i in range(7) if i not in out]
    assert len(result.summary.per_client) == 5
    for one in result.newcomers.each:
        assert one.rounds == ROUNDS
        clusters = ("ifca", "ifca-ft", "cfl", "cfl-ft")
        assert (one.received is None) == (method in ("separate", "fedfomo"))
        mixing = ("autoamp", "fedamp", "heurfedamp", "pfedgraph", "fedfomo", *clusters)
        assert (one.weights is None) == (method not in mixing)
        if method in clusters:  # it is in nobody's mean; all six count alike in a cluster that never had one
            assert one.weights[one.name] == 0 or len(set(one.weights.values())) == 1
            assert sum(one.weights.values()) == pytest.approx(1)
    written = json.loads((tmp_path / "run" / "result.json").read_text())["newcomers"]
    assert Newcomers.of(written) == result.newcomers
    assert fedamp.run(**settings, out=tmp_path / "run").newcomers == result.newcomers  # read again


def test_the_run_is_the_one_without_them():
    """Its rounds are those of the others alone: the newcomers are in no training, no schema and no mean."""
    pairs = silos([20, 25, 30, 20, 25])
    config = RunConfig.of({"newcomers": 2, "clients": 5, "seed": 3})
    out = kept_out(config, 5)
    stay = [i for i in range(5) if i not in out]
    settings = {"method": "fedamp", "model": nn.Linear(20, 5), "rounds": 3, "epochs": 2, "seed": 3, "engine": "loop"}
    with_them = fedamp.run(clients=pairs, newcomers=2, **settings)
    alone = given_samples([pairs[i] for i in stay], None, 3, stay).clients  # with the numbers that they had
    config = RunConfig.of({**{**settings, "model": "Linear"}, "clients": 3, "data": "given", "setting": "given"})
    without = play(config, assemble(config, alone, settings["model"]))
    assert torch.equal(with_them.models["own"].params, without.models["own"].params)
    assert with_them.summary == without.summary


def test_samples_that_newcomers_share_are_taken_from_the_others():
    config = RunConfig.of({**QUICK, "newcomers": 2, "setting": {"name": "iid", "samples": 400, "share_samples": True}})
    shared = load_material(config).clients
    setup = assemble(config)
    theirs = torch.cat([part for each in setup.newcomers for part in (*each.clients.train, *each.clients.test)])
    assert torch.isin(torch.cat(shared.train), theirs).sum() > len(theirs) / 2  # someone had them
    assert not torch.isin(torch.cat(setup.clients.train), theirs).any()


def test_who_is_kept_out_depends_on_the_seed_alone():
    def drawn(**settings):
        return kept_out(RunConfig.of({"newcomers": 4, **settings}), 20)

    assert drawn(method="fedamp") == drawn(method="autoamp", rounds=3)
    assert len({tuple(drawn(seed=seed)) for seed in range(10)}) > 5
    assert drawn() == sorted(set(drawn()))


def test_an_interrupted_run_goes_on_to_its_newcomers(tmp_path, monkeypatch):
    config = RunConfig.of({**QUICK, "newcomers": 2, "method": "autoamp", "validation": 0.2})
    straight = play(config, assemble(config))
    material = load_material(config)
    folder = RunFolder(tmp_path / "run", inputs_of(config, material))
    calls, original = [], Joining.server_receive

    def stop(self, *args):
        calls.append(1)
        if len(calls) == ROUNDS + 2:  # in the second newcomer's second round
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(Joining, "server_receive", stop)
    with pytest.raises(KeyboardInterrupt):
        play(config, assemble(config), folder)
    assert folder.result() is None
    lines = []
    again = play(config, assemble(config), folder, lines.append)
    assert [line["round"] for line in lines if "present" in line] == []  # no round was played again
    assert again.newcomers == straight.newcomers
    assert again.summary == straight.summary
    assert not list((tmp_path / "run").glob("checkpoint-*"))
    shown = play(config, assemble(config), folder)
    assert shown.newcomers == straight.newcomers
    assert len(calls) == ROUNDS + 2 + 2 * ROUNDS  # the finished run is shown, not computed


def test_a_run_that_is_ended_early_has_no_newcomers_yet(tmp_path):
    settings = {**QUICK, "method": "fedavg", "newcomers": 1, "out": tmp_path / "run"}
    ended = fedamp.run(**settings, observer=lambda line: line["round"] < 2)
    assert ended.newcomers is None
    assert ended.last_state is None
    assert fedamp.run(**settings).newcomers is not None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"newcomers": 7}, "newcomers is 7, of 7 clients"),
        ({"newcomers": -1}, "newcomers is -1"),
        ({"newcomers": 1.5}, "newcomers is 1.5"),
        ({"newcomers": 1, "poisoned": [2]}, "numbers of poisoned or noisy clients"),
        ({"newcomers": 1, "noisy_clients": [2], "label_noise": 0.1}, "numbers of poisoned or noisy clients"),
        ({"newcomers": 3, "method": {"name": "fedamp", "self_weight": [0.5] * 4}}, "self_weight"),
    ],
)
def test_what_cannot_be(settings, message):
    with pytest.raises(UserError, match=message):
        fedamp.run(**{**QUICK, **settings})


def test_an_oracle_knows_the_newcomers_group():
    oracle = {"name": "fedamp", "self_weight": "oracle"}
    result, own, setup = joined(oracle, clients=12)
    (group,) = setup.clients.groups
    size = 1 + list(result.facts.groups).count(group)
    assert own.joined.weights[own.joined.name] == pytest.approx(1 / size)


def test_label_noise_reaches_newcomers_too():
    config = RunConfig.of({**QUICK, "newcomers": 1, "label_noise": 0.3})
    (noisy,), (clean,) = assemble(config).newcomers, assemble(replace(config, label_noise=0.0)).newcomers
    assert (noisy.clients.y[noisy.clients.train[0]] != clean.clients.y[clean.clients.train[0]]).float().mean() > 0.2


def test_one_at_a_time():
    setup = assemble(RunConfig.of(QUICK))
    joining = Joining(setup.method, State(0), 3)
    with pytest.raises(ValueError, match="one at a time"):
        joining.server_init(setup.w)


def test_the_servers_schedule_goes_on():
    """The newcomer's first round is the one after the run's last: alpha is what it would have been then."""
    setup = assemble(RunConfig.of({**QUICK, "method": {"name": "fedamp", "alpha_every": 1, "form": "normalised"}}))
    server, _ = setup.method.server_send(setup.method.server_init(setup.w), 2)
    joining, w = Joining(setup.method, server, 2), setup.w[slice(0, 1)]
    _, message = joining.server_send(joining.server_init(w), 1)
    assert message["strength"].params.item() == pytest.approx(1 / 1e2)


def test_other_names_of_columns_are_other_data(tmp_path):
    """The schema depends on who is kept out, so that it is not among what a run is known by; its columns are."""
    (tmp_path / "silos").mkdir()
    rows = "\n".join(f"{i % 7},{i % 5 + i / 40},{i % 2}" for i in range(40))
    asked = {"data": str(tmp_path / "silos"), "newcomers": 1, "method": "fedavg", "model": "logistic", "rounds": 1}
    digests = []
    for names in ("age,height", "age,weight"):
        for name in "abc":
            (tmp_path / "silos" / f"{name}.csv").write_text(f"{names},label\n{rows}\n")
        config = RunConfig.of(asked)
        digests.append(inputs_of(config, load_material(config)).data)
    assert digests[0] != digests[1]


def test_a_newcomer_without_a_score_is_named():
    pairs = [(torch.randn(40, 3, generator=torch.Generator().manual_seed(i)), torch.arange(40) % 2) for i in range(4)]
    seed = next(seed for seed in range(50) if kept_out(RunConfig.of({"newcomers": 2, "seed": seed}), 4) == [1, 3])
    pairs[3] = (pairs[3][0], 0 * pairs[3][1])
    given = dict(zip("abcd", pairs, strict=True))
    settings = {"model": "logistic", "method": "fedamp", "rounds": 1, "epochs": 1, "metric": "auc", "seed": seed}
    with pytest.warns(fedamp.FedampWarning, match="ROC AUC is not defined for d: its test samples have only one class"):
        late = fedamp.run(clients=given, newcomers=2, **settings).newcomers
    assert [one.name for one in late.each if one.chosen is None] == ["d"]
    assert late.mean("chosen") == late.each[0].chosen
