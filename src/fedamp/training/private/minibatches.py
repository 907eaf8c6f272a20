"""Which samples each client takes at each step, drawn at random: shorter minibatches are padded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedamp.privacy import sampling

if TYPE_CHECKING:
    from fedamp.training.local import LocalTraining


@dataclass(frozen=True)
class Minibatches:
    """The minibatches of n clients at one step, `(n, longest)` each."""

    positions: Tensor  # in the pool
    index: Tensor  # among the client's own samples
    places: Tensor  # in [0, 1), within its minibatch: see `sampling.poisson`
    present: Tensor  # False: padding

    def in_part(self, part: tuple[int, int]) -> Tensor:
        """Return which samples are in the i-th of p parts of their minibatch."""
        i, p = part
        if not 1 <= i <= p:
            raise ValueError(f"part is {part}; expected (i, p) with i from 1 to p")
        return self.present & ((self.places * p).floor() == i - 1)


class PrivatePlan:
    """The steps of a pass: at each, runs of neighbouring clients whose minibatches are about as long.

    `who` are the clients' positions, those with the most samples first: they take the most steps.
    """

    def __init__(self, local: LocalTraining, who: list[int]) -> None:
        self.clients, self.who = local.clients, who
        batching = local.config.batching
        sizes = [local.size(i) for i in who]  # of a part, what it has on average: the account's q n
        held = [local.clients.train[i] for i in who]
        self.lengths = [len(positions) for positions in held]
        self.positions = pad_sequence(held, batch_first=True)
        """Where each client's samples are in the pool, `(n, longest)`."""
        self.steps = [batching.num_steps(size) for size in sizes]
        self.num_steps = max(self.steps)
        self.rates = [sampling.rate(batching.batch_size, size) for size in sizes]
        self.expected = [min(batching.batch_size, size) for size in sizes]  # q n: how long a minibatch is on average
        self.streams = [local.streams.draws(local.clients.numbers[i]) for i in who]

    def runs(self, t: int) -> Iterator[tuple[slice, Minibatches]]:
        """Yield slices of clients for step t (from 1), and their minibatches; steps come one after the other."""
        going = [i for i, steps in enumerate(self.steps) if t <= steps]
        for _, run in itertools.groupby(going, key=lambda i: self.expected[i]):
            here = list(run)
            yield slice(here[0], here[-1] + 1), self._draw(here)

    def _draw(self, here: list[int]) -> Minibatches:
        drawn = [sampling.poisson(self.lengths[i], self.rates[i], self.streams[i]) for i in here]
        shape = len(here), max(len(index) for index, _ in drawn)
        index, places, present = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape, np.bool_)
        for row, (chosen, place) in enumerate(drawn):
            index[row, : len(chosen)], places[row, : len(chosen)], present[row, : len(chosen)] = chosen, place, True
        device = self.clients.x.device
        on_device = [torch.from_numpy(table).to(device) for table in (index, places, present)]
        # Padding is the client's first sample: nothing of it counts.
        positions = self.positions[here[0] : here[-1] + 1].gather(1, on_device[0])
        return Minibatches(positions, *on_device)
