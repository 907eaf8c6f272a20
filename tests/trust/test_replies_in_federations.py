"""A federation refuses the same replies as a simulation, and Flower apps of other people do too."""

import json
from dataclasses import replace

import pytest
import torch

from fedamp.config import Named
from fedamp.config.reply_limits import ReplyLimits
from fedamp.errors import UserError
from fedamp.rows import Rows
from fedamp.runs import reply_checks
from fedamp.runs.round import play_round
from fedamp.runs.simulated_faults import poison
from fedamp.training.batches import Batching
from helpers import ALL, Federation, assert_states_equal, silos

TALKING = [name for name in ALL if name != "separate"]


@pytest.fixture
def deploy(monkeypatch):
    pytest.importorskip("flwr")
    from federation import inprocess

    def waits(seconds):
        raise AssertionError("a silo was set aside, or a round is played again")

    monkeypatch.setattr(inprocess.strategy.time, "sleep", waits)
    return inprocess


def flipped(number, reply, liar=1, scale=-10.0):
    """Return a silo's reply with its models flipped."""
    from flwr.app import Array, ArrayRecord, RecordDict

    if number != liar:
        return reply
    arrays = dict(reply.content.array_records["arrays"])
    for name in arrays:
        if name in ("w.params", "y.params", "dc.params"):
            arrays[name] = Array((scale * arrays[name].numpy()).astype("float32"))
    reply.content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": reply.content.metric_records["metrics"]})
    return reply


@pytest.mark.parametrize("method", TALKING)
@pytest.mark.many
def test_a_federation_refuses_a_ten_fold_flip_for_sure(tmp_path, method, deploy):
    """And has what the simulation has, in the same words."""
    data = deploy.write_silos(tmp_path / "data")
    plan = deploy.plan_of(data, method, rounds=3)
    rules = deploy.Rules(min_silos=1, strikes=99)
    record = deploy.Local(tmp_path, plan, data, rules, tamper=flipped).serve()
    log = (tmp_path / "record" / "log.txt").read_text()
    assert log.count("bad reply from silo-1") == 3

    made = deploy.assemble(replace(plan.config, engine="loop"))
    server, state = made.method.server_init(made.w), made.method.client_init(made.w)
    tamper, everyone = poison([1], 10.0, made.trainer.model.num_params), torch.ones(3, dtype=torch.bool)
    for k in range(1, 4):
        played = play_round(
            *(made.method, server, state, k, lambda who, k=k: made.trainer.local(made.clients.take(who), k)),
            *(everyone, tamper, True, [1]),
        )
        server, state = played.server, played.clients
        assert list(played.refused) == [1]
        if k == 1:  # later on a federation also remembers what it has accepted
            assert f"bad reply from silo-1: {played.refused[1]}. {reply_checks.CURE}" in log
    assert_states_equal(record.state.method_state, server)


@pytest.mark.parametrize(("scale", "expected"), [(1.01, []), (-1.5, []), (-10.0, ["b"])])
def test_a_silo_that_replies_alone_is_compared_with_the_models_of_the_others(scale, expected, deploy):
    from fedamp.federation.server.state import Reply, ServerState

    method = Federation.of("fedamp").method
    w = Rows.of(torch.randn(3, 50, generator=torch.Generator().manual_seed(0)))
    state = ServerState(method, deploy.Rules(norm_factor=1e9), w[slice(0, 1)])
    state.join(["a", "b", "c"], w)
    sent = state.send()["b"]["u"]
    good, bad = state.sift({"b": Reply({"w": Rows.of(scale * sent.params)}, 10, {})})
    assert list(bad) == expected
    assert list(good) == [who for who in ["b"] if who not in expected]


def test_a_model_too_long_to_be_measured_does_not_stop_the_server(deploy):
    from fedamp.federation.server.state import Reply, ServerState

    w = Rows.of(torch.randn(3, 5, dtype=torch.float64))
    state = ServerState(Federation.of("fedamp").method, deploy.Rules(), w[slice(0, 1)])
    state.join(["a", "b", "c"], w)
    state.send()
    sent = {who: Reply({"w": w[slice(i, i + 1)]}, 10, {}) for i, who in enumerate("abc")}
    sent["b"] = Reply({"w": Rows.of(torch.full((1, 5), 1e300, dtype=torch.float64))}, 10, {})
    good, bad = state.sift(sent)
    assert list(good) == ["a", "c"]
    assert list(bad) == ["b"]


