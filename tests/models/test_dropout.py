"""Masks by coordinates drop the right share, differ where they must, and agree with torch's shapes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedamp.models.dropout import CoordinateDropout, dropout_key


def mask(p=0.5, shape=(100, 100), seed=0, client=0, k=1, t=1):
    with CoordinateDropout(dropout_key(seed, client, k), t):
        return F.dropout(torch.ones(shape), p) > 0


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_share_and_scale(p):
    with CoordinateDropout(dropout_key(0, 0, 1), 1):
        dropped = F.dropout(torch.ones(400, 500), p)
    kept = dropped > 0
    assert kept.double().mean() == pytest.approx(1 - p, abs=4 * (p * (1 - p) / 200_000) ** 0.5)
    torch.testing.assert_close(dropped[kept], torch.full((int(kept.sum()),), 1 / (1 - p)))


def test_masks_look_independent():
    """Neighbours in every coordinate, and neighbouring elements, agree half of the time, as fair coins do."""
    base = mask()
    others = [mask(client=1), mask(k=2), mask(t=2), mask(seed=1)]
    others += [mask(client=i, t=j) for i in range(2, 12) for j in range(3)]
    for other in others:
        assert (base == other).double().mean() == pytest.approx(0.5, abs=0.02)
    flat = mask(shape=(100_000,))
    for lag in (1, 2, 3, 64, 256, 1000):
        assert (flat[lag:] == flat[:-lag]).double().mean() == pytest.approx(0.5, abs=0.01)


def test_same_coordinates_same_mask_next_call_another():
    assert torch.equal(mask(), mask())
    with CoordinateDropout(dropout_key(0, 0, 1), 1):
        first, second = (F.dropout(torch.ones(1000)) for _ in range(2))
    assert not torch.equal(first, second)


def test_a_thousand_calls():
    with CoordinateDropout(dropout_key(0, 0, 1), 2**31 + 5):
        shares = [F.dropout(torch.ones(100)).mean() for _ in range(1000)]
    assert torch.stack(shares).mean() == pytest.approx(1, abs=0.02)


def test_nothing_is_dropped_where_nothing_should_be():
    x = torch.randn(10, 10)
    with CoordinateDropout(dropout_key(0, 0, 1), 1):
        assert torch.equal(F.dropout(x, 0.5, training=False), x)
        assert torch.equal(nn.Dropout(0.0)(x), x)
        assert torch.equal(nn.Dropout(0.5).eval()(x), x)
        assert (F.dropout(x, 1.0) == 0).all()


def test_in_place():
    x = torch.ones(1000)
    with CoordinateDropout(dropout_key(0, 0, 1), 1):
        y = nn.Dropout(0.5, inplace=True)(x)
    assert y is x
    assert (x == 0).any()


@pytest.mark.parametrize(
    ("layer", "shape", "channels"),
    [
        (nn.Dropout1d(0.5), (40, 30, 7), (40, 30)),
        (nn.Dropout1d(0.5), (90, 7), (90,)),
        (nn.Dropout2d(0.5), (40, 30, 3, 3), (40, 30)),
        (nn.Dropout3d(0.5), (40, 30, 2, 3, 3), (40, 30)),
        (nn.Dropout3d(0.5), (90, 2, 3, 3), (90,)),
    ],
)
def test_whole_channels(layer, shape, channels):
    with CoordinateDropout(dropout_key(0, 0, 1), 1):
        dropped = layer(torch.ones(shape)).reshape(*channels, -1)
    assert ((dropped == 0).all(-1) | (dropped == 2).all(-1)).all()
    assert 0.2 < (dropped == 0).double().mean() < 0.8


@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_dropout(causal):
    """Without dropout it is torch's own; with it, the mean over many masks is that."""
    q, k, v = torch.randn(3, 2, 4, 6, 8, generator=torch.Generator().manual_seed(0)).unbind(0)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    with CoordinateDropout(dropout_key(0, 0, 1), 1):
        plain = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        tiny = F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=1e-9)
        many = [F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=0.3) for _ in range(600)]
    torch.testing.assert_close(plain, expected)
    torch.testing.assert_close(tiny, expected)
    assert not torch.allclose(many[0], expected, atol=0.1)
    torch.testing.assert_close(torch.stack(many).mean(0), expected, rtol=0, atol=0.2)


def test_a_transformer_layer_trains():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
    x = torch.randn(3, 5, 8)
    with CoordinateDropout(dropout_key(0, 0, 1), 1):
        first = layer(x)
    torch.rand(7)  # moves torch's own stream
    with CoordinateDropout(dropout_key(0, 0, 1), 1):
        second = layer(x)
    assert torch.equal(first, second)
    assert not torch.allclose(first, layer.eval()(x))
