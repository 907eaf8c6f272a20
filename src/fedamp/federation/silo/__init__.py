"""A silo's half of a federation: its check-up, its rounds, what it remembers, and what it lets in."""
