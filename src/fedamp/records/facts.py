"""What a run notes about its data, its model and the way it was trained: `facts` in result.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

WRITTEN_AS_NULL = ("groups", "shift", "scale")
"""Fields whose null means something: no known groups, inputs taken as they are. Others are left out if unknown."""

WITHHELD = "withheld: this silo protects its samples"
"""What stands beside a silo that keeps its scores at home."""


@dataclass(frozen=True)
class Facts:
    """Facts about one run; None for what is not known. Lists over clients are in the clients' order."""

    names: list[str] | None = None  # of the silos, if they have names
    shared_samples: int | None = None  # training samples that more than one client has
    shared_test_samples: int | None = None
    note: str | None = None  # about the data, for people: which files, which columns became which inputs
    task: str | None = None  # "classification" or "regression"
    positive: str | None = None  # of two classes, the positive one
    undefined: list[int] | None = None  # clients whose test samples do not define the metric, by position
    withheld: list[int] | None = None  # of a federation: silos that keep their scores at home, by position
    poisoned: list[int] | None = None  # numbers of the clients that send poisoned models
    sizes: list[int | None] | None = None  # training samples; None for a silo that never joined a federation
    test_sizes: list[int] | None = None
    validation_sizes: list[int | None] | None = None  # samples held out for validation; None of a silo: not known
    groups: list[int] | None = None  # the true groups of the clients, if the data were split into groups
    input_shape: list[int] | None = None  # of one sample
    num_outputs: int | None = None
    labels: list[str] | None = None  # of samples from Python whose targets are words: class c is labels[c]
    # By a schema, which is in the run's folder. None: nobody named a label, or it was an earlier version.
    encoded: bool | None = None
    shift: list[float] | None = None  # a model sees (x - shift) / scale: one number, or one per channel or column
    scale: list[float] | None = None
    parameters: int | None = None  # of one client's model
    engine: str | None = None  # "stacked", "loop" or "federation"
    engine_why: str | None = None
    threads: int | None = None
    workers: int | None = None  # clients that trained side by side, each by one thread, where they did not all at once
    processes: int | None = None  # that played the run together; None: it was one
    precision: str | None = None  # as used: "fp32", "tf32" or "bf16"
    compiled: bool | None = None
    device: str | None = None
    rows_in: str | None = None  # where all clients' rows were kept: "device", "host" or "disk"
    rows_why: str | None = None
    hyperparameters: Mapping[str, Any] | None = None  # of the method, its defaults among them
    optimizer: str | None = None  # as used: the method's own if none was asked for
    lr: float | None = None
    privacy: Mapping[str, Any] | None = None  # how samples are protected: see `records.privacy.Promised`
    rows: list[int] | None = None  # of a federation: the place of each row of the saved models among the members

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Facts:
        """Return the facts in a result.json; what another version wrote in addition is ignored."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as result.json has them."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None or name in WRITTEN_AS_NULL}
