"""Named tensors in a safetensors file that is whole or not there, written from where they lie in memory."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from fedamp.files import whole


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors, each under its name; what lies on the CPU in one piece is not copied.

    At the end of a round all clients' models are in memory several times already: copies would decide the peak.
    """
    with whole(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode  # as all of this user's new files are: the library would keep it private
        try:
            save_file(_apart(tensors), temporary, dict(metadata) if metadata else None)
        except SafetensorError as error:  # a full disk, in the library's words
            raise OSError(errno.EIO, " ".join(str(error).split())) from error
        temporary.chmod(mode)


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors on the CPU in one piece each; a file can't hold one storage under two names, and states share."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        there = tensor.detach().cpu().contiguous()
        storage = there.untyped_storage().data_ptr()
        apart[name] = there.clone() if storage in seen else there
        seen.add(storage)
    return apart
