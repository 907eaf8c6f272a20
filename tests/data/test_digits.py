"""The digits that come with the package."""

import hashlib

import pytest
import torch

from fedamp.data import load_data
from fedamp.models import MODELS, build


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


def sha256(tensor):
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def test_digits_are_what_uci_published(digits):
    assert digits.x.shape == (1797, 8, 8)
    assert digits.x.dtype == torch.uint8
    assert (int(digits.x.min()), int(digits.x.max())) == (0, 16)
    assert digits.y.shape == (1797,)
    assert digits.y.dtype == torch.int64
    assert digits.num_classes == 10
    assert torch.bincount(digits.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (digits.shift, digits.scale) == (0, 16)
    assert digits.input_shape == (8, 8)
    assert len(digits) == 1797
    assert "UCI" in digits.about


def test_digits_are_not_damaged(digits):
    assert sha256(digits.x) == "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3"
    assert sha256(digits.y.to(torch.uint8)) == "8ba4f891220f5e4c9c819638d1602d74b83618f167043c6da52a2a247841ddf0"


def test_digits_split_covers_everything_once(digits):
    assert torch.equal(torch.cat([digits.train_pool, digits.test_pool]).sort().values, torch.arange(1797))
    assert (len(digits.train_pool), len(digits.test_pool)) == (1258, 539)


def test_digits_split_is_stratified(digits):
    total, train = torch.bincount(digits.y), torch.bincount(digits.y[digits.train_pool])
    assert train.tolist() == [125, 127, 124, 128, 127, 127, 127, 125, 122, 126]
    assert (train - 0.7 * total).abs().max() <= 0.5


def test_digits_split_is_the_same_for_ever_and_in_no_order_of_the_file(digits):
    # A generator that draws otherwise (numpy promises no stream for ever) would make old results incomparable.
    assert sha256(digits.train_pool) == "25122074cdbbc2e7fd27136b95bb101af749ad8370b278ff94d14f3fd488dd6a"
    torch.manual_seed(1)
    assert torch.equal(load_data("digits").train_pool, digits.train_pool)
    assert abs(digits.train_pool.double().mean() - digits.test_pool.double().mean()) < 50


@pytest.mark.parametrize("name", MODELS)
def test_every_model_takes_digits(digits, name):
    module = build(MODELS[name], digits.input_shape, digits.num_classes, seed=0)
    x = (digits.x[digits.train_pool[:4]].float() - digits.shift) / digits.scale
    assert module(x).shape == (4, 10)


def test_digits_can_be_learned(digits):
    x, y = (digits.x.float() - digits.shift) / digits.scale, digits.y
    module = build(MODELS["logistic"], digits.input_shape, digits.num_classes, seed=0)
    optimizer = torch.optim.Adam(module.parameters(), 0.05)
    for _ in range(100):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x[digits.train_pool]), y[digits.train_pool]).backward()
        optimizer.step()
    right = module(x[digits.test_pool]).argmax(1) == y[digits.test_pool]
    assert right.double().mean() > 0.93
