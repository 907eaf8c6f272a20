"""Which replies can be used: one check for the simulation and for a federation, in the same words.

A reply that is not finite, or that is far beyond what the others send, is refused: its sender counts as absent.

Symbols: u what was sent to a client, w what it replies, |w - u| its move, K_i the steps that it took.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from fedamp.config.reply_limits import ReplyLimits
from fedamp.rows import Message, column_blocks

BUFFERS = ".buffers"
CACHED = 1 << 16
"""Entries of a column block on a CPU: what is looked at three times stays in its caches."""
SHORT = 1e-6
"""Shorter than this is rounding, and harmless: a first control of SCAFFOLD may be 0 for most."""
FREE = 3.0
"""Lengths of what was sent, up to which a move is free. A client whose data say the opposite of the others' turns a
global model around, which takes 2 (measured: up to 2.7), however little the others still move."""
MOST_STEPS = 100.0
"""A client with more than a hundred times as many steps as the others counts as having a hundred times as many."""
FREE_NUMBERS = ("loss", "noise")
"""Entries that may be anything: one client's may be hundreds of times another's. A loss decides about nobody else; who
says that its model is noisy is heard less."""
CURE = "Lower the learning rate, or look at the data and at what is sent"

Client = TypeVar("Client", bound=Hashable)


@dataclass(frozen=True)
class Measured:
    """A finite reply in numbers, by its entries, summed in float64."""

    lengths: Mapping[str, float]  # |w|; `w.buffers` is what w carries along
    sent: Mapping[str, float] = field(default_factory=dict)  # |u|; of a change, the length of what it changes
    far: Mapping[str, float] = field(default_factory=dict)  # |w - u|, of models alone
    steps: float = 1.0


@dataclass(frozen=True)
class Refusal:
    """Why a reply is refused: in words that stay the same from round to round, and with this round's numbers."""

    cause: str
    text: str


