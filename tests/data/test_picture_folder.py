"""Folders of pictures: SILO/CLASS/1.png becomes bytes, and what is not a picture like the others is refused by name."""

import sys

import numpy as np
import pytest
from PIL import Image
from silo_files import one_line, write

from fedamp.data.silos.read import read_silo, read_silos

COLOURS = {"L": 7, "RGB": (7, 0, 255), "RGBA": (7, 0, 255, 9)}


def picture(path, mode="L", size=(6, 5), value=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = COLOURS[mode]
    if value is not None:
        colour = value if mode == "L" else (value, *colour[1:])
    Image.new(mode, size, colour).save(path)
    return path


def test_grey_and_coloured_pictures(tmp_path):
    for place, name in enumerate(["ill/b.png", "ill/a.PNG", "well/c.png"]):
        picture(tmp_path / "grey" / name, value=place)
        picture(tmp_path / "colour" / name, "RGB", value=place)
    (tmp_path / "grey" / "none").mkdir()
    write(tmp_path / "grey" / "ill" / ".hidden", "")
    colour, grey = read_silos(tmp_path)
    assert (grey.name, grey.x.shape, grey.x.dtype) == ("grey", (3, 5, 6), np.uint8)
    assert grey.y.tolist() == ["ill", "ill", "well"]
    assert grey.x[:, 0, 0].tolist() == [1, 0, 2]
    assert colour.x.shape == (3, 3, 5, 6)
    assert colour.x[:, :, 0, 0].tolist() == [[1, 0, 255], [0, 0, 255], [2, 0, 255]]


def test_bad_pictures_are_refused_by_name(tmp_path):
    cases = {
        "size": (lambda path: picture(path, size=(7, 5)), "b.png is 7 x 5, grey and .*a.png is 6 x 5, grey"),
        "colour": (lambda path: picture(path, "RGB"), "b.png is 6 x 5, in colour and .*a.png is 6 x 5, grey"),
        "mode": (lambda path: picture(path, "RGBA"), "b.png has colours of the kind RGBA; expected RGB or grey"),
        "damaged": (lambda path: path.write_bytes(b"no"), "b.png is not a readable picture"),
        "cut": (lambda path: path.write_bytes(picture(path).read_bytes()[:45]), "b.png is not a readable picture"),
    }
    for name, (make, message) in cases.items():
        first = picture(tmp_path / name / "ill" / "a.png")
        make(first.with_name("b.png"))
        with pytest.raises(ValueError, match=message) as raised:
            read_silo(tmp_path / name)
        one_line(raised)


def test_files_in_the_wrong_place(tmp_path):
    picture(tmp_path / "silo" / "1.png")
    with pytest.raises(ValueError, match=r"'1.png' in .* is not a silo's file; .*SILO/CLASS/1.png") as raised:
        read_silos(tmp_path)
    one_line(raised)
    (tmp_path / "empty" / "ill").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"there are no pictures in .*empty"):
        read_silo(tmp_path / "empty")


def test_without_pillow_it_is_said_what_to_install(tmp_path, monkeypatch):
    picture(tmp_path / "ill" / "a.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ValueError, match="pip install pillow"):
        read_silo(tmp_path)
