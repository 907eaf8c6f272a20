"""Weights that minimise bias plus variance: how far clients differ, against how noisy their models are.

Read a client's model as w_i = theta_i + noise_i: theta_i is what its data really ask for, and the noise, of variance
v_i, comes from having few samples and from SGD. The mixture sum_j xi_ij w_j that lies nearest to theta_i minimises

    sum_j xi_ij^2 v_j  +  (xi_i - e_i)^T M (xi_i - e_i),      M_ij = <theta_i - mean, theta_j - mean>

over the simplex: variance plus squared bias. If nobody differs (M = 0, v_j = c/n_j) that is xi_ij = n_j/n, FedAvg's
weights; clients in groups get their group's mean; clients that all differ keep to themselves.

M and v come from a probe: each client trains from one common model on two halves of its samples. The noises of two
halves are independent, so that products across halves, <a_i, b_j>, see theta alone, on the diagonal too; and
|a_i - b_i|^2 sees the noise alone.

Where samples are protected, a model also has privacy's noise, whose variance its client tells: v_i = c/n_i + s_i. That
noise is independent between halves too, so that M is free of it. It is as if the client had fewer samples: n'_i =
n_i / (1 + n_i s_i / c), with v_i = c/n'_i. If nobody differs, xi_ij = n'_j/n', which is in proportion to 1/v_j.

Symbols: a, b `(m, d)` the two half models, n_i samples, p_i = n'_i/n', S_i the variance that privacy has put into a_i
and b_i together, s_i = S_i/4 into their mean, which is the client's whole model.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedamp.methods.attention.inner_products import InnerProducts
from fedamp.methods.attention.weights import on_simplex
from fedamp.ranks.blocks import share
from fedamp.row_store import computing_device, taken
from fedamp.rows import column_blocks, double_blocks

STEPS = 5000
"""Gradient steps that find out who gets a weight, at most; the weights themselves are then computed exactly."""
FAR = 10.0
"""Times the usual length of a probe from which on nobody listens to a client: it sends something wrong, or poison."""
OPPOSED = -0.25
"""Cosine below which two clients learned opposite things."""
UNHEARD = 0.1
"""Share of an even weight below which a client is not listened to."""


@dataclass(frozen=True)
class Collaboration:
    """Who should listen to whom, and what that was read from."""

    xi: Tensor  # (m, m)
    by_client: dict[str, Tensor]
    """`(m,)` each: `gain`, the share of its expected error that a client loses by listening; `far`, the length of its
    probe, in usual lengths; `opposed`, how many clients learned the opposite."""
    facts: dict[str, Tensor]  # (1, .) each, for a report

    def to(self, device: torch.device) -> "Collaboration":
        """Return the same on a device."""
        by_client = {name: value.to(device) for name, value in self.by_client.items()}
        return Collaboration(self.xi.to(device), by_client, {name: v.to(device) for name, v in self.facts.items()})


def collaboration(
    a: Tensor, b: Tensor, start: Tensor, samples: Tensor, bias_weight: Tensor, private: Tensor | None = None
) -> Collaboration:
    """Return who should listen to whom: the weights of least expected error, of those who can learn from each other.

    Nobody listens to a client whose probe went too far (`far_out`), who learned the opposite (`opposed`) or who has
    left it (`_left`). Squared bias counts `bias_weight` times, `(m,)`; the gain is that of the weights with 1.
    `private` `(m,)` is S, the variance of privacy's noise in both halves, as each client tells it; none if it is left
    out.
    """
    there = computing_device(a)  # whose `(m, m)` work this is, wherever the models are
    samples, bias_weight = samples.to(there), bias_weight.to(there)
    private = _at_most_seen(a, b, private)
    far = far_out(a, b, start, samples, private)
    near = (far <= FAR).nonzero()[:, 0]
    home = a.device
    a, b, samples, private = taken(a, near.to(home)), taken(b, near.to(home)), samples[near], private[near]
    signal, noise, spectrum = signal_and_noise(a, b, samples, private)
    heard = ~opposed(a, b, start, 1 - private / 4 / noise)
    gain = 1 - expected_error(least_error_weights(signal, noise, heard=heard), signal, noise) / noise
    xi = torch.eye(len(far), dtype=signal.dtype, device=signal.device)
    weight = bias_weight[near]
    found = least_error_weights(signal, noise, weight, heard)
    left = _left(found, weight)
    if left.any():
        found = least_error_weights(signal, noise, weight, heard & ~left.T)
    xi[near[:, None], near] = found
    none, against = torch.zeros_like(far), (~heard).sum(1).to(far)
    by_client = {"gain": none.index_put((near,), gain), "far": far, "opposed": none.index_put((near,), against)}
    return Collaboration(xi, by_client, _facts(signal, noise, spectrum)).to(home)


def _left(xi: Tensor, bias_weight: Tensor) -> Tensor:
    """Return whom each client has left, `(m, m)` bool: whom it does not hear, since squared bias counts more for it.

    A difference has two sides: who was left must not listen either, or it would follow a model that goes another way.
    """
    apart = xi < UNHEARD / len(xi)
    return (apart & (bias_weight > bias_weight.min())[:, None]).fill_diagonal_(False)


def _facts(signal: Tensor, noise: Tensor, spectrum: Tensor) -> dict[str, Tensor]:
    """Return the spectrum of M in units of the noise, its rank, the mean noise and its share of what differs."""
    one = {
        "noise": noise.mean(),
        "noise_share": (noise / (noise + signal.diagonal())).mean(),
        "rank": (spectrum > _floor(spectrum)).sum().double(),
    }
    return {"spectrum": spectrum[None], **{name: value.reshape(1, 1) for name, value in one.items()}}


def _at_most_seen(a: Tensor, b: Tensor, private: Tensor | None) -> Tensor:
    """Return S as it is told, but no more than |a_i - b_i|^2, `(m,)`: there is no more noise than that.

    So nobody can pass off as noise that its two halves went astray together.
    """
    spread = _square(a, b)
    return torch.zeros_like(spread) if private is None else private.to(spread).minimum(spread)


def opposed(a: Tensor, b: Tensor, start: Tensor, quiet: Tensor | None = None) -> Tensor:
    """Return who learned the opposite of whom, `(m, m)` bool: their ways from the common start point apart.

    The cosine is free of noise, as M is: <a_i - start, b_j - start> over the lengths that half models agree on.
    Clients that differ and still can share, such as those with other classes, have cosines near 0 or above; those of
    contradicting rules were at -0.3 and below, whatever M says. How far <a_i, b_j> and <b_i, a_j> disagree is the
    noise, which it has to exceed: to lose a partner by mistake costs less than to listen to an opponent. `quiet`
    `(m,)` is the share of a client's noise that is not privacy's: with its roots all pairs are equally noisy again.
    """
    products = _cross(a, b, start=start)
    if quiet is not None:
        products = products * quiet.sqrt()[:, None] * quiet.sqrt()
    agreed, noise = (products + products.T) / 2, (products - products.T) / 2
    lengths = agreed.diagonal().clamp(min=0).sqrt()
    typical = noise.square().sum().div(max(1, len(a) * (len(a) - 1))).sqrt()
    return ((agreed < OPPOSED * lengths[:, None] * lengths) & (agreed < -typical)).fill_diagonal_(False)


def far_out(a: Tensor, b: Tensor, start: Tensor, samples: Tensor, private: Tensor | float = 0.0) -> Tensor:
    """Return how many times the usual length each client's way from the start has, `(m,)`; the longer of its two.

    The usual length is the median's; who has more samples than the median takes more steps, and may go further by as
    much. Privacy's noise is not a client's own way: S/2 is taken out of the square of each length.
    """
    squares = torch.maximum(_square(a, start), _square(b, start))
    usual = squares.sqrt().quantile(0.5) * (samples / samples.quantile(0.5)).clamp(min=1)
    return torch.where(usual > 0, (squares - private / 2).clamp(min=0).sqrt() / usual, 0.0)


def _square(rows: Tensor, origin: Tensor) -> Tensor:
    """Return the squared lengths of rows seen from one origin, or each from its own, `(m,)`."""
    total = torch.zeros(len(rows), dtype=torch.float64, device=computing_device(rows))
    for _, (part, at) in double_blocks(rows, origin):
        total += part.sub_(at).square_().sum(1)
    return total


def signal_and_noise(
    a: Tensor, b: Tensor, samples: Tensor, private: Tensor | float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Return M `(m, m)`, v `(m,)` and M's eigenvalues before its noise was cut, the largest first; in float64.

    M is read with weights sqrt(p_i p_j), under which all entries are equally noisy: else the noise of the smallest and
    the most private clients would hide what the others differ in. It has no eigenvalues below 0, so that those not
    larger than twice the most negative one are noise; they are set to 0. They are returned in units of the noise.

    v_i = c/n_i + s_i with the median's c for all clients, of |a_i - b_i|^2 - S_i: a client's own is too noisy an
    estimate by itself, and a mean would be ruled by one that sends something strange. Where all halves agree there is
    no scale to go by, nor any need of one: c is 1, which gives FedAvg's weights if nobody differs.
    """
    samples, added = samples.double(), torch.as_tensor(private, dtype=torch.float64, device=samples.device) / 4
    level = ((_square(a, b) / 4 - added) * samples).quantile(0.5).maximum(1e-9 * (added * samples).max())
    worth = samples / (1 + samples * added / torch.where(level > 0, level, 1.0))
    shares = worth / worth.sum()
    root = shares.sqrt()
    products = _cross(a, b, shares)
    values, vectors = torch.linalg.eigh((products + products.T) / 2 * root[:, None] * root)
    kept = values.where(values > _floor(values), 0)
    signal = (vectors * kept) @ vectors.T / root[:, None] / root
    least = 1e-9 * (signal.diagonal() * samples).max()  # with less noise the program has no solution in floating point
    level = level.maximum(least)
    level = torch.where(level > 0, level, 1.0)
    return signal, level / samples + added, values.flip(0) * worth.sum() / level


