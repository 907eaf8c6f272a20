"""A client's model is a row: the containers that every method passes around.

Symbols: n clients in a stack, m in the federation, d parameters, b buffer values (BatchNorm's statistics).
Everything here is a value: no function changes what it is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedamp.ranks.blocks import share
from fedamp.row_store import computing_device, is_everyone, moved, new_stack, taken, write

BLOCK = 1 << 20
"""Entries of a column block: its float64 copy takes 8 MiB, however many parameters a model has, and stays in the caches
of a processor while it is multiplied."""
ON_GPU = 4
"""Times as many entries on a GPU: it has no use for small ones, whose products take less time than to start them."""


def column_blocks(rows: Tensor, entries: int | None = None, of: int = 1) -> Iterator[slice]:
    """Cut the columns of `(n, d)` into blocks of at most so many entries each, by default BLOCK or, on a GPU, more.

    All but the last have a multiple of `of` columns, even if that is more.
    """
    usual = BLOCK * (ON_GPU if computing_device(rows).type == "cuda" else 1)
    width = max(1, (entries or usual) // max(1, len(rows)) // of) * of
    for begin in range(0, rows.shape[1], width):
        yield slice(begin, begin + width)


def double_blocks(*stacks: Tensor, blocks: Iterable[slice] | None = None) -> Iterator[tuple[slice, list[Tensor]]]:
    """Yield blocks of columns, and there what each stack `(., d)` has in float64, where products are computed.

    All blocks, or these. What is yielded is a copy: to be changed at will, and overwritten by the next block.
    """
    there = computing_device(stacks[0])
    rooms = [Room(there) for _ in stacks]
    for block in column_blocks(stacks[0]) if blocks is None else blocks:
        parts = [moved(stack[:, block], there) for stack in stacks]
        yield block, [room.of(part.shape).copy_(part) for room, part in zip(rooms, parts, strict=True)]


class Room:
    """Memory in float64 for one block after another: new pages would take longer than the products themselves."""

    def __init__(self, device: torch.device) -> None:
        self._held = torch.empty(0, dtype=torch.float64, device=device)

    def of(self, shape: Sequence[int]) -> Tensor:
        """Return a tensor of this shape, whose values are still to be written; the last one is given up."""
        size = math.prod(shape)
        if size > self._held.numel():
            self._held = self._held.new_empty(size)
        return self._held[:size].view(shape)


def mix(weights: Tensor, rows: Tensor) -> Tensor:
    """Return weights @ rows, `(n, m) @ (m, d)`, summed in float64 and returned in the rows' dtype.

    Float64 keeps it out of TF32's reach, and makes the mean of equal float32 rows exactly that row.
    """
    weights = weights.to(computing_device(rows), torch.float64)
    mixed, room = new_stack((len(weights), rows.shape[1]), rows), Room(weights.device)
    work = share(column_blocks(rows), num_models=len(rows))
    for block, (part,) in double_blocks(rows, blocks=work.mine):
        product = torch.mm(weights, part, out=room.of((len(weights), part.shape[1])))
        write(mixed[:, block], product if mixed.device == product.device else product.to(rows.dtype))
    return work.joined(mixed)


@dataclass(frozen=True)
class Columns:
    """Some columns of a row, those of a model's head, say: masks over its parameters and its buffers."""

    params: Tensor  # (d,) bool
    buffers: Tensor  # (b,) bool

    def __invert__(self) -> Columns:
        return Columns(~self.params, ~self.buffers)

    def to(self, device: torch.device | str) -> Columns:
        """Return the same columns on a device."""
        return Columns(self.params.to(device), self.buffers.to(device))


