"""File formats of published data sets, read without trusting them."""
