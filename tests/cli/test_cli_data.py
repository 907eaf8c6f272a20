"""Data at the command line: a user's own silos, and everything that can be wrong with them."""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from fedamp.data.silos.schema_file import read_schema

QUICK = ["--rounds", "2", "--epochs", "1"]


def write_csv(path, rows=40, seed=0, header="age,marker,outcome", target=None):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draws = np.random.default_rng(seed).normal(size=(rows, 2))
    lines = [header]
    for age, marker in draws:
        value = target(age, marker) if target else ("ill" if age + marker > 0 else "well")
        lines.append(f"{age:.4f},{marker:.4f},{value}")
    path.write_text("\n".join(lines) + "\n")


def three_silos():
    for seed, name in enumerate(["a", "b", "c"]):
        write_csv(f"silos/{name}.csv", seed=seed)


def test_three_silos_of_csv(fedamp_command):
    three_silos()
    code, out, err = fedamp_command(
        "run", "--data", "silos", "--label", "outcome", "--model", "logistic", "--lr", "0.05", "--rounds", "10",
        "--out", "here", "--json",
    )  # fmt: skip
    assert code == 0, err
    result = json.loads(out)
    assert result["bmta"] > 75
    assert result["facts"]["names"] == ["a", "b", "c"]
    assert result["facts"]["sizes"] == [36, 34, 32]  # of 40 each: rows are held out one by one, by what they hold
    assert result["facts"]["test_sizes"] == [4, 6, 8]
    schema = read_schema(Path("here/schema.json"))
    assert schema.labels == ("ill", "well")
    assert schema.columns == ("age", "marker")
    assert load_file("here/models.safetensors")["own.params"].shape == (3, 2 * 2 + 2)


def test_regression_says_lowest_error(fedamp_command):
    for seed, name in enumerate(["a", "b"]):
        write_csv(f"silos/{name}.csv", seed=seed, target=lambda age, marker: f"{100 + 20 * (2 * age - marker):.3f}")
    arguments = ["--label", "outcome", "--model", "logistic", "--lr", "0.05", "--rounds", "20", "--out", "here"]
    code, out, err = fedamp_command("run", "--data", "silos", *arguments)
    assert code == 0, err
    assert "lowest mean test error (RMSE)" in out
    code, out, _ = fedamp_command("run", "--data", "silos", *arguments, "--json")
    result = json.loads(out)
    assert (result["metric"], result["bmta"]) == ("rmse", None)
    assert result["best"] < 25  # in the target's own unit, whose deviation is about 45
    assert result["best"] == pytest.approx(np.mean(result["per_client"]))


def test_silos_of_npz_and_a_silo_that_lacks_a_class(fedamp_command):
    Path("silos").mkdir()
    for name, classes in (("a", 3), ("b", 2)):
        draws = np.random.default_rng(0)
        np.savez(
            f"silos/{name}.npz", x=draws.normal(size=(30, 4, 4)).astype(np.float32), y=draws.integers(0, classes, 30)
        )
    code, out, err = fedamp_command("run", "--data", "silos", *QUICK, "--json")
    assert code == 0, err
    assert json.loads(out)["facts"]["parameters"] == 16 * 64 + 64 + 64 * 3 + 3


def test_schemas_of_silos_that_never_meet(fedamp_command):
    three_silos()
    for name in "abc":
        assert (
            fedamp_command(
                "data", "schema", "--yes", f"silos/{name}.csv", "--label", "outcome", "--out", f"{name}.json"
            )[0]
            == 0
        )
    merge = ["--merge", "b.json", "--merge", "c.json"]
    assert (
        fedamp_command("data", "schema", "--yes", "silos/a.csv", "--label", "outcome", *merge, "--out", "merged.json")[
            0
        ]
        == 0
    )
    assert fedamp_command("data", "schema", "--yes", "silos", "--label", "outcome", "--out", "all.json")[0] == 0
    merged, together = read_schema(Path("merged.json")), read_schema(Path("all.json"))
    assert merged.labels == together.labels
    np.testing.assert_allclose(merged.shift, together.shift, atol=1e-12)
    np.testing.assert_allclose(merged.scale, together.scale, rtol=1e-12)
    code, out, _ = fedamp_command("data", "schema", "silos", "--label", "outcome")
    assert code == 0
    assert json.loads(out)["labels"] == ["ill", "well"]


