"""Data sets that others have published: which files they are, where they are kept, how to get, check and read them."""
