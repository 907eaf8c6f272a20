"""Personalized cross-silo federated learning by attentive message passing."""

__version__ = "0.1.0.dev0"
