"""Samples that are in memory already, handed over from Python: whatever holds numbers becomes tensors and `Clients`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedamp import checks
from fedamp.data.clients import Clients
from fedamp.data.given.classes import with_classes
from fedamp.data.given.datasets import is_dataset, samples_of
from fedamp.data.given.tables import column_names, is_table
from fedamp.data.silos.cells import LONGEST_WORD
from fedamp.data.silos.one_line import brief, differing_names, listed
from fedamp.errors import UserError

Array = NDArray[Any]
EXPECTED = "expected (x, y) or (x, y, x_test, y_test) for each client, a torch Dataset, or whole tables with label="


@dataclass(frozen=True)
class Given:
    """Samples that were handed over: whose they are, and what classes are called if they have names."""

    clients: Clients
    names: tuple[str, ...] | None = None  # if the clients have names
    labels: tuple[str, ...] | None = None  # if the targets were words: class c is labels[c]


def given_samples(
    clients: Iterable[Any] | Mapping[str, Any],
    held_out: float | None,
    seed: int,
    numbers: Sequence[int] | None = None,
    usual_share: float = 0.2,
) -> Given:
    """Return clients from (x, y), with a share held out for testing, or from (x, y, x_test, y_test) for each.

    If no share is asked for, it is `usual_share`. Parts may be tensors, arrays, lists of numbers, or tables that
    convert to an array (with `to_numpy`, as in pandas); targets may be words. A mapping names the clients.
    """
    named = listed_clients(clients)
    pairs, names = [_pair(whose, parts, clients) for whose, parts in named.items()], list(named)
    for whose, parts in zip(names, pairs, strict=True):
        if len(parts) not in (2, 4) or len(parts) != len(pairs[0]):
            raise UserError(f"{whose} has {len(parts)} parts; expected (x, y) or (x, y, x_test, y_test) for all")
        _check_same_columns(names[0], pairs[0][0], whose, parts[0])
    checks.seed("seed", seed)
    pairs, labels = with_classes(names, pairs)
    train = Clients.of([_samples(whose, *parts[:2]) for whose, parts in zip(names, pairs, strict=True)], numbers)
    called = tuple(names) if isinstance(clients, Mapping) else None
    if len(pairs[0]) == 2:
        train = train.hold_out(usual_share if held_out is None else held_out, seed, "test", called)
        return Given(train, called, labels)
    if held_out is not None:
        raise UserError(f"held_out is {held_out}, but the clients have test samples of their own; leave it out")
    parts_for_test = zip(names, pairs, strict=True)
    test = Clients.of([_samples(f"the test part of {whose}", *parts[2:]) for whose, parts in parts_for_test], numbers)
    if test.x.shape[1:] != train.x.shape[1:]:
        raise UserError(
            f"the test samples have shape {tuple(test.x.shape[1:])} and the training samples "
            f"{tuple(train.x.shape[1:])}; expected the same"
        )
    after = len(train.x)
    both = replace(
        train,
        x=torch.cat([train.x, test.x]),
        y=torch.cat([train.y, test.y]),
        test=tuple(positions + after for positions in test.train),
    )
    return Given(both, called, labels)


def listed_clients(clients: Any) -> dict[str, Any]:
    """Return what each client gives, by its name or as "client 0"; anything but a list is an error that says so."""
    if is_table(clients):
        raise UserError(
            f"clients is one table ({type(clients).__name__}); give a table for each client, or all rows as data= with "
            "silo_column= and label="
        )
    if is_dataset(clients):
        raise UserError(f"clients is one {type(clients).__name__}; give one for each client: {{'a': one, 'b': other}}")
    if isinstance(clients, str) or not isinstance(clients, Iterable):
        raise UserError(f"clients is {brief(clients)}; expected a number of clients, or a list of (x, y), one for each")
    if isinstance(clients, Mapping):
        for name in clients:
            if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_WORD:
                raise UserError(f"a client is called {brief(name)}; expected a name, as a text of up to {LONGEST_WORD}")
        named = dict(clients)
    else:
        named = {f"client {i}": parts for i, parts in enumerate(clients)}
    if not named:
        raise UserError(f"there are no clients; {EXPECTED}")
    return named


def _pair(whose: str, parts: Any, clients: Any) -> Sequence[Any]:
    """Return a client's parts: (x, y), or with test samples."""
    if is_dataset(parts):
        return samples_of(whose, parts)
    # Not any sequence: of one (x, y) without a list around it, x would be a client whose parts are its rows.
    if not isinstance(parts, tuple | list):
        hint = ": one client alone is [(x, y)]" if isinstance(clients, tuple) else ""
        raise UserError(f"{whose} is of type {type(parts).__name__}; {EXPECTED}{hint}")
    if len(parts) == 2 and all(is_dataset(part) for part in parts):  # to train on and to test on
        return [*samples_of(whose, parts[0]), *samples_of(f"the test part of {whose}", parts[1])]
    return parts


