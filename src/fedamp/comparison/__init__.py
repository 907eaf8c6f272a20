"""A comparison from Python: `fedamp.compare`, and the table that it returns."""
