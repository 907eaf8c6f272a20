"""Data that changes in mid-run: no row changes sides, both sides are told, and nothing but a round's number travels."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedamp.data.clients import Clients
from fedamp.data.silos.leaving import MIN_COUNT
from fedamp.data.silos.read import read_silo
from fedamp.federation.silo.app import LOG
from fedamp.federation.silo.known_rows import FILE, KnownRows
from fedamp.federation.silo.unwilling import UnwillingError
from fedamp.federation.wire import reply_form
from fedamp.federation.wire.allowed_metrics import DATA_CHANGED, metric_names
from fedamp.federation.wire.encoding import RefusedError
from federation.inprocess import Local, plan_of, write_silos


def inputs(house):
    """Return the rows that a silo trains on, and those that it holds out."""
    clients = house.open(None).setup.clients
    return [{tuple(row) for row in clients.x[part[0]].tolist()} for part in (clients.train, clients.test)]


def keep(path, rows, more=None):
    """Leave only these rows of a silo's file, and add others."""
    with np.load(path) as file:
        x, y = file["x"][rows], file["y"][rows]
    if more is not None:
        x, y = np.concatenate([x, more]), np.concatenate([y, np.zeros(len(more), dtype=y.dtype)])
    np.savez(path, x=x, y=y)


@pytest.fixture
def local(tmp_path):
    data = write_silos(tmp_path / "data")
    return Local(tmp_path, plan_of(data, rounds=2, validation=0.1), data)


def test_changed_data_moves_no_row_and_is_told_to_both_sides(local, fedamp_command):
    local.serve()
    house, path = local.houses[1], local.paths[1]
    train, test = inputs(house)
    keep(path, np.r_[4:33], np.random.default_rng(9).normal(size=(7, 5)).astype(np.float32))
    train_after, test_after = inputs(house)
    assert not test_after & train
    assert not train_after & test
    record = local.serve(rounds=5)
    log = (house.folder / LOG).read_text()
    assert "round 3: the data has changed: rows 7 added, 4 removed" in log
    assert "trained on" not in log
    assert log.count("the data has changed") == 1
    assert "the data has changed" not in (local.houses[0].folder / LOG).read_text()
    told = (local.folder / "record/log.txt").read_text()
    assert told.count("silo-1: its data changed in round 3; its scores before and after are on different test") == 1
    status = json.loads((local.folder / "record/status.json").read_text())
    assert [silo["data_changed"] for silo in status["silos"]] == [None, 3, None]
    fedamp_command("report", record.folder, "--out", local.folder / "page.html")
    assert "its data changed in round 3" in (local.folder / "page.html").read_text()


def test_a_lost_reply_does_not_lose_the_word(local):
    local.serve()
    keep(local.paths[0], np.r_[2:24])
    local.tamper = lambda number, reply: None if number == 0 else reply  # round 3 counts without it
    local.serve(rounds=3)
    local.tamper = lambda number, reply: reply
    record = local.serve(rounds=4)
    assert record.state.standings[record.keys[0]].data_changed == 3
    assert "silo-0: its data changed in round 3" in (local.folder / "record/log.txt").read_text()


def test_a_silo_of_hardly_any_rows_sends_no_model_until_its_file_is_whole_again(local):
    """A half-written export: a model of one sample is that sample."""
    local.serve()
    house, path = local.houses[1], local.paths[1]
    whole = path.read_bytes()
    keep(path, np.r_[:4])
    local.serve(rounds=4)
    log = (house.folder / LOG).read_text()
    assert "not taking part: too few training samples in" in log
    assert f"expected at least {MIN_COUNT}" in log
    assert "round 3:" not in log
    assert "the data has changed" not in log
    assert "silo-1 refuses: it has too few samples to train on" in (local.folder / "record/log.txt").read_text()
    path.write_bytes(whole)
    local.serve(rounds=5)
    assert "round 5:" in (house.folder / LOG).read_text()
    assert "the data has changed" not in (house.folder / LOG).read_text()


