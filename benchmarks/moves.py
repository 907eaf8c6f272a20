"""How far honest clients move in a round, and how far a flipped model lies: what `ReplyLimits` rests on.

    python benchmarks/moves.py

For each setting: the longest honest move, and the shortest flip (-10 w and -3 w) if a third of the clients, those who
move least, send flips. Lengths are in usual moves (`reply_checks.usual_moves`), over all rounds, and count only moves
that are not free (`FREE`); 0 means that there is none. Takes about twelve minutes on a CPU.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from fedamp.config import RunConfig
from fedamp.data.clients import Clients
from fedamp.data.given.samples import as_clients
from fedamp.rows import Message, Rows
from fedamp.runs.reply_checks import FREE, Measured, measure, usual_moves, waiting
from fedamp.runs.setup import assemble
from fedamp.runs.simulated_faults import draw_present

FEW, MANY = 20, 2000


def silos(
    sizes: Sequence[int], opposite: Sequence[int] = (), loud: float = 1.0, features: int = 20, classes: int = 5
) -> Clients:
    """Return clients with one rule for all, or some with its opposite; the first's inputs may be louder."""
    g = torch.Generator().manual_seed(0)
    rule, pairs = torch.randn(features, classes, generator=g), []
    for i, size in enumerate(sizes):
        x = torch.randn(size + 50, features, generator=g) * (loud if i == 0 else 1)
        y = (x @ (-rule if i in opposite else rule)).argmax(1)
        pairs.append((x[:size], y[:size], x[size:], y[size:]))
    return as_clients(pairs, 0.2, 0)


