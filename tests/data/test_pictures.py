"""The published picture data sets, from small files of their publishers' form."""

import numpy as np
import pytest
import torch
from published_files import idx, one_line, pictures, records, unchecked, write, write_split

from fedamp import seeds
from fedamp.data import load_data
from fedamp.data.published.pictures import LOADERS, load_cifar100, load_emnist, load_fmnist, load_mnist
from fedamp.data.published.status import check


@pytest.mark.parametrize(("name", "load"), [("mnist", load_mnist), ("fmnist", load_fmnist)])
@pytest.mark.parametrize("suffix", [".gz", ""])
def test_mnist_is_train_then_test(tmp_path, name, load, suffix):
    x = write_split(tmp_path, "train-{}-ubyte", [0, 9, 4], suffix=suffix)
    more = write_split(tmp_path, "t10k-{}-ubyte", [5, 6], pictures([5, 6], seed=1))
    data = load(tmp_path)
    np.testing.assert_array_equal(data.x, np.concatenate([x, more]))
    assert data.name == name
    assert data.x.dtype == torch.uint8
    assert data.y.tolist() == [0, 9, 4, 5, 6]
    assert (data.train_pool.tolist(), data.test_pool.tolist()) == ([0, 1, 2], [3, 4])
    assert (data.num_classes, data.shift, data.scale, data.note) == (10, 0, 255, "")


def test_the_gzipped_file_comes_first(tmp_path):
    write_split(tmp_path, "train-{}-ubyte", [1, 1], suffix="")
    write_split(tmp_path, "train-{}-ubyte", [2, 2])
    write_split(tmp_path, "t10k-{}-ubyte", [3])
    assert load_mnist(tmp_path).y.tolist() == [2, 2, 3]


def test_cifar100_has_fine_labels_and_a_scale_for_each_channel(tmp_path):
    content, pixels = records([1, 2, 3], [97, 98, 99])
    write(tmp_path, "cifar100/cifar-100-binary/train.bin", content[:2].tobytes())
    write(tmp_path, "cifar100/cifar-100-binary/test.bin", content[2:].tobytes())
    data = load_data("cifar100", tmp_path)
    np.testing.assert_array_equal(data.x, pixels.reshape(3, 3, 32, 32))
    assert data.y.tolist() == [97, 98, 99]
    assert (data.train_pool.tolist(), data.test_pool.tolist()) == ([0, 1], [2])
    assert data.shift == pytest.approx((129.31, 124.06, 112.43), abs=0.01)
    assert data.scale == pytest.approx((68.16, 65.38, 70.43), abs=0.01)


def test_emnist_is_turned_upright(tmp_path):
    x = write_split(tmp_path, "emnist-byclass-train-{}-ubyte", [61, 0])
    more = write_split(tmp_path, "emnist-byclass-test-{}-ubyte", [10, 36, 1])
    data = load_emnist(tmp_path)
    np.testing.assert_array_equal(data.x, np.concatenate([x, more]).swapaxes(1, 2))
    assert data.x.is_contiguous()
    assert (data.train_pool.tolist(), data.test_pool.tolist()) == ([0, 1], [2, 3, 4])
    assert (data.num_classes, data.note) == (62, "")


def test_emnist_of_its_test_split_alone_is_split_and_says_so(tmp_path):
    labels = [3] * 10 + [61] * 5 + [7]
    x = write_split(tmp_path, "emnist-byclass-test-{}-ubyte", labels)
    data = load_emnist(tmp_path)
    np.testing.assert_array_equal(data.x, x.swapaxes(1, 2))
    assert data.x.is_contiguous()
    assert torch.bincount(data.y[data.train_pool], minlength=62)[[3, 61, 7]].tolist() == [8, 4, 1]
    assert sorted(data.train_pool.tolist() + data.test_pool.tolist()) == list(range(16))
    drawn = seeds.generator(0, "emnist split", 61).permutation(np.arange(10, 15))
    assert data.test_pool.tolist()[-1] == drawn[-1]
    assert "test split alone (16 pictures), split 80/20 within each class" in data.note
    assert torch.equal(load_emnist(tmp_path).train_pool, data.train_pool)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train-images-idx3-ubyte.gz": idx(pictures([1]))}, "has 1 pictures and train-labels-.* 2 labels; expected"),
        (
            {"train-images-idx3-ubyte.gz": idx(np.zeros((2, 28, 27)))},
            r"has shape \(2, 28, 27\); expected \(N, 28, 28\)",
        ),
        ({"t10k-images-idx3-ubyte.gz": idx([1, 2])}, r"has shape \(2,\); expected \(N, 28, 28\)"),
        ({"t10k-labels-idx1-ubyte.gz": idx([[[1, 2]]])}, r"has shape \(1, 1, 2\); expected \(N,\)"),
        ({"t10k-labels-idx1-ubyte.gz": idx([1, 10])}, "has label 10; expected 0 to 9"),
        ({"t10k-labels-idx1-ubyte.gz": b"damaged"}, "begins with 64 61 6d 61"),
    ],
)
def test_files_that_do_not_fit_each_other(tmp_path, changes, message):
    for part in ("train", "t10k"):
        write_split(tmp_path / "mnist", part + "-{}-ubyte", [1, 2])
    assert check("mnist", tmp_path, {"mnist": unchecked("mnist")}) == []
    for name, content in changes.items():
        write(tmp_path / "mnist", name, content)
    with pytest.raises(ValueError, match=f"{message}.*`fedamp data fetch mnist`") as error:
        load_mnist(tmp_path / "mnist")
    assert one_line(error)
    faults = check("mnist", tmp_path, {"mnist": unchecked("mnist")})
    assert faults == [str(error.value)]


@pytest.mark.parametrize("name", LOADERS)
def test_missing_files_and_what_to_do(tmp_path, name):
    with pytest.raises(
        ValueError, match=f"{name} needs .* in .*{name}, which is not there; `fedamp data fetch {name}`"
    ) as e:
        load_data(name, tmp_path)
    assert "--data-dir (or FEDAMP_DATA)" in str(e.value)
    assert one_line(e)
    assert check(name, tmp_path) == [str(e.value)]


def test_emnist_with_one_of_its_train_files_is_incomplete(tmp_path):
    write_split(tmp_path, "emnist-byclass-test-{}-ubyte", [1, 2])
    write(tmp_path, "emnist-byclass-train-labels-idx1-ubyte", idx([1]))
    with pytest.raises(ValueError, match="emnist needs emnist-byclass-train-images-idx3-ubyte"):
        load_emnist(tmp_path)


def test_a_loader_needs_every_file(tmp_path):
    write_split(tmp_path, "train-{}-ubyte", [1, 2])
    with pytest.raises(ValueError, match="mnist needs t10k-images-idx3-ubyte"):
        load_mnist(tmp_path)
    with pytest.raises(ValueError, match=r"cifar100 needs cifar-100-binary/train\.bin"):
        load_cifar100(tmp_path)
