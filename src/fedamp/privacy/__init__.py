"""Differential privacy of single samples: what each client promises its own people, and what that costs.

A client's samples are protected where their gradients are taken (`fedamp.training`): each one is clipped, their sum is
noised, and minibatches are drawn at random. Whatever is computed from that afterwards, by any method, on any server, is
covered too. Here is what was promised (`promise`), what was spent (`events`) and what it comes to (`account`).
"""
