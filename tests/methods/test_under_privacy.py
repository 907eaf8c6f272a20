"""FedAMP, HeurFedAMP and AutoAMP under privacy: what clients tell of their noise, and what the server keeps of it."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from fedamp.methods.attention.bias_variance import collaboration
from fedamp.rows import Rows
from helpers import Federation, assert_states_equal, data, mlp

SIZES = (12, 20, 16, 30, 24)
ATTENTIVE = ("autoamp", "fedamp", "heurfedamp")


@dataclass
class Told:
    """A local training that says of its models that they have this noise; the rest is `local`'s."""

    local: Any
    variance: Tensor  # (n, 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.local, name)

    def part(self, half: Tensor) -> "Told":
        return Told(self.local.part(half), self.variance)

    def noise(self, of: str = "") -> Tensor:
        return self.variance

    def loss(self, rows: Rows) -> Tensor:
        assert not self.variance.all(), "a protected client was asked for its loss"
        return self.local.loss(rows)


@dataclass
class Noisy(Federation):
    """A federation whose clients tell this noise in each round."""

    variance: Tensor | None = None  # (m, 1)

    def local_for(self, who: Tensor) -> Any:
        assert self.variance is not None
        return Told(super().local_for(who), self.variance[who])


def noisy(method: str, *variances: float) -> Noisy:
    made = Noisy.of(method, clients=data(SIZES), module=mlp())
    made.variance = torch.tensor(variances, dtype=torch.float64)[:, None]
    return made


@pytest.mark.parametrize("method", ATTENTIVE)
def test_a_noise_of_zero_changes_nothing(method):
    plain = Federation.of(method, clients=data(SIZES), module=mlp()).play(4)
    told = noisy(method, 0, 0, 0, 0, 0).play(4)
    assert_states_equal(plain.server, told.server)
    assert torch.equal(plain.models("received"), told.models("received"))


@pytest.mark.parametrize("method", ["fedamp", "heurfedamp"])
def test_an_absent_clients_noise_stays_with_its_model(method):
    a = noisy(method, 1, 2, 3, 4, 5).play()
    assert a.server.rows["noise"].params[:, 0].tolist() == [1, 2, 3, 4, 5]
    a.variance = 10 * a.variance
    row = a.server.rows["w"].params[1].clone()
    a.play(present=torch.tensor([True, False, True, True, True]))
    assert a.server.rows["noise"].params[:, 0].tolist() == [10, 2, 30, 40, 50]
    assert torch.equal(a.server.rows["w"].params[1], row)
    expected, _ = a.method.collaboration_weights(a.server.rows["w"].params, a.server.rows["noise"].params, 1e4)
    state, _ = a.method.server_send(a.server, 3)
    assert torch.equal(state.pairs["xi"], expected)


def test_autoamp_counts_the_noise_of_both_halves_and_of_no_later_round():
    a = noisy("autoamp", 0.01, 0.02, 0.03, 0.04, 0.05)
    late = torch.tensor([True, True, True, True, False])
    a.play(2, present=late)
    a.play(3)
    halves = (a.server.rows[name].params for name in ("first", "second"))
    both = a.server.rows["noise"].params[:, 0]
    torch.testing.assert_close(both, 2 * a.variance[:, 0])
    start, samples = a.server.shared["start"].params, torch.tensor(SIZES, dtype=torch.float64)
    expected = collaboration(*halves, start, samples, torch.full((5,), 0.3, dtype=torch.float64), both)
    torch.testing.assert_close(a.server.pairs["xi"], expected.xi)


def test_those_who_stay_keep_their_noise():
    a = noisy("autoamp", 0.01, 0.02, 0.03, 0.04, 5).play(3)
    stay = torch.tensor([0, 2, 4])
    left = a.method.server_leave(a.server, stay)
    assert left.rows["noise"].params[:, 0].tolist() == pytest.approx([0.02, 0.06, 10])
    assert left.pairs["xi"].sum(1).tolist() == pytest.approx([1] * 3)


def test_a_protected_client_is_not_asked_for_its_loss_and_never_judged_by_it():
    a = noisy("autoamp", 1, 1, 1, 1, 1).play(17)
    assert not a.server.rows["losses"].params.any()
    assert not a.server.rows["sharper"].params.any()


def test_beside_it_others_are():
    a = noisy("autoamp", 0, 1, 1, 1, 1).play()
    assert (a.server.rows["losses"].params[:, 0] > 0).tolist() == [True, False, False, False, False]


def test_where_noise_hides_all_differences_everyone_listens_to_all_and_is_told():
    a = noisy("autoamp", *[0.0] * 5)
    assert not a.method.diagnostics(a.server)["events"]  # nobody has probed yet
    a.play(2)
    assert not a.method.diagnostics(a.server)["events"]
    generator, hidden = torch.Generator().manual_seed(0), {}
    for name in ("first", "second"):  # noise that is much longer than any way
        rows = a.server.rows[name]
        loud = 100 * torch.randn(rows.params.shape, generator=generator, dtype=torch.float64)
        hidden[name] = Rows(rows.params + loud, rows.buffers)
    for told, expected in ((1.0, True), (0.1, False)):  # of noise that is not privacy's nobody is warned
        spread = told * (hidden["first"].params - hidden["second"].params).square().sum(1, keepdim=True)
        state = a.method.who_listens_to_whom(a.server.replace({**hidden, "noise": Rows.of(spread)}))
        facts = a.method.diagnostics(state)
        assert facts["rank"] == 0
        assert bool(facts["events"]) == expected
        if expected:
            assert "everyone listens to all" in facts["events"][0]
            assert (state.pairs["xi"] > 0.1).all()