def _floor(values: Tensor) -> Tensor:
    """Return up to where eigenvalues of M are noise, or rounding."""
    return torch.maximum(2 * -values.min(), 1e-12 * values.abs().max())


def _cross(a: Tensor, b: Tensor, shares: Tensor | None = None, start: Tensor | None = None) -> Tensor:
    """Return <a_i, b_j> `(m, m)`, seen from `start` and from the means by `shares`."""
    products = InnerProducts(len(a), computing_device(a))
    work = share(column_blocks(a))
    for _, (one, other, *at) in double_blocks(a, b, *([] if start is None else [start]), blocks=work.mine):
        if at:
            one, other = one.sub_(at[0]), other.sub_(at[0])
        if shares is not None:
            one, other = one.sub_(shares @ one), other.sub_(shares @ other)
        products.add(one, other)
    return work.summed(products.sum())


def least_error_weights(
    signal: Tensor, noise: Tensor, bias_weight: Tensor | float = 1.0, heard: Tensor | None = None
) -> Tensor:
    """Return xi `(m, m)`, whose rows minimise sum_j xi_j^2 v_j + b_i (xi - e_i)^T M (xi - e_i) over the simplex.

    b_i is the weight of the squared bias, a number or `(m,)`; `heard` `(m, m)` bool says who may have a weight at all.
    """
    scale = noise.mean()
    signal, noise = signal / scale, noise / scale
    weight = torch.as_tensor(bias_weight, dtype=signal.dtype, device=signal.device).expand(len(signal))
    heard = torch.ones_like(signal, dtype=torch.bool) if heard is None else heard
    near = _descend(signal, noise, weight[:, None], heard)
    rows = [_exact(b * signal + noise.diag(), b * signal[i], near[i]) for i, b in enumerate(weight)]
    return torch.stack(rows)