@pytest.mark.parametrize("trained_on", [MIN_COUNT - 1, MIN_COUNT])
def test_the_limit_is_that_of_training_samples(local, trained_on):
    """Rows that are held out are none to train on."""
    path = local.paths[0]
    train, _ = inputs(local.houses[0])
    raw, schema = read_silo(path), local.plan.schema
    shown = (raw.x - np.array(schema.shift)) / np.array(schema.scale)
    used = np.array([tuple(np.float32(row).tolist()) in train for row in shown])
    keep(path, np.concatenate([np.flatnonzero(~used), np.flatnonzero(used)[:trained_on]]))
    if trained_on < MIN_COUNT:
        with pytest.raises(UnwillingError, match=f"too few training samples in .*: {trained_on}; expected at least"):
            local.houses[0].open(None)
    else:
        assert local.houses[0].open(None).samples == trained_on


def test_only_a_round_number_travels(local):
    local.serve()
    silo = local.houses[2].open(None)
    assert DATA_CHANGED not in silo._counts()
    keep(local.paths[2], np.r_[1:42])
    silo = local.houses[2].open(None)
    silo.rows.note(3, silo.setup.clients)
    assert silo._counts()[DATA_CHANGED] == 3
    digests = (local.houses[2].folder / FILE).read_bytes()
    assert (local.houses[2].folder / FILE).stat().st_mode & 0o077 == 0
    assert not any(path.read_bytes() == digests for path in (local.folder / "record").rglob("*") if path.is_file())


@pytest.mark.parametrize("said", [2.5, float("nan"), float("inf"), -1.0])
def test_the_number_must_be_one(said):
    with pytest.raises(RefusedError, match=DATA_CHANGED):
        reply_form.check_metrics({DATA_CHANGED: said}, metric_names("accuracy"))


def test_a_corrected_label_is_a_change_but_moves_nothing(local, tmp_path):
    rows, house = KnownRows(tmp_path / "rows.npz"), local.houses[0]
    clients = house.open(None).setup.clients
    assert rows.note(1, clients) == ""
    assert rows.note(2, clients) == ""
    assert rows.changed_in() == 0
    other = replace(clients, y=clients.y.clone())
    other.y[0] = 1 - other.y[0].clamp(max=1)
    assert "rows 1 added, 1 removed" in rows.note(3, other)
    assert rows.changed_in() == 3
    assert rows.note(4, other) == ""
    assert rows.changed_in() == 3


def test_a_row_that_the_last_of_its_side_moved_is_told(local, tmp_path):
    """With no test row left below the threshold, the nearest training row takes its place: the one crossing."""
    path = local.paths[0]
    _, test = inputs(local.houses[0])
    raw, schema = read_silo(path), local.plan.schema
    shown = (raw.x - np.array(schema.shift)) / np.array(schema.scale)
    held = [tuple(np.float32(row).tolist()) in test for row in shown]
    rows = KnownRows(tmp_path / "rows.npz")
    rows.note(1, local.houses[0].open(None).setup.clients)
    keep(path, ~np.array(held))
    text = rows.note(2, local.houses[0].open(None).setup.clients)
    assert f"{sum(held)} removed" in text
    assert "held-out rows had been trained on" in text


def test_a_row_that_was_away_is_still_known_as_trained_on(tmp_path):
    def clients(train, test):
        ids = torch.tensor([*train, *test])
        sides = {"train": (torch.arange(len(train)),), "test": (torch.arange(len(train), len(ids)),)}
        digests = tuple(int(i).to_bytes(16, "little") for i in ids)
        return Clients(ids[:, None].float(), ids * 0, numbers=(0,), digests=digests, **sides)

    rows = KnownRows(tmp_path / "rows.npz")
    assert rows.note(1, clients(range(9), [9])) == ""
    assert "4 removed" in rows.note(2, clients(range(5), [9]))
    assert "1 held-out rows had been trained on" in rows.note(3, clients(range(5), [7]))


def test_a_damaged_file_is_begun_anew(local, tmp_path):
    rows = KnownRows(tmp_path / "rows.npz")
    (tmp_path / "rows.npz").write_bytes(b"PK\x03\x04 not whole")
    assert rows.changed_in() == 0
    assert rows.note(1, local.houses[0].open(None).setup.clients) == ""
