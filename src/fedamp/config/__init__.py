"""What a run is asked to do: its configuration, with every field explained once, presets, and settings from outside."""

from fedamp.config.run_config import Named, RunConfig

__all__ = ["Named", "RunConfig"]
