"""What a result belongs to besides its configuration: its data and its model, as digests.

A configuration says what was asked for; data and model may change behind the same words. So a run folder also holds
digests of both, in `inputs.json`. They never leave that file: a digest of private rows is in no report, no result and
no message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

CHANGED = {
    "data": "the data are not those that it learned from (samples, labels, silos or schema have changed)",
    "split": "the samples are split among the clients differently",
    "code": "the model is a different one (its code or its structure has changed)",
    "model": "the model starts from different values",
    "method": "the code of the method has changed",
}
"""What to say if a digest has changed."""


@dataclass(frozen=True)
class Inputs:
    """Digests of what goes into a run."""

    data: str  # samples, labels, silos and schema, whoever holds what: the same for all seeds
    split: str  # who holds which of them
    code: str  # of the model, and its structure: the same for all seeds
    model: str  # its first values
    method: str | None = None  # the code of a user's own method

    def to_dict(self) -> dict[str, str | None]:
        """Return plain values, for a file."""
        return asdict(self)

    def differences(self, there: Mapping[str, Any] | None) -> list[str]:
        """Return in words what has changed since a run was begun; `there` is what its folder holds."""
        if there is None or set(there) != set(self.to_dict()):
            return ["it was written by another version of fedamp, and does not say enough about its data and model"]
        changed = {name: words for name, words in CHANGED.items() if there.get(name) != getattr(self, name)}
        if "code" in changed:  # another model starts from other values, of course
            changed.pop("model", None)
        return list(changed.values())
