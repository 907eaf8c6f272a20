"""Bytes that the first of two processes hears in a round of FedAMP, counted where they arrive.

torchrun --nproc-per-node 2 benchmarks/traffic.py 20 2000       clients, and hidden units of a perceptron on 8 x 8
"""

import sys
from collections import Counter

import torch
import torch.distributed as dist

import fedamp
from fedamp.ranks.team import leave
from fedamp.runs import loop

heard, after, begin = Counter(), [], loop._next_round
gather, broadcast = dist.all_gather, dist.broadcast


def counted_gather(found, own):
    heard["told"] += sum(each.nbytes for each in found) - own.nbytes
    return gather(found, own)


def counted_broadcast(part, src):
    heard["rows"] += part.nbytes * (src != dist.get_rank())
    return broadcast(part, src=src)


def marked(*arguments):
    after.append(Counter(heard))
    return begin(*arguments)


dist.all_gather, dist.broadcast, loop._next_round = counted_gather, counted_broadcast, marked
clients, hidden = map(int, sys.argv[1:])
g = torch.Generator().manual_seed(0)
pairs = [(torch.rand(20, 8, 8, generator=g), torch.randint(10, (20,), generator=g)) for _ in range(clients)]
settings = {"rounds": 4, "epochs": 1, "device": "cpu", "progress": False}
facts = fedamp.run(clients=pairs, model={"name": "mlp", "hidden": hidden}, method="fedamp", **settings).facts
if not fedamp.ranks.team.team().rank:
    print(clients, facts.parameters, (after[-1] - after[-2]).total(), dict(after[-1] - after[-2]))
leave(0)
