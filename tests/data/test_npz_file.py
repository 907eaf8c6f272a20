"""Silos of npz: numbers and types as they stand, and nothing unpickled."""

import io
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from silo_files import FUZZ, GOOD, npz_bytes, one_line, read_and_agree, save

from fedamp.data.silos.read import read_silo, read_silos


def test_npz_keeps_numbers_and_types(tmp_path):
    x = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
    read = read_silo(save(tmp_path / "a.npz", x, [1, 0, 1, 1], ids=[5, 6, 7, 8]))
    np.testing.assert_array_equal(read.x, x)
    assert read.x.dtype == np.uint8
    assert read.y.tolist() == [1, 0, 1, 1]
    assert read.columns is None
    assert read_silo(save(tmp_path / "b.npz", x.astype(">f4"), ["u", "v", "u", "v"])).x.dtype == np.float32
    assert read_silo(save(tmp_path / "c.npz", x.astype(np.float16), [True, False] * 2)).x.dtype == np.float32


NPY = io.BytesIO()


np.save(NPY, np.zeros(3))


TEXT_IN_ZIP = io.BytesIO()


with zipfile.ZipFile(TEXT_IN_ZIP, "w") as archive:
    archive.writestr("x", b"not an array")
    archive.writestr("y", b"not an array")


BAD_NPZ = {
    "truncated npz": (GOOD[: len(GOOD) // 2], "not a readable npz file"),
    "damaged npz": (GOOD[:400] + b"\xff" * 20 + GOOD[420:], "not a readable npz file"),
    "not a zip": (b"hello, world", "not a readable npz file .it is not a zip archive"),
    "empty npz": (b"", "not a readable npz file"),
    "npy": (NPY.getvalue(), r"single array; save with np.savez"),
    "no array inside": (TEXT_IN_ZIP.getvalue(), "its entry 'x' is not an array"),
    "objects": ({"x": np.array([[1], [None]]), "y": [0, 1]}, "Python objects, which could run code"),
    "objects as labels": ({"x": [[1.0]], "y": np.array([None])}, "Python objects"),
    "no y": ({"x": [[1.0]]}, "no array 'y' in the file, which has 'x'"),
    "no x": ({"images": [[1.0]], "y": [1]}, "no array 'x' in the file, which has 'images', 'y'"),
    "lengths differ": ({"x": np.zeros((3, 2)), "y": [0, 1]}, "has 3 rows and y has 2"),
    "no rows": ({"x": np.zeros((0, 2)), "y": np.zeros(0)}, "silo 'a' has no rows"),
    "no features": ({"x": np.zeros((2, 0)), "y": [0, 1]}, "no features"),
    "one axis": ({"x": [1.0, 2.0], "y": [0, 1]}, r"shape \(2,\); expected .samples, features"),
    "no axis": ({"x": 1.0, "y": 1}, r"shape \(\)"),
    "NaN": ({"x": [[0.0, 1.0], [0.0, np.nan]], "y": [0, 1]}, r"x of silo 'a' is nan in row 1 at \(1,\)"),
    "infinity": ({"x": [[np.inf]], "y": [0]}, r"is inf in row 0"),
    "NaN as label": ({"x": [[1.0]], "y": [np.nan]}, "y of silo 'a' is nan in row 0"),
    "y of two axes": ({"x": [[1.0]], "y": [[1.0]]}, r"y of silo 'a' has shape \(1, 1\); expected one axis"),
    "complex": ({"x": [[1j]], "y": [0]}, "x of silo 'a' has type complex128"),
    "dates": ({"x": [[1.0]], "y": np.array(["2020-01-01"], "M8[D]")}, "expected numbers or text"),
    "empty word as label": ({"x": [[1.0]], "y": [" "]}, "y of silo 'a' is empty in row 0"),
    "a text as label": ({"x": [[1.0]], "y": ["x" * 300]}, "300 characters in row 0"),
}


@pytest.mark.parametrize(("content", "message"), BAD_NPZ.values(), ids=BAD_NPZ.keys())
def test_bad_npz_files_are_refused_by_name(tmp_path, content, message):
    path = tmp_path / "a.npz"
    path.write_bytes(npz_bytes(**content) if isinstance(content, dict) else content)
    with pytest.raises(ValueError, match=message) as raised:
        read_silos(tmp_path)
    assert one_line(raised).startswith(str(path))


SMALL = npz_bytes(x=np.array([[1.0, 2.0], [3.0, 5.0]]), y=np.array(["a", "b"]))


@st.composite
def damaged(draw):
    """A good npz file with some bytes changed, perhaps cut."""
    content = bytearray(SMALL)
    for _ in range(draw(st.integers(1, 4))):
        content[draw(st.integers(0, len(SMALL) - 1))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.just(len(SMALL)) | st.integers(0, len(SMALL)))])


@FUZZ
@given(content=st.binary(max_size=300) | st.binary(max_size=100).map(lambda end: b"PK\x03\x04" + end) | damaged())
def test_any_bytes_as_npz(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    read_and_agree(tmp_path / "a.npz")
