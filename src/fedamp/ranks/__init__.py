"""Several processes that play one run together, as `torchrun` starts them."""
