"""Handwritten digits, 8 x 8: small enough to come with the package.

Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998,
https://doi.org/10.24432/C50P49, licence CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/). `digits.npz`
holds the 1,797 pictures of its test set, as scikit-learn ships them: values unchanged (0 to 16), stored as bytes.
"""

from importlib import resources

import numpy as np
import torch

from fedamp import seeds
from fedamp.data.dataset import Dataset


def load_digits() -> Dataset:
    """Handwritten digits of 13 people (UCI): 1,797 grey pictures of 8 x 8, 10 classes; comes with fedamp.

    The file is one part of the original, so the split is ours: within each class 70 % of the samples, rounded,
    are for training and the rest for testing. It is drawn once with a seed of its own: a run's seed does not
    change it, so that runs of different seeds are tested on the same pictures.
    """
    stored = resources.files("fedamp.data").joinpath("digits.npz")
    with stored.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        x, y = arrays["x"], arrays["y"].astype(np.int64)
    rng = seeds.generator(0, "digits split")
    train, test = [], []
    for label in range(10):
        positions = rng.permutation(np.flatnonzero(y == label))
        cut = round(0.7 * len(positions))
        train.append(positions[:cut])
        test.append(positions[cut:])
    return Dataset(
        name="digits",
        x=torch.from_numpy(x),
        y=torch.from_numpy(y),
        num_classes=10,
        train_pool=torch.from_numpy(np.sort(np.concatenate(train))),
        test_pool=torch.from_numpy(np.sort(np.concatenate(test))),
        shift=0.0,
        scale=16.0,
        about="UCI Optical Recognition of Handwritten Digits, test set (Alpaydin & Kaynak 1998, CC BY 4.0)",
    )
