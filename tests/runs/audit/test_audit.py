"""An audit through the real path: it must believe an honest client, and catch one whose protection is sabotaged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from typer.testing import CliRunner

from fedamp.cli.main import app
from fedamp.config import Named, RunConfig
from fedamp.data.clients import Clients
from fedamp.data.given.samples import Given
from fedamp.errors import UserError
from fedamp.privacy import account, sampling
from fedamp.privacy.events import Event
from fedamp.privacy.promise import Privacy
from fedamp.runs import setup as setups
from fedamp.runs.audit import Audit, audit, playing
from fedamp.runs.audit.attack import ridge, sample_gradients, span
from fedamp.runs.audit.canaries import make_canaries, with_canaries
from fedamp.runs.audit.verdict import curve_of
from fedamp.runs.material import Material, given_material
from fedamp.training.private import noise
from fedamp.training.private.sample_gradients import SampleGradients

pytestmark = pytest.mark.many
"""Run after the fast tests, on all cores: these train."""

ROUNDS = 10
CLEAR = math.sqrt(ROUNDS)  # noise with which all rounds, on all samples, come to Gaussian privacy of mu = 1
FAINT = 2 * CLEAR  # mu = 1/2: epsilon 2 at delta 1e-5


def material(columns: int, samples: int = 60, seed: int = 0) -> Material:
    stream = torch.Generator().manual_seed(seed)
    pairs = [
        (torch.randn(samples, columns, generator=stream), torch.randint(0, 4, (samples,), generator=stream))
        for _ in range(2)
    ]
    return given_material(Given(Clients.of(pairs)), "auto")


@pytest.fixture
def protected(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that protects both clients of whatever is assembled with so much noise."""

    def protect(z: float) -> None:
        def assemble(config: RunConfig, given: Material) -> setups.Setup:
            made = setups.assemble(replace(config, dp_noise=None), given)
            return replace(made, trainer=made.trainer.changed(privacy=Privacy(1.0, {0: z, 1: z})))

        monkeypatch.setattr(playing, "assemble", assemble)

    return protect


def found(z: float, canaries: int = 300, columns: int = 300, repeats: int = 1, **settings: Any) -> Audit:
    """Return the audit of a run in which each round is one step on all samples, unless settings say otherwise."""
    given: dict[str, Any] = {"data": "given", "setting": "given", "clients": 2, "model": "logistic", "dp_noise": z}
    given |= {"rounds": ROUNDS, "steps": 1, "batch_size": 10**6, "optimizer": "sgd", "lr": 0.1, "method": "fedavg"}
    given |= settings
    return audit(RunConfig.of(given), canaries=canaries, repeats=repeats, material=material(columns))


def test_canaries_are_long_and_have_little_in_common():
    """Their clipped gradients have the clip's length, and directions like random ones."""
    given = material(300)
    canaries = make_canaries(given, 50, seed=1)
    config = RunConfig(data="given", setting="given", clients=2, model="logistic", batch_size=5)
    setup = setups.assemble(config, replace(given, clients=with_canaries(given.clients, canaries, 0)))
    gradients = sample_gradients(setup.trainer, setup.w[:1], canaries.x, canaries.y, 0.5)
    alike = gradients @ gradients.T / 0.25
    assert torch.allclose(alike.diag(), torch.ones(50))
    assert alike.fill_diagonal_(0).abs().mean() < 1.5 / math.sqrt(300)
    assert 10 < canaries.inside.sum() < 40
    assert {*canaries.y.tolist()} == {0, 1, 2, 3}


def test_canaries_concern_nobody_else():
    given = material(5)
    canaries = make_canaries(given, 20, seed=0)
    clients = with_canaries(replace(given.clients, digests=(b"a",) * 120), canaries, 1)
    inside = np.flatnonzero(canaries.inside) + 120
    assert clients.train[0].tolist() == given.clients.train[0].tolist()
    assert clients.train[1].tolist() == [*given.clients.train[1].tolist(), *inside]
    assert len(clients.x) == len(clients.y) == len(clients.digests or ()) == 140
    assert len(set(clients.digests or ())) == 21
    assert clients.x.dtype == given.clients.x.dtype
    assert clients.y.dtype == given.clients.y.dtype
    with pytest.raises(UserError, match="expected a number from 0 to 1"):
        with_canaries(given.clients, canaries, 2)


def test_attacker_takes_the_gradients_that_the_engine_takes():
    given = material(20)
    config = RunConfig(data="given", setting="given", clients=2, model="mlp", batch_size=5)
    setup = setups.assemble(config, given)
    x, y = given.clients.samples(given.clients.train[0])
    mine = sample_gradients(setup.trainer, setup.w[:1], x, y, 0.7)
    present, keys = torch.ones((1, len(y)), dtype=torch.bool), torch.zeros((1, len(y), 2), dtype=torch.int32)
    at = setup.w[:1].params, setup.w[:1].buffers
    total, _ = setup.trainer.sample_gradients.clipped_sum(0.7, present, *at, x[None], y[None], keys, 1)
    assert torch.allclose(mine.sum(0), total[0], atol=1e-5)
    assert mine.norm(dim=1).max() <= 0.7001


