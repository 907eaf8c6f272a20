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


def test_rows_that_replace_all_or_none_are_not_copied():
    w, new = Rows.of(torch.randn(3, 2)), Rows.of(torch.randn(3, 2))
    for everyone in (torch.ones(3, dtype=torch.bool), torch.arange(3)):
        assert w.put(everyone, new) is new
        assert w[everyone].params.data_ptr() == w.params.data_ptr()
    assert w.put(torch.tensor([], dtype=torch.long), new[slice(0, 0)]) is w
    turned = w.put(torch.tensor([2, 1, 0]), new)
    assert torch.equal(turned.params, new.params.flip(0))
    assert torch.equal(w[torch.tensor([2, 1, 0])].params, w.params.flip(0))
    one = Rows.of(torch.zeros(3, 2)).put(torch.arange(3), new[slice(0, 1)])
    assert torch.equal(one.params, new.params[:1].expand(3, -1)), "one row for all"


def test_finite_rows_are_told_in_blocks(monkeypatch):
    monkeypatch.setattr("fedamp.rows.BLOCK", 6)
    params, buffers = torch.zeros(4, 7), torch.zeros(4, 2)
    params[1, 6], buffers[3, 0] = torch.inf, torch.nan
    assert Rows(params, buffers).finite().tolist() == [True, False, True, False]
