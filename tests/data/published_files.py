"""What the tests of published data sets share: their files, made by hand and small."""

import gzip
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, settings

from fedamp.data.published.catalogue import SOURCES
from fedamp.data.published.formats.cifar import RECORD

KINDS = "images-idx3", "labels-idx1"


fuzz = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def idx(array):
    array = np.asarray(array, np.uint8)
    return bytes([0, 0, 8, array.ndim]) + np.asarray(array.shape, ">u4").tobytes() + array.tobytes()


def header(*shape, kind=8):
    return bytes([0, 0, kind, len(shape)]) + np.asarray(shape, ">u4").tobytes()


def pictures(labels, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (len(labels), 28, 28), np.uint8)


def records(coarse, fine, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (len(fine), RECORD - 2), np.uint8)
    return np.column_stack([np.asarray(coarse, np.uint8), np.asarray(fine, np.uint8), pixels]), pixels


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def write_split(folder, names, labels, x=None, suffix=".gz"):
    x = pictures(labels) if x is None else x
    for kind, array in zip(KINDS, (x, labels), strict=True):
        write(folder, f"{names.format(kind)}{suffix}", idx(array))
    return x


def one_line(error):
    return "\n" not in str(error.value)


def only_value_errors(read, path, content):
    path.write_bytes(content)
    try:
        return read(path)
    except ValueError as error:
        message = str(error)
    assert "\n" not in message
    assert path.name in message
    assert "`fedamp data fetch" in message


def unchecked(name):
    return replace(SOURCES[name], files=tuple(replace(f, checksum="", size=0) for f in SOURCES[name].files))
