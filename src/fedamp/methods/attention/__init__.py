"""Attention between clients: the functions A and A', how alike models are, and the weights made from it."""

from fedamp.methods.attention.functions import (
    ATTENTION,
    MCP,
    SCAD,
    Attention,
    NegativeExponential,
    TamedSquareRoot,
    make_attention,
)
from fedamp.methods.attention.similarity import (
    SCALES,
    cosines,
    median_distance,
    noise_in_length,
    scale,
    squared_distances,
)
from fedamp.methods.attention.sketches import sketch
from fedamp.methods.attention.weights import (
    SelfWeight,
    check_self_weight,
    effective_clients,
    gradient_weights,
    listening,
    on_simplex,
    oracle_self_weight,
    rest_to_itself,
    self_weights,
    softmax_weights,
    uniform_weights,
)

__all__ = [
    "ATTENTION",
    "MCP",
    "SCAD",
    "SCALES",
    "Attention",
    "NegativeExponential",
    "SelfWeight",
    "TamedSquareRoot",
    "check_self_weight",
    "cosines",
    "effective_clients",
    "gradient_weights",
    "listening",
    "make_attention",
    "median_distance",
    "noise_in_length",
    "on_simplex",
    "oracle_self_weight",
    "rest_to_itself",
    "scale",
    "self_weights",
    "sketch",
    "softmax_weights",
    "squared_distances",
    "uniform_weights",
]
