"""A round of ours against a round of PFLlib and of fluke: the same clients, model, method and minibatches.

    pip install fluke-fl
    git clone https://github.com/TsingZ0/PFLlib
    python benchmarks/peers.py --pfllib PFLlib              # ratios, at torch's own number of threads
    python benchmarks/peers.py --pfllib PFLlib --threads 1  # and at one thread
    python benchmarks/peers.py --pfllib PFLlib --check      # that all do the same work, without timing
    ... --into benchmarks/peers.md                          # writes between the page's markers

Everybody is timed in turn in one process, after a first round that is not counted. A ratio over 1 means that ours is
faster. Whoever is missing is left out. Nobody evaluates in what is timed. docs: benchmarks/peers.md
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import peer_fluke
import peer_pfllib
import torch
from same_work import CASES, LAM, METHODS, Ours, Player, Work, in_float64
from side_by_side import median_and_range, ratios
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from fedamp.training.torch_switches import keep_freed_memory, use_threads

Peers = Mapping[str, Callable[[Work], Player]]
IN_MEMORY = ", in memory"


def found_peers(pfllib: Path | None) -> dict[str, Callable[[Work], Player]]:
    """Return who can take part; say in a line how to get whoever can't."""
    peers: dict[str, Callable[[Work], Player]] = {}
    if (why := peer_pfllib.missing(pfllib)) is None:
        peers["PFLlib"] = peer_pfllib.PFLlib
        peers[f"PFLlib{IN_MEMORY}"] = partial(peer_pfllib.PFLlib, in_memory=True)
    else:
        print(f"PFLlib: left out, {why}")
    if (why := peer_fluke.missing()) is None:
        peers["fluke"] = peer_fluke.Fluke
    else:
        print(f"fluke: left out, {why}")
    return peers


def counted(player: Player) -> tuple[int, int]:
    """Return how many optimiser steps a peer's round takes, and how many samples pass through its loss."""
    steps, samples = [], []
    hooks = [
        register_optimizer_step_post_hook(lambda *_: steps.append(1)),
        nn.modules.module.register_module_forward_hook(
            lambda module, given, _: samples.append(len(given[1])) if isinstance(module, nn.CrossEntropyLoss) else None
        ),
    ]
    try:
        player.round()
    finally:
        for hook in hooks:
            hook.remove()
    return len(steps), sum(samples)


def apart(work: Work, peer: Callable[[Work], Player], rounds: int = 2) -> float:
    """Return how far a peer's models are from ours after some rounds with our minibatches, in float64.

    The largest difference of a parameter, in terms of the largest way that a parameter of ours has gone.
    """
    work = in_float64(work)
    ours, theirs = Ours(work), peer(work)
    for _ in range(rounds):
        theirs.follow(ours.batches())
        ours.round()
        theirs.round()
    gone = (ours.models() - ours.first[: len(ours.models())]).abs().max()
    return float((theirs.models() - ours.models()).abs().max() / gone)


def checks(peers: Peers, cases: Sequence[str]) -> Iterator[str]:
    """Return the table of what was checked, line by line."""
    yield "| a round, 20 clients | method | peer | steps: ours, peer's | samples: ours, peer's | models apart |"
    yield "|---|---|---|---:|---:|---:|"
    for case in cases:
        same = CASES[case]()
        for method, lam in (("FedAvg", LAM), ("FedAMP", LAM), ("FedAMP", 0.0)):
            work = replace(same, method=method, lam=lam)
            what = method if lam else f"{method}, lambda = 0"
            for name, peer in peers.items():
                if name.endswith(IN_MEMORY):  # which follows the same minibatches
                    continue
                steps, samples = counted(peer(work))
                numbers = f"{work.num_steps}, {steps} | {work.num_samples}, {samples}"
                yield f"| {case} | {what} | {name} | {numbers} | {apart(work, peer):.0e} |"


def times(peers: Peers, cases: Sequence[str]) -> Iterator[str]:
    """Return the table of ratios, line by line."""
    yield "| a round, 20 clients | method | ours | " + " | ".join(f"{name} / ours" for name in peers) + " |"
    yield "|---|---|---|" + "---:|" * len(peers)
    for case in cases:
        for method in METHODS:
            work = replace(CASES[case](), method=method)
            ours = Ours(work)
            players: dict[str, Player] = {name: peer(work) for name, peer in peers.items()}
            found = ratios({name: player.round for name, player in (players | {"ours": ours}).items()}, work.repeats)
            way = f"{ours.choice.engine}, {ours.choice.threads} thread{'s' * (ours.choice.threads > 1)}"
            cells = [median_and_range(found[name]).strip() for name in peers]
            yield f"| {case} | {method} | {way} | " + " | ".join(cells) + " |"


def write(lines: list[str], page: Path, marker: str) -> bool:
    """Write lines between `<!-- marker -->` and `<!-- end -->`; return whether the page has them."""
    place = re.compile(rf"(<!-- {re.escape(marker)}[^>]* -->\n).*?(<!-- end -->)", re.DOTALL)
    text, number = place.subn(lambda at: at[1] + "\n" + "\n".join(lines) + "\n\n" + at[2], page.read_text("utf-8"))
    page.write_text(text, encoding="utf-8")
    return number > 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pfllib", type=Path, help="the folder of PFLlib")
    parser.add_argument("--threads", type=int, help="of torch, for everybody; as many as torch takes if left out")
    parser.add_argument("--case", choices=list(CASES), action="append", help="only this one (not with --into)")
    parser.add_argument("--check", action="store_true", help="check that all do the same work instead of timing it")
    parser.add_argument("--into", type=Path, help="a page with the markers to write between")
    asked = parser.parse_args()
    peers = found_peers(asked.pfllib)
    if not peers:
        return
    keep_freed_memory()
    lines = []
    with use_threads(asked.threads or torch.get_num_threads()):
        if asked.check:
            marker, table = "same work", checks(peers, asked.case or list(CASES))
        else:
            marker = "one thread" if asked.threads == 1 else "all threads"
            many = f"{torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)} at the most"
            lines += [
                f"torch {torch.__version__}, {many}; median (lowest to highest) of 5, of the largest model 3.",
                "",
            ]
            print(lines[0])
            table = times(peers, asked.case or list(CASES))
        for line in table:
            print(line, flush=True)
            lines.append(line)
    if asked.into is not None and not write(lines, asked.into, marker):
        parser.error(f"{asked.into} has no '<!-- {marker} -->' and '<!-- end -->' to write between")


if __name__ == "__main__":
    main()
