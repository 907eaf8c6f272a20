"""SCAFFOLD and APFL against their papers' algorithms, written out as plain loops over scalars of clients."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fedamp.methods import APFL, FedAvg, Method, Scaffold
from fedamp.rows import Rows
from fedamp.runs.round import play_round


@dataclass(frozen=True)
class Descent:
    """Full-batch gradient descent on F_i = sum_j h_ij (w_j - b_ij)^2 / 2, K_i steps."""

    h: Tensor
    b: Tensor
    steps: Tensor
    lr: float

    @property
    def sizes(self) -> Tensor:
        return torch.ones_like(self.steps)

    def noise(self, of=""):
        return torch.zeros((len(self.b), 1), dtype=torch.float64)

    def at_home(self):
        return self

    def run(self, start, direction, **context):
        named = {"": start} if isinstance(start, Rows) else dict(start)
        ended = {name: [] for name in named}
        for i in range(len(self.b)):
            w = {name: rows.params[i : i + 1].clone() for name, rows in named.items()}
            given = {name: value[i : i + 1] for name, value in context.items()}

            def grad(point, of="", i=i):
                return self.h[i] * (point - self.b[i])

            for _ in range(int(self.steps[i])):
                if isinstance(start, Rows):
                    moves = {"": direction(w[""], grad, **given)}
                else:
                    moves = direction(w, grad, **given)
                w = {name: value - self.lr * moves[name] for name, value in w.items()}
            for name in named:
                ended[name].append(w[name])
        stacks = {name: Rows.of(torch.cat(rows)) for name, rows in ended.items()}
        return stacks[""] if isinstance(start, Rows) else stacks


def problem(seed: int = 0, m: int = 4, d: int = 3):
    g = torch.Generator().manual_seed(seed)
    h = 0.2 + torch.rand(m, d, generator=g, dtype=torch.float64)
    return h, torch.randn(m, d, generator=g, dtype=torch.float64), torch.tensor([[2], [5], [1], [3]])


PRESENT = [[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]]


def play(method: Method, rounds: list[list[int]], w0: Tensor, lr: float = 0.1, seed: int = 0):
    h, b, steps = problem(seed)
    w = Rows.of(w0)
    server, clients = method.server_init(w), method.client_init(w)
    for k, present in enumerate(rounds, start=1):
        here = torch.tensor(present, dtype=torch.bool)
        played = play_round(method, server, clients, k, lambda who: Descent(h[who], b[who], steps[who], lr), here)
        server, clients = played.server, played.clients
    return server, clients


@pytest.mark.parametrize("global_step", [1.0, 0.5, 1.5])
def test_scaffold_as_its_algorithm_1(global_step):
    h, b, steps = problem()
    x, lr = torch.full((3,), 0.3, dtype=torch.float64), 0.1
    server, clients = play(Scaffold(global_step=global_step), PRESENT, x.repeat(4, 1), lr)
    c, controls = torch.zeros(3, dtype=torch.float64), torch.zeros(4, 3, dtype=torch.float64)
    for present in PRESENT:
        chosen = [i for i in range(4) if present[i]]
        dy, dc = [], []
        for i in chosen:
            y = x.clone()
            for _ in range(int(steps[i])):
                y = y - lr * (h[i] * (y - b[i]) - controls[i] + c)
            plus = controls[i] - c + (x - y) / (int(steps[i]) * lr)
            dy.append(y - x)
            dc.append(plus - controls[i])
            controls[i] = plus
        x = x + global_step * sum(dy) / len(chosen)
        c = c + len(chosen) / 4 * (sum(dc) / len(chosen))
    torch.testing.assert_close(server.shared["x"].params[0], x, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(server.shared["sum_c"].params[0] / 4, c, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(clients.rows["c_i"].params, controls, rtol=1e-12, atol=1e-12)


def test_scaffold_finds_the_common_optimum_where_fedavg_drifts():
    """What its controls are for: at equal steps the fixed point is the minimiser of the mean loss."""
    h, b, _ = problem()
    optimum = (h * b).sum(0) / h.sum(0)
    w0 = torch.zeros(4, 3, dtype=torch.float64)
    everyone = [[1, 1, 1, 1]] * 400
    scaffold, _ = play(Scaffold(), everyone, w0)
    fedavg, _ = play(FedAvg(), everyone, w0)
    assert (scaffold.shared["x"].params[0] - optimum).abs().max() < 1e-8
    assert (fedavg.shared["w"].params[0] - optimum).abs().max() > 1e-2


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("mixture", [0.0, 0.3, 1.0])
def test_apfl_as_its_algorithm_1(mixture, adaptive):
    h, b, steps = problem()
    w0, lr = torch.full((3,), 0.3, dtype=torch.float64), 0.1
    server, clients = play(APFL(mixture=mixture, adaptive=adaptive), PRESENT, w0.repeat(4, 1), lr)
    w, v, a = w0, w0.repeat(4, 1), [mixture] * 4
    for present in PRESENT:
        chosen = [i for i in range(4) if present[i]]
        ends = []
        for i in chosen:
            own = w.clone()
            for _ in range(int(steps[i])):
                mixed = a[i] * v[i] + (1 - a[i]) * own
                at_own, at_mixed = h[i] * (own - b[i]), h[i] * (mixed - b[i])
                slope = float(((v[i] - own) * at_mixed).sum())
                v[i] = v[i] - lr * a[i] * at_mixed
                own = own - lr * at_own
                a[i] = min(1.0, max(0.0, a[i] - lr * slope)) if adaptive else a[i]
            ends.append(own)
        w = sum(ends) / len(ends)
    torch.testing.assert_close(server.shared["w"].params[0], w, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(clients.rows["v"].params, v, rtol=1e-12, atol=1e-12)
    expected = torch.tensor(a, dtype=torch.float64)
    torch.testing.assert_close(clients.rows["a"].params[:, 0], expected, rtol=1e-12, atol=1e-12)
    assert adaptive == any(entry != mixture for entry in a)
