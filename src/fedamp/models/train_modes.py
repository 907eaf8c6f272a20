"""Which parts of a module train, and which were put in eval mode and stay there."""

from __future__ import annotations

import copy

from torch import nn


class Modes:
    """The modes of a module's parts: those that were given in eval mode stay in it while the others train.

    So a BatchNorm that was frozen by `eval()` keeps its statistics. A module that is in eval mode as a whole has only
    been loaded or used before: it trains as a whole.
    """

    def __init__(self, module: nn.Module) -> None:
        given = {name: part.training for name, part in module.named_modules()}
        self._at_rest = [name for name, training in given.items() if not training] if any(given.values()) else []
        self._module = module
        self._now: bool | None = None

    def set(self, training: bool) -> None:
        """Make the module ready for a pass."""
        if training != self._now:
            self.set_copy(self._module, training)
            self._now = training

    def of_copy(self, module: nn.Module) -> Modes:
        """Return the same for a copy of the module, whatever mode that is in."""
        modes = copy.copy(self)
        modes._module, modes._now = module, None
        return modes

    def set_copy(self, module: nn.Module, training: bool) -> None:
        """Make a copy of the module ready for a pass."""
        module.train(training)
        for name in self._at_rest:
            module.get_submodule(name).training = False
