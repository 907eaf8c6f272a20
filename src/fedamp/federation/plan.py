"""What the sides of a federation agree on. The files that carry it are in `plan_files`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from fedamp import __version__, checks, models
from fedamp.config import Named, RunConfig
from fedamp.config.reply_limits import Rules
from fedamp.data.silos.schema import Schema
from fedamp.data.silos.schema_file import schema_to_json
from fedamp.errors import UserError
from fedamp.methods import METHODS, Method
from fedamp.records.differences import differences, flat
from fedamp.runs.parts import method_of

PROTOCOL = 3
"""What all sides must have in common; their versions may differ, so that silos can be upgraded one after another.

Raise it when sides before and after a change would misunderstand each other or compute different things: when what
travels gets another name or meaning, when the mathematics of a method, an optimiser or a model changes, or a default
that is not in the files of a plan. A new setting needs no new number: a side that does not know it refuses it unless it
is at its default.
"""

# Each side decides these for itself: where its data is, on which device it computes, how long it goes on.
OWN = (
    *("data", "setting", "clients", "rounds", "engine", "device", "schema", "deterministic", "absent"),
    *("precision", "compile", "alone", "version"),
    *("dp_epsilon", "dp_delta", "dp_clip", "dp_noise"),  # a silo's promise is its own
)
AT_DEFAULT = "at_default"
NOT_COMPARED = ("version", AT_DEFAULT)


@dataclass(frozen=True)
class Member:
    """A silo, as the server knows it."""

    name: str
    number: int  # its coordinate for random numbers, fixed when the silo is provisioned
    key: str  # SHA-256 of its public key, in hex
    former: tuple[str, ...] = ()  # the same of keys that it had before, by which older records know it
    removed: bool = False  # it keeps its place, so that its number and name are never given again


@dataclass(frozen=True)
class Plan:
    """What every side must have in common."""

    name: str
    config: RunConfig  # method, model, training, seed
    schema: Schema

    def __post_init__(self) -> None:
        if self.config.private:
            raise UserError(
                "dp_epsilon and dp_noise are no part of a federation's plan: each silo promises for itself, with "
                "fedamp silo up --dp-epsilon"
            )
        if self.hands_out_models and not self.config.share_models:
            raise UserError(
                f"method {self.config.method.name!r} can hand each silo other silos' models as they are, and the plan "
                "does not say that all silos agreed to it (share_models); ask every silo, then make the federation "
                "with --share-models, or choose another method"
            )

    @property
    def hands_out_models(self) -> bool:
        """Whether silos get each other's models as they are, and not mixed: then all of them must have agreed to it."""
        method = METHODS.get(self.config.method.name)
        return method is not None and method.hands_out_models

    def sharing(self) -> str:
        """Return in words what a silo's operator has to know about who gets its model, "" if nobody does as it is."""
        if not self.hands_out_models:
            return ""
        return (
            f"the method, {self.config.method.name}, can hand your silo's model to other silos as it is, and theirs to "
            "yours; the plan says that all silos agreed to this (share_models)"
        )

    def agreed(self) -> dict[str, Any]:
        """Return what must be equal on all sides, in plain values; of the schema, a digest.

        The method has all of its hyperparameters, whether the plan names them or not.
        """
        config = _spelled_out(self.config, method_of(self.config))
        agreed = {name: value for name, value in config.items() if name not in OWN}
        digest = hashlib.sha256(schema_to_json(self.schema).encode()).hexdigest()[:16]
        return {"protocol": PROTOCOL, **agreed, "schema": digest}

    def here(self) -> dict[str, Any]:
        """Return the same as it really is on this side: the model's code that is here."""
        spec = self.config.model.name
        code = models.source_digest(spec) if ":" in spec else None
        return {**self.agreed(), "model_code": code}

    def told(self) -> dict[str, Any]:
        """Return what this side tells another: the same, its version, and which settings are at their defaults."""
        here, method = self.here(), METHODS[self.config.method.name]()
        defaults = flat(_spelled_out(replace(RunConfig(), method=Named(self.config.method.name)), method))
        at_default = [name for name, value in flat(here).items() if name in defaults and defaults[name] == value]
        return {**here, "version": __version__, AT_DEFAULT: at_default}


def _spelled_out(config: RunConfig, method: Method) -> dict[str, Any]:
    """Return a configuration in plain values, with all hyperparameters of its method."""
    parameters = {each.name: getattr(method, each.name) for each in fields(method)}
    return replace(config, method=Named(config.method.name, parameters)).to_dict()


def disagreement(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Return in words what differs between two sides' agreements, "" if nothing does.

    A setting that one side does not know counts unless it is at its default on the other.
    """
    sides = [{"protocol": 1, **flat(side)} for side in (there, here)]
    known = [
        {
            name: value
            for name, value in side.items()
            if name not in NOT_COMPARED and (name in other or name not in side.get(AT_DEFAULT, ()))
        }
        for side, other in zip(sides, reversed(sides), strict=True)
    ]
    protocols = [side["protocol"] for side in sides]
    return "; ".join([*differences(*known), *_cure(*protocols)])


def _cure(there: Any, here: Any) -> list[str]:
    """Return what to do if two sides speak different protocols; what they say of themselves may be anything."""
    if not (isinstance(there, int) and isinstance(here, int)) or there == here:
        return []
    return [f"the older fedamp is {'there' if there < here else 'here'}: upgrade it"]


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
        former = {key: member.name for member in self.members for key in member.former}
        for member in self.members:
            if member.key in former:
                raise UserError(f"the key of {member.name} was that of {former[member.key]}; expected a new one")


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
