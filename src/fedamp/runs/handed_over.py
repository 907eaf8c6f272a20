"""What a configuration only names, and Python may hand over: samples, a model, methods, a loss, a metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import nn

from fedamp import checks
from fedamp.config import RunConfig
from fedamp.methods import METHODS, Method
from fedamp.records.inputs import Inputs
from fedamp.runs.identity import inputs_of
from fedamp.runs.judging import NOTHING_OWN, OwnParts
from fedamp.runs.material import Material, load_material
from fedamp.runs.parts import method_of
from fedamp.runs.setup import Setup, assemble


@dataclass(frozen=True)
class HandedOver:
    """What there is besides a configuration; with nothing given, everything is found by its name."""

    data_dir: Path | None = None
    samples: Callable[[RunConfig], Material] | None = None  # what the clients brought; what is held out, a seed decides
    model: nn.Module | Callable[..., nn.Module] | None = None
    methods: Mapping[str, Method] = field(default_factory=dict)  # by the name that configurations have for them
    own: OwnParts = NOTHING_OWN  # a loss, a metric

    def material(self, config: RunConfig) -> Material:
        """Return what there is to learn from."""
        return load_material(config, self.data_dir) if self.samples is None else self.samples(config)

    def method(self, config: RunConfig) -> Method | None:
        """Return the method if it was handed over, with the configuration's hyperparameters; else None."""
        own, asked = self.methods.get(config.method.name), config.method.parameters
        if own is None:
            return None
        changed = {name: value for name, value in asked.items() if value != checks.plain(getattr(own, name, None))}
        return replace(own, **changed) if changed else own

    def method_for(self, config: RunConfig, groups: tuple[int, ...] | None) -> Method:
        """Return the method, handed over or by its name; `groups` are the clients' true ones, for an oracle."""
        own = self.method(config)
        return method_of(config, groups) if own is None else own

    def scored(self, name: str) -> str:
        """Return which models of a method count."""
        return (self.methods[name] if name in self.methods else METHODS[name]).scored

    def inputs(self, config: RunConfig, material: Material) -> Inputs:
        """Return the digests of a run's inputs."""
        return inputs_of(config, material, self.model, self.method(config))

    def assemble(self, config: RunConfig, material: Material | None = None) -> Setup:
        """Return a run's setup."""
        return assemble(config, material or self.material(config), self.model, self.method(config), own=self.own)
