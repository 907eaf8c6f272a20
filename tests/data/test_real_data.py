"""The published data sets themselves, where they are at hand: $FEDAMP_TEST_DATA names their folder."""

import os
from pathlib import Path

import pytest
import torch

from fedamp.data import check, load_data, status

FOLDER = os.environ.get("FEDAMP_TEST_DATA", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="FEDAMP_TEST_DATA is not set; it names a folder with the data sets")

TRAIN_DIGITS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
TEST_DIGITS = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
EVEN = {"fmnist": (10, 6000, 1000), "cifar100": (100, 500, 100)}


@pytest.fixture(scope="module")
def load():
    loaded = {}

    def once(name):
        if not (Path(FOLDER) / name).is_dir():
            pytest.skip(f"{name} is not in FEDAMP_TEST_DATA")
        if name not in loaded:
            loaded.clear()  # one at a time: they are large
            loaded[name] = load_data(name, Path(FOLDER))
        return loaded[name]

    return once


def histograms(data):
    return [
        torch.bincount(data.y[pool], minlength=data.num_classes).tolist() for pool in (data.train_pool, data.test_pool)
    ]


def test_mnist(load):
    data = load("mnist")
    assert data.x.shape == (70000, 28, 28)
    assert (len(data.train_pool), len(data.test_pool)) == (60000, 10000)
    assert histograms(data) == [TRAIN_DIGITS, TEST_DIGITS]
    assert data.y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert data.y[60000:60005].tolist() == [7, 2, 1, 0, 4]
    pixels = data.x[:60000].double() / 255
    assert (float(pixels.mean()), float(pixels.std())) == pytest.approx((0.1307, 0.3081), abs=1e-4)


@pytest.mark.parametrize("name", EVEN)
def test_classes_of_equal_size(load, name):
    data, (classes, train, test) = load(name), EVEN[name]
    assert data.num_classes == classes
    assert histograms(data) == [[train] * classes, [test] * classes]
    assert data.train_pool.tolist() == list(range(classes * train))
    assert data.x.shape == (classes * (train + test), *((3, 32, 32) if name == "cifar100" else (28, 28)))


def test_fmnist_pixels(load):
    pixels = load("fmnist").x[:60000].double() / 255
    assert (float(pixels.mean()), float(pixels.std())) == pytest.approx((0.2860, 0.3530), abs=1e-4)


def test_cifar100_is_seen_with_mean_0_and_deviation_1(load):
    data = load("cifar100")
    for channel in range(3):
        pixels = data.x[:50000, channel].double()
        assert float(pixels.mean()) == pytest.approx(data.shift[channel], abs=0.02)
        assert float(pixels.std()) == pytest.approx(data.scale[channel], abs=0.02)


def test_emnist(load):
    data = load("emnist")
    assert data.num_classes == 62
    assert data.x.shape[1:] == (28, 28)
    if not data.note:
        assert (len(data.train_pool), len(data.test_pool)) == (697932, 116323)
        return
    counts = torch.bincount(data.y, minlength=62)
    assert len(data) == 116323
    assert (int(counts.min()), int(counts.max())) == (317, 6330)
    assert int(counts[:10].sum()) == 57918
    assert "split 80/20" in data.note


def test_emnist_test_split_is_split_within_each_class(load):
    data = load("emnist")
    if not data.note:
        pytest.skip("the official split is there")
    train, test = (torch.tensor(counts) for counts in histograms(data))
    assert ((train - 0.8 * (train + test)).abs() <= 0.5).all()
    assert torch.equal(torch.cat([data.train_pool, data.test_pool]).sort().values, torch.arange(len(data)))


def test_emnist_stands_upright(load):
    data = load("emnist")
    ink = data.x[data.y == 1][:2000] > 100
    height, width = ink.any(2).sum(1).double().mean(), ink.any(1).sum(1).double().mean()
    assert height > 1.3 * width
    # Transposed, an L would have its bar at the right and top; upright it has it at the left and bottom.
    letter = data.x[data.y == 10 + ord("L") - ord("A")].double().mean(0)
    assert letter[14:].sum() > 1.2 * letter[:14].sum()
    seven = data.x[data.y == 7].double().mean(0)
    assert seven[:10].sum() > 1.2 * seven[18:].sum()


@pytest.mark.parametrize("name", ["mnist", "fmnist", "emnist", "cifar100"])
def test_no_fault_is_found(name):
    states = {each: state for each, state, _, _ in status(Path(FOLDER))}
    if states[name] == "missing":
        pytest.skip(f"{name} is not in FEDAMP_TEST_DATA")
    assert states[name] in ("complete", "partial" if name == "emnist" else "complete")
    assert check(name, Path(FOLDER)) == []
