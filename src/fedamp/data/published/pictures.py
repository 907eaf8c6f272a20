"""The published picture data sets, read from their publishers' files: MNIST, Fashion-MNIST, EMNIST, CIFAR-100.

Each function takes the data set's own folder. Train pictures come first, then the test ones, each in the order
of their files, so that a position names the same picture for ever.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedamp import seeds
from fedamp.data.dataset import Dataset
from fedamp.data.published.folder import find, locate
from fedamp.data.published.formats.cifar import read_cifar100
from fedamp.data.published.formats.common import advice
from fedamp.data.published.formats.idx import read_idx
from fedamp.errors import UserError

Part = tuple[NDArray[np.uint8], NDArray[np.uint8]]  # pictures and labels

# Of the training pixels / 255, channel by channel, as published.
_CIFAR100_MEAN = (0.5071, 0.4865, 0.4409)
_CIFAR100_STD = (0.2673, 0.2564, 0.2762)


def load_mnist(folder: Path) -> Dataset:
    """Handwritten digits (LeCun et al. 1998): 60,000 + 10,000 grey pictures of 28 x 28, 10 classes."""
    parts = [_idx_part("mnist", folder, f"{part}-{{}}-ubyte.gz", 10) for part in ("train", "t10k")]
    return _official("mnist", parts, 10, "MNIST handwritten digits (LeCun, Cortes & Burges 1998, CC BY-SA 3.0)")


def load_fmnist(folder: Path) -> Dataset:
    """Clothes from a shop, Fashion-MNIST (Xiao et al. 2017): 60,000 + 10,000 grey pictures of 28 x 28, 10 classes."""
    parts = [_idx_part("fmnist", folder, f"{part}-{{}}-ubyte.gz", 10) for part in ("train", "t10k")]
    return _official("fmnist", parts, 10, "Fashion-MNIST, Zalando's articles (Xiao, Rasul & Vollgraf 2017, MIT)")


def load_emnist(folder: Path) -> Dataset:
    """Digits and letters, EMNIST ByClass (Cohen et al. 2017): 814,255 grey pictures of 28 x 28, 62 classes.

    Classes are 0-9, A-Z, a-z in this order. The files hold each picture transposed; here it is upright.

    Where both train files are absent, the 116,323 pictures of the test split are all there is: within each class
    80 % of them, rounded, are for training and the rest for testing, drawn once with a seed of its own, and the
    data set's note says so.
    """
    names = "emnist-byclass-{part}-{{}}-ubyte.gz"
    train = names.format(part="train")
    has_train = any(locate(folder, train.format(kind)) for kind in ("images-idx3", "labels-idx1"))
    parts = [
        _idx_part("emnist", folder, names.format(part=part), 62, transposed=True)
        for part in (("train", "test") if has_train else ("test",))
    ]
    about = "EMNIST ByClass, letters and digits of NIST Special Database 19 (Cohen et al. 2017)"
    return _official("emnist", parts, 62, about) if has_train else _own_split("emnist", parts[0], 62, about)


def load_cifar100(folder: Path) -> Dataset:
    """Photographs of things (Krizhevsky 2009): 50,000 + 10,000 colour pictures of 32 x 32, 100 classes.

    The labels are the fine ones. A model sees each channel less its mean, in units of its standard deviation,
    both of the training pixels as published to four digits.
    """
    parts = []
    for part in ("train", "test"):
        pictures, fine, _ = read_cifar100(find("cifar100", folder, f"cifar-100-binary/{part}.bin"))
        parts.append((pictures, fine))
    return _official(
        "cifar100",
        parts,
        100,
        "CIFAR-100, fine labels (Krizhevsky 2009)",
        shift=tuple(255 * mean for mean in _CIFAR100_MEAN),
        scale=tuple(255 * std for std in _CIFAR100_STD),
    )


LOADERS: dict[str, Callable[[Path], Dataset]] = {
    "mnist": load_mnist,
    "fmnist": load_fmnist,
    "emnist": load_emnist,
    "cifar100": load_cifar100,
}


def _idx_part(name: str, folder: Path, files: str, num_classes: int, *, transposed: bool = False) -> Part:
    """Return pictures and labels of a split whose two files are named alike but for their kind."""
    at = find(name, folder, files.format("images-idx3"))
    labels_at = find(name, folder, files.format("labels-idx1"))
    labels = read_idx(labels_at, name)  # before the pictures, which take longer
    if labels.ndim != 1:
        raise UserError(f"{labels_at} has shape {labels.shape}; expected (N,), one label each{advice(name)}")
    if labels.max() >= num_classes:
        raise UserError(f"{labels_at} has label {labels.max()}; expected 0 to {num_classes - 1}{advice(name)}")
    pictures = read_idx(at, name)
    if pictures.shape[1:] != (28, 28):
        raise UserError(f"{at} has shape {pictures.shape}; expected (N, 28, 28), one picture each{advice(name)}")
    if len(pictures) != len(labels):
        raise UserError(
            f"{at} has {len(pictures)} pictures and {labels_at.name} {len(labels)} labels; "
            f"expected one label for each{advice(name)}"
        )
    return pictures.swapaxes(1, 2) if transposed else pictures, labels


def _official(
    name: str,
    parts: Sequence[Part],
    num_classes: int,
    about: str,
    shift: float | tuple[float, ...] = 0.0,
    scale: float | tuple[float, ...] = 255.0,
) -> Dataset:
    """Return a data set with the split of its publisher, train and test."""
    labels = np.concatenate([part for _, part in parts])
    # Into an existing array: transposed pictures would stay transposed in memory.
    pictures = np.empty((len(labels), *parts[0][0].shape[1:]), np.uint8)
    np.concatenate([part for part, _ in parts], out=pictures)
    num_train = len(parts[0][1])
    return Dataset(
        name=name,
        x=torch.from_numpy(pictures),
        y=torch.from_numpy(labels.astype(np.int64)),
        num_classes=num_classes,
        train_pool=torch.arange(num_train),
        test_pool=torch.arange(num_train, len(labels)),
        shift=shift,
        scale=scale,
        about=about,
    )


def _own_split(name: str, part: Part, num_classes: int, about: str) -> Dataset:
    """Return a data set of a test split alone, 80/20 within each class."""
    pictures, labels = part
    train, test = [], []
    for label in range(num_classes):
        positions = np.flatnonzero(labels == label)
        positions = seeds.generator(0, f"{name} split", label).permutation(positions)
        cut = round(0.8 * len(positions))
        train.append(positions[:cut])
        test.append(positions[cut:])
    return Dataset(
        name=name,
        x=torch.from_numpy(np.ascontiguousarray(pictures)),
        y=torch.from_numpy(labels.astype(np.int64)),
        num_classes=num_classes,
        train_pool=torch.from_numpy(np.sort(np.concatenate(train))),
        test_pool=torch.from_numpy(np.sort(np.concatenate(test))),
        shift=0.0,
        scale=255.0,
        about=about,
        note=f"the official test split alone ({len(labels):,} pictures), split 80/20 within each class by fedamp; "
        "the official train split was not there",
    )