def _check_same_columns(first: str, expected: Any, whose: str, x: Any) -> None:
    """Raise if inputs have columns under other names, or in another order, than the first client's."""
    if not (is_table(x) and is_table(expected)):
        return
    names, others = column_names(expected), column_names(x)
    if names != others:
        difference = differing_names("column", names, others) or f"they are in another order, {listed(others)}"
        raise UserError(f"the inputs of {whose} are not like those of {first}: {difference}; expected {listed(names)}")


def _samples(whose: str, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Return inputs and targets as tensors on the CPU: inputs in the default float type, whole numbers as they are."""
    inputs, targets = _tensor(f"the inputs of {whose}", x), _tensor(f"the targets of {whose}", y)
    if not inputs.ndim or len(inputs) == 0:
        raise UserError(
            f"the inputs of {whose} have shape {tuple(inputs.shape)}; expected (samples, ...), at least one"
        )
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim != 1:
        raise UserError(
            f"the targets of {whose} have shape {tuple(targets.shape)}; expected one number per sample; "
            "if each row has a 1 for its class (one-hot), give y.argmax(1)"
        )
    # Whole numbers stay: they are indices into an Embedding. Bytes are pictures, and booleans become 0 and 1.
    if inputs.is_floating_point() or inputs.dtype in (torch.uint8, torch.bool):
        inputs = inputs.to(torch.get_default_dtype())
    kind = torch.promote_types(targets.dtype, torch.float32) if targets.is_floating_point() else torch.int64
    targets = targets.to(kind)
    for what, tensor in (("inputs", inputs), ("targets", targets)):
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise UserError(
                f"the {what} of {whose} are not all finite; expected no nan, no infinity, and no number beyond "
                f"{str(tensor.dtype).removeprefix('torch.')}"
            )
    return inputs, targets


def _tensor(what: str, part: Any) -> Tensor:
    """Return numbers as a tensor of their own type, on the CPU and detached."""
    try:
        if isinstance(part, list | tuple) and part and all(isinstance(each, Tensor) for each in part):
            part = torch.stack(list(part))
        if isinstance(part, Tensor):
            array, tensor = None, part.detach().cpu().to_dense()
        else:
            array = np.asanyarray(part.to_numpy() if hasattr(part, "to_numpy") else part)
    except (TypeError, ValueError, RuntimeError) as error:
        why = " ".join(str(error).split())[:120]
        raise UserError(f"{what} are not numbers ({why}); expected a tensor or an array") from None
    if array is None:
        if tensor.is_complex():
            raise UserError(f"{what} are complex; expected real numbers")
        return tensor
    if np.ma.is_masked(array):  # what is masked is not meant to be read
        raise UserError(f"{what} have masked cells; fill them, or leave their samples out")
    array = np.asarray(array)
    if array.dtype.kind == "O":
        array = _numbers(what, array, getattr(part, "columns", ()))
    if array.dtype.kind in "US":
        example = brief(array.flat[0].item() if array.size else "")
        raise UserError(
            f"{what} are not numbers, but words like {example}; number them the same way for all clients "
            "(np.unique(..., return_inverse=True)), or give whole tables with label="
        )
    if array.dtype.kind not in "biuf":
        raise UserError(f"{what} are not numbers, but of type {array.dtype}; expected a tensor or an array of numbers")
    return torch.from_numpy(_ordinary(what, array))


def _numbers(what: str, array: Array, columns: Sequence[object]) -> Array:
    """Return an array of Python objects as numbers; the first that is not one is an error that says where it is."""
    flat = [checks.plain(value) for value in array.ravel().tolist()]
    for place, value in enumerate(flat):
        if not isinstance(value, bool | int | float):
            row, *rest = np.unravel_index(place, array.shape) if array.ndim else (0,)
            column = f", column {columns[int(rest[0])]!r}" if len(rest) == 1 and len(columns) else ""
            raise UserError(
                f"{what} are not numbers: row {row}{column} is {brief(value)}; "
                "number words the same way for all clients, and fill in or leave out what is missing"
            )
    whole = all(isinstance(value, int) for value in flat)
    try:
        return np.array(flat, np.int64 if whole else np.float64).reshape(array.shape)
    except OverflowError:
        raise UserError(f"{what} have whole numbers beyond 64 bits; expected smaller ones, or floats") from None


def _ordinary(what: str, array: Array) -> Array:
    """Return an array that torch takes without a warning: of a type it has, in native byte order, and writable."""
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        if array.size and array.max() > np.iinfo(np.int64).max:
            raise UserError(f"{what} have whole numbers beyond 64 bits; expected smaller ones, or floats")
        array = array.astype(np.int64)
    elif array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    return np.require(array, requirements=["C", "W"])
