"""All clients at once: their gradients in one pass, recorded on a GPU, and the proof that it equals one at a time."""
