"""Which clients step together, and on which samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedamp.training.local import LocalTraining


class StepPlan:
    """The steps of a round: at each, runs of neighbouring clients whose batches have one length.

    `who` are the clients' positions, those with the most samples first.
    """

    def __init__(self, local: LocalTraining, who: list[int]) -> None:
        batching, clients = local.config.batching, local.clients
        tables = [batching.table(len(clients.train[i]), local.stream(i)) for i in who]
        self.lengths = [lengths for _, lengths in tables]
        self.num_steps = max(len(table) for table, _ in tables)
        # One table for the round, moved to the device at once: a step then looks up a block of it.
        drawn = np.zeros((len(who), self.num_steps, max(table.shape[1] for table, _ in tables)), dtype=np.int64)
        for i, (table, _) in enumerate(tables):
            drawn[i, : table.shape[0], : table.shape[1]] = table
        held = pad_sequence([clients.train[i] for i in who], batch_first=True)
        self.positions = held.gather(1, torch.from_numpy(drawn).flatten(1).to(held.device)).view(drawn.shape)

    def runs(self, t: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield slices of clients for step t (from 1), with the positions of their samples `(n, length)`."""
        lengths = [one[t - 1] if t <= len(one) else 0 for one in self.lengths]
        begin = 0
        while begin < len(lengths):
            end = begin + 1
            while end < len(lengths) and lengths[end] == lengths[begin]:
                end += 1
            if lengths[begin]:
                run = slice(begin, end)
                yield run, self.positions[run, t - 1, : lengths[begin]]
            begin = end
