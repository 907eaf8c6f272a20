"""How alike models are: squared distances and cosines of all pairs, and the scale on which to read them."""

import torch
from torch import Tensor

from fedamp.methods.attention.inner_products import InnerProducts
from fedamp.ranks.blocks import share
from fedamp.row_store import computing_device
from fedamp.rows import column_blocks, double_blocks


def _gram(rows: Tensor, origin: Tensor | None = None) -> Tensor:
    """Return the inner products of rows seen from `origin`, `(m, m)`, summed in float64 block by block."""
    total = InnerProducts(len(rows), computing_device(rows))
    work = share(column_blocks(rows))
    for _, (part, *at) in double_blocks(rows, *([] if origin is None else [origin[None]]), blocks=work.mine):
        seen = part.sub_(at[0]) if at else part
        total.add(seen, seen)
    return work.summed(total.sum()).to(rows.device)


def squared_distances(rows: Tensor) -> Tensor:
    """Return |w_i - w_j|^2 for all pairs of rows, `(m, m)` in float64, exactly 0 if all rows are equal.

    Models are nearly equal at the start, where |a|^2 + |b|^2 - 2ab loses every digit in float32. Here rows
    are seen from one of them, so that what they share cancels before it is squared: the one of median length, since
    from a model that has gone astray all others would look the same.
    """
    middle = (len(rows) - 1) // 2
    by_length = rows.norm(dim=1).argsort(stable=True)  # a GPU's median is not deterministic
    gram = _gram(rows, origin=rows.index_select(0, by_length[middle : middle + 1])[0]) if len(rows) else _gram(rows)
    norms = gram.diagonal()
    distances = (norms[:, None] + norms - gram - gram.T).clamp(min=0)
    return distances.fill_diagonal_(0)


def cosines(rows: Tensor, origin: Tensor | None = None) -> Tensor:
    """Return cos(w_i, w_j) for all pairs of rows, `(m, m)` in float64; 0 if a row is zero.

    With `origin` `(d,)` rows are seen from there: of models, how alike their ways from a common start are.
    """
    gram = _gram(rows, origin)
    norms = gram.diagonal().sqrt()
    scale = torch.where(norms > 0, 1 / norms, 0)
    return (gram * scale[:, None] * scale).clamp(-1, 1)


def noise_in_length(rows: Tensor, noise: Tensor) -> Tensor:
    """Return |w_i| / |theta_i|, `(m, 1)` in float64: how much longer noise of variance s_i `(m, 1)` has made a row.

    E|w_i|^2 = |theta_i|^2 + s_i, so that it is (1 - s_i / |w_i|^2)^(-1/2): 1 without noise. A row that is all noise has
    no direction left to compare; it is as if it were the same as everyone's.
    """
    squares = torch.zeros((len(rows), 1), dtype=torch.float64, device=computing_device(rows))
    for _, (part,) in double_blocks(rows):
        squares += part.square_().sum(1, keepdim=True)
    squares = squares.to(rows.device)
    return (1 - torch.where(squares > 0, noise / squares, 0)).clamp(min=1e-12).rsqrt()


def median_distance(distances: Tensor) -> float:
    """Return the median over pairs of clients of distances `(m, m)`; 0 if all models are equal.

    If more than half of the pairs are equal, it is the median of the others: a scale of 0 says nothing.
    """
    above = torch.triu_indices(len(distances), len(distances), offset=1, device=distances.device)
    pairs = distances[above[0], above[1]].sort().values
    if len(pairs) and pairs[len(pairs) // 2] == 0:
        pairs = pairs[pairs > 0]
    if not len(pairs):
        return 0.0
    return float((pairs[(len(pairs) - 1) // 2] + pairs[len(pairs) // 2]) / 2)


SCALES = ("median", "local", "spread")
"""The words for sigma: the median over all pairs of clients; for each client, over the pairs that it is in; or how much
these differ."""

ASTRAY = 10
"""A distance enters the spread up to median + ASTRAY (median - nearest): beyond that a model has gone astray."""


def scale(distances: Tensor, word: str) -> Tensor:
    """Return how far apart models are, for each client `(m, 1)`, from distances `(m, m)`.

    With "local" it is the (lower) median of a client's own distances: one whose model is far out, because it has more
    data and takes more steps, then listens as widely as the others do. Zelnik-Manor and Perona (2004) call this local
    scaling. With "spread" it is their standard deviation: a softmax sees only differences, and models of a large net
    may all be almost equally far. A client among its equals has no scale of its own but rounding: it uses everyone's.
    """
    overall = median_distance(distances)
    if word == "median":
        return distances.new_full((len(distances), 1), overall)
    others = distances + torch.diag(distances.new_full((len(distances),), torch.nan))
    ordered = others.sort(1).values  # nan, the distance to itself, comes last; a GPU's median is not deterministic
    own = _lower_median(ordered).nan_to_num(0.0) if word == "local" else _spread(ordered)
    return torch.where(own > 1e-9 * overall, own, overall)


def _lower_median(ordered: Tensor, least: int = 0) -> Tensor:
    """Return each sorted row's lower median `(m, 1)`, its last entry left out; at least the value at place `least`."""
    place = max(least, (len(ordered) - 2) // 2)
    return ordered[:, min(place, len(ordered) - 1), None]


def _spread(ordered: Tensor) -> Tensor:
    """Return each sorted row's standard deviation `(m, 1)`, with nan left out and what has gone astray cut off."""
    median = _lower_median(ordered, least=1)  # the nearest itself is no measure of what lies beyond it
    kept = ordered.clamp(max=median + ASTRAY * (median - ordered[:, :1]))
    return (kept - kept.nanmean(1, keepdim=True)).square().nanmean(1, keepdim=True).sqrt().nan_to_num(0.0)
