"""Local training that protects single samples: random minibatches, clipped gradients of each sample, and noise.

The same for one client and for many at once: a client alone is a stack of height one.
"""
