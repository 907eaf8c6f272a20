"""A data set is what its source published, and says which samples may be trained on."""

import hashlib
from dataclasses import replace

import pytest
import torch

from fedamp.data import DATA, SOURCES, Dataset, describe_data, load_data
from fedamp.models import MODELS, build


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


def sha256(tensor):
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def small(**changes):
    values = {
        "name": "small",
        "x": torch.arange(24, dtype=torch.uint8).reshape(4, 3, 2),
        "y": torch.tensor([0, 1, 1, 0]),
        "num_classes": 2,
        "train_pool": torch.tensor([0, 2]),
        "test_pool": torch.tensor([1]),
        "shift": 0.0,
        "scale": 1.0,
        "about": "four samples",
    }
    return Dataset(**(values | changes))


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


@pytest.mark.parametrize("name", DATA)
def test_every_data_set_can_be_listed_without_its_files(name):
    line = describe_data(name)
    assert 20 < len(line) <= 115
    assert "\n" not in line


@pytest.mark.parametrize("name", DATA.keys() - SOURCES.keys())
def test_every_data_set_that_comes_with_the_package_can_be_loaded(name):
    data = load_data(name)
    assert data.name == name
    assert data.about
    assert data.note == ""


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


@pytest.mark.parametrize("ask", [load_data, describe_data])
def test_unknown_name_lists_the_choices(ask):
    with pytest.raises(
        ValueError,
        match=r"unknown data set 'digit' \(did you mean 'digits'\?\); choose from cifar100, digits, .*mnist$",
    ):
        ask("digit")


def test_a_small_data_set_is_fine():
    data = small()
    assert len(data) == 4
    assert data.input_shape == (3, 2)
    small(x=torch.rand(4, 3, 2), shift=(0.0, -1.0, 2), scale=(1.0, 2.0, 3.0))
    small(test_pool=torch.tensor([], dtype=torch.int64))
    assert data == data
    assert data != replace(data)  # and no error about a tensor's truth


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(5, 2)}, "small has 5 samples and 4 labels; expected one label for each"),
        ({"x": torch.zeros(4)}, r"x of small has shape \(4,\)"),
        ({"x": torch.zeros(4, 2, dtype=torch.int32)}, "type torch.int32; expected .* uint8 or a floating type"),
        ({"x": torch.zeros(0, 2), "y": torch.tensor([], dtype=torch.int64)}, "small has no samples"),
        ({"y": torch.zeros(4)}, "y of small .* torch.float32; expected .* torch.int64"),
        ({"y": torch.zeros(4, 1, dtype=torch.int64)}, r"y of small has shape \(4, 1\)"),
        ({"y": torch.tensor([0, 1, 2, 0])}, "labels of small go from 0 to 2; expected 0 to 1 for 2 classes"),
        ({"y": torch.tensor([0, 1, -1, 0])}, "labels of small go from -1 to 1; expected 0 to 1"),
        ({"num_classes": 0}, "num_classes of small is 0"),
        ({"test_pool": torch.tensor([3, 2])}, r"1 samples of small are in train_pool and .*\(the first: 2\)"),
        ({"train_pool": torch.tensor([0, 3, 3])}, "train_pool of small has position 3 more than once"),
        ({"test_pool": torch.tensor([1, 1])}, "test_pool of small has position 1 more than once"),
        ({"test_pool": torch.tensor([4])}, "test_pool of small has positions from 4 to 4; expected 0 to 3"),
        ({"train_pool": torch.tensor([-1])}, "train_pool of small has positions from -1 to -1; expected 0 to 3"),
        ({"train_pool": torch.tensor([True, False])}, "train_pool of small .* torch.bool; expected"),
        ({"train_pool": torch.tensor([[0]])}, r"train_pool of small has shape \(1, 1\)"),
        ({"train_pool": torch.tensor([], dtype=torch.int64)}, "train_pool of small is empty"),
        ({"scale": 0.0}, "scale of small is 0.0; expected a finite number over 0"),
        ({"scale": (1.0, -1.0, 1.0)}, r"scale of small is \(1.0, -1.0, 1.0\); expected"),
        ({"shift": float("nan")}, "shift of small is nan; expected a finite number, or"),
        ({"shift": (0.0, 1.0)}, "shift of small has 2 numbers; expected one for each of 3 channels"),
    ],
)
def test_what_is_no_data_set(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)
