"""Where the published data sets lie, which files they are, and what of them is there. Nothing here goes online.

A data folder holds a folder for each data set: mnist/, fmnist/, emnist/, cifar100/.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from fedamp import checks
from fedamp.data.dataset import Dataset
from fedamp.data.formats.cifar import read_cifar100
from fedamp.data.formats.idx import MOST_BYTES, advice, read_idx
from fedamp.data.pictures import load_cifar100, load_emnist, load_fmnist, load_mnist, locate
from fedamp.errors import UserError


@dataclass(frozen=True)
class File:
    """A published file. `checksum` is "sha256:..." or "md5:...", "" where none is known; `size` 0 likewise."""

    name: str  # within the data set's folder
    kind: Literal["idx", "cifar100", "text"]
    checksum: str = ""
    size: int = 0

    @property
    def needed(self) -> bool:
        """Whether a data set can't be loaded without it: the names of labels are for people alone."""
        return self.kind != "text"

    @property
    def limit(self) -> int:
        """How many bytes a copy of it may have."""
        return self.size or (MOST_BYTES if self.needed else 1 << 20)


@dataclass(frozen=True)
class Source:
    """A data set's files and where its publisher has them: one by one, or as members of an archive."""

    url: str  # of the folder, ending in "/", or of the archive
    files: tuple[File, ...]
    licence: str  # the licence; what to cite
    archive: Literal["", "zip", "tar.gz"] = ""
    prefix: str = ""  # what comes before a file's name in the archive
    checksum: str = ""  # of the archive
    limit: int = MOST_BYTES  # how many bytes the archive may have


SOURCES: dict[str, Source] = {
    "mnist": Source(
        url="https://ossci-datasets.s3.amazonaws.com/mnist/",
        files=(
            File(
                "train-images-idx3-ubyte.gz",
                "idx",
                "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                9912422,
            ),
            File(
                "train-labels-idx1-ubyte.gz",
                "idx",
                "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                28881,
            ),
            File(
                "t10k-images-idx3-ubyte.gz",
                "idx",
                "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                1648877,
            ),
            File(
                "t10k-labels-idx1-ubyte.gz",
                "idx",
                "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                4542,
            ),
        ),
        licence="CC BY-SA 3.0; cite LeCun, Bottou, Bengio, Haffner, Gradient-based learning applied to document "
        "recognition, Proceedings of the IEEE 86(11), 1998",
    ),
    "fmnist": Source(
        url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        files=(
            File(
                "train-images-idx3-ubyte.gz",
                "idx",
                "sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                26421880,
            ),
            File(
                "train-labels-idx1-ubyte.gz",
                "idx",
                "sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                29515,
            ),
            File(
                "t10k-images-idx3-ubyte.gz",
                "idx",
                "sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                4422102,
            ),
            File(
                "t10k-labels-idx1-ubyte.gz",
                "idx",
                "sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                5148,
            ),
        ),
        licence="MIT; cite Xiao, Rasul, Vollgraf, Fashion-MNIST, arXiv:1708.07747, 2017",
    ),
    # The zip has no checksum here: its members have. NIST could pack the same files again. The MD5s of the train
    # files are the ones that other loaders publish.
    "emnist": Source(
        url="https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        files=(
            File("emnist-byclass-train-images-idx3-ubyte.gz", "idx", "md5:712dda0bd6f00690f32236ae4325c377"),
            File("emnist-byclass-train-labels-idx1-ubyte.gz", "idx", "md5:ee299a3ee5faf5c31e9406763eae7e43"),
            File(
                "emnist-byclass-test-images-idx3-ubyte.gz",
                "idx",
                "sha256:5ec835bd5d5b1a66378a132e727fef20fe994b3cc666899befcca5ac766f50cd",
                28908322,
            ),
            File(
                "emnist-byclass-test-labels-idx1-ubyte.gz",
                "idx",
                "sha256:501e305eeeacb093b162592d80e8a2632040872360fa6d85cfcb2200d91ca92a",
                81839,
            ),
            File("emnist-byclass-mapping.txt", "text"),
        ),
        licence="no licence stated (NIST); cite Cohen, Afshar, Tapson, van Schaik, EMNIST, arXiv:1702.05373, 2017",
        archive="zip",
        prefix="gzip/",
    ),
    "cifar100": Source(
        url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        files=(
            File(
                "cifar-100-binary/train.bin",
                "cifar100",
                "sha256:f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
                153700000,
            ),
            File(
                "cifar-100-binary/test.bin",
                "cifar100",
                "sha256:d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
                30740000,
            ),
            File("cifar-100-binary/fine_label_names.txt", "text"),
            File("cifar-100-binary/coarse_label_names.txt", "text"),
        ),
        licence="no licence stated; cite Krizhevsky, Learning multiple layers of features from tiny images, 2009",
        archive="tar.gz",
        checksum="md5:03b5dce01913d631647c71ecec9e9cb8",
    ),
}

