"""What a result belongs to besides its description: its data and its model, as digests.

A description says what was asked for; data and model may change behind the same words. So a run folder also holds
digests of both, in `inputs.json`. They stay in the house: a digest of private rows is in no report, no result and no
message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

CHANGED = {
    "data": "the data are not those that it learned from (samples, labels, silos or schema have changed)",
    "split": "the samples are spread over the clients in another way",
    "code": "the model is another (its code or its structure has changed)",
    "model": "the model begins at other values",
    "method": "the code of the method has changed",
}


@dataclass(frozen=True)
class Inputs:
    """Digests of what goes into a run."""

    data: str  # samples, labels, silos and schema, whoever holds what: the same for all seeds
    split: str  # who holds which of them
    code: str  # of the model, and its structure: the same for all seeds
    model: str  # its first values
    method: str | None = None  # the code of a method of one's own

    def to_dict(self) -> dict[str, str | None]:
        """Return plain values, for a file."""
        return asdict(self)

    def differences(self, there: Mapping[str, Any] | None) -> list[str]:
        """Return in words what is not as it was when a run was begun; `there` is what its folder holds."""
        if there is None or set(there) != set(self.to_dict()):
            return ["it was written by another version of fedamp, and does not say enough of its data and its model"]
        changed = {name: words for name, words in CHANGED.items() if there.get(name) != getattr(self, name)}
        if "code" in changed:  # another model begins elsewhere, too
            changed.pop("model", None)
        return list(changed.values())
