"""What a data set is: samples, labels, and which of them may be trained on. It knows nothing of clients."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedamp import checks
from fedamp.errors import UserError


@dataclass(frozen=True, eq=False)  # eq: two tensors' == is a tensor, not an answer
class Dataset:
    """Samples as they were published; a model sees (x - shift) / scale.

    Pixels stay bytes: the formula is stated here and applied later, on the device, batch by batch. `shift` and
    `scale` are numbers, or tuples with one for each channel (axis 1 of x). A sample in neither pool is not used.
    """

    name: str
    x: Tensor  # (N, ...) uint8 or floating
    y: Tensor  # (N,) int64
    num_classes: int
    train_pool: Tensor  # positions, int64
    test_pool: Tensor  # positions, int64
    shift: float | tuple[float, ...]
    scale: float | tuple[float, ...]
    about: str  # one line: what it is and where it is from
    note: str = ""  # what a run's record must say about it: how it differs from what is usual, and why

    def __post_init__(self) -> None:
        checks.count(f"num_classes of {self.name}", self.num_classes)
        if self.x.ndim < 2 or not (self.x.dtype == torch.uint8 or self.x.is_floating_point()):
            raise UserError(
                f"x of {self.name} has shape {tuple(self.x.shape)} and type {self.x.dtype}; "
                "expected (samples, ...) of uint8 or a floating type"
            )
        if self.y.ndim != 1 or self.y.dtype != torch.int64:
            raise UserError(
                f"y of {self.name} has shape {tuple(self.y.shape)} and type {self.y.dtype}; "
                "expected (samples,) of torch.int64"
            )
        if len(self.x) != len(self.y):
            raise UserError(
                f"{self.name} has {len(self.x)} samples and {len(self.y)} labels; expected one label for each"
            )
        if not len(self.y):
            raise UserError(f"{self.name} has no samples; expected at least one")
        if self.y.min() < 0 or self.y.max() >= self.num_classes:
            raise UserError(
                f"labels of {self.name} go from {self.y.min()} to {self.y.max()}; "
                f"expected 0 to {self.num_classes - 1} for {self.num_classes} classes"
            )
        self._check_pools()
        self._check_numbers("shift", self.shift, least=-math.inf)
        self._check_numbers("scale", self.scale, least=0)

    def _check_pools(self) -> None:
        uses = torch.zeros(len(self), dtype=torch.int64)
        for what, pool in (("train_pool", self.train_pool), ("test_pool", self.test_pool)):
            if pool.ndim != 1 or pool.dtype != torch.int64:
                raise UserError(
                    f"{what} of {self.name} has shape {tuple(pool.shape)} and type {pool.dtype}; "
                    "expected one axis of positions, torch.int64"
                )
            if len(pool) and (pool.min() < 0 or pool.max() >= len(self)):
                raise UserError(
                    f"{what} of {self.name} has positions from {pool.min()} to {pool.max()}; "
                    f"expected 0 to {len(self) - 1}"
                )
            counts = torch.bincount(pool, minlength=len(self))
            if (counts > 1).any():
                raise UserError(
                    f"{what} of {self.name} has position {int(counts.argmax())} more than once; "
                    "expected each at most once"
                )
            uses += counts
        if (uses > 1).any():
            raise UserError(
                f"{int((uses > 1).sum())} samples of {self.name} are in train_pool and in test_pool "
                f"(the first: {int(uses.argmax())}); expected disjoint pools"
            )
        if not len(self.train_pool):
            raise UserError(f"train_pool of {self.name} is empty; expected at least one sample to train on")

    def _check_numbers(self, what: str, value: float | tuple[float, ...], least: float) -> None:
        numbers = value if isinstance(value, tuple) else (value,)
        if not all(checks.is_number(number) and least < number < math.inf for number in numbers):
            kind = "finite number" if least < 0 else "finite number above 0"
            raise UserError(f"{what} of {self.name} is {value!r}; expected a {kind}, or a tuple of them")
        if isinstance(value, tuple) and len(value) != self.x.shape[1]:
            raise UserError(
                f"{what} of {self.name} has {len(value)} numbers; "
                f"expected one for each of {self.x.shape[1]} channels (axis 1 of x), or a single number"
            )

    def __len__(self) -> int:
        return len(self.y)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x.shape[1:])
