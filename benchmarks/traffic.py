"""Bytes that the first of two processes hears in a round of FedAMP, counted where they arrive.

torchrun --nproc-per-node 2 benchmarks/traffic.py 20 2000       clients, and hidden units of a perceptron on 8 x 8
"""

import sys
from collections import Counter

import torch

import fedamp
from fedamp.ranks.team import FEW, Team, leave
from fedamp.runs import loop

heard, after, stack, told, begin = Counter(), [], Team.stack, Team._all_bytes, loop._next_round


def counted_stack(self, purpose, mine, counts):
    whole = stack(self, purpose, mine, counts)
    heard[purpose] += whole[:1].nbytes * (sum(counts) - counts[self.rank])
    return whole


def counted_told(self, purpose, mine):
    heard["told"] += FEW * (self.size - 1)
    return told(self, purpose, mine)


def marked(*arguments):
    after.append(Counter(heard))
    return begin(*arguments)


Team.stack, Team._all_bytes, loop._next_round = counted_stack, counted_told, marked
clients, hidden = map(int, sys.argv[1:])
g = torch.Generator().manual_seed(0)
pairs = [(torch.rand(20, 8, 8, generator=g), torch.randint(10, (20,), generator=g)) for _ in range(clients)]
settings = {"rounds": 4, "epochs": 1, "device": "cpu", "progress": False}
facts = fedamp.run(clients=pairs, model={"name": "mlp", "hidden": hidden}, method="fedamp", **settings).facts
if not fedamp.ranks.team.team().rank:
    print(clients, facts.parameters, (after[-1] - after[-2]).total(), dict(after[-1] - after[-2]))
leave(0)
