"""The mean loss of clients' samples, where it is released: each sample's is clipped, and noise is added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedamp.models.dropout import own_stream, sample_keys
from fedamp.privacy import sampling
from fedamp.privacy.events import Event
from fedamp.rows import Rows
from fedamp.training.precision import use_precision

if TYPE_CHECKING:
    from fedamp.training.local import LocalTraining


def private_loss(local: LocalTraining, rows: Rows) -> Tensor:
    """Return the mean loss of each client's row on its training samples, noised, `(n, 1)` float64.

    Over about as many random minibatches as make up all samples: the mean of (sum of losses, each between 0 and L,
    + N(0, (z L)^2)) / (q n). A loss that is no number counts as L, the most that there is. A mean below 0 is 0.
    """
    found = [_one(local, i, rows.params[i], rows.buffers[i]) for i in range(len(local.clients))]
    return torch.tensor(found, dtype=torch.float64, device=local.clients.x.device)[:, None]


def _one(local: LocalTraining, i: int, params: Tensor, buffers: Tensor) -> float:
    privacy, clients, most = local.config.privacy, local.clients, sampling.LOSS_CLIP
    assert privacy is not None, "nothing is protected here"
    number, streams = clients.numbers[i], local.streams
    batch_size, size, z = local.config.batching.batch_size, local.size(i), privacy.noise[number]
    chance, steps = sampling.rate(batch_size, size), sampling.loss_steps(batch_size, size)
    stream, noise, mine = streams.draws(number), streams.noise(number), clients.train[i]
    drawn = [sampling.poisson(len(mine), chance, stream)[0] for _ in range(steps)]
    index = torch.cat([torch.from_numpy(chosen) for chosen in drawn]).to(mine.device)
    x, y = clients.samples(mine[index])
    keys = sample_keys(streams.dropout_key(number), index)
    with (
        torch.no_grad(),
        use_precision(local.config.precision, mine.device),
        own_stream(streams.other(number), mine.device),
    ):
        losses = local.trainer.sample_gradients.losses(params, buffers, x, y, keys)
    total = losses.double().nan_to_num(most, most, most).clamp(0, most).sum().item()
    total += z * most * noise.draw(steps, torch.float64).sum().item()
    local.spent[i][Event(chance, z)] += steps
    return max(0.0, total / (chance * size * steps))
