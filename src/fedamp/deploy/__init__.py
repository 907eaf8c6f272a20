"""A federation over real machines, on Flower."""