def test_ridge_finds_coins_behind_gradients_that_are_alike():
    """Without noise all coins come out, though gradients share much; by inner products many do not."""
    stream = torch.Generator().manual_seed(0)
    gradients = torch.randn(40, 100, dtype=torch.float64, generator=stream) + 3 * torch.randn(1, 100, generator=stream)
    coins = (torch.rand(40, generator=stream) < 0.5).double()
    moved = coins @ gradients
    assert torch.allclose(ridge(gradients @ gradients.T, gradients @ moved), coins, atol=1e-3)
    assert ridge(torch.zeros(3, 3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)).tolist() == [0, 0, 0]


def test_span_is_orthonormal_and_leaves_nothing():
    rows = torch.randn(3, 20, generator=torch.Generator().manual_seed(1))
    basis = span(torch.cat([rows, rows[:1] * 5, torch.zeros(1, 20)]))
    assert basis.shape == (3, 20)
    assert torch.allclose(basis @ basis.T, torch.eye(3), atol=1e-5)
    assert torch.allclose(rows @ basis.T @ basis, rows, atol=1e-5)


def test_curve_of_full_batches_is_the_gaussian_one():
    """T steps on all samples with noise z are one release with mu = sqrt(T) / z, in closed form."""
    curve = curve_of(account.scaled({Event(1.0, 1.0): 9}, 3.0))  # type: ignore[arg-type]
    for x in (0.01, 0.2, 0.6):
        assert curve.power(x) == pytest.approx(norm.cdf(norm.ppf(x) + 1), rel=0.02)


@pytest.mark.parametrize("method", ["separate", "fedavg", "fedamp", "autoamp", "ditto", "scaffold", "apfl"])
def test_honest_clients_pass(protected: Callable[[float], None], method: str):
    protected(CLEAR)
    one = found(CLEAR, 200, method=method)
    assert one.claimed is not None
    assert 0 <= one.bound < one.claimed
    assert not one.broken
    assert one.leaves == (method != "separate")
    assert one.area > 0.6  # the attack is no straw man


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("settings", [{}, {"batch_size": 40}, {"optimizer": "adam", "lr": 1e-3}, {"steps": 5}])
def test_honest_clients_pass_with_any_seed(protected: Callable[[float], None], seed: int, settings: dict[str, Any]):
    protected(CLEAR)
    assert not found(CLEAR, 500, seed=seed, **settings).broken


def test_attack_is_nearly_as_good_as_any_can_be(protected: Callable[[float], None]):
    """Nobody can tell N(mu, 1) from N(0, 1) with an area above Phi(mu / sqrt 2): 0.76 for mu = 1."""
    protected(CLEAR)
    best = norm.cdf(1 / math.sqrt(2))
    assert 0.94 * best < found(CLEAR, 500, columns=1000).area < 1.06 * best


def test_noise_that_is_off_is_caught(protected: Callable[[float], None], monkeypatch: pytest.MonkeyPatch):
    protected(CLEAR)
    monkeypatch.setattr(noise.Noise, "draw", lambda self, count, dtype: torch.zeros(count, dtype=dtype))
    one = found(CLEAR, 500, columns=1000)
    assert one.area > 0.99
    assert one.broken
    assert "BROKEN: epsilon 4.38 is claimed" in one.in_words()[-1]


@pytest.mark.parametrize("method", ["separate", "fedavg", "fedamp", "autoamp", "scaffold"])
def test_noise_that_is_off_is_caught_where_rounds_go_the_same_way(monkeypatch: pytest.MonkeyPatch, method: str):
    """As in the page's command: on all samples, round after round, the way of the last round is nearly that of this."""
    settings: dict[str, Any] = {"setting": "iid", "clients": 3, "rounds": 10, "steps": 1, "batch_size": 10000}
    config = RunConfig(method=method, **settings, optimizer="sgd", lr=0.1, dp_noise=3.0)
    honest = audit(config, canaries=300)
    assert not honest.broken
    assert not honest.blunt
    monkeypatch.setattr(noise.Noise, "draw", lambda self, count, dtype: torch.zeros(count, dtype=dtype))
    assert audit(config, canaries=300).broken


def test_an_audit_that_can_not_refute_its_claim_says_so(protected: Callable[[float], None]):
    """With n guesses, all right, and nothing assumed, no epsilon above log(q / (1 - q)) with q^n = 5 % is refuted."""
    given = {"data": "given", "setting": "given", "clients": 2, "model": "logistic", "method": "fedavg"}
    config = RunConfig.of({**given, "rounds": 2, "steps": 1, "batch_size": 10**6, "optimizer": "sgd", "lr": 0.01})
    few = audit(config, canaries=40, material=material(300), claim=4.0)
    q = 0.05 ** (1 / few.guesses)
    assert few.reach == pytest.approx(math.log(q / (1 - q)), abs=0.05)  # and delta
    assert few.blunt
    assert not few.broken
    assert "says nothing about the claim" in few.in_words()[-1]
    protected(CLEAR)
    assert [found(CLEAR, count).blunt for count in (50, 300)] == [True, False]


