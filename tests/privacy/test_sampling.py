"""Each sample is in a minibatch with the same chance, on its own; and how many gradients one sample can be in."""

import itertools

import numpy as np
import pytest

from fedamp import seeds
from fedamp.privacy import sampling


def drawn(size, chance, times):
    """Return in which of so many minibatches each sample is, `(times, size)`, and all places."""
    stream, places = seeds.generator(3, "private batches", 1, 2), []
    chosen = np.zeros((times, size), bool)
    for row in chosen:
        index, place = sampling.poisson(size, chance, stream)
        row[index] = True
        places.append(place)
    return chosen, np.concatenate(places)


@pytest.mark.parametrize("chance", [0.05, 0.3, 0.9])
def test_each_sample_is_in_it_with_its_chance_and_independently_of_the_others_and_of_the_last_time(chance):
    times = 20_000
    chosen, places = drawn(6, chance, times)
    deviation = np.sqrt(chance * (1 - chance) / times)
    assert np.abs(chosen.mean(0) - chance).max() < 4.5 * deviation
    correlation = np.corrcoef(chosen.T.astype(float))
    assert np.abs(correlation - np.eye(6)).max() < 4.5 / np.sqrt(times)
    after = [np.corrcoef(chosen[:-1, i], chosen[1:, j])[0, 1] for i in range(6) for j in range(6)]
    assert np.abs(after).max() < 4.5 / np.sqrt(times)
    assert 0 <= places.min() <= places.max() < 1
    assert np.abs(places.mean() - 0.5) < 4.5 * np.sqrt(1 / 12 / len(places))


def test_a_chance_of_one_takes_all_and_none_of_none_is_none():
    index, _ = sampling.poisson(5, 1.0, seeds.generator(0, "a"))
    assert index.tolist() == [0, 1, 2, 3, 4]
    assert len(sampling.poisson(0, 0.5, seeds.generator(0, "a"))[0]) == 0
    assert sampling.rate(10, 4) == 1
    assert sampling.rate(10, 40) == 0.25


def test_one_sample_more_changes_nothing_for_the_others():
    few, places = sampling.poisson(50, 0.3, seeds.generator(1, "b"))
    more, places_too = sampling.poisson(51, 0.3, seeds.generator(1, "b"))
    assert more[: len(few)].tolist() == few.tolist()
    assert places_too[: len(few)].tolist() == places.tolist()
    assert set(more.tolist()) - set(few.tolist()) <= {50}


def test_how_many_gradients_a_sample_is_in_is_what_its_worst_place_says():
    all_parts = [(i, p) for p in (1, 2, 3, 4) for i in range(1, p + 1)]
    places = (np.arange(5040) + 0.5) / 5040  # inside the cells of every division up to 10
    for length in (0, 1, 2, 3):
        for parts in itertools.product(all_parts, repeat=length):
            covered = sum((np.floor(places * p) == i - 1).astype(int) for i, p in parts)
            assert sampling.most_gradients(parts) == np.max(covered, initial=0)
