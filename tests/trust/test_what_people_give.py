"""What people hand over from Python or name on the command line works, or is refused in one line that says why."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fedamp
from fedamp.config import Named, RunConfig
from fedamp.config.run_config import is_folder
from fedamp.data.partition import make_setting
from fedamp.errors import UserError
from fedamp.methods import FedAMP, make_method

ROWS = 20
X = np.random.default_rng(0).normal(size=(ROWS, 3))
Y = np.arange(ROWS) % 2
QUICK = {"model": "logistic", "method": "separate", "rounds": 1, "steps": 2, "batch_size": 4}


def play(clients, **settings):
    return fedamp.run(clients=clients, **{**QUICK, **settings})


@functools.cache
def expected():
    """What plain arrays come to: all that holds the same numbers must come to the same."""
    return play([(X.astype(np.float32), Y)] * 2)


def assert_same(result):
    assert result.summary == expected().summary
    torch.testing.assert_close(result.models["own"].params, expected().models["own"].params, rtol=0, atol=0)


class Table:
    """A stand-in for pandas' DataFrame and Series, which give an array, and where [0] is a column's name."""

    def __init__(self, values, columns=()):
        self.values = values
        self.columns = columns

    def to_numpy(self):
        return np.asarray(self.values)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, key):
        raise KeyError(key)


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


single = X.astype(np.float32)
GOOD = {
    "tables": (Table(single, ("a", "b", "c")), Table(Y)),
    "tables of objects": (Table(single.astype(object)), Table(Y.astype(object))),
    "lists of lists": (single.tolist(), Y.tolist()),
    "tuples": (tuple(map(tuple, single.tolist())), tuple(Y.tolist())),
    "lists of arrays": (list(single), list(Y)),
    "lists of tensors": (list(torch.tensor(single)), list(torch.tensor(Y))),
    "double": (single.astype(np.float64), Y),
    "long double": (single.astype(np.longdouble), Y),
    "Fortran's order": (np.asfortranarray(single), Y),
    "backwards": (single[::-1].copy()[::-1], Y[::-1].copy()[::-1]),
    "read only": (read_only(single), read_only(Y)),
    "other byte order": (single.astype(">f4"), Y.astype(">i8")),
    "objects": (single.astype(object), Y.astype(object)),
    "truths": (single, Y > 0),
    "truths as objects": (single, (Y > 0).astype(object)),
    "small unsigned": (single, Y.astype(np.uint8)),
    "unsigned": (single, Y.astype(np.uint32)),
    "a column": (single, Y[:, None]),
    "nothing masked": (np.ma.masked_array(single, False), np.ma.masked_array(Y, False)),
    "requires grad": (torch.tensor(single, requires_grad=True), torch.tensor(Y)),
    "sparse": (torch.tensor(single).to_sparse(), torch.tensor(Y)),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", GOOD)
def test_all_that_holds_the_same_numbers_gives_the_same_result(kind):
    assert_same(play([GOOD[kind]] * 2))


def test_kinds_of_numbers():
    for kind in (torch.bool, torch.float16, torch.bfloat16):
        x, y = torch.tensor(single).to(kind), torch.linspace(0, 1, ROWS).to(torch.bfloat16)
        assert play([(x, y)] * 2).summary == play([(x.float(), y.float())] * 2).summary


def test_a_generator_of_clients():
    assert_same(play((single, Y) for _ in range(2)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_on_a_gpu():
    mixed = [(torch.tensor(single, device="cuda"), torch.tensor(Y, device="cuda")), (single, Y)]
    assert_same(play(mixed, device="cpu"))


MIXED = np.array([[1.0, "F", 3.0]] * ROWS, dtype=object)
HOLED = Y.astype(object)
HOLED[3] = None
DATES = np.array(["2020-01-01"] * ROWS, "M8[D]")
BAD = {
    "a table with words": ([(Table(MIXED, ("a", "sex", "c")), Table(Y))], "inputs of client 0.*column 'sex' is 'F'"),
    "an array with words": ([(X, Y), (MIXED, Y)], "inputs of client 1 are not numbers: row 0 is 'F'"),
    "something missing": ([(X, HOLED)], "targets of client 0 are not numbers: row 3 is None"),
    "masked": ([(np.ma.masked_greater(X, 1), Y)], "inputs of client 0 have masked cells"),
    "ragged": ([([[1.0], [1.0, 2.0]] * 10, Y)], "inputs of client 0 are not numbers"),
    "dates": ([(X, DATES)], r"targets of client 0 are not numbers, but of type datetime64\[D\]"),
    "complex": ([(X * 1j, Y)], "inputs of client 0 are not numbers, but of type complex128"),
    "complex tensor": ([(torch.tensor(X * 1j), Y)], "inputs of client 0 are complex"),
    "beyond 64 bits": ([(X, np.full(ROWS, 2**63, np.uint64))], "beyond 64 bits"),
    "objects beyond 64 bits": ([(X, np.full(ROWS, 2**70, object))], "beyond 64 bits"),
    "beyond float32": ([(X * 1e300, Y)], "inputs of client 0 are not all finite.*beyond float32"),
    "one-hot": ([(X, np.eye(2)[Y])], r"shape \(20, 2\).*argmax"),
    "a dict as client": ([{"x": X, "y": Y}], "client 0 is of type dict"),
    "one client without a list": ((torch.tensor(X), torch.tensor(Y)), r"client 0 is of type Tensor.*\[\(x, y\)\]"),
    "one client of two rows": ((X[:2], Y[:2]), r"client 0 is of type ndarray.*\[\(x, y\)\]"),
    "a share": (0.5, r"clients is 0\.5"),
    "a word": ("20", "clients is '20'"),
    "nobody": ([], "there are no clients"),
    "three parts": ([(X, Y, X)], "client 0 has 3 parts"),
    "no samples": ([(X[:0], Y[:0])], "client 0"),
    "a single number": ([(X, 1)], r"targets of client 0 have shape \(\)"),
    "other test samples": ([(X, Y, X[:, :2], Y)], r"test samples have shape \(2,\)"),
    "no test samples": ([(X, Y, X[:0], Y[:0])], "the test part of client 0"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", BAD)
def test_what_holds_no_numbers_is_one_line(kind):
    clients, words = BAD[kind]
    with pytest.raises(UserError, match=words) as raised:
        play(clients)
    assert "\n" not in str(raised.value)


def test_an_error_says_what_whole_inputs_are_for():
    with pytest.raises(UserError, match="they are whole numbers, for an Embedding: give floats"):
        play([(np.ones((ROWS, 3), int), Y)] * 2)


def test_real_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(single, columns=list("abc"), index=range(100, 100 + ROWS))
    assert_same(play([(frame, pandas.Series(Y))] * 2))
    assert_same(play([(frame, pandas.Series(Y, dtype="Int64"))] * 2))
    assert_same(play([(frame, pandas.Series(Y).astype(bool))] * 2))
    assert_same(play([(frame, pandas.DataFrame({"y": Y}))] * 2))
    holed = pandas.Series(Y, dtype="Int64")
    holed[3] = pandas.NA
    for bad, words in (
        ((frame, holed), "targets of client 0"),
        ((frame.assign(sex="F"), pandas.Series(Y)), "inputs of client 0.*column 'sex' is 'F'"),
    ):
        with pytest.raises(UserError, match=words):
            play([bad])


# Numbers of numpy's ----------------------------------------------------------------------------------------------

NUMPY = {
    "clients": np.int64(10),
    "rounds": np.int64(2),
    "steps": np.int32(2),
    "batch_size": np.uint8(10),
    "seed": np.int16(1),
    "lr": np.float32(0.5),
    "momentum": np.float64(0.5),
    "optimizer": "sgd",
    "poisoned": np.array([0, 3]),
    "poison_scale": np.float16(2),
    "noisy_clients": [np.int64(1)],
    "label_noise": np.float64(0.25),
    "deterministic": np.bool_(False),
    "setting": {"name": "practical", "groups": np.int64(2), "share": np.float32(0.5)},
    "model": {"name": "mlp", "hidden": np.int64(4)},
    "method": {"name": "fedamp", "sigma": np.float32(0.5), "strict": np.True_, "self_weight": np.full(10, 0.5)},
}
PYTHON = {
    **NUMPY,
    **{"clients": 10, "rounds": 2, "steps": 2, "batch_size": 10, "seed": 1, "lr": 0.5, "momentum": 0.5},
    **{"poisoned": [0, 3], "poison_scale": 2.0, "noisy_clients": [1], "label_noise": 0.25, "deterministic": False},
    "setting": {"name": "practical", "groups": 2, "share": 0.5},
    "model": {"name": "mlp", "hidden": 4},
    "method": {"name": "fedamp", "sigma": 0.5, "strict": True, "self_weight": [0.5] * 10},
}


def types(value):
    if isinstance(value, dict):
        return {key: types(each) for key, each in value.items()}
    return [types(each) for each in value] if isinstance(value, list | tuple) else type(value)


def test_numpys_numbers_describe_the_same_run():
    ours, theirs = RunConfig.of(PYTHON), RunConfig.of(NUMPY)
    assert theirs == ours
    assert theirs.to_dict() == ours.to_dict()
    assert json.dumps(theirs.to_dict()) == json.dumps(ours.to_dict())
    assert types(vars(theirs)) == types(vars(ours))
    assert types(dict(theirs.method.parameters)) == types(dict(ours.method.parameters))
    assert types(Named("fedprox", {"mu": np.float32(0.5)}).parameters) == {"mu": float}


def test_numpys_numbers_give_the_same_result(tmp_path):
    ours = fedamp.run(**PYTHON, out=tmp_path / "ours")
    theirs = fedamp.run(**NUMPY, out=tmp_path / "theirs")
    assert theirs.summary == ours.summary
    for name in ("description.json", "result.json"):
        records = [json.loads((tmp_path / whose / name).read_text()) for whose in ("ours", "theirs")]
        for each in records:
            each.pop("seconds", None)
        assert records[0] == records[1]
    assert_same(play([(single, Y)] * 2, seed=np.int64(0), held_out=np.float64(0.2)))


def test_a_method_with_numpys_numbers(tmp_path):
    own = FedAMP(sigma=np.float32(0.5), strict=np.False_, alpha_every=np.int64(30))
    result = fedamp.run(method=own, clients=10, rounds=1, steps=1, out=tmp_path / "run")
    assert result.facts.hyperparameters["sigma"] == 0.5
    json.dumps(result.to_dict())
    assert type(make_method("fedprox", mu=np.float64(0.5)).mu) is float
    assert FedAMP(self_weight=np.full(3, 0.5)).self_weight == (0.5, 0.5, 0.5)
    assert type(FedAMP(self_weight=np.float32(0.5)).self_weight) is float


def test_a_setting_with_numpys_numbers():
    y, pools = np.arange(400) % 4, (np.arange(300), np.arange(300, 400))
    ours = make_setting("practical", groups=2, sizes=20, test_samples=5)
    for sizes in (np.int64(20), np.array([20, 20])):
        theirs = make_setting("practical", groups=np.int64(2), sizes=sizes, test_samples=np.int64(5))
        dealt = (setting.assign(y, *pools, 4, 0).train for setting in (ours, theirs))
        for mine, other in zip(*dealt, strict=True):
            np.testing.assert_array_equal(mine, other)


def test_the_largest_seed_is_one_that_runs():
    assert np.isfinite(play([(X, Y)], seed=2**64 - 1).summary.best)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rounds": np.float64(3)}, "rounds is 3.0"),
        ({"rounds": np.bool_(True)}, "rounds is True"),
        ({"rounds": True}, "rounds is True"),
        ({"lr": np.array([0.1, 0.2])}, r"lr is \[0.1, 0.2\]"),
        ({"poisoned": [1.7]}, r"poisoned is \[1.7\]"),
        ({"poisoned": True}, "poisoned is True"),
        ({"noisy_clients": "0,x"}, "noisy_clients is '0,x'"),
        ({"seed": np.int64(-1)}, "seed is -1"),
        ({"seed": 2**64}, r"expected a whole number from 0 to 2\*\*64 - 1"),
    ],
)
def test_what_is_no_such_number_is_still_refused(settings, words):
    with pytest.raises(UserError, match=words):
        fedamp.run(**settings)
    if "seed" in settings:
        with pytest.raises(UserError, match=words):
            play([(X, Y)], **settings)


# A folder and a data set of one name -----------------------------------------------------------------------------


def write_silos(folder):
    Path(folder).mkdir()
    for name in "uv":
        rows = "".join(f"{row},{row % 2}\n" for row in range(ROWS))
        Path(folder, f"{name}.csv").write_text(f"a,label\n{rows}")


def test_a_data_sets_name_is_the_data_set(fedamp_command):
    write_silos("digits")
    flags = ["--model", "logistic", "--rounds", "1", "--steps", "1", "--json"]
    code, out, err = fedamp_command("run", "--data", "digits", "--clients", "10", *flags)
    assert code == 0, err
    result = json.loads(out)
    assert result["facts"]["input_shape"] == [8, 8]
    assert result["warnings"] == ["data is the data set digits; the folder of the same name, with 2 silos, is ./digits"]
    for folder in ("./digits", "digits/"):
        code, out, err = fedamp_command("run", "--data", folder, *flags)
        assert code == 0, err
        assert json.loads(out)["facts"]["names"] == ["u", "v"]
    Path("digits").rename("mine")
    assert is_folder("mine"), "another folder needs no dot"


def test_a_data_sets_own_files_are_no_silos(fedamp_command):
    Path("digits").mkdir()
    Path("digits/train-images-idx3-ubyte.gz").write_bytes(b"")
    code, out, err = fedamp_command("run", "--clients", "10", "--rounds", "1", "--steps", "1", "--json")
    assert (code, json.loads(out)["warnings"]) == (0, []), err


def test_a_folder_does_not_come_before_given_samples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("given").mkdir()
    assert_same(play([(single, Y)] * 2))


# What would have no effect ---------------------------------------------------------------------------------------

IDLE = {
    "label": ({"label": "outcome"}, "label is 'outcome', but the data is digits"),
    "schema": ({"schema": "ours.json"}, "schema is 'ours.json', but the data is digits"),
    "held_out": ({"held_out": 0.5}, r"held_out is 0\.5, but the data is digits.*--validation"),
    "task": ({"task": "regression"}, "task is 'regression', but digits has classes"),
}


@pytest.mark.parametrize("kind", IDLE)
def test_what_has_no_effect_on_a_data_set_is_refused(kind):
    settings, words = IDLE[kind]
    with pytest.raises(UserError, match=words):
        fedamp.run(data="digits", rounds=1, **settings)
    assert fedamp.run(task="classification", clients=10, rounds=1, steps=1).summary.metric == "accuracy"


@pytest.mark.parametrize("settings", [{"data": "mnist"}, {"setting": "iid"}, {"label": "y"}, {"schema": "s.json"}])
def test_what_has_no_effect_on_given_samples_is_refused(settings):
    (name,) = settings
    with pytest.raises(UserError, match=f"{name} is .*, but clients are given with their samples"):
        play([(X, Y)] * 2, **settings)


def test_nothing_is_held_out_of_clients_with_test_samples():
    with pytest.raises(UserError, match=r"held_out is 0\.5, but the clients have test samples"):
        play([(X, Y, X, Y)] * 2, held_out=0.5)


@pytest.mark.parametrize("command", ["run", "data"])
def test_a_label_column_of_arrays_is_refused(fedamp_command, command):
    Path("silos").mkdir()
    for name in "uv":
        np.savez(f"silos/{name}.npz", x=X, y=Y)
    arguments = ["run", "--data", "./silos"] if command == "run" else ["data", "schema", "silos"]
    code, _, err = fedamp_command(*arguments, "--label", "outcome")
    assert (code, "label is 'outcome', but npz files" in err) == (2, True), err


def test_a_schema_decides(fedamp_command):
    Path("silos").mkdir()
    for name in "uv":
        rows = "".join(f"{row},{row % 2},{row % 3}\n" for row in range(ROWS))
        Path(f"silos/{name}.csv").write_text(f"a,outcome,b\n{rows}")
    fedamp_command("data", "schema", "--yes", "silos", "--label", "outcome", "--keep", "a", "--out", "s.json")
    flags = ["run", "--data", "silos", "--schema", "s.json", "--model", "logistic", "--rounds", "1", "--steps", "1"]
    code, _, err = fedamp_command(*flags, "--label", "outcome", "--task", "regression")
    assert (code, "the schema is for classification" in err) == (2, True), err
    code, _, err = fedamp_command(*flags, "--label", "b")
    assert (code, "the schema predicts 'outcome'" in err) == (2, True), err
    code, out, err = fedamp_command(*flags, "--json")
    assert code == 0, err
    assert json.loads(out)["metric"] == "accuracy"
