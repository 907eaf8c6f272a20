"""Named tensors in a safetensors file that is whole or not there, written from where they lie in memory.

Written by hand, as the library writes to a file of a name of its own first: whoever is killed then leaves that file
behind for good, and it can be read by its owner alone. Format: https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedamp.files import whole

KINDS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


PART = 1 << 24
"""Entries that are copied at once, if they have to be."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors, each under its name; what lies on the CPU in one piece is not copied.

    At the end of a round all clients' models are in memory several times already: copies would decide the peak.
    """
    # The widest numbers first, so that each tensor begins at a multiple of its numbers' size.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        begin, end = end, end + tensors[name].numel() * tensors[name].element_size()
        shape = list(tensors[name].shape)
        header[name] = {"dtype": KINDS[tensors[name].dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with whole(path) as temporary, temporary.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            for part in _parts(tensors[name].detach()):
                file.write(part.cpu().contiguous().flatten().view(torch.uint8).numpy().data)


def _parts(tensor: Tensor) -> Sequence[Tensor]:
    """Return a tensor as parts that can be copied one by one, where copies are needed: one row that stands for many."""
    if tensor.ndim < 2 or not len(tensor) or (tensor.device.type == "cpu" and tensor.is_contiguous()):
        return [tensor]
    return torch.split(tensor, max(1, PART // max(1, tensor[0].numel())))
