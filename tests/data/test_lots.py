"""Rows are held out by what they hold: a row stays on its side whatever else is in the file, and whoever holds it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import fedamp
from data.silo_files import silo
from fedamp.config import Named, RunConfig
from fedamp.data.clients import Clients
from fedamp.data.lots import below, lots
from fedamp.data.silos.row_digests import row_digests
from fedamp.data.silos.schema import make_schema
from fedamp.errors import UserError
from fedamp.runs.material import silo_material

CONFIG = RunConfig(data="./x", setting=Named("natural"), clients=1, held_out=0.25)


def table(rows, name="a", columns=("v", "sex", "w"), seed=0):
    """Return a silo with these rows of an endless table: row i is the same in every silo."""
    streams = [np.random.default_rng([seed, i]) for i in rows]
    x = np.array([stream.normal(size=2).round(3) for stream in streams])
    return silo(x, [i % 2 for i in rows], name, columns, sex=["FM"[i % 3 == 0] for i in rows])


def sides(raw, number=0, **settings):
    """Return the sides of a silo's rows: the inputs that are trained on, tested, and used for validation."""
    config = replace(CONFIG, **settings)
    clients = silo_material(config, [raw], make_schema([table(range(60))]), [number]).clients
    clients = clients.hold_out(config.validation, config.seed)
    parts = (clients.train[0], clients.test[0], clients.validation[0] if clients.validation else torch.empty(0).long())
    return [{tuple(row) for row in clients.x[part].tolist()} for part in parts]


def test_rows_that_come_and_go_move_no_other_row():
    before = sides(table(range(40)), validation=0.2)
    after = sides(table([*range(50, 60), *reversed(range(7, 40))]), validation=0.2)
    for one in range(3):
        for other in range(3):
            assert one == other or not before[one] & after[other]
    assert all(len(before[side] & after[side]) for side in range(3))


def test_two_silos_put_the_same_row_on_the_same_side():
    """Whatever their numbers, their order of rows and their order of columns."""
    one, other = table(range(40)), table(range(20, 60), "b", ("w", "sex", "v"))
    other = replace(other, x=other.x[:, ::-1].copy())
    (train, test, _), (their_train, their_test, _) = sides(one, 0), sides(other, 7)
    assert test & their_test
    assert not test & their_train
    assert not train & their_test


def test_the_seed_and_the_purpose_decide():
    digests = row_digests(table(range(40)))
    drawn = [lots(digests, seed, purpose) for seed, purpose in ((0, "test"), (1, "test"), (0, "halves"))]
    assert len({tuple(each) for each in drawn}) == 3
    assert all((each >= 0).all() and (each < 1).all() for each in drawn)


def test_the_share_is_met_on_average():
    digests = [i.to_bytes(4, "little") for i in range(20_000)]
    u = lots(digests, 3, "test")
    assert abs(below(u, 0.2).mean() - 0.2) < 4 * np.sqrt(0.16 / 20_000)
    assert abs(np.corrcoef(u, lots(digests, 3, "validation"))[0, 1]) < 0.03  # four standard deviations


@pytest.mark.parametrize("rows", [2, 3, 40])
def test_every_silo_has_a_row_on_each_side(rows):
    for seed in range(60):
        train, test, held = sides(table(range(rows)), seed=seed, validation=0.2 if rows > 3 else 0.0)
        assert train
        assert test
        assert held or rows < 4
        assert len(train) + len(test) + len(held) == rows


def test_equal_rows_stay_together_and_labels_do_not_matter():
    raw = silo(np.repeat(np.arange(20.0), 5)[:, None], [i % 2 for i in range(100)])
    clients = silo_material(CONFIG, [raw], make_schema([raw]), [0]).clients
    train, test = ({float(v) for v in clients.x[part[0]]} for part in (clients.train, clients.test))
    assert not train & test
    assert row_digests(raw) == row_digests(replace(raw, y=raw.y[::-1].copy()))


def test_rows_that_are_all_alike_can_not_be_split():
    raw = silo(np.ones((6, 2)), [0, 1] * 3)
    with pytest.raises(UserError, match="same inputs stay together"):
        silo_material(CONFIG, [raw], make_schema([raw]), [0])


@pytest.mark.parametrize("kind", ["silos", "arrays"])
def test_too_few_rows_are_told_with_the_silo_the_seed_and_a_cure(tmp_path, kind):
    x = {"big": np.arange(60.0)[:, None], "small": np.arange(2.0)[:, None]}
    if kind == "silos":
        for name, rows in x.items():
            np.savez(tmp_path / f"{name}.npz", x=rows, y=np.arange(len(rows)) % 2)
        given = {"data": f"{tmp_path}/"}
    else:
        given = {"clients": {name: (rows, np.arange(len(rows)) % 2) for name, rows in x.items()}, "held_out": 0.5}
    words = (
        "validation is 0.2, which with seed 7 leaves 'small' with 1 of its 1 samples to train on and 0 held out; "
        "expected at least one of each.*: give 'small' more rows, leave it out, or choose another --validation"
    )
    with pytest.raises(UserError, match=words):
        fedamp.run(**given, seed=7, validation=0.2, model="logistic", rounds=1)


def test_a_row_is_what_it_holds_however_it_is_stored():
    x = np.array([[1.0, -0.0], [2.0, 3.0]])
    same = [silo(x.astype(kind), [0, 1]) for kind in (np.float64, np.float32, np.int64)]
    assert row_digests(same[0]) == row_digests(same[1]) == row_digests(same[2])
    ab = silo(np.zeros((2, 0)), [0, 1], "a", ("p", "q"), p=["a", "ab"], q=["bc", "c"])
    assert len(set(row_digests(ab))) == 2  # a+bc and ab+c


def test_samples_that_are_not_from_files_are_split_as_before():
    x = torch.arange(10.0)[:, None]
    assert [len(part) for part in Clients.of([(x, x[:, 0])]).hold_out(0.3, 0, "test").test] == [3]


def test_halves_are_made_by_what_rows_hold():
    """If rows go between AutoAMP's two probes, at most half as many of the others change halves."""
    from fedamp.runs.setup import assemble

    def halves(raw):
        config = replace(CONFIG, model=Named("logistic"))
        setup = assemble(config, silo_material(config, [raw], make_schema([table(range(60))]), [0]))
        local = setup.trainer.local(setup.clients, 1)
        parts = [local.part(torch.tensor([[half]])).clients for half in (1.0, 2.0)]
        return [{tuple(row) for row in part.x[part.train[0]].tolist()} for part in parts]

    (first, second), (_, later) = halves(table(range(60))), halves(table(range(6, 60)))
    assert abs(len(first) - len(second)) <= 1
    assert not first & second
    assert len(first & later) <= 3


def test_a_share_that_chance_does_not_explain_is_told():
    raw = silo(np.repeat([1.0, 2.0], 60)[:, None], [0, 1] * 60)
    (warning,) = silo_material(CONFIG, [raw], make_schema([raw]), [0]).warnings
    assert "60 of 120 rows of silo 'a' are held out for testing, not 30" in warning
    assert silo_material(CONFIG, [table(range(40))], make_schema([table(range(40))]), [0]).warnings == ()