@pytest.mark.parametrize("z", [CLEAR, FAINT])
def test_noise_that_is_halved_is_caught(protected: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, z: float):
    drawn, sizes = noise.Noise.draw, {"canaries": 50, "columns": 100, "repeats": 60}
    protected(z)
    assert not found(z, **sizes).broken
    monkeypatch.setattr(noise.Noise, "draw", lambda self, count, dtype: drawn(self, count, dtype) / 2)
    assert found(z, **sizes).broken


def test_clip_that_is_ignored_is_caught(protected: Callable[[float], None], monkeypatch: pytest.MonkeyPatch):
    clipped_sum = SampleGradients.clipped_sum
    protected(FAINT)
    assert not found(FAINT).broken
    monkeypatch.setattr(SampleGradients, "clipped_sum", lambda self, clip, *rest: clipped_sum(self, 1e9, *rest))
    assert found(FAINT).broken


def test_minibatches_that_are_not_drawn_are_caught(protected: Callable[[float], None], monkeypatch: pytest.MonkeyPatch):
    def the_same(size: int, chance: float, stream: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
        chosen = np.flatnonzero(np.random.default_rng(1).random(size) < chance)
        return chosen, np.zeros(len(chosen))

    protected(2.0)
    settings: dict[str, Any] = {
        "canaries": 400,
        "columns": 400,
        "batch_size": 13,
        "rounds": 64,
        "lr": 1e-3,
        "repeats": 2,
    }
    assert not found(2.0, **settings).broken
    monkeypatch.setattr(sampling, "poisson", the_same)
    assert found(2.0, **settings).broken


def test_flags_of_a_private_run_are_audited(tmp_path: Path):
    """The whole way: noise is found for the epsilon that was asked for, and the audit claims no more than that."""
    config = RunConfig(
        **{"data": "given", "setting": "given", "clients": 2, "method": "autoamp", "rounds": 4, "steps": 2},
        **{"batch_size": 50, "model": "logistic", "dp_epsilon": 3.0, "optimizer": "sgd", "lr": 0.05},
    )
    one = audit(config, canaries=60, client="1", repeats=2, material=material(50))
    assert one.claimed == pytest.approx(3.0, rel=0.01)
    assert not one.broken
    assert (one.client, one.repeats, one.canaries) == ("client 1", 2, 120)
    assert "2 repeats" in one.in_words()[0]


def test_without_a_promise_it_says_what_leaks():
    """Nothing is promised, so that nothing is broken; compared with a claim of one's own, it is."""
    given = {"data": "given", "setting": "given", "clients": 2, "model": "logistic", "method": "fedavg"}
    config = RunConfig.of({**given, "rounds": 3, "steps": 1, "batch_size": 10**6, "optimizer": "sgd", "lr": 0.01})
    free = audit(config, canaries=200, material=material(300))
    assert free.claimed is None
    assert not free.broken
    assert free.bound > 1
    assert free.in_words()[-1].startswith("Nothing is promised")
    assert audit(config, canaries=200, material=material(300), claim=1.0).broken
    assert json.loads(json.dumps(free.to_dict(), allow_nan=False))["claimed"] is None


def test_mistakes_are_named():
    config = RunConfig(data="given", setting="given", clients=2)
    with pytest.raises(UserError, match="not finite"):
        audit(
            replace(config, model=Named("logistic"), optimizer="sgd", lr=3e38, rounds=4),
            canaries=20,
            material=material(5),
        )
    with pytest.raises(UserError, match="canaries is 1"):
        audit(config, canaries=1, material=material(5))
    with pytest.raises(UserError, match="claim is -1"):
        audit(config, claim=-1.0, material=material(5))
    with pytest.raises(UserError, match="confidence"):
        audit(config, confidence=2.0, material=material(5))


def test_command_line_with_a_users_own_silos(tmp_path: Path):
    """Csv files of two silos, one round: the last line is the verdict, and the exit code says the same."""
    stream = np.random.default_rng(0)
    for name in ("north", "south"):
        rows = [f"{a:.3f},{b:.3f},{'yes' if a + b > 0 else 'no'}" for a, b in stream.normal(size=(60, 2))]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,ill", *rows]))
    flags = ["audit", "--data", str(tmp_path), "--label", "ill", "--model", "mlp", "--rounds", "1"]
    flags += ["--canaries", "40", "--client", "south"]
    shown = CliRunner().invoke(app, flags)
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("audit of south: autoamp, 1 rounds, 40 canaries")
    assert "Nothing is promised" in shown.output
    as_json = CliRunner().invoke(app, [*flags, "--claim", "0.001", "--confidence", "0.5", "--json"])
    told = json.loads(as_json.output)
    assert as_json.exit_code == (1 if told["bound"] > 0.001 else 0) == int(told["broken"])
