"""Clients that join a run after its end: what they meet, how they are trained, what they get."""
