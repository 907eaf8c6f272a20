"""Dropout by coordinates: a mask depends on (seed, client, round, step, call) and on nothing else.

`F.dropout` draws from a global stream, so a client's mask would depend on who was trained before it or, under vmap,
beside it. Here a mask is a counter hash, the same whether clients train one by one or at once.
"""

import contextlib
import math
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedamp import seeds


def _scramble(x: Tensor) -> Tensor:
    """Return a hash of int32 values, elementwise (the 32-bit mixer `lowbias32` of C. Wellons).

    torch shifts signed integers arithmetically: the masks make the shifts logical.
    """
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * 0x7FEB352D
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * -0x7B935975  # 0x846ca68b as a signed number
    return x ^ ((x >> 16) & 0xFFFF)


def dropout_key(seed: int, client: int, *when: int) -> Tensor:
    """Return the key of a client's masks in a round (and in one of its later passes), `(2,)` int32."""
    value = seeds.number(seed, "dropout", client, *when)
    return torch.tensor([value & 0x7FFFFFFF, value >> 31 & 0x7FFFFFFF], dtype=torch.int32)


def sample_keys(keys: Tensor, index: Tensor) -> Tensor:
    """Return a key for each sample, `(..., B, 2)`, from its client's `(..., 2)` and its place among all `(..., B)`."""
    index = index.to(torch.int32)
    return torch.stack([_scramble(keys[..., 0:1] ^ _scramble(index)), _scramble(keys[..., 1:2] + index)], -1)


class CoordinateDropout(TorchFunctionMode):
    """Swap dropout for masks that are a hash of a key, the number of the call and the element.

    `key` `(2,)` int32 stands for a client and a round, `t` for the step; under vmap each client has its own key.
    Two passes over one minibatch meet the same masks: they are the same function at two points.
    """

    def __init__(self, key: Tensor, t: int) -> None:
        super().__init__()
        self.key, self.t = key, t
        self.calls = 0

    def keep(self, shape: tuple[int, ...], p: float) -> Tensor:
        """Return the next mask: True with probability 1 - p, `shape`."""
        self.calls += 1
        if p >= 1:
            return torch.zeros(shape, dtype=torch.bool, device=self.key.device)
        index = torch.arange(math.prod(shape), dtype=torch.int32, device=self.key.device)
        salt = _scramble(_scramble(self.key[1] + self.t % 2**31) + self.calls * 0x3C6EF372 % 2**31)
        hashed = _scramble(_scramble(index ^ self.key[0]) + salt) & 0x7FFFFFFF
        return (hashed >= int(p * 2**31)).reshape(shape)

    def _drop(self, x: Tensor, p: float, features: int | None = None) -> Tensor:
        shape = tuple(x.shape)
        if features is not None:  # whole channels go at once
            shape = shape[:features] + (1,) * (len(shape) - features)
        scale = 1 / (1 - p) if p < 1 else 0.0
        return x * self.keep(shape, p).to(x.dtype) * scale

    def _plain(self, x: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
        return _result(x, self._drop(x, p) if training and p > 0 else x, inplace)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Answer dropout calls; let all others through."""
        kwargs = kwargs or {}
        if func in _PLAIN:
            return self._plain(*_arguments(*args, **kwargs))
        if func in _CHANNELS:
            x, p, training, inplace = _arguments(*args, **kwargs)
            features = 1 if x.ndim == _CHANNELS[func] else 2
            return _result(x, self._drop(x, p, features) if training and p > 0 else x, inplace)
        if func is _ATTEND:
            return self._attend(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            with self._inside():
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        """Reach the dropout inside a torch function, where this mode is switched off.

        The functions are swapped for all threads, but only those that are inside too get masks from them.
        """
        with _swapping:
            _inside_now[threading.get_ident()] = self
            F.dropout, F.scaled_dot_product_attention = _dropout_inside, _attention_inside
        try:
            yield
        finally:
            with _swapping:
                del _inside_now[threading.get_ident()]
                if not _inside_now:
                    F.dropout, F.scaled_dot_product_attention = _DROPOUT, _ATTEND

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        options: dict[str, Any] = {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
        if not dropout_p:
            return _ATTEND(query, key, value, attn_mask, 0.0, **options)
        if enable_gqa:
            repeats = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
        scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~allowed, -torch.inf)
        if attn_mask is not None:
            masked = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, -torch.inf) if masked else scores + attn_mask
        return self._drop(torch.softmax(scores, -1), dropout_p) @ value


_DROPOUT, _ATTEND = F.dropout, F.scaled_dot_product_attention
_swapping = threading.Lock()
_inside_now: dict[int, CoordinateDropout] = {}  # by thread


def _dropout_inside(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    mode = _inside_now.get(threading.get_ident())
    return _DROPOUT(input, p, training, inplace) if mode is None else mode._plain(input, p, training, inplace)


def _attention_inside(*args: Any, **kwargs: Any) -> Tensor:
    mode = _inside_now.get(threading.get_ident())
    return _ATTEND(*args, **kwargs) if mode is None else mode._attend(*args, **kwargs)


# torch names its own function by what stands in its place: while another thread has swapped it, by that.
_PLAIN = {_DROPOUT, _dropout_inside, torch.dropout, torch.dropout_}
# The number of axes at which the first axis is the channel; else the first two are batch and channel.
_CHANNELS: dict[Any, int] = {F.dropout1d: 2, F.dropout2d: 0, F.dropout3d: 4, torch.feature_dropout: 0}


def _arguments(
    input: Tensor, p: float = 0.5, train: bool = True, inplace: bool = False, training: bool | None = None
) -> tuple[Tensor, float, bool, bool]:
    """Return what torch's several dropout functions were called with."""
    return input, p, train if training is None else training, inplace


def _result(x: Tensor, dropped: Tensor, inplace: bool) -> Tensor:
    return x.copy_(dropped) if inplace and dropped is not x else dropped


@contextlib.contextmanager
def own_stream(seed: int, device: torch.device) -> Iterator[None]:
    """Give all other randomness inside (an LSTM's dropout, a user's torch.rand) a stream of its own.

    The same goes for Python's `random` and numpy's global generator. Afterwards all streams are where they were.
    """
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            seed_streams(seed, device)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def seed_streams(seed: int, device: torch.device) -> None:
    """Let the global streams begin anew: inside an `own_stream`, for one client after another."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if device.type == "cuda":
        torch.manual_seed(seed)
    else:  # torch.manual_seed would also reseed a GPU that nobody asked for
        torch.default_generator.manual_seed(seed)


def streams(device: torch.device) -> tuple[object, ...]:
    """Return where torch's, Python's and numpy's global streams are: if that changes, someone has drawn from them."""
    torches = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
    numpy = np.random.get_state(legacy=False)["state"]
    return random.getstate(), numpy["key"].tobytes(), numpy["pos"], *(state.numpy().tobytes() for state in torches)
