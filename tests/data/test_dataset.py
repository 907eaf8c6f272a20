"""What a data set must be."""

from dataclasses import replace

import pytest
import torch

from fedamp.data import Dataset


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
        ({"scale": 0.0}, "scale of small is 0.0; expected a finite number above 0"),
        ({"scale": (1.0, -1.0, 1.0)}, r"scale of small is \(1.0, -1.0, 1.0\); expected"),
        ({"shift": float("nan")}, "shift of small is nan; expected a finite number, or"),
        ({"shift": (0.0, 1.0)}, "shift of small has 2 numbers; expected one for each of 3 channels"),
    ],
)
def test_what_is_no_data_set(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)