class Answering(Protocol):
    """What is asked of a method here: see `methods.base.Method`."""

    @property
    def answers(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def changes(self) -> Mapping[str, str]: ...  # noqa: D102


def measure(reply: Message, sent: Message, method: Answering, steps: Tensor) -> list[Measured | None]:
    """Return n replies in numbers, None for one that is not finite; `sent` are their messages, `steps` is `(n, 1)`.

    One pass over the rows, and one wait for the device.
    """
    columns = {"steps": steps[:, 0].double()}
    for name, rows in reply.items():
        models = [] if name in method.changes else _answered(name, sent, method, rows.params.shape)
        columns |= {f"{kind} {name}": column for kind, column in _from_nearest(rows.params, models).items()}
        if rows.buffers.numel():
            columns[f"length {name}{BUFFERS}"] = _sums(rows.buffers)["length"]
        if (changed := sent.get(method.changes.get(name, ""))) is not None:
            columns[f"sent {name}"] = _sums(changed.params)["length"]
    table = torch.stack([column.to(steps.device) for column in columns.values()], dim=1).tolist()
    return [_measured(dict(zip(columns, row, strict=True))) for row in table]


def _answered(name: str, sent: Message, method: Answering, shape: torch.Size | None = None) -> list[Tensor]:
    """Return the models of the message that an entry of the reply may answer: those of its shape, if that is known."""
    names = fnmatch.filter(sent, method.answers.get(name, name))
    return [sent[each].params for each in names if shape is None or sent[each].params.shape == shape]


def _from_nearest(rows: Tensor, origins: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return `_sums` of each row and the nearest of several origins: whoever says that it began there may have."""
    if len(origins) < 2:
        return _sums(rows, *origins)
    found = [_sums(rows, origin) for origin in origins]
    nearest = torch.stack([sums["far"] for sums in found]).argmin(0, keepdim=True)
    return {kind: torch.stack([sums[kind] for sums in found]).gather(0, nearest)[0] for kind in found[0]}


def _sums(rows: Tensor, origin: Tensor | None = None) -> dict[str, Tensor]:
    """Return each row's length, its distance from the same row of `origin`, and that one's length, in float64."""
    kinds = ("length",) if origin is None else ("length", "far", "sent")
    total = {kind: torch.zeros(len(rows), dtype=torch.float64, device=rows.device) for kind in kinds}
    for block in column_blocks(rows, None if rows.is_cuda else CACHED):
        part = {"length": rows[:, block].double()}
        if origin is not None:
            part["sent"] = origin[:, block].double()
            part["far"] = part["length"] - part["sent"]
        for kind, values in part.items():
            total[kind] += torch.linalg.vecdot(values, values)
    return {kind: squares.sqrt_() for kind, squares in total.items()}


def _measured(row: Mapping[str, float]) -> Measured | None:
    def of(kind: str) -> dict[str, float]:
        return {key.removeprefix(f"{kind} "): value for key, value in row.items() if key.startswith(f"{kind} ")}

    if not all(math.isfinite(value) for value in row.values()):
        return None
    return Measured(of("length"), of("sent"), of("far"), row["steps"])


def waiting(sent: Message, method: Answering, like: Message) -> dict[str, list[float]]:
    """Return the lengths of the messages that absent clients would have answered, by the reply's entries.

    Of several models that one might have answered it is the shortest: the strictest measure of the others.
    """
    models = {name: _answered(name, sent, method) for name in like if name not in method.changes}
    lengths = {name: [_sums(rows)["length"] for rows in each] for name, each in models.items() if each}
    return {name: torch.stack(each).amin(0).tolist() for name, each in lengths.items()}


def refused(
    replies: Mapping[Client, Measured],
    limits: ReplyLimits,
    waiting: Mapping[str, Sequence[float]],
    known: Collection[Mapping[str, float]] = (),
) -> dict[Client, Refusal]:
    """Return who is refused, and why; `waiting` are lengths of the messages of those who did not reply.

    `known` are lengths that were accepted before, if somebody remembers them.
    """
    found: dict[Client, Refusal] = {}
    for name in dict.fromkeys(name for one in replies.values() for name in one.far):
        found |= strays(name, replies, waiting.get(name, ()), limits)
    lengths = {who: one.lengths for who, one in replies.items()}
    sent = {who: one.sent for who, one in replies.items()}
    return found | outliers(lengths, dict(enumerate(known)), limits, sent, _slack(replies))


def strays(
    name: str, replies: Mapping[Client, Measured], waiting: Sequence[float], limits: ReplyLimits
) -> dict[Client, Refusal]:
    """Return who has gone astray: further than FREE lengths of its model, and than `move_factor` times the usual move.

    A model that is flipped and s times as large is |s w + u| from u, about s + 1 lengths. An honest client moves a
    fraction of one; if it moves more, as in the first rounds of a small model, the others do too. A flip also turns the
    model around: 2 <w, u> = |w|^2 + |u|^2 - |w - u|^2 < 0. One that does not may go further, up to `norm_factor`: a
    client whose targets are far from the others' needs a longer model than they do, round after round, while they
    hardly move any more (measured: 9 times as far, with targets shifted by a hundred deviations).
    """
    usual, found = usual_moves(name, replies, waiting), {}
    for who, reply in replies.items():
        far, sent = reply.far[name], reply.sent[name]
        turned = reply.lengths[name] ** 2 + sent**2 <= far**2  # or there was no direction to go on in
        factor = limits.move_factor if turned else max(limits.move_factor, limits.norm_factor)
        if far > max(FREE * sent, factor * usual[who], SHORT):
            found[who] = Refusal(
                f"its {name} is more than {factor:g} times as far from what was sent as the federation's median, "
                f"and more than {FREE:g} times the length of what was sent",
                f"its {name} is {far:.4g} from what was sent, more than {factor:g} times the federation's median of "
                f"{usual[who]:.4g} for as many steps, and more than {FREE:g} times the length of what was sent "
                f"({sent:.4g})",
            )
    return found


def usual_moves(name: str, replies: Mapping[Client, Measured], waiting: Sequence[float]) -> dict[Client, float]:
    """Return how far each client would go if it did as the others: the lower median of their moves, for its steps.

    An absent client counts as if it had moved by its model's length: so a few that lie can't be the median of a round
    in which few take part. A message of zeros has no length to go by.
    """
    stays = list(filter(None, waiting))
    walks = [(reply.far[name], reply.steps) for reply in replies.values()]
    usual = {
        steps: lower_median([*(far * room(steps / theirs) for far, theirs in walks), *stays])
        for steps in {reply.steps for reply in replies.values()}
    }
    return {who: usual[reply.steps] for who, reply in replies.items()}


def room(ratio: float) -> float:
    """Return how many times as far as another a client may go, with `ratio` times as many steps.

    It lies between just as far, if training has come to its end, and in proportion, if it walks straight on: at the
    beginning, or under SCAFFOLD's controls. So nobody has less room for fewer steps; for more it is the root, as in a
    random walk, or the ratio / 2.5, which with a factor of 4 on top is more than straight on.
    """
    ratio = min(ratio, MOST_STEPS)
    return max(1.0, math.sqrt(ratio), ratio / 2.5)


def outliers(
    lengths: Mapping[Client, Mapping[str, float]],
    known: Mapping[Hashable, Mapping[str, float]],
    limits: ReplyLimits,
    sent: Mapping[Client, Mapping[str, float]] | None = None,
    slack: Mapping[Client, Mapping[str, float]] | None = None,
) -> dict[Client, Refusal]:
    """Return who is refused for an entry that is much longer than the federation's median.

    `lengths` are this round's, by client and entry, `samples` among them; `known` are what was accepted before. The
    median is the lower one: of two, a single stranger can't lift it. A model is also measured by what was sent, for
    its client may have a longer one than the others, and a change by what it changes. `slack` is a further
    factor by which an entry may be longer, for a reason that is known. FREE_NUMBERS are
    not compared.
    """
    found: dict[Client, Refusal] = {}
    for entry in dict.fromkeys(name for one in lengths.values() for name in one if name not in FREE_NUMBERS):
        now = {who: one[entry] for who, one in lengths.items() if entry in one}
        middle = lower_median([*now.values(), *(one[entry] for one in known.values() if entry in one)])
        factor = limits.samples_factor if _counted(entry) else limits.norm_factor
        for who, length in now.items():
            usual = max(middle, sent[who].get(entry, 0.0) if sent else 0.0)
            usual *= slack[who].get(entry, 1.0) if slack else 1.0
            if length > max(factor * usual, SHORT):
                what = "sample count" if entry == "samples" else f"norm of {entry}"
                found[who] = Refusal(
                    f"its {what} is more than {factor:g} times the federation's median",
                    f"its {what} is {length:.4g}, more than {factor:g} times the federation's median of {middle:.4g}",
                )
    return found


def _slack(replies: Mapping[Client, Measured]) -> dict[Client, dict[str, float]]:
    """Return how many times as long as the median entries may be, by client, if steps and moves differ.

    With more steps, a model that begins with zeros grows, and a mean gradient, as in SCAFFOLD's controls, shrinks. A
    change goes with its client's move: when most have come to their end, a client that has not changes more.
    """
    if not replies:
        return {}
    steps = [one.steps for one in replies.values()]
    uneven = math.sqrt(min(max(steps) / min(steps), MOST_STEPS))
    moved = {who: sum(one.far.values()) for who, one in replies.items()}
    middle = lower_median(list(moved.values()))
    slack: dict[Client, dict[str, float]] = {}
    for who, one in replies.items():
        further = max(1.0, moved[who] / middle) if middle > 0 else 1.0
        changes = one.sent.keys() - one.far.keys()
        slack[who] = {
            name: uneven * further if name in changes else uneven for name in one.lengths if not _counted(name)
        }
    return slack


def _counted(entry: str) -> bool:
    """Return whether a length depends on the number of samples; buffers may count batches."""
    return entry == "samples" or entry.endswith(BUFFERS)


def lower_median(values: Sequence[float]) -> float:
    """Return the lower of the two in the middle."""
    return sorted(values)[(len(values) - 1) // 2]
