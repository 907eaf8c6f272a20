"""Folders of silos: which files are a silo's, in which order, and what is refused in one line."""

import os

import numpy as np
import pytest
from silo_files import GOOD, one_line, save, write

from fedamp.data.silos.read import count_silos, find_silos, read_silo, read_silos


def test_silos_are_ordered_by_name_whatever_their_kind(tmp_path):
    write(tmp_path / "b.csv", "age,label\n1,0\n")
    save(tmp_path / "c.npz", np.zeros((2, 3)), [0, 1])
    (tmp_path / "St. Mary").mkdir()
    write(tmp_path / "St. Mary" / "rows.CSV", "age,label\n1,0\n")
    write(tmp_path / ".hidden", "nothing")
    silos = read_silos(tmp_path)
    assert [s.name for s in silos] == ["St. Mary", "b", "c"]
    assert list(find_silos(tmp_path)) == ["St. Mary", "b", "c"]
    assert count_silos(tmp_path) == 3
    assert [len(s) for s in silos] == [1, 1, 2]


def test_files_of_a_sub_folder_follow_one_another(tmp_path):
    folder = tmp_path / "clinic"
    folder.mkdir()
    write(folder / "2.csv", "label,sex,age\nx,M,3\n")
    write(folder / "1.csv", "age,sex,label\n1,F,0\n2,F,1\n")
    read = read_silo(folder)
    assert read.name == "clinic"
    assert read.columns == ("age", "sex")
    assert read.x.tolist() == [[1.0], [2.0], [3.0]]
    assert read.words["sex"].tolist() == ["F", "F", "M"]
    assert read.y.tolist() == ["0", "1", "x"]
    other = tmp_path / "arrays"
    other.mkdir()
    save(other / "b.npz", [[2.0]], [1])
    save(other / "a.npz", [[1.0]], [0])
    assert read_silo(other).x.tolist() == [[1.0], [2.0]]


def table(text):
    return lambda path: write(path, text)


def arrays(x, y):
    return lambda path: save(path, x, y)


FOLDERS = {
    "no silos": ({".git": table("")}, "there are no silos in"),
    "foreign file": (
        {"a.csv": table("u,label\n1,2\n"), "notes.txt": table("")},
        "'notes.txt' in .* is not a silo's file",
    ),
    "foreign file in a silo": ({"a/x.csv": table("u,label\n1,2\n"), "a/b.xlsx": table("")}, "'b.xlsx' in .*a is not"),
    "folder in a silo": ({"a/b/x.csv": table("u,label\n1,2\n")}, "'x.csv' in .*b is not a picture"),
    "empty silo": ({"a/.keep": table("")}, "is an empty folder"),
    "two kinds in a silo": ({"a/x.csv": table("u,label\n1,2\n"), "a/x.npz": arrays([[1]], [1])}, "files of one kind"),
    "a silo twice": ({"a.csv": table("u,label\n1,2\n"), "a.npz": arrays([[1]], [1])}, "silo 'a' appears twice"),
    "parts of other columns": (
        {"a/1.csv": table("u,label\n1,2\n"), "a/2.csv": table("v,label\n1,2\n")},
        "2.csv doesn't fit '1.csv'.*column 'u' is missing and column 'v' is not expected",
    ),
    "parts with words and numbers": (
        {"a/1.csv": table("u,label\n1,2\n"), "a/2.csv": table("u,label\nF,2\n")},
        "columns with words in one and numbers in the other: 'u'",
    ),
    "parts of other shapes": (
        {"a/1.npz": arrays([[1.0]], [1]), "a/2.npz": arrays([[1.0, 2.0]], [1])},
        r"shape \(2,\), not \(1,\)",
    ),
    "parts of bytes and numbers": (
        {"a/1.npz": arrays([[1.0]], [1]), "a/2.npz": arrays(np.ones((1, 1), np.uint8), [1])},
        "type uint8, not float64",
    ),
}


@pytest.mark.parametrize(("files", "message"), FOLDERS.values(), ids=FOLDERS.keys())
def test_bad_folders_are_refused(tmp_path, files, message):
    for name, make in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        make(tmp_path / name)
    with pytest.raises(ValueError, match=message) as raised:
        read_silos(tmp_path)
    one_line(raised)


def test_bad_paths_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"there is no folder .*nowhere") as raised:
        read_silos(tmp_path / "nowhere")
    one_line(raised)
    path = write(tmp_path / "a.csv", "u,label\n1,2\n")
    with pytest.raises(ValueError, match="a file alone is not a federation") as raised:
        read_silos(path)
    one_line(raised)
    with pytest.raises(ValueError, match="there is no file or folder") as raised:
        read_silo(tmp_path / "b.csv")
    one_line(raised)
    with pytest.raises(ValueError, match="is not a silo's file"):
        read_silo(write(tmp_path / "b.txt", ""))
    (tmp_path / "b.txt").unlink()
    (tmp_path / "c.csv").symlink_to(tmp_path / "gone.csv")
    with pytest.raises(ValueError, match=r"'c.csv' in .* is not a silo's file"):
        read_silos(tmp_path)
    for odd in ("a\nb", "a" * 5000, "a\0"):
        with pytest.raises(ValueError, match="there is no folder"):
            read_silos(tmp_path / odd)
    with pytest.raises(ValueError, match="there is no folder") as raised:
        read_silos(tmp_path / "a\nb")
    one_line(raised)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every file")
@pytest.mark.parametrize("name", ["a.csv", "a.npz"])
def test_unreadable_files_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(GOOD)
    (tmp_path / name).chmod(0)
    with pytest.raises(ValueError, match="can't be read: Permission denied") as raised:
        read_silos(tmp_path)
    one_line(raised)


def test_a_file_that_is_not_there_is_called_a_file(tmp_path):
    with pytest.raises(ValueError, match=r"there is no file .*patients\.csv"):
        find_silos(tmp_path / "patients.csv")
