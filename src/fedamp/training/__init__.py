"""A round's work at a client: minibatches, optimisers, local training, scoring, and which way to train."""