def test_status_and_check(fedamp_command):
    code, out, _ = fedamp_command("data", "status")
    assert code == 0
    for word in ("mnist", "fmnist", "emnist", "cifar100", "missing"):
        assert word in out


def idx(path, array, magic=None, labels=False):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = struct.pack(">I", magic if magic is not None else 0x0800 + array.ndim)
    head += b"".join(struct.pack(">I", size) for size in array.shape)
    path.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes()))


def mnist(images=None, labels=None):
    for part, size in (("train", 30), ("t10k", 10)):
        idx(f"data/mnist/{part}-images-idx3-ubyte.gz", np.zeros((size, 28, 28)) if images is None else images)
        idx(f"data/mnist/{part}-labels-idx1-ubyte.gz", np.arange(size) % 10 if labels is None else labels)


def silo(text, name="silos/bad.csv"):
    def make():
        three_silos()
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())

    return make


def npz(**arrays):
    def make():
        Path("silos").mkdir()
        np.savez("silos/good.npz", x=np.ones((9, 3)), y=np.arange(9) % 2)
        np.savez("silos/bad.npz", **arrays)

    return make


CSV = ["run", "--data", "silos", "--label", "outcome", "--model", "logistic", *QUICK]
NPZ = ["run", "--data", "silos", "--model", "logistic", *QUICK]
MNIST = ["run", "--data", "mnist", "--setting", "iid", "--clients", "2", "--set", "setting.test_samples=5", *QUICK]
IID = ["run", "--data", "mnist", *QUICK]


def truncated():
    mnist()
    path = Path("data/mnist/train-images-idx3-ubyte.gz")
    path.write_bytes(path.read_bytes()[:-9])


def not_gzip():
    mnist()
    Path("data/mnist/train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8b rubbish")


def wrong_magic():
    mnist()
    idx("data/mnist/train-images-idx3-ubyte.gz", np.zeros((30, 28, 28)), magic=0x0D03)


def cifar(data):
    def make():
        folder = Path("data/cifar100/cifar-100-binary")
        folder.mkdir(parents=True)
        for part in ("train", "test"):
            (folder / f"{part}.bin").write_bytes(data)

    return make


def nothing():
    pass


def empty_folder():
    Path("silos").mkdir()


def silo_of_a_missing_file():
    Path("silos").write_text("not a folder")


def unreadable():
    three_silos()
    Path("silos/bad.csv").mkdir()  # a folder without any file


def one_class():
    for name in "ab":
        write_csv(f"silos/{name}.csv", target=lambda age, marker: "well")


