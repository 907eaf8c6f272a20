"""What the tests of silos share: files and silos made by hand, and what an error must look like."""

import contextlib
import io
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings

from fedamp.data.silos.raw import RawSilo
from fedamp.data.silos.read import read_silo
from fedamp.data.silos.schema import apply_schema, make_schema
from fedamp.data.silos.schema_file import schema_from_json, schema_to_json


def save(path, x=None, y=None, **more):
    arrays = {"x": x, "y": y} | more
    np.savez(path, **{key: np.asarray(value) for key, value in arrays.items() if value is not None})
    return path


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def silo(x, y, name="a", columns=None, **words):
    return RawSilo(
        name, np.asarray(x), np.asarray(y), columns, {column: np.array(cells) for column, cells in words.items()}
    )


def table_schema():
    return make_schema([silo([[0.1, 2.0], [0.3, 2.0]], ["böse", "gut\n"], "a", ("v", "sex", "w"), sex=["M", "F"])])


def npz_bytes(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


GOOD = npz_bytes(x=np.zeros((50, 4)), y=np.arange(50))


def one_line(raised):
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 1200
    return str(raised.value)


A = silo([[1.0], [2.0]], [0, 1], "a", ("u",))


W = silo(np.zeros((2, 1)), [0, 1], "w", ("u", "sex"), sex=["F", "M"])


PLAIN = silo(np.zeros((2, 3)), [0, 1])


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@contextlib.contextmanager
def refusals():
    refused = ""
    try:
        yield
    except ValueError as error:
        refused = str(error)
    assert "\n" not in refused


def read_and_agree(path: Path) -> None:
    """Read and apply; nothing but a ValueError of one line may come of it."""
    with refusals():
        read = read_silo(path)
        schema = make_schema([read])
        x, y = apply_schema(schema, read)
        assert schema_from_json(schema_to_json(schema)) == schema
        assert x.isfinite().all()
        assert len(x) == len(y) == len(read)
