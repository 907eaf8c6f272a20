"""Which files the published data sets have, where their publishers keep them, and how a correct copy is recognised."""

from dataclasses import dataclass
from typing import Literal

from fedamp.data.published.formats.common import MOST_BYTES


@dataclass(frozen=True)
class File:
    """A published file. `checksum` is "sha256:..." or "md5:...", "" if none is known; `size` is 0 likewise."""

    name: str  # within the data set's folder
    kind: Literal["idx", "cifar100", "text"]
    checksum: str = ""
    size: int = 0

    @property
    def needed(self) -> bool:
        """Whether a data set can't be loaded without it: the names of labels are only for people."""
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
