"""A round of ours against one of PFLlib, fluke and FL-bench: the same clients, model, method and minibatches.

    pip install fluke-fl
    git clone https://github.com/TsingZ0/PFLlib
    git clone https://github.com/KarhouTam/FL-bench
    python benchmarks/peers.py --pfllib PFLlib --flbench FL-bench   # ratios, at torch's own number of threads
    ... --threads 1                                                 # at one thread
    ... --check                                                     # that all do the same work, without timing
    ... --into benchmarks/peers.md                                  # writes between the page's markers

Everybody is timed in turn in one process, after a first round that is not counted. A ratio over 1 means that ours is
faster. Whoever is missing is left out. Nobody evaluates in what is timed. What is told of it is
in benchmarks/peers.md.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import peer_flbench
import peer_fluke
import peer_pfllib
import torch
from same_work import CASES, LAM, METHODS, Ours, Player, Work, in_float64
from side_by_side import median_and_range, ratios
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from fedamp.training.torch_switches import keep_freed_memory, use_threads

REPEATS = 5


@dataclass(frozen=True)
class Peer:
    """How a peer begins, which methods it has, and whether it is checked by itself."""

    play: Callable[[Work], Player]
    methods: Sequence[str] = METHODS
    checked: bool = True


def found_peers(pfllib: Path | None, flbench: Path | None) -> dict[str, Peer]:
    """Return who can take part; say in a line how to get whoever can't."""
    peers, why = {}, {"PFLlib": peer_pfllib.missing(pfllib)}
    if why["PFLlib"] is None:
        peers["PFLlib"] = Peer(peer_pfllib.PFLlib)
        peers["PFLlib, in memory"] = Peer(partial(peer_pfllib.PFLlib, in_memory=True), checked=False)
    why["fluke"] = peer_fluke.missing()
    if why["fluke"] is None:
        peers["fluke"] = Peer(peer_fluke.Fluke)
    why["FL-bench"] = peer_flbench.missing(flbench)
    if why["FL-bench"] is None:
        peers["FL-bench"] = Peer(peer_flbench.FLbench, peer_flbench.METHODS)
    for name, reason in why.items():
        if reason is not None:
            print(f"{name}: left out, {reason}")
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


def apart(work: Work, play: Callable[[Work], Player], rounds: int = 2) -> float:
    """Return how far a peer's models are from ours after some rounds with our minibatches, in float64.

    The largest difference of a parameter, in terms of the largest way that a parameter of ours has gone.
    """
    work = in_float64(work)
    ours, theirs = Ours(work), play(work)
    for _ in range(rounds):
        theirs.follow(ours.batches())
        ours.round()
        theirs.round()
    gone = (ours.models() - ours.first[: len(ours.models())]).abs().max()
    return float((theirs.models() - ours.models()).abs().max() / gone)


def checks(peers: Mapping[str, Peer], cases: Sequence[str]) -> Iterator[str]:
    """Return the table of what was checked, line by line."""
    yield "| a round, 20 clients | method | peer | steps: ours, peer's | samples: ours, peer's | models apart |"
    yield "|---|---|---|---:|---:|---:|"
    for case in cases:
        same = CASES[case]()
        for method, lam in (("FedAvg", LAM), ("FedAMP", LAM), ("FedAMP", 0.0)):
            work = replace(same, method=method, lam=lam)
            what = method if lam else f"{method}, lambda = 0"
            for name, peer in peers.items():
                if not peer.checked or method not in peer.methods:
                    continue
                steps, samples = counted(peer.play(work))
                numbers = f"{work.num_steps}, {steps} | {work.num_samples}, {samples}"
                yield f"| {case} | {what} | {name} | {numbers} | {apart(work, peer.play):.0e} |"


def times(peers: Mapping[str, Peer], cases: Sequence[str]) -> Iterator[str]:
    """Return the table of ratios, line by line."""
    yield "| a round, 20 clients | method | ours | " + " | ".join(f"{name} / ours" for name in peers) + " |"
    yield "|---|---|---|" + "---:|" * len(peers)
    for case in cases:
        for method in METHODS:
            work = replace(CASES[case](), method=method)
            ours = Ours(work)
            rounds = {name: peer.play(work).round for name, peer in peers.items() if method in peer.methods}
            found = ratios({**rounds, "ours": ours.round}, REPEATS)
            many, what = (ours.choice.workers, "worker") if ours.choice.workers > 1 else (ours.choice.threads, "thread")
            way = f"{ours.choice.engine}, {many} {what}{'s' * (many > 1)}"
            cells = [" ".join(median_and_range(found[name]).split()) if name in found else "-" for name in peers]
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
    parser.add_argument("--flbench", type=Path, help="the folder of FL-bench")
    parser.add_argument("--threads", type=int, help="of torch, for everybody; as many as torch takes if left out")
    parser.add_argument("--case", choices=list(CASES), action="append", help="only this one (not with --into)")
    parser.add_argument("--check", action="store_true", help="check that all do the same work instead of timing it")
    parser.add_argument("--into", type=Path, help="a page with the markers to write between")
    asked = parser.parse_args()
    peers = found_peers(asked.pfllib, asked.flbench)
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
            lines += [f"torch {torch.__version__}, {many}; median (lowest to highest) of {REPEATS} rounds.", ""]
            print(lines[0])
            table = times(peers, asked.case or list(CASES))
        for line in table:
            print(line, flush=True)
            lines.append(line)
    if asked.into is not None and not write(lines, asked.into, marker):
        parser.error(f"{asked.into} has no '<!-- {marker} -->' and '<!-- end -->' to write between")


if __name__ == "__main__":
    main()
