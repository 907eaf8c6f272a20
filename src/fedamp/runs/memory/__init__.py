"""What a run will need, before it is run: memory and work."""