BAD = {
    "data is not there": (nothing, IID, ["fedamp data fetch mnist"]),
    "truncated gzip": (truncated, MNIST, ["train-images-idx3-ubyte.gz"]),
    "no gzip": (not_gzip, MNIST, ["train-images-idx3-ubyte.gz"]),
    "wrong magic": (wrong_magic, MNIST, ["train-images-idx3-ubyte.gz"]),
    "label out of range": (lambda: mnist(labels=np.full(30, 11)), MNIST, ["11"]),
    "fewer labels than images": (lambda: mnist(labels=np.arange(5)), MNIST, ["30"]),
    "pictures of another size": (lambda: mnist(images=np.zeros((30, 9, 9))), MNIST, ["9"]),
    "cifar of a wrong length": (cifar(b"x" * 100), ["run", "--data", "cifar100"], ["train.bin"]),
    "cifar label out of range": (cifar(b"\xff" * 3074), ["run", "--data", "cifar100"], ["train.bin"]),
    "folder missing": (nothing, ["run", "--data", "./gone", *QUICK], ["gone"]),
    "folder without silos": (empty_folder, NPZ, ["silos"]),
    "a file instead of a folder": (silo_of_a_missing_file, ["run", "--data", "./silos", *QUICK], ["silos"]),
    "a silo that is an empty folder": (unreadable, CSV, ["bad"]),
    "foreign file": (silo("hello", "silos/notes.txt"), CSV, ["notes.txt"]),
    "csv without the label column": (three_silos, [*CSV[:4], "outcom"], ["did you mean", "outcome"]),
    "csv with a ragged row": (silo("age,marker,outcome\n1,2,ill\n1,ill\n"), CSV, ["bad.csv", "3"]),
    "csv with an empty cell": (silo("age,marker,outcome\n1,2,ill\n,2,ill\n"), CSV, ["age"]),
    "csv with nan": (silo("age,marker,outcome\n1,2,ill\nnan,2,well\n"), CSV, ["age"]),
    "empty csv": (silo(""), CSV, ["bad.csv"]),
    "csv with a header alone": (silo("age,marker,outcome\n"), CSV, ["bad"]),
    "binary rubbish": (silo(bytes(range(256))), CSV, ["bad.csv"]),
    "columns that differ": (silo("age,weight,outcome\n1,2,ill\n1,3,well\n"), CSV, ["weight"]),
    "column twice": (silo("age,age,outcome\n1,2,ill\n"), CSV, ["age"]),
    "npz without y": (npz(x=np.ones((9, 3))), NPZ, ["bad.npz"]),
    "npz of objects": (npz(x=np.array([{}, {}]), y=np.ones(2)), NPZ, ["bad.npz"]),
    "npz with nan": (npz(x=np.full((9, 3), np.nan), y=np.ones(9)), NPZ, ["bad"]),
    "npz of unequal lengths": (npz(x=np.ones((9, 3)), y=np.ones(8)), NPZ, ["9", "8"]),
    "empty npz silo": (npz(x=np.ones((0, 3)), y=np.ones(0)), NPZ, ["bad"]),
    "shapes that differ": (npz(x=np.ones((9, 4)), y=np.arange(9) % 2), NPZ, ["good", "bad"]),
    "one class only": (one_class, CSV, ["class"]),
    "a silo too small to hold out": (silo("age,marker,outcome\n1,2,ill\n"), CSV, ["held out"]),
    "a setting for silos": (three_silos, [*CSV, "--setting", "iid"], ["they are the partition"]),
    "unknown task": (three_silos, [*CSV, "--task", "ranking"], ["classification"]),
    "words as regression": (three_silos, [*CSV, "--task", "regression"], ["numbers for regression"]),
    "label noise for regression": (
        lambda: write_csv("silos/a.csv", target=lambda age, marker: f"{age:.3f}"),
        [*CSV, "--label-noise", "0.1"],
        ["regression"],
    ),
    "unknown preset": (nothing, ["run", "--preset", "paper/minst-iid"], ["paper/mnist-iid"]),
    "fetch of an unknown data set": (nothing, ["data", "fetch", "imagenet"], ["imagenet", "mnist"]),
    "check of an unknown data set": (nothing, ["data", "check", "imagenet"], ["imagenet"]),
    "check of a damaged one": (mnist, ["data", "check", "mnist"], ["mnist"]),
    "schema of nothing": (nothing, ["data", "schema", "gone.csv"], ["gone.csv"]),
    "schema merged with rubbish": (
        silo("{", "rubbish.json"),
        ["data", "schema", "silos", "--label", "outcome", "--merge", "rubbish.json"],
        ["rubbish.json"],
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_line_and_exit_code_2(fedamp_command, kind):
    make, arguments, words = BAD[kind]
    make()
    code, _, err = fedamp_command(*arguments)
    assert code == 2, err
    assert err.startswith("fedamp: ")
    assert err.count("\n") == 1, err
    for word in words:
        assert word in err, err


def test_missing_cells_are_filled_and_the_export_says_with_what(fedamp_command):
    for seed, name in enumerate(["a", "b"]):
        write_csv(f"silos/{name}.csv", seed=seed)
        path = Path(f"silos/{name}.csv")
        lines = path.read_text().splitlines()
        lines[3] = "," + lines[3].partition(",")[2]
        path.write_text("\n".join(lines) + "\n")
    arguments = ["--data", "silos", "--label", "outcome", "--model", "logistic", *QUICK, "--out", "here"]
    code, _, err = fedamp_command("run", *arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "a.csv: line 4, column 'age' is empty" in err
    assert not Path("here").exists()
    code, out, err = fedamp_command("run", *arguments, "--missing", "fill", "--indicate-missing", "--json")
    assert code == 0, err
    assert json.loads(out)["facts"]["input_shape"] == [3]
    assert fedamp_command("export", "here", "--client", "0", "--out", "a.safetensors")[0] == 0
    how = json.loads(Path("a.json").read_text())
    assert how["inputs"] == ["age", "age is missing", "marker"]
    assert how["indicators"] == {"age is missing": "age"}
    assert how["fill"]["age"] == how["shift"][0]
