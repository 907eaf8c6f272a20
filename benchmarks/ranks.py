"""Two processes with one thread each against one process as it is by default, on a CPU: time of a round.

    python benchmarks/ranks.py

Both play the same run, in turn. `faster` is the ratio of seconds: over 1 means that two processes are faster, and 2 is
the most that two free cores can give; on cores that others use, processes wait for each other, and it says little.
`work` is the processor time of both processes over that of one: what sharing costs, free cores or not. `waiting` is the
share of a round that the first process spends telling, hearing and waiting for the other one.
"""

import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import time

import torch
from side_by_side import median_and_range

REPEATS, SKIPPED = 3, 2

CASES = {  # name: model, shape of a sample, clients, samples of each, batch, rounds
    "digits, mlp, 60 clients": ("mlp", (8, 8), 60, 150, 10, 12),
    "28 x 28, cnn, 20 clients": ("cnn", (1, 28, 28), 20, 100, 50, 6),
}


def play(case: str) -> None:
    """Play one case in this process, or with others; print the medians of its rounds."""
    import fedamp
    from fedamp.ranks.team import Team
    from fedamp.runs import loop

    model, shape, n, samples, batch, rounds = CASES[case]
    waited, marks, begin = [0.0], [], loop._next_round

    def timed(function):
        def call(*arguments):
            began = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                waited[0] += time.perf_counter() - began

        return call

    def marked(*arguments):
        marks.append((time.perf_counter(), time.process_time(), waited[0]))
        return begin(*arguments)

    Team.exchange, Team.stack, loop._next_round = timed(Team.exchange), timed(Team.stack), marked
    g = torch.Generator().manual_seed(0)
    pairs = [(torch.rand(samples, *shape, generator=g), torch.randint(10, (samples,), generator=g)) for _ in range(n)]
    settings = {"model": model, "method": "fedamp", "rounds": rounds, "epochs": 1, "batch_size": batch}
    facts = fedamp.run(clients=pairs, device="cpu", progress=False, **settings).facts
    spent = [[after - before for before, after in zip(*pair, strict=True)] for pair in itertools.pairwise(marks)]
    wall, work, waiting = (statistics.median(column) for column in list(zip(*spent[SKIPPED:], strict=True)))
    found = {"wall": wall, "work": work, "waiting": waiting / wall}
    print(json.dumps({**found, "engine": facts.engine, "threads": facts.threads, "parameters": facts.parameters}))


def timed_run(case: str, size: int) -> list[dict]:
    """Play one case in so many processes, and return what each of them prints."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    started = []
    for rank in range(size):
        told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
        mine = {**env, "MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in told.items()}}
        command = [sys.executable, "-W", "ignore", __file__, case]
        started.append(subprocess.Popen(command, env=mine, stdout=subprocess.PIPE, text=True))
    return [json.loads(one.communicate(timeout=900)[0].splitlines()[-1]) for one in started]


def main() -> None:
    for case in CASES:
        pairs = [(timed_run(case, 1)[0], timed_run(case, 2)) for _ in range(REPEATS)]
        one, (two, _) = pairs[-1]
        print(f"{case}, {one['parameters']} parameters, {one['engine']}, threads {one['threads']} and {two['threads']}")
        print("  faster ", median_and_range([one["wall"] / two[0]["wall"] for one, two in pairs]))
        print("  work   ", median_and_range([sum(each["work"] for each in two) / one["work"] for one, two in pairs]))
        print("  waiting", median_and_range([two[0]["waiting"] for _, two in pairs]))
        print(f"  seconds a round {one['wall']:.3f} and {two['wall']:.3f}", flush=True)


if __name__ == "__main__":
    play(sys.argv[1]) if len(sys.argv) > 1 else main()
