"""CIFAR-100's format: the right bytes come out, and whatever else is given is an error in one line."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_files import fuzz, one_line, only_value_errors, records, write

from fedamp.data.published.formats.cifar import RECORD, read_cifar100


def test_cifar_holds_what_was_written(tmp_path):
    content, pixels = records([0, 19, 7], [99, 0, 42])
    x, fine, coarse = read_cifar100(write(tmp_path, "some.bin", content.tobytes()))
    np.testing.assert_array_equal(x, pixels.reshape(3, 3, 32, 32))
    assert x[1, 2, 0, 31] == content[1, 2 + 2 * 1024 + 31]
    assert (fine.tolist(), coarse.tolist()) == ([99, 0, 42], [0, 19, 7])
    assert {x.dtype, fine.dtype, coarse.dtype} == {np.dtype(np.uint8)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; expected records of 3074 bytes"),
        (bytes(RECORD - 1), "has 3073 bytes; expected records of 3074 bytes and nothing else"),
        (bytes(2 * RECORD + 1), "has 6149 bytes; expected"),
        (records([0, 20], [1, 1])[0].tobytes(), "has coarse label 20 in record 1; expected 0 to 19"),
        (records([0, 1], [100, 1])[0].tobytes(), "has fine label 100 in record 0; expected 0 to 99"),
    ],
)
def test_what_is_no_cifar_file(tmp_path, content, message):
    with pytest.raises(ValueError, match=f"bad.bin {message}.*`fedamp data fetch cifar100`") as error:
        read_cifar100(write(tmp_path, "bad.bin", content))
    assert one_line(error)


@fuzz
@given(st.data())
def test_any_bytes_are_a_cifar_file_or_an_error(tmp_path, data):
    content = bytearray(records([3, 4], [5, 6])[0].tobytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.sampled_from([0, 1, 2, RECORD, RECORD + 1, -1]))] = data.draw(st.integers(0, 255))
    more = data.draw(st.binary(max_size=3))
    found = only_value_errors(read_cifar100, tmp_path / "fuzz", bytes(content) + more)
    assert (found is not None) == (not more and max(content[0], content[RECORD]) < 20 and max(content[1::RECORD]) < 100)
    only_value_errors(read_cifar100, tmp_path / "fuzz", more)
