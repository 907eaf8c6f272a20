"""Personalized cross-silo federated learning by attentive message passing."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from fedamp.config import RunConfig
    from fedamp.config.metrics import Metric
    from fedamp.methods import make_method
    from fedamp.runs.from_python import run
    from fedamp.runs.loading import load
    from fedamp.runs.prediction import Prediction
    from fedamp.runs.result import Result

__all__ = ["Metric", "Prediction", "Result", "RunConfig", "__version__", "load", "make_method", "run"]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that `import fedamp` itself stays quick."""
    if name == "run":
        from fedamp.runs.from_python import run

        return run
    if name == "load":
        from fedamp.runs.loading import load

        return load
    if name == "Prediction":
        from fedamp.runs.prediction import Prediction

        return Prediction
    if name == "RunConfig":
        from fedamp.config import RunConfig

        return RunConfig
    if name == "Metric":
        from fedamp.config.metrics import Metric

        return Metric
    if name == "Result":
        from fedamp.runs.result import Result

        return Result
    if name == "make_method":
        from fedamp.methods import make_method

        return make_method
    raise AttributeError(f"module 'fedamp' has no attribute {name!r}")
