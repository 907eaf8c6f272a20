"""What the sides of a federation agree on, and the files that say so.

DIR/federation.json   on the server: the plan, its rules, and who is who
DIR/schema.json       columns, labels and scaling
BUNDLE/silo.json      on a silo: the plan, its own name and number, and the server's address; nothing of the others
BUNDLE/schema.json    the same schema
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fedamp import __version__, checks, models
from fedamp.config import RunConfig
from fedamp.data.silos.schema import Schema
from fedamp.data.silos.schema_file import read_schema, schema_to_json, write_schema
from fedamp.errors import UserError
from fedamp.files import read_json, write_whole
from fedamp.records.differences import differences
from fedamp.runs.replies import Limits

FEDERATION, SILO, SCHEMA = "federation.json", "silo.json", "schema.json"
FORMAT = 1

# Each side's own business: where its data lies, on which device it computes, how long it goes on.
OWN = (
    *("data", "setting", "clients", "rounds", "engine", "device", "schema", "deterministic", "absent"),
    *("precision", "compile"),
)


@dataclass(frozen=True)
class Member:
    """A silo, as the server knows it."""

    name: str
    number: int  # its coordinate for random numbers, fixed when the silo is provisioned
    key: str  # SHA-256 of its public key, in hex


@dataclass(frozen=True)
class Rules(Limits):
    """What the server holds to: how far a reply may be out, and how long it waits for whom."""

    reply_timeout: float = 600.0  # seconds that a round waits for replies
    min_silos: int = 2  # replies without which a round is not counted
    strikes: int = 3  # bad replies in a row after which a silo is set aside

    def __post_init__(self) -> None:
        checks.positive("reply_timeout", self.reply_timeout)
        checks.count("min_silos", self.min_silos)
        checks.positive("move_factor", self.move_factor)
        checks.positive("norm_factor", self.norm_factor)
        checks.positive("samples_factor", self.samples_factor)
        checks.count("strikes", self.strikes)


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
        """Return the same as it truly is on this side: the installed version, the model's code that lies here."""
        spec = self.config.model.name
        code = models.code_digest(spec) if ":" in spec else None
        return {**self.agreed(), "version": __version__, "model_code": code}


def disagreement(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Return in words what differs between two sides' agreements, "" where nothing does."""
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
                raise UserError(f"two silos have one {what} ({values}); expected a {what} of its own for each")

    def write(self, folder: Path) -> None:
        """Write federation.json and schema.json."""
        value = {
            "format": FORMAT,
            "name": self.plan.name,
            "description": self.plan.config.to_dict(),
            "silos": [asdict(member) for member in self.members],
            "rules": asdict(self.rules),
        }
        write_whole(folder / FEDERATION, (json.dumps(value, indent=2) + "\n").encode())
        write_schema(folder / SCHEMA, self.plan.schema)


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

    def write(self, folder: Path) -> None:
        """Write silo.json and schema.json."""
        value = {
            "format": FORMAT,
            "federation": self.plan.name,
            "name": self.name,
            "number": self.number,
            "server": self.server,
            "description": self.plan.config.to_dict(),
        }
        write_whole(folder / SILO, (json.dumps(value, indent=2) + "\n").encode())
        write_schema(folder / SCHEMA, self.plan.schema)


def read_federation(folder: Path) -> Federation:
    """Return the federation that `fedamp federation init` wrote to a folder."""
    value = _read(folder, FEDERATION, "a federation; make one with: fedamp federation init")
    with _Damaged(folder / FEDERATION):
        members = tuple(Member(**silo) for silo in value["silos"])
        known = {field.name for field in fields(Rules)}
        rules = Rules(**{name: entry for name, entry in value["rules"].items() if name in known})
        plan = Plan(value["name"], RunConfig.of(value["description"]), read_schema(folder / SCHEMA))
        return Federation(plan, members, rules)


def read_silo_config(folder: Path) -> SiloConfig:
    """Return the silo's side of a federation from its bundle."""
    value = _read(folder, SILO, "a silo's bundle; the federation's operator hands it over")
    with _Damaged(folder / SILO):
        plan = Plan(value["federation"], RunConfig.of(value["description"]), read_schema(folder / SCHEMA))
        return SiloConfig(plan, value["name"], value["number"], value["server"])


def _read(folder: Path, name: str, what: str) -> dict[str, Any]:
    value = read_json(folder / name)
    if value is None:
        raise UserError(f"{folder} holds no {name}, so it is not {what}")
    if value.get("format") != FORMAT:
        raise UserError(f"{folder / name} has format {value.get('format')!r}; this version reads {FORMAT}")
    return value


class _Damaged:
    """Says of a file that can't be used which one it is."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyError | TypeError | AttributeError):
            raise UserError(f"{self.path} is damaged ({error!r}); take it from a copy, or make it anew") from None
