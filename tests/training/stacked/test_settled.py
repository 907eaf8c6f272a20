"""The memory in which rows are trained on a GPU; that of a CPU stands in for it."""

import torch

from fedamp.training.stacked.graphs import Graphs


def test_rows_of_any_number_are_trained_in_one_place(monkeypatch):
    """With absent clients each round may have another number of them."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    graphs, rows = Graphs(), torch.arange(42.0).view(6, 7)
    places = set()
    for who in ([4, 1, 3], [5], [2, 0], [5, 4, 3, 2, 1, 0], [1, 2], [0, 0, 0, 0]):
        settled = graphs.settled("", rows, torch.tensor(who))
        torch.testing.assert_close(settled, rows[who], rtol=0, atol=0)
        assert graphs._address(settled) == settled.data_ptr()
        assert graphs._address(settled[1:]) is None or len(settled) == 1  # copied: there are many such places
        places.add(settled.data_ptr())
    assert len(places) == 2  # where three fit, and where six do
    assert sum(len(held) for held in graphs._settled.values()) == 6


def test_names_and_widths_have_places_of_their_own(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    graphs, rows, who = Graphs(), torch.rand(4, 5), torch.tensor([3, 1])
    own = {(name, part.shape[1]): graphs.settled(name, part, who) for name in "ab" for part in (rows, rows[:, 1:])}
    for (_, width), settled in own.items():
        torch.testing.assert_close(settled, rows[who, 5 - width :], rtol=0, atol=0)
    assert len({settled.data_ptr() for settled in own.values()}) == 4
