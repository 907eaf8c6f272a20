"""Rows and states: picked, put, grown, without copies that nobody needs."""

import torch

from fedamp.rows import Rows, State


def test_state_appends_pairs_as_strangers():
    state = State(2, {"w": Rows.of(torch.ones(2, 1))}, {"xi": torch.full((2, 2), 0.5)})
    late = State(1, {"w": Rows.of(torch.zeros(1, 1))})
    expected = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    assert torch.equal(state.append(late).pairs["xi"], expected)


def test_one_row_that_all_clients_share_is_picked_without_a_copy():
    shared = Rows.of(torch.randn(1, 5)).repeat(4)
    for index in (torch.tensor([2, 0]), torch.tensor([True, False, True, False]), slice(1, 3)):
        picked = shared[index]
        assert picked.params.shape == (2, 5)
        assert picked.params.data_ptr() == shared.params.data_ptr()
        assert torch.equal(picked.params, shared.params[index])
