"""Gaussian clients whose M and v are estimated from two halves: the figures of docs/autoamp.md, within bounds."""

import pytest

from benchmarks.gaussian_clients import KINDS, SIZES, outcome


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [2, 3, 10])
@pytest.mark.many
def test_in_many_dimensions_little_is_lost_and_nobody_is_worse_off_than_alone(m, kind, sizes):
    found = outcome(m, 1000, kind, sizes)
    assert -1e-9 <= found.excess < 0.25
    assert found.worst < 1.02


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [2, 3, 10])
def test_in_few_dimensions_too_if_sizes_are_alike(m, kind):
    found = outcome(m, 100, kind, "200 samples each")
    assert -1e-9 <= found.excess < 0.25
    assert found.worst < 1.02
