"""File formats of published data sets, read with nothing believed."""
