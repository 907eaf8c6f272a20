"""What the sides of a federation agree on. The files that carry it are in `plan_files`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedamp import __version__, checks, models
from fedamp.config import RunConfig
from fedamp.config.reply_limits import Rules
from fedamp.data.silos.schema import Schema
from fedamp.data.silos.schema_file import schema_to_json
from fedamp.errors import UserError
from fedamp.records.differences import differences

# Each side decides these for itself: where its data is, on which device it computes, how long it goes on.
OWN = (
    *("data", "setting", "clients", "rounds", "engine", "device", "schema", "deterministic", "absent"),
    *("precision", "compile", "alone"),
)


@dataclass(frozen=True)
class Member:
    """A silo, as the server knows it."""

    name: str
    number: int  # its coordinate for random numbers, fixed when the silo is provisioned
    key: str  # SHA-256 of its public key, in hex
    removed: bool = False  # it keeps its place, so that its number and name are never given again


@dataclass(frozen=True)
class Plan:
    """What every side must have in common."""

    name: str
    config: RunConfig  # method, model, training, seed
    schema: Schema

    def agreed(self) -> dict[str, Any]:
        """Return what must be equal on all sides, in plain values; of the schema, a digest."""
        agreed = {name: value for name, value in self.config.to_dict().items() if name not in OWN}
        return {**agreed, "schema": hashlib.sha256(schema_to_json(self.schema).encode()).hexdigest()[:16]}

    def here(self) -> dict[str, Any]:
        """Return the same as it really is on this side: the installed version, the model's code that is here."""
        spec = self.config.model.name
        code = models.source_digest(spec) if ":" in spec else None
        return {**self.agreed(), "version": __version__, "model_code": code}


def disagreement(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Return in words what differs between two sides' agreements, "" if nothing does."""
    return "; ".join(differences(there, here))


@dataclass(frozen=True)
class Federation:
    """The server's side: federation.json and schema.json."""

    plan: Plan
    members: tuple[Member, ...]
    rules: Rules

    def __post_init__(self) -> None:
        for what in ("name", "number", "key"):
            values = [getattr(member, what) for member in self.members]
            if len(set(values)) < len(values):
                raise UserError(f"two silos have the same {what} ({values}); expected a different {what} for each")


@dataclass(frozen=True)
class SiloConfig:
    """A silo's side: silo.json and schema.json."""

    plan: Plan
    name: str
    number: int
    server: str  # host:port

    def __post_init__(self) -> None:
        host, _, port = str(self.server).rpartition(":")
        if not (host and port.isdigit()):
            raise UserError(f"server is {self.server!r}; expected host:port, as in fed.example.org:9092")
        checks.count("number of the silo", self.number, least=0)
