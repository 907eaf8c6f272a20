"""Small federations that the tests share."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedamp.data.clients import Clients
from fedamp.methods import METHODS, Method, make_method
from fedamp.models.flat_model import FlatModel
from fedamp.rows import Rows, State
from fedamp.runs.round import Round, play_round
from fedamp.training.batches import Batching
from fedamp.training.config import TrainingConfig
from fedamp.training.optimizers import Optimizer
from fedamp.training.trainer import Trainer

ALL = sorted(METHODS)
FAST = ("autoamp", "fedavg", "fedfomo", "fedrep", "scaffold")
SOME_AT_ONCE = [name if name in FAST else pytest.param(name, marks=pytest.mark.many) for name in ALL]
"""All methods, five of them among the fast tests: for what does not depend on the method. The five are unlike each
other: a probe, plain averaging, models handed out, several passes with a part of the columns at home, and changes that
add up on the server."""


class Terminal(io.StringIO):
    """A text that passes for a terminal."""

    def isatty(self) -> bool:
        return True


def mlp(norm: bool = False, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(1)  # the same first model whenever it is made
    # No bias before BatchNorm: its true gradient is 0, so that Adam would turn its rounding errors into steps.
    layers: list[nn.Module] = [nn.Linear(6, 7, bias=not norm)]
    layers += [nn.BatchNorm1d(7)] if norm else []
    layers += [nn.Tanh()]
    layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers, nn.Linear(7, 3)).double()


def data(sizes: Sequence[int], seed: int = 0) -> Clients:
    """Clients whose inputs have different means and whose labels follow different rules."""
    g = torch.Generator().manual_seed(seed)
    pairs = []
    for i, size in enumerate(sizes):
        x = torch.randn(size, 6, generator=g, dtype=torch.float64) + 0.3 * i
        rule = torch.randn(6, 3, generator=g, dtype=torch.float64)
        pairs.append((x, (x @ rule).argmax(1)))
    return Clients.of(pairs)


def silos(sizes: Sequence[int], opposite: Sequence[int] = ()) -> list[tuple[Tensor, ...]]:
    """Clients of these sizes under one rule, or its opposite: (x, y, x_test, y_test) for each."""
    g = torch.Generator().manual_seed(0)
    rule, pairs = torch.randn(20, 5, generator=g), []
    for i, size in enumerate(sizes):
        x = torch.randn(size + 20, 20, generator=g)
        y = (x @ (-rule if i in opposite else rule)).argmax(1)
        pairs.append((x[:size], y[:size], x[size:], y[size:]))
    return pairs


@dataclass
class Federation:
    """A federation that can be played round by round with one method."""

    method: Method
    clients: Clients
    trainer: Trainer
    server: State
    state: State
    k: int = 0
    rounds: list[Round] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        method: Method | str,
        sizes: Sequence[int] = (10, 10, 10, 10),
        module: nn.Module | None = None,
        own_init: bool = False,
        optimizer: Optimizer | None = None,
        batching: Batching | None = None,
        clients: Clients | None = None,
        seed: int = 0,
        **hyperparameters: Any,
    ) -> Federation:
        method = make_method(method, **hyperparameters) if isinstance(method, str) else method
        torch.manual_seed(seed)
        model = FlatModel(module or mlp())
        clients = clients or data(sizes)
        w = model.row().repeat(len(clients))
        if own_init:
            w = Rows(w.params + 0.5 * torch.randn_like(w.params), w.buffers)
        optimizer = optimizer or Optimizer(method.optimizer, 0.05)
        trainer = Trainer(model, TrainingConfig(optimizer, batching or Batching(4, epochs=1), seed))
        return cls(method, clients, trainer, method.server_init(w), method.client_init(w))

    def play(self, rounds: int = 1, present: Tensor | None = None) -> Federation:
        for _ in range(rounds):
            self.k += 1
            here = torch.ones(len(self.clients), dtype=torch.bool) if present is None else present
            played = play_round(self.method, self.server, self.state, self.k, self.local_for, here)
            self.server, self.state = played.server, played.clients
            self.rounds.append(played)
        return self

    def local_for(self, who: Tensor) -> Any:
        return self.trainer.local(self.clients.take(who), self.k)

    def models(self, name: str = "own") -> Tensor:
        return self.rounds[-1].models[name].params


def plain_sgd(lr: float = 0.05) -> Optimizer:
    return Optimizer("sgd", lr)


def frozen(state: State) -> State:
    """Return a deep copy, to see later whether the original was changed."""
    copy = {name: Rows(r.params.clone(), r.buffers.clone()) for name, r in state.rows.items()}
    shared = {name: Rows(r.params.clone(), r.buffers.clone()) for name, r in state.shared.items()}
    return replace(state, rows=copy, pairs={n: p.clone() for n, p in state.pairs.items()}, shared=shared)


def assert_states_equal(a: State, b: State, tolerance: float = 0.0) -> None:
    assert a.num_clients == b.num_clients
    for kind in ("rows", "shared"):
        assert getattr(a, kind).keys() == getattr(b, kind).keys()
        for name, rows in getattr(a, kind).items():
            other = getattr(b, kind)[name]
            torch.testing.assert_close(rows.params, other.params, rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(rows.buffers, other.buffers, rtol=tolerance, atol=tolerance)
    for name, pairs in a.pairs.items():
        torch.testing.assert_close(pairs, b.pairs[name], rtol=tolerance, atol=tolerance)