LOADERS: dict[str, Callable[[Path], Dataset]] = {
    "mnist": load_mnist,
    "fmnist": load_fmnist,
    "emnist": load_emnist,
    "cifar100": load_cifar100,
}


class Status(NamedTuple):
    """What is there of a data set."""

    name: str
    state: Literal["complete", "partial", "missing", "incomplete"]
    size: int  # bytes of its files
    detail: str  # in words, for people


def data_dir(given: Path | None = None) -> Path:
    """Return the folder of the data sets: the given one, else $FEDAMP_DATA, else a cache folder of the user's."""
    try:
        if given is not None:
            return given.expanduser()
        if named := os.environ.get("FEDAMP_DATA"):
            return Path(named).expanduser()
        return _cache_dir()
    except RuntimeError as error:  # no home is known
        raise UserError(
            f"the folder of the data sets can't be told ({error}); give it with --data-dir or FEDAMP_DATA"
        ) from None


def _cache_dir() -> Path:
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "fedamp"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "fedamp"
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG standard: a relative path there is to be ignored.
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "fedamp"


def status(folder: Path, sources: Mapping[str, Source] = SOURCES) -> list[Status]:
    """Return what a data folder has of each data set, by names and sizes: quick, nothing is read."""
    return [_status(name, source, folder / name) for name, source in sources.items()]


def _status(name: str, source: Source, folder: Path) -> Status:
    needed = [file for file in source.files if file.needed]
    found = {file.name: _size(locate(folder, file.name)) for file in source.files}
    size = sum(found.values())
    absent = [file.name for file in needed if not found[file.name]]
    wrong = [
        f"{file.name} has {found[file.name]} bytes, expected {file.size}"
        for file in needed
        if file.size and found[file.name] not in (0, file.size) and locate(folder, file.name) == folder / file.name
    ]
    if len(absent) == len(needed):
        return Status(name, "missing", size, f"`fedamp data fetch {name}` gets it")
    if wrong:
        return Status(name, "incomplete", size, f"{'; '.join(wrong)}{advice(name)}")
    if not absent:
        return Status(name, "complete", size, source.licence.partition(";")[0])
    if name == "emnist" and absent == [file.name for file in needed if "-train-" in file.name]:
        return Status(name, "partial", size, "the test split alone, to be split 80/20 within each class")
    return Status(name, "incomplete", size, f"without {', '.join(absent)}; `fedamp data fetch {name}` gets the rest")


def _size(path: Path | None) -> int:
    try:
        return path.stat().st_size if path and path.is_file() else 0
    except OSError:
        return 0


def check(name: str, folder: Path, sources: Mapping[str, Source] = SOURCES) -> list[str]:
    """Return the faults of a data set in a data folder, in words: every file is hashed and read. None: all is well.

    A file without a known checksum, and one that was unpacked, is read alone.
    """
    checks.one_of("data set", name, sources)
    own = folder / name
    faults = []
    for file in sources[name].files:
        path = locate(own, file.name)
        if path is not None and (fault := file_fault(name, file, path)):
            faults.append(fault)
    if faults or name not in LOADERS:
        return faults
    try:
        LOADERS[name](own)  # missing files, and faults between them: numbers of pictures and labels
    except UserError as error:
        return [str(error)]
    return []


def file_fault(name: str, file: File, path: Path) -> str:
    """Return what is wrong with a copy of a published file, "" if nothing: its checksum, else its content."""
    try:
        if file.checksum and path.name == Path(file.name).name:
            # What has the right checksum was read by whoever published it; a copy with a wrong one isn't worth it.
            algorithm, _, expected = file.checksum.partition(":")
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, algorithm).hexdigest()
            if digest != expected:
                return f"{path} has {algorithm} {digest}; expected {expected}{advice(name)}"
        elif file.kind == "text":
            _read_text(path, file.limit, name)
        elif file.kind == "idx":
            read_idx(path, name)
        else:
            read_cifar100(path, name)
    except OSError as error:
        return f"{path} can't be read ({error.strerror or error}){advice(name)}"
    except UserError as error:
        return str(error)
    return ""


def _read_text(path: Path, limit: int, name: str) -> None:
    with path.open("rb") as stream:
        content = stream.read(limit + 1)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text ({error}){advice(name)}") from None
    if not text.strip() or len(content) > limit:
        raise UserError(f"{path} has {len(content)} bytes or more; expected text of 1 to {limit}{advice(name)}")