def test_honest_silos_of_any_size_take_part(tmp_path, deploy):
    """A control of SCAFFOLD is a mean gradient: the few steps of a small silo change it more than many steps do."""
    import numpy as np

    (tmp_path / "data").mkdir()
    for i, (x, y, *_) in enumerate(silos([25] * 3 + [2500] * 3)):
        np.savez(tmp_path / "data" / f"silo-{i}.npz", x=x.numpy(), y=y.numpy())
    how = {"epochs": 5, "batch_size": 10, "lr": 0.1, "model": Named("logistic")}
    plan = deploy.plan_of(tmp_path / "data", "scaffold", rounds=2, **how)
    deploy.Local(tmp_path, plan, tmp_path / "data").serve()
    assert "bad reply" not in (tmp_path / "record" / "log.txt").read_text()


def test_a_plan_from_before_still_reads(tmp_path, deploy):
    from fedamp.federation.plan_files import read_federation, write_federation

    data = deploy.write_silos(tmp_path / "data")
    local = deploy.Local(tmp_path, deploy.plan_of(data), data, deploy.Rules(norm_factor=25.0))
    write_federation(tmp_path, local.federation)
    written = json.loads((tmp_path / "federation.json").read_text())
    del written["rules"]["move_factor"], written["description"]["replies"]
    (tmp_path / "federation.json").write_text(json.dumps(written))
    setup = read_federation(tmp_path)
    assert (setup.rules.norm_factor, setup.rules.move_factor) == (25.0, ReplyLimits().move_factor)
    assert setup.plan.config.replies == "auto"


@pytest.mark.parametrize(
    ("line", "why"),
    [('replies = "any"', "which is for simulations"), ("then_alone = 3", "which federations can't do yet")],
)
def test_what_is_simulated_is_not_for_a_federations_description(tmp_path, line, why):
    from fedamp.federation.configure import configured_for

    file = tmp_path / "a.toml"
    file.write_text(f"validation = 0.2\n{line}\n")
    with pytest.raises(ValueError, match=f"sets {line.split()[0]}, {why}"):
        configured_for("a", 3, "classification", file, {}, [])


@pytest.mark.parametrize("name", ["dp_epsilon", "dp_delta", "dp_clip", "dp_noise"])
def test_privacy_is_not_for_a_federations_description(tmp_path, name):
    """Not even at its default: whoever writes it there expects silos to be protected."""
    from fedamp.federation.configure import configured_for

    file = tmp_path / "a.toml"
    file.write_text(f"{name} = 1e-5\n")
    with pytest.raises(UserError, match=rf"sets {name}, which each silo promises for itself; .* silo up --dp-epsilon"):
        configured_for("a", 3, "classification", file, {}, [])


def test_a_claim_of_many_samples_costs_the_server_nothing():
    assert Batching(10, epochs=5).num_steps(1 << 40) == 5 * ((1 << 40) // 10 + 1)
    for size in range(1, 40):
        assert Batching(4, epochs=3).num_steps(size) == 3 * len(Batching(4, epochs=3).cuts(size))


def test_a_node_of_a_flower_app_answers_for_itself_alone(deploy):
    from flwr.app import ArrayRecord

    from fedamp.federation import FedAMP
    from federation.test_flower_strategies import grid, net

    asked = {}

    def forge(number, reply):
        """Node 2 answers node 1's message in its place, after node 1."""
        asked[number] = reply.metadata.reply_to_message_id
        if number == 2:
            reply.metadata.__dict__["_reply_to_message_id"] = asked[1]
        return reply

    strategies = []
    for tamper in (forge, lambda number, reply: None if number == 2 else reply):
        strategies.append(FedAMP(fraction_evaluate=0.0))
        strategies[-1].start(grid(tamper), ArrayRecord(net().state_dict()), num_rounds=1)
    ours, expected = (made.state.method_state.rows["w"].params for made in strategies)
    assert torch.equal(ours, expected)
