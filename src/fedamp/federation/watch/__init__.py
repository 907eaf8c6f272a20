"""Live pages on loopback: how they are served, what they look like, and the same numbers for Prometheus."""
