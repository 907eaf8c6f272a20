"""Networks by name, and a module as a function of one flat row, or of all clients' rows at once."""

from fedamp.models.builders import build, load_builder, parameter_names, source_digest
from fedamp.models.zoo import MODELS

__all__ = ["MODELS", "build", "load_builder", "parameter_names", "source_digest"]
