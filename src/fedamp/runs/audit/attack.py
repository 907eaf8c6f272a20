"""The attacker: the server, who sees all that a client gets and sends, and knows everything but coins and noise.

It knows the model, the method, the plan's seed, the canaries and even the client's other samples: differential privacy
promises to hold against such a one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatch

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad, vmap

from fedamp.data.clients import Clients
from fedamp.errors import UserError
from fedamp.methods import Method
from fedamp.models.flat_model import FlatModel
from fedamp.rows import Message, Rows, double_blocks
from fedamp.runs.audit.canaries import Canaries
from fedamp.training.trainer import Trainer

AT_ONCE = 1 << 24
"""Entries of the gradients that are taken at once."""
MOST = 1 << 29
"""Entries of all canaries' gradients: they take 2 GiB."""
NOT_FINITE = "the models that left are not finite, so that nothing can be guessed from them; lower --lr"
CLEARLY = 2.0
"""Times the least distance of a start from where its training ended, up to which it is not ruled out."""


class Attacker:
    """Collects evidence round by round, and scores canaries by it: the higher, the more likely is one in.

    In a round the client's model moves by -M ~ rate * (sum over canaries of a_i g_i + noise) + sum of c_j f_j, where
    a_i is canary i's coin, g_i its clipped gradient where the round started, and f_j are directions that the server
    knows and the client may follow: to and from models, and controls. How far it follows each, c_j, is estimated too:
    the last model's way is nearly this one's, so that to project it out would take the coins along. What other samples
    do, and canaries on average, is projected out of all.

    With G the rows g_i and f_j, K = sum G G^T and b = sum G M over all rounds are all that is needed to estimate a and
    c: as a ridge regression, (K + r)^-1 b. A plain inner product, b, would take a canary for another one with a similar
    gradient.
    """

    def __init__(self, method: Method, trainer: Trainer, first: Rows, others: Clients, canaries: Canaries) -> None:
        """Begin with the client's first model `(1, d)`; `others` is the client alone, with its other samples."""
        count, columns = len(canaries), first.params.shape[1]
        if count * columns > MOST:
            raise UserError(
                f"the gradients of {count} canaries at {columns} parameters do not fit into memory; use "
                f"{MOST // columns} canaries or fewer (--canaries), or a smaller model"
            )
        self.method, self.trainer, self.others = method, trainer, others
        everyone = torch.arange(count)
        pool = replace(others, x=canaries.x, y=canaries.y, train=(everyone,), test=(), validation=(), copy_of=None)
        self.x, self.y = pool.to(others.x.device).samples(everyone)
        self.own: dict[str, Rows] = {"": first}
        """The models that the client sent last, by their names; before them the first one, which all know."""
        self.count, self.directions = count, list[str]()  # m, and the names of f_j
        self.alike = torch.zeros((count, count), dtype=torch.float64, device=others.x.device)  # K
        self.along = torch.zeros(count, dtype=torch.float64, device=others.x.device)  # b

    def look(self, message: Message, reply: Message) -> bool:
        """Take in what a client got and what it sent in one round, each of height one; return if a model was sent."""
        known = {f"got {name}": rows.params for name, rows in self._models(message)}
        known |= {f"sent {name}": rows.params for name, rows in self.own.items()}
        sent = {name: rows for name, rows in self._models(reply) if name not in self.method.changes}
        if not all(bool(rows.params.isfinite().all()) for rows in sent.values()):
            raise UserError(NOT_FINITE)
        for name, rows in sent.items():
            starts = self._starts(name, message)
            away = {entry: float((rows.params - each.params).norm()) for entry, each in starts.items()}
            # What came with the message, unless another is clearly nearer.
            origin = next(entry for entry, distance in away.items() if distance <= CLEARLY * min(away.values()))
            start, way = starts[origin], f"{name} from {origin} along"
            ways = {f"{way} {entry}": _way(start.params, params) for entry, params in known.items()}
            self._note(start, (start.params - rows.params)[0], ways)
        for name in self.method.changes:  # their sum is what the client keeps, and corrects its steps by
            before = self.own.get(name)
            self.own[name] = reply[name] if before is None else Rows.of(before.params + reply[name].params)
        self.own |= sent
        return bool(sent)

    def _models(self, message: Message) -> list[tuple[str, Rows]]:
        """Return those parts of a message that are as long as a model."""
        columns = self.own[""].params.shape[1]
        return [(name, rows) for name, rows in message.items() if rows.params.shape[1] == columns]

    def _starts(self, name: str, message: Message) -> dict[str, Rows]:
        """Return the models from which one that was sent may have been trained, by what is known of the method."""
        wanted = self.method.answers.get(name, name)
        starts = {entry: rows for entry, rows in self._models(message) if fnmatch(entry, wanted)}
        return (
            starts if starts and not self.method.remembers else {**starts, "its own": self.own.get(name, self.own[""])}
        )

    def _note(self, start: Rows, moved: Tensor, ways: Mapping[str, Tensor]) -> None:
        """Add a round to the evidence; `ways` are the directions f_j by their names, `(1, d)` each."""
        mine = self.others.samples(self.others.train[0])
        others = torch.stack([each.sum(0) for each in self._gradients(start, *mine)]).sum(0, keepdim=True)
        gradients = torch.cat(list(self._gradients(start, self.x, self.y)))
        basis = span(torch.cat([others, gradients.mean(0, keepdim=True)]))
        rows = torch.cat([gradients, *ways.values()])
        rows -= (rows @ basis.T) @ basis
        places = torch.tensor([*range(self.count), *self._places(ways)], device=rows.device)
        for _, (part, step) in double_blocks(rows, moved[None]):  # rows may be nearly the same
            self.alike[places[:, None], places] += part @ part.T
            self.along[places] += part @ step[0]

    def _places(self, ways: Iterable[str]) -> list[int]:
        """Return where directions are in K and b, which grow when one is new."""
        self.directions += [way for way in ways if way not in self.directions]
        more = self.count + len(self.directions) - len(self.along)
        self.alike, self.along = F.pad(self.alike, (0, more, 0, more)), F.pad(self.along, (0, more))
        return [self.count + self.directions.index(way) for way in ways]

    def _gradients(self, start: Rows, x: Tensor, y: Tensor) -> Iterator[Tensor]:
        """Yield the clipped gradients of samples at a model, some at a time."""
        privacy = self.trainer.config.privacy
        some = max(1, AT_ONCE // start.params.shape[1])
        for begin in range(0, len(y), some):
            here = slice(begin, begin + some)
            yield sample_gradients(self.trainer, start, x[here], y[here], None if privacy is None else privacy.clip)

    def scores(self) -> NDArray[np.float64]:
        """Return how likely each canary is in, `(m,)`: any scale, the higher the likelier.

        A direction is taken to be as long as all canaries' gradients together, so that it may explain as much as they.
        """
        alike, along = self.alike.cpu(), self.along.cpu()
        if not (alike.isfinite().all() and along.isfinite().all()):  # finite models may be too long to be multiplied
            raise UserError(NOT_FINITE)
        lengths = alike.diagonal().sqrt()
        whole = lengths[: self.count].norm()
        scale = torch.where(lengths > 0, whole / lengths, 0.0)
        scale[: self.count] = 1.0
        return ridge(scale[:, None] * alike * scale, scale * along)[: self.count].numpy()


def _way(start: Tensor, known: Tensor) -> Tensor:
    """Return the direction that something known stands for: from the start to a model, or a control as it is.

    Models lie near each other, and controls near 0.
    """
    from_start = known - start
    return from_start if from_start.norm() < known.norm() else known


def ridge(alike: Tensor, along: Tensor) -> Tensor:
    """Return a = (K + r)^-1 b with the r that makes b likeliest.

    If a has variance t and noise s, then b has, along an eigenvector of K with eigenvalue e, the variance t e^2 + s e:
    r = s / t is the only unknown, as the scale of all of it follows.
    """
    values, vectors = torch.linalg.eigh(alike)
    kept = values > 1e-9 * values.max()
    values, vectors = values[kept], vectors[:, kept]
    if not len(values):
        return torch.zeros_like(along)
    found = vectors.T @ along
    ratios = values.mean() * torch.logspace(-6, 6, 97, dtype=torch.float64)
    variances = values**2 + ratios[:, None] * values
    unlikely = (found**2 / variances).mean(1).log() + variances.log().mean(1)
    estimate: Tensor = vectors @ (found / (values + ratios[unlikely.argmin()]))
    return estimate


def span(directions: Tensor) -> Tensor:
    """Return an orthonormal basis `(k, d)` of the span of some directions, the rows."""
    dtype, lengths = directions.dtype, directions.double().norm(dim=1, keepdim=True)
    directions = directions.double()[lengths[:, 0] > 0] / lengths[lengths[:, 0] > 0]
    _, sizes, basis = torch.linalg.svd(directions, full_matrices=False)
    kept: Tensor = basis[sizes > 1e-6].to(dtype)
    return kept


def sample_gradients(trainer: Trainer, at: Rows, x: Tensor, y: Tensor, clip: float | None) -> Tensor:
    """Return each sample's gradient at a model `(1, d)`, of length `clip` at most, `(B, d)`."""
    model: FlatModel = trainer.model

    def loss(params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        output, _ = model(params, at.buffers[0], x[None], training=False)
        return trainer.task.loss(output.to(params.dtype), y[None])

    gradients: Tensor = vmap(grad(loss), (None, 0, 0), randomness="different")(at.params[0], x, y)
    gradients = torch.where(gradients.isfinite().all(1, keepdim=True), gradients, 0.0)
    return gradients if clip is None else gradients * (clip / gradients.norm(dim=1, keepdim=True)).clamp(max=1)