def zeros(input_shape: Sequence[int], num_outputs: int) -> nn.Module:
    """Return logistic regression that begins with zeros."""
    layer = nn.Linear(input_shape[0], num_outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def normed(input_shape: Sequence[int], num_outputs: int) -> nn.Module:
    """Return a perceptron with BatchNorm."""
    return nn.Sequential(
        nn.Linear(input_shape[0], 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, num_outputs)
    )


@dataclass
class Seen:
    """The extremes of a run, in usual moves."""

    honest: float = 0.0
    flips: dict[float, float] = field(default_factory=lambda: {10.0: float("inf"), 3.0: float("inf")})


def look(
    settings: dict[str, Any], clients: Clients | None = None, module: Callable[..., nn.Module] | None = None
) -> Seen:
    """Play a run in which all are honest, and measure its replies, as they are and as they would be flipped."""
    given = {} if clients is None else {"clients": len(clients), "data": "given", "setting": "given"}
    config = RunConfig.of({"rounds": 8, **given, **settings})
    setup = assemble(config, clients, module)
    method, seen = setup.method, Seen()
    server, state = method.server_init(setup.w), method.client_init(setup.w)
    for k in range(1, config.rounds + 1):
        present = draw_present(config.seed, k, len(setup.clients), config.absent)
        who = present.nonzero()[:, 0]
        server, message = method.server_send(server, k)
        received = {name: rows[who] for name, rows in message.items()}
        local = setup.trainer.local(setup.clients.take(who), k)
        part, reply = method.client_update(state.take(who), received, local)
        (name,) = (name for name in reply if method.answers.get(name, name) in message)
        away = waiting({entry: rows[~present] for entry, rows in message.items()}, method, reply)[name]
        answers = {name: reply[name]}
        honest = [one for one in measure(answers, received, method, local.steps) if one is not None]
        if len(honest) < len(who):
            break  # it runs away: no honest move to speak of
        seen.honest = max(seen.honest, *_in_usual_moves(name, honest, away, range(len(who))), 0.0)
        least = sorted(range(len(who)), key=lambda i: honest[i].far[name])[: len(who) // 3]
        for scale in seen.flips if least else ():
            sent = measure(_flipped(answers, least, scale), received, method, local.steps)
            far = _in_usual_moves(name, [one for one in sent if one is not None], away, least)
            seen.flips[scale] = min(seen.flips[scale], *far)
        server, state = method.server_receive(server, reply, present), state.put(who, part)
    return seen


def _flipped(reply: Message, who: Sequence[int], scale: float) -> Message:
    ((name, rows),) = reply.items()
    params = rows.params.clone()
    params[who] *= -scale
    return {name: Rows(params, rows.buffers)}


def _in_usual_moves(name: str, replies: Sequence[Measured], away: Sequence[float], who: Sequence[int]) -> list[float]:
    """Return the moves of some clients in usual moves; 0 for one that is free."""
    usual = usual_moves(name, dict(enumerate(replies)), away)
    far = [reply.far[name] if reply.far[name] > FREE * reply.sent[name] else 0.0 for reply in replies]
    return [far[i] / max(usual[i], 1e-30) for i in who]


def show(label: str, settings: dict[str, Any], *given: Any) -> None:
    """Print one line."""
    seen = look(settings, *given)
    print(f"| {label} | {seen.honest:.1f} | {seen.flips[10.0]:.1f} | {seen.flips[3.0]:.1f} |", flush=True)


def main() -> None:
    """Measure everything."""
    print("| setting | honest | flipped, times 10 | flipped, times 3 |\n|---|---:|---:|---:|")
    dirichlet = {"name": "dirichlet", "beta": 0.1, "min_samples": 5, "test_samples": 20}
    for method in ("fedavg", "fedprox", "scaffold", "apfl", "fedamp", "heurfedamp"):
        digits: dict[str, dict[str, Any]] = {
            "digits": {},
            "Dirichlet 0.1": {"setting": dirichlet},
            "wrong labels": {"label_noise": 0.8, "noisy_clients": (0, 1, 2, 3, 4)},
            "80 % absent": {"absent": 0.8, "rounds": 20},
            "own first models": {"init": "own"},
            "logistic": {"model": "logistic"},
            "cnn-small": {"model": "cnn-small", "rounds": 3},
            "20 steps": {"steps": 20},
        }
        for label, settings in digits.items():
            show(f"{label}, {method}", {"method": method, **settings})
    for method in ("fedamp", "heurfedamp"):
        show(f"start at w, {method}", {"method": {"name": method, "start": "w"}})
        show(f"start at w, own first models, {method}", {"method": {"name": method, "start": "w"}, "init": "own"})
    sizes = {
        f"8 of {FEW} samples, one of {MANY}": [FEW] * 8 + [MANY],
        f"5 of {FEW}, 5 of {MANY}": [FEW] * 5 + [MANY] * 5,
        f"{MANY} 8 times, one of {FEW}": [MANY] * 8 + [FEW],
        f"two clients, {FEW} and {MANY}": [FEW, MANY],
        "like sizes, one client's inputs 10 times as large": [100] * 8,
        "like sizes, opposite rules": [100] * 8,
        "like sizes, two of ten with the opposite rule": [300] * 10,
        "20 and 400, opposite rules": [FEW] * 6 + [400] * 3,
    }
    nets: dict[str, Any] = {"zeros": zeros, "logistic": None, "mlp": None, "BatchNorm": normed}
    for label, each in sizes.items():
        against = range(0, len(each), 7 if "two of" in label else 2) if "opposite" in label else ()
        clients = silos(each, against, loud=10.0 if "inputs" in label else 1.0)
        for net, module in nets.items():
            for optimizer, lr in (("adam", 1e-4), ("adam", 1e-3), ("sgd", 1e-3), ("sgd", 1e-2), ("sgd", 1e-1)):
                for method in ("fedavg", "fedamp"):
                    settings = {
                        "method": method,
                        "optimizer": optimizer,
                        "lr": lr,
                        "rounds": 10 if "two of" in label else 3,
                    }
                    name = {} if module else {"model": net}
                    show(f"{label}, {net}, {optimizer} {lr:g}, {method}", {**settings, **name}, clients, module)
            scaffold = {"method": "scaffold", "lr": 1e-2, "rounds": 3, **({} if module else {"model": net})}
            show(f"{label}, {net}, scaffold", scaffold, clients, module)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
