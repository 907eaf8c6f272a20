"""Personalized cross-silo federated learning by attentive message passing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from fedamp.comparison.comparison import Comparison
    from fedamp.comparison.from_python import compare
    from fedamp.config import RunConfig
    from fedamp.config.metrics import Metric
    from fedamp.errors import FedampWarning, UserError
    from fedamp.methods import make_method
    from fedamp.runs.from_python import run
    from fedamp.runs.in_use.loading import load
    from fedamp.runs.in_use.prediction import Prediction
    from fedamp.runs.newcomers.joining import join
    from fedamp.runs.result import Result
    from fedamp.runs.watching.round_line import RoundLine

__all__ = [
    "Comparison",
    "FedampWarning",
    "Metric",
    "Prediction",
    "Result",
    "RoundLine",
    "RunConfig",
    "UserError",
    "__version__",
    "compare",
    "join",
    "load",
    "make_method",
    "run",
]

_HOMES = {
    "Comparison": "fedamp.comparison.comparison",
    "FedampWarning": "fedamp.errors",
    "Metric": "fedamp.config.metrics",
    "Prediction": "fedamp.runs.in_use.prediction",
    "Result": "fedamp.runs.result",
    "RoundLine": "fedamp.runs.watching.round_line",
    "RunConfig": "fedamp.config",
    "UserError": "fedamp.errors",
    "compare": "fedamp.comparison.from_python",
    "join": "fedamp.runs.newcomers.joining",
    "load": "fedamp.runs.in_use.loading",
    "make_method": "fedamp.methods",
    "run": "fedamp.runs.from_python",
}
"""Where each name comes from."""


def __dir__() -> list[str]:
    """Return the public names, which are not there before they are used."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that `import fedamp` itself stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedamp' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
