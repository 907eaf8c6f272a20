"""Whose samples are whose: one pool of samples, and for each client the positions of its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedamp import checks, seeds
from fedamp.data.lots import below, lots
from fedamp.errors import UserError

Positions = tuple[Tensor, ...]


@dataclass(frozen=True)
class Clients:
    """The data of a stack of clients; in a silo, of one.

    `numbers` are the clients' coordinates, fixed when the federation is made: they seed a client's batches,
    whoever else is here. Inputs may stay uint8: (x - shift) / scale is computed batch by batch, on the device.
    """

    x: Tensor  # (N, ...)
    y: Tensor  # (N, ...)
    train: Positions  # n vectors of positions in x and y
    numbers: tuple[int, ...]  # (n,)
    test: Positions = ()  # n vectors, or none at all
    validation: Positions = ()
    groups: tuple[int, ...] | None = None  # the true groups, if the setting has them
    shift: Tensor | None = None
    scale: Tensor | None = None
    copy_of: Tensor | None = None  # (N,) which sample of the pool each one is a copy of; None: there are no copies
    digests: tuple[bytes, ...] | None = None  # of silos' files: what each row of the pool holds; see `lots`
    class_weights: Tensor | None = (
        None  # (n, classes) of a training sample's loss, by client and class; None: all alike
    )

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise UserError(f"there are {len(self.x)} inputs and {len(self.y)} targets; expected one for each")
        if not self.train:
            raise UserError("there are no clients; expected at least one")
        if len(self.train) != len(self.numbers) or len(set(self.numbers)) != len(self.numbers):
            raise ValueError(
                f"got numbers {self.numbers} for {len(self.train)} clients; expected one for each, none twice"
            )
        for number, positions in zip(self.numbers, self.train, strict=True):
            if not len(positions):
                raise UserError(f"client {number} has no training samples; expected at least one")

    def __len__(self) -> int:
        return len(self.train)

    @classmethod
    def of(cls, pairs: Sequence[tuple[Tensor, Tensor]], numbers: Sequence[int] | None = None) -> Clients:
        """Return clients from an (x, y) for each; they are numbered from 0 unless numbers are given."""
        for number, (x, y) in zip(range(len(pairs)) if numbers is None else numbers, pairs, strict=True):
            if len(x) != len(y):
                raise UserError(f"client {number} has {len(x)} inputs and {len(y)} targets; expected one for each")
            if x.shape[1:] != pairs[0][0].shape[1:]:
                raise UserError(
                    f"client {number} has inputs of shape {tuple(x.shape[1:])} and the first client has "
                    f"{tuple(pairs[0][0].shape[1:])}; expected the same for all"
                )
        ends = torch.tensor([len(x) for x, _ in pairs]).cumsum(0).tolist() if pairs else []
        return cls(
            torch.cat([x for x, _ in pairs]) if pairs else torch.empty(0),
            torch.cat([y for _, y in pairs]) if pairs else torch.empty(0),
            tuple(torch.arange(end - len(x), end) for (x, _), end in zip(pairs, ends, strict=True)),
            tuple(range(len(pairs))) if numbers is None else tuple(numbers),
        )

    def take(self, index: Tensor) -> Clients:
        """Return the clients at these positions, in this order, over the same pool."""
        chosen = index.tolist()

        def pick(all_of_them: Positions) -> Positions:
            return tuple(all_of_them[i] for i in chosen) if all_of_them else ()

        return replace(
            self,
            train=pick(self.train),
            numbers=tuple(self.numbers[i] for i in chosen),
            test=pick(self.test),
            validation=pick(self.validation),
            groups=None if self.groups is None else tuple(self.groups[i] for i in chosen),
            class_weights=None if self.class_weights is None else self.class_weights[chosen],
        )

    def training_on(self, train: Positions) -> Clients:
        """Return the same clients with a part of their training samples; of some there may be none in it."""
        part = copy.copy(self)
        object.__setattr__(part, "train", train)
        return part

    def samples(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs, scaled, and the targets at positions of any shape."""
        x, y = self.x[positions], self.y[positions]
        if self.scale is not None:
            shift = 0 if self.shift is None else self.shift
            x = (x.to(self.scale.dtype) - shift) / self.scale
        return x, y

    def balanced(self, num_classes: int) -> Clients:
        """Return clients that weigh a sample's training loss by n / (classes * count): all classes count alike.

        Each client's weights are from its own training samples alone, which only it can count: of the classes that it
        has. One that it lacks has the weight 0, which no sample gets.
        """
        rows = []
        for positions in self.train:
            count = self.y[positions].bincount(minlength=num_classes).double()
            rows.append(torch.where(count > 0, len(positions) / ((count > 0).sum() * count.clamp(min=1)), 0))
        return replace(self, class_weights=torch.stack(rows))

    def weights(self, i: Tensor | int, y: Tensor) -> Tensor | None:
        """Return the weights of targets of the clients at positions i, which broadcast; None if all are alike."""
        return None if self.class_weights is None else self.class_weights[i, y]

    def few(self) -> Tensor:
        """Return three training inputs of each of two clients, `(2, 3, ...)`, to try a model with.

        Of a single client, the first and the last ones; if there are fewer, some twice.
        """
        first, other = self.train[0], self.train[min(1, len(self) - 1)]
        three = torch.arange(3)
        return self.samples(torch.stack([first[three % len(first)], other[-1 - three % len(other)]]))[0]

    def to(self, device: torch.device) -> Clients:
        """Return the same clients with everything that a step looks up on the device."""

        def move(all_of_them: Positions) -> Positions:
            return tuple(positions.to(device) for positions in all_of_them)

        return replace(
            self,
            x=self.x.to(device),
            y=self.y.to(device),
            train=move(self.train),
            test=move(self.test),
            validation=move(self.validation),
            shift=None if self.shift is None else self.shift.to(device),
            scale=None if self.scale is None else self.scale.to(device),
            copy_of=None if self.copy_of is None else self.copy_of.to(device),
            class_weights=None if self.class_weights is None else self.class_weights.to(device),
        )

    def hold_out(
        self, share: float, seed: int, name: str = "validation", called: Sequence[str] | None = None
    ) -> Clients:
        """Return clients that each keep a share of their training samples for `validation` or `test`.

        Rows of silos' files are held out by what they hold (`lots`), so that a row stays on its side when others come
        or go; their number is then binomial. Of other samples exactly this share is drawn. What is held out for one
        client is taken out of everyone's training: if clients share samples, a score on what another client trained
        on would not be on unseen samples. If the clients have names, an error says how one is `called`.
        """
        parameter = "held_out" if name == "test" else name
        checks.share(parameter, share)
        if name == "test" and not share:
            raise UserError("held_out is 0, but without test samples nothing can be scored; expected a share above 0")
        if not share:
            return self
        train, held = [], []
        for place, (number, positions) in enumerate(zip(self.numbers, self.train, strict=True)):
            chosen = self._held_out(positions, number, share, seed, name)
            count = int(chosen.sum())
            if not 0 < count < len(positions):
                who = f"client {number}" if called is None else repr(called[place])
                why = "" if self.digests is None else " (rows with the same inputs stay together)"
                flag = parameter.replace("_", "-")
                raise UserError(
                    f"{parameter} is {share}, which with seed {seed} leaves {who} with {len(positions) - count} of its "
                    f"{len(positions)} samples to train on and {count} held out; expected at least one of each{why}: "
                    f"give {who} more rows, leave it out, or choose another --{flag} ({parameter}= in Python)"
                )
            held.append(positions[chosen])
            train.append(positions[~chosen])
        unseen = torch.zeros(len(self.x), dtype=torch.bool, device=held[0].device)
        for positions in held:
            unseen[self._originals(positions)] = True
        train = [positions[~unseen[self._originals(positions)]] for positions in train]
        for number, positions in zip(self.numbers, train, strict=True):
            if not len(positions):
                raise UserError(
                    f"{parameter} is {share}, and all samples that client {number} would train on are held out for it "
                    "or for those it shares them with; lower it, or use fewer clients"
                )
        if name == "test":
            return replace(self, train=tuple(train), test=tuple(held))
        return replace(self, train=tuple(train), validation=tuple(held))

    def _held_out(self, positions: Tensor, number: int, share: float, seed: int, name: str) -> Tensor:
        """Return which of a client's samples are held out, as a mask."""
        if self.digests is not None and share < 1:
            mask = below(self.lots(positions, seed, name), share)
        else:
            mask = np.zeros(len(positions), dtype=np.bool_)
            mask[seeds.generator(seed, name, number).permutation(len(positions))[: round(share * len(positions))]] = (
                True
            )
        return torch.from_numpy(mask).to(positions.device)

    def lots(self, positions: Tensor, seed: int, purpose: str) -> NDArray[np.float64]:
        """Return what is drawn for rows of silos' files, by what they hold."""
        assert self.digests is not None, "these samples are not from silos' files"
        return lots((self.digests[i] for i in self._originals(positions).tolist()), seed, purpose)

    def with_label_noise(self, share: float, num_classes: int, seed: int, who: Sequence[int] | None = None) -> Clients:
        """Return clients that have a share of wrong training labels: another class, each equally likely.

        It concerns all clients, or those with the given numbers.
        """
        checks.share("label_noise", share)
        for number in who or ():
            if number not in self.numbers:
                raise UserError(f"noisy client is {number!r}; expected a number from {_range(self.numbers)}")
        if not share:
            return self
        if num_classes < 2:
            raise UserError(f"label_noise is {share}, but there is {num_classes} class: no wrong label to give")
        changed = {}
        for i, number in enumerate(self.numbers):
            if who is not None and number not in who:
                continue
            samples, stream = len(self.train[i]), seeds.generator(seed, "label noise", number)
            hit = torch.from_numpy(stream.permutation(samples)[: round(share * samples)]).to(self.train[i].device)
            offset = torch.from_numpy(stream.integers(1, num_classes, len(hit))).to(self.y.device)
            changed[i] = hit, (self.y[self.train[i][hit]] + offset) % num_classes
        return self._relabelled(changed)

    def with_flipped_labels(self, num_classes: int, who: Sequence[int]) -> Clients:
        """Return clients of whom those with the given numbers have all training labels turned around.

        Class c becomes class C - 1 - c, of C classes, as in Fang et al., USENIX Security 2020; if C is odd, the one in
        the middle stays. Unlike label noise this can be learnt: what such a client learns is wrong, and well fitted.
        """
        if who and num_classes < 2:
            raise UserError(f"there is {num_classes} class: no label can be turned around")
        places = [(i, self.train[i]) for i, number in enumerate(self.numbers) if number in who]
        return self._relabelled(
            {i: (torch.arange(len(mine), device=mine.device), num_classes - 1 - self.y[mine]) for i, mine in places}
        )

    def _relabelled(self, changed: Mapping[int, tuple[Tensor, Tensor]]) -> Clients:
        """Return clients with other labels: by place which of its training samples, and their labels.

        A changed sample is a copy in the pool, so that nobody else who holds it, and no test set, is affected.
        """
        if not changed:
            return self
        train, copied, labels, end = list(self.train), [], [], len(self.x)
        originals = [self._originals(torch.arange(end, device=self.x.device))]
        for i, (hit, wrong) in changed.items():
            chosen = train[i][hit]
            copied.append(self.x[chosen])
            originals.append(self._originals(chosen))
            labels.append(wrong)
            train[i] = train[i].clone()
            train[i][hit] = torch.arange(end, end + len(chosen), device=train[i].device)
            end += len(chosen)
        return replace(
            self,
            x=torch.cat([self.x, *copied]),
            y=torch.cat([self.y, *labels]),
            train=tuple(train),
            copy_of=torch.cat(originals),
        )

    def without_samples_of(self, others: Clients) -> Clients:
        """Return clients that train on no sample which others, of the same pool, have for training or testing."""
        theirs = torch.zeros(len(self.x), dtype=torch.bool, device=self.x.device)
        for positions in (*others.train, *others.test, *others.validation):
            theirs[self._originals(positions)] = True
        train = tuple(positions[~theirs[self._originals(positions)]] for positions in self.train)
        for number, positions in zip(self.numbers, train, strict=True):
            if not len(positions):
                raise UserError(f"all samples of client {number} are newcomers' too; keep out fewer (newcomers)")
        return replace(self, train=train)

    def _originals(self, positions: Tensor) -> Tensor:
        """Return the positions of the samples that these are copies of; a sample that is not a copy is its own."""
        return positions if self.copy_of is None else self.copy_of[positions]


def _range(numbers: Sequence[int]) -> str:
    return f"{min(numbers)} to {max(numbers)}"