def expected_error(xi: Tensor, signal: Tensor, noise: Tensor) -> Tensor:
    """Return the mean squared error of each client's mixture, `(m,)`: variance plus squared bias."""
    bias = xi - torch.eye(len(xi), dtype=xi.dtype, device=xi.device)
    return xi.square() @ noise + ((bias @ signal) * bias).sum(1)


def _descend(signal: Tensor, noise: Tensor, weight: Tensor, heard: Tensor) -> Tensor:
    """Return the weights to within a small error, by accelerated projected gradient steps for all rows at once."""
    length = 1 / (weight * torch.linalg.eigvalsh(signal)[-1] + noise.max())
    x = y = heard / heard.sum(1, keepdim=True, dtype=signal.dtype)
    momentum = torch.ones_like(length)
    for _ in range(STEPS):
        slope = weight * (y @ signal - signal) + y * noise
        after = on_simplex((y - length * slope).where(heard, -torch.inf))
        # Momentum that leads uphill is given up, row by row.
        momentum = torch.where(((y - after) * (after - x)).sum(1, keepdim=True) > 0, 1.0, momentum)
        following = (1 + (1 + 4 * momentum**2).sqrt()) / 2
        y = after + (momentum - 1) / following * (after - x)
        done = (after - x).abs().max() < 1e-12
        x, momentum = after, following
        if done:
            break
    return x


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
