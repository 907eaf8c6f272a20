"""A silo that also trains alone: the same model as in the engine, and nobody outside can tell."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from fedamp.errors import UserError
from fedamp.federation.configure import configured_for
from fedamp.federation.silo import connect
from fedamp.methods.alone_beside import ALONE
from fedamp.records.reading import read_run
from federation.inprocess import Local, engine_rounds, plan_of, write_silos

OTHERS = ("fedamp", "apfl", "fedala")
METHODS = ["autoamp", "scaffold", *(pytest.param(name, marks=pytest.mark.many) for name in OTHERS)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_silos(tmp_path_factory.mktemp("data"))


def local(folder, plan, data, who=(), tamper=lambda number, reply: reply) -> Local:
    """Return a federation in which these silos also train alone."""
    made = Local(folder, plan, data, tamper=tamper)
    made.houses = {i: replace(house, alone=i in who) for i, house in made.houses.items()}
    return made


def collected(folder, plan, data, who):
    """Play a federation; return all that left each silo, in order: arrays' bytes, and metrics but for the time."""
    found = []

    def watch(number, reply):
        content = reply.content
        arrays = {name: array.data for name, array in content.array_records["arrays"].items()}
        metrics = dict(content.metric_records["metrics"])
        assert metrics.pop("train-seconds") > 0
        found.append((number, sorted(content), arrays, metrics))
        return reply

    made = local(folder, plan, data, who, watch)
    made.serve()
    return found, made


@pytest.mark.parametrize("method", METHODS)
def test_the_server_can_not_tell(method, data, tmp_path):
    plan = plan_of(data, method, validation=0.3)
    without, _ = collected(tmp_path / "without", plan, data, ())
    with_it, made = collected(tmp_path / "with", plan, data, (0, 2))
    assert without == with_it
    one, two = (read_run(tmp_path / name / "record").lines for name in ("without", "with"))
    assert [line["test"] for line in one] == [line["test"] for line in two]  # what came after the last round, too
    models = {
        i: sorted(path.name for path in (house.folder / "models").glob("alone.*")) for i, house in made.houses.items()
    }
    assert models == {0: ["alone.json", "alone.safetensors"], 1: [], 2: ["alone.json", "alone.safetensors"]}


@pytest.mark.parametrize("method", ["fedamp", "apfl"])
def test_its_model_is_the_engines_and_stays_in_its_memory(method, data, tmp_path):
    plan = plan_of(data, method)
    made = local(tmp_path, plan, data, (1,))
    made.serve()
    engine = engine_rounds(replace(plan, config=replace(plan.config, alone=True)))[-1].clients
    state = made.houses[1].open(None).memory.load(3)
    torch.testing.assert_close(state.rows[ALONE].params, engine.rows[ALONE].params[1:2], rtol=0, atol=0)
    kept = load_file(made.houses[1].folder / "models" / "alone.safetensors")
    flat = torch.cat([kept[f"{layer}.{what}"].reshape(-1) for layer in (1, 3) for what in ("weight", "bias")])
    assert torch.equal(flat, state.rows[ALONE].params[0])


def log(made: Local, number: int) -> str:
    return (made.houses[number].folder / "log.txt").read_text()


def test_its_log_says_how_it_would_do_alone(data, tmp_path):
    made = local(tmp_path, plan_of(data, validation=0.3), data, (0,))
    made.serve()
    lines = [line for line in log(made, 0).splitlines() if "alone" in line]
    assert [line.split("round ")[1][0] for line in lines] == ["1", "2", "3"]  # and not the last one again in the end
    assert all("than alone" in line and " held-out samples (p = " in line for line in lines)
    assert "alone" not in log(made, 1)


def test_it_is_not_compared_with_a_model_that_nobody_has_trained(data, tmp_path):
    """FedAvg is scored by what it received, which in the first round is the first model."""
    made = local(tmp_path, plan_of(data, "fedavg", validation=0.3), data, (0,))
    made.serve()
    lines = [line for line in log(made, 0).splitlines() if "than alone" in line]
    assert len(lines) == 3  # two of three rounds, and the end
    assert not any("round 1:" in line for line in lines)


def test_without_validation_its_log_says_what_is_missing(data, tmp_path):
    made = local(tmp_path, plan_of(data, rounds=1), data, (0,))
    made.serve()
    assert "alone on test samples; to be warned, the plan must hold out validation samples" in log(made, 0)


@pytest.mark.parametrize("method", METHODS)
def test_it_may_be_begun_and_ended_at_any_time(method, data, tmp_path):
    """The federation ends as it would have; the model trained alone begins late, and the log says so."""
    plan = plan_of(data, method, rounds=4, validation=0.3)
    wanted = Local(tmp_path / "bare", plan, data).serve().state.method_state
    local(tmp_path / "with", plan, data).serve(rounds=1)
    late = local(tmp_path / "with", plan, data, (0,))
    late.serve(rounds=3)
    assert log(late, 0).count("training alone begins in round 2, from the first model") == 1
    ended = local(tmp_path / "with", plan, data).serve().state.method_state
    for name, rows in wanted.rows.items():
        assert torch.equal(rows.params, ended.rows[name].params)
    for name, rows in wanted.shared.items():
        assert torch.equal(rows.params, ended.shared[name].params)


def test_its_app_is_told_by_a_file_of_its_own(data, tmp_path):
    for alone in (True, False):
        command = connect.command_of(tmp_path, data, alone)
        assert ("alone = true" in (tmp_path / "run" / "node.toml").read_text()) == alone
        assert not any("alone" in str(word) for word in command if str(tmp_path) not in str(word))


def test_a_plan_does_not_decide_it(data, tmp_path):
    plan = plan_of(data)
    assert replace(plan, config=replace(plan.config, alone=True)).agreed() == plan.agreed()
    (tmp_path / "plan.toml").write_text("alone = true\n")
    with pytest.raises(UserError, match="sets alone, which each silo decides for itself; leave it out"):
        configured_for("x", 3, plan.schema, tmp_path / "plan.toml", {}, [])
