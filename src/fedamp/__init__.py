"""Personalized cross-silo federated learning by attentive message passing."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from fedamp.experiment import Result, run
    from fedamp.methods import make_method

__all__ = ["Result", "__version__", "make_method", "run"]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: `import fedamp` itself stays quick."""
    if name in ("run", "Result"):
        from fedamp import experiment

        return getattr(experiment, name)
    if name == "make_method":
        from fedamp.methods import make_method

        return make_method
    raise AttributeError(f"module 'fedamp' has no attribute {name!r}")
