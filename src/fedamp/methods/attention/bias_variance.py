"""Weights that minimise bias plus variance: how far clients differ, against how noisy their models are.

Read a client's model as w_i = theta_i + noise_i: theta_i is what its data really ask for, and the noise, of variance
v_i, comes from having few samples and from SGD. The mixture sum_j xi_ij w_j that lies nearest to theta_i minimises

    sum_j xi_ij^2 v_j  +  (xi_i - e_i)^T M (xi_i - e_i),      M_ij = <theta_i - mean, theta_j - mean>

over the simplex: variance plus squared bias. If nobody differs (M = 0, v_j = c/n_j) that is xi_ij = n_j/n, FedAvg's
weights; clients in groups get their group's mean; clients that all differ keep to themselves.

M and v come from a probe: each client trains from one common model on two halves of its samples. The noises of two
halves are independent, so that products across halves, <a_i, b_j>, see theta alone, on the diagonal too; and
|a_i - b_i|^2 sees the noise alone.

Symbols: a, b `(m, d)` the two half models, n_i samples, p_i = n_i/n.
"""

import torch
from torch import Tensor

from fedamp.rows import column_blocks

STEPS = 5000
"""Gradient steps that find out who gets a weight, at most; the weights themselves are then computed exactly."""


def signal_and_noise(a: Tensor, b: Tensor, samples: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return M `(m, m)`, v `(m,)` and the eigenvalues of M before its noise was cut, in float64.

    Eigenvalues of M that are not larger than twice the most negative one are noise, since M has none below 0; they are
    set to 0. v_i = c/n_i with one c for all clients: a client's own |a_i - b_i|^2 is too noisy an estimate by itself.
    """
    shares = (samples / samples.sum()).double()
    products, spread = _cross(a, b, shares)
    m = (products + products.T) / 2
    values, vectors = torch.linalg.eigh(m)
    kept = values.where(values > 2 * values.min().clamp(max=0).abs(), 0)
    noise = (spread / 4 * samples.double()).mean() / samples.double()
    return (vectors * kept) @ vectors.T, noise, values


def _cross(a: Tensor, b: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return <a_i - mean a, b_j - mean b> `(m, m)` and |a_i - b_i|^2 `(m,)`, summed in float64 block by block."""
    products = torch.zeros((len(a), len(a)), dtype=torch.float64, device=a.device)
    spread = torch.zeros(len(a), dtype=torch.float64, device=a.device)
    for block in column_blocks(a):
        one, other = a[:, block].double(), b[:, block].double()
        products.addmm_(one - shares @ one, (other - shares @ other).T)
        spread += (one - other).square().sum(1)
    return products, spread


def least_error_weights(signal: Tensor, noise: Tensor) -> Tensor:
    """Return xi `(m, m)`, whose rows minimise sum_j xi_j^2 v_j + (xi - e_i)^T M (xi - e_i) over the simplex."""
    if not noise.sum() > 0:  # equal models: nothing is known of anyone, and every mixture is the same model
        return torch.full_like(signal, 1 / len(signal))
    scale = noise.mean()
    signal, noise = signal / scale, noise / scale
    quadratic = signal + noise.diag()
    xi = _descend(quadratic, signal)
    return torch.stack([_exact(quadratic, signal[i], xi[i]) for i in range(len(xi))])


def expected_error(xi: Tensor, signal: Tensor, noise: Tensor) -> Tensor:
    """Return the mean squared error of each client's mixture, `(m,)`: variance plus squared bias."""
    bias = xi - torch.eye(len(xi), dtype=xi.dtype, device=xi.device)
    return xi.square() @ noise + ((bias @ signal) * bias).sum(1)


def _descend(quadratic: Tensor, signal: Tensor) -> Tensor:
    """Return the weights to within a small error, by accelerated projected gradient steps for all rows at once."""
    length = 1 / torch.linalg.eigvalsh(quadratic)[-1]
    x = y = torch.full_like(signal, 1 / len(signal))
    momentum = 1.0
    for _ in range(STEPS):
        after = _on_simplex(y - length * (y @ quadratic - signal))
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        y = after + (momentum - 1) / following * (after - x)
        done = (after - x).abs().max() < 1e-12
        x, momentum = after, following
        if done:
            break
    return x


def _on_simplex(rows: Tensor) -> Tensor:
    """Return the nearest points of the simplex, row by row."""
    ordered = rows.sort(1, descending=True).values
    over = (ordered.cumsum(1) - 1) / torch.arange(1, rows.shape[1] + 1, dtype=rows.dtype, device=rows.device)
    last = (ordered > over).sum(1, keepdim=True) - 1
    return (rows - over.gather(1, last)).clamp(min=0)


def _exact(quadratic: Tensor, linear: Tensor, x: Tensor) -> Tensor:
    """Return the minimum of x^T Q x / 2 - linear x over the simplex, given nearly the right point.

    On the support S: Q_SS x_S = linear_S + level, with the level at which x sums to 1.
    """
    support = (x > 1e-9).nonzero()[:, 0]
    while True:
        factor = quadratic[support][:, support]
        one = torch.ones((len(support), 1), dtype=x.dtype, device=x.device)
        pair = torch.linalg.solve(factor, torch.cat([linear[support, None], one], 1))
        level = (1 - pair[:, 0].sum()) / pair[:, 1].sum()
        solved = pair[:, 0] + level * pair[:, 1]
        if (solved >= 0).all():
            break
        support = support[solved > 0]
    exact = torch.zeros_like(x)
    exact[support] = solved
    return exact
