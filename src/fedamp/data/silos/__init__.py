"""A user's own silos: files that are read as they are, and the schema that all of them agree on."""
