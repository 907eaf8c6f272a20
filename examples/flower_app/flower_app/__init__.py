"""Handwritten digits with FedAMP on Flower."""
