"""A run in use: read back from its folder, asked about new rows, exported for other programs."""