@dataclass(frozen=True)
class Rows:
    """Models as a stack: what is learned and what is only carried along.

    Distances, cosines, directions and optimisers see `params` alone; mixing applies to both.
    """

    params: Tensor  # (n, d)
    buffers: Tensor  # (n, b); b = 0 for a module without buffers

    def __post_init__(self) -> None:
        if self.params.ndim != 2 or self.buffers.ndim != 2 or len(self.params) != len(self.buffers):
            raise ValueError(
                f"rows have params {tuple(self.params.shape)} and buffers {tuple(self.buffers.shape)}; "
                "expected (n, d) and (n, b) with the same n"
            )

    @classmethod
    def of(cls, params: Tensor) -> Rows:
        """Return rows that carry no buffers."""
        return cls(params, params.new_empty((len(params), 0)))

    @classmethod
    def cat(cls, parts: list[Rows]) -> Rows:
        """Return the stacks on top of each other."""
        return cls(torch.cat([p.params for p in parts]), torch.cat([p.buffers for p in parts]))

    def __len__(self) -> int:
        return len(self.params)

    @property
    def num_bytes(self) -> int:
        """How many bytes all rows have when they are sent: a row that stands for several is sent to each."""
        return sum(part.numel() * part.element_size() for part in (self.params, self.buffers))

    def to(self, device: torch.device | str) -> Rows:
        """Return the same rows on a device."""
        return Rows(moved(self.params, device), moved(self.buffers, device))

    def __getitem__(self, index: Tensor | slice) -> Rows:
        return Rows(_pick(self.params, index), _pick(self.buffers, index))

    def put(self, index: Tensor, rows: Rows) -> Rows:
        """Return rows of which those at `index` (a mask or positions) are replaced; a copy if only some are."""
        if not len(rows):
            return self
        if rows.like(self) and is_everyone(index, len(self)):
            return rows
        return Rows(_put(self.params, index, rows.params), _put(self.buffers, index, rows.buffers))

    def like(self, other: Rows) -> bool:
        """Whether these rows could stand in the place of others: of the same shape and type, on the same device."""
        pairs = (self.params, other.params), (self.buffers, other.buffers)
        return all(a.shape == b.shape and a.dtype == b.dtype and a.device == b.device for a, b in pairs)

    def put_columns(self, columns: Columns, rows: Rows) -> Rows:
        """Return a copy in which these columns are those of other rows: one for each, or one for all."""
        params = torch.where(columns.params, rows.params, self.params)
        return Rows(params, torch.where(columns.buffers, rows.buffers, self.buffers))

    def mix(self, weights: Tensor) -> Rows:
        """Return one row for each row of `weights` `(n, m)`: a weighted sum of these m rows."""
        return Rows(mix(weights, self.params), mix(weights, self.buffers))

    def mean(self) -> Rows:
        """Return the plain mean, as a stack of height one."""
        return self.mix(torch.full((1, len(self)), 1 / len(self), dtype=torch.float64))

    def repeat(self, num_clients: int) -> Rows:
        """Return a stack of height one as a stack of `num_clients` equal rows, without copying."""
        return Rows(self.params.expand(num_clients, -1), self.buffers.expand(num_clients, -1))

    def finite(self) -> Tensor:
        """Return for each row whether all of it is finite, `(n,)`."""
        found = torch.ones(len(self), dtype=torch.bool, device=self.params.device)
        for values in (self.params, self.buffers):
            for block in column_blocks(values):
                found &= values[:, block].isfinite().all(1)
        return found


def _pick(rows: Tensor, index: Tensor | slice) -> Tensor:
    """Return some rows; if they are one row repeated, that row repeated, still without a copy."""
    if isinstance(index, slice):
        return rows[index]
    if len(rows) > 1 and rows.stride(0) == 0:
        return rows[:1].expand(int(index.sum()) if index.dtype == torch.bool else len(index), -1)
    return taken(rows, index)


def _put(rows: Tensor, index: Tensor, new: Tensor) -> Tensor:
    """Return a copy in which the rows at `index` are new."""
    copy = new_stack(tuple(rows.shape), rows).copy_(rows)
    copy[index] = new
    return copy


Message = Mapping[str, Rows]
"""What travels in one direction: one row per client under each name."""


@dataclass(frozen=True)
class State:
    """What one side remembers between rounds.

    Rows, pairs and shared entries are kept apart, so that growing the federation, permuting it and storing
    it by the clients' identities is generic code.
    """

    num_clients: int
    rows: Mapping[str, Rows] = field(default_factory=dict)  # one row per client
    pairs: Mapping[str, Tensor] = field(default_factory=dict)  # (m, m), clients on both axes
    shared: Mapping[str, Rows] = field(default_factory=dict)  # height one: belongs to no client

    def replace(
        self,
        rows: Mapping[str, Rows] | None = None,
        pairs: Mapping[str, Tensor] | None = None,
        shared: Mapping[str, Rows] | None = None,
    ) -> State:
        """Return a copy in which the named entries are new and all others stay."""
        return replace(
            self,
            rows={**self.rows, **(rows or {})},
            pairs={**self.pairs, **(pairs or {})},
            shared={**self.shared, **(shared or {})},
        )

    def to(self, device: torch.device | str) -> State:
        """Return the same state on a device."""
        rows, shared = ({name: one.to(device) for name, one in kind.items()} for kind in (self.rows, self.shared))
        return replace(self, rows=rows, pairs={name: one.to(device) for name, one in self.pairs.items()}, shared=shared)

    def take(self, index: Tensor) -> State:
        """Return the state of the clients at these positions, in this order."""
        return State(
            len(index),
            {name: rows[index] for name, rows in self.rows.items()},
            {name: pairs[index][:, index] for name, pairs in self.pairs.items()},
            self.shared,
        )

    def put(self, index: Tensor, part: State) -> State:
        """Return a copy in which the clients at these positions have the rows of `part`."""
        return self.replace(rows={name: rows.put(index, part.rows[name]) for name, rows in self.rows.items()})

    def append(self, late: State) -> State:
        """Return a state that also holds clients who came later; what is shared stays as it is here.

        `late` is the method's own init of their first models. A late client has had no weight so far: its
        entries in `pairs` are 0, and 1 on the diagonal.
        """
        return State(
            self.num_clients + late.num_clients,
            {name: Rows.cat([rows, late.rows[name]]) for name, rows in self.rows.items()},
            {
                name: torch.block_diag(pairs, torch.eye(late.num_clients).to(pairs))  # type: ignore[no-untyped-call]
                for name, pairs in self.pairs.items()
            },
            self.shared,
        )
