"""Data sets that others have published: which files they are, where they lie, how to get, check and read them."""
