"""Where data sets are looked for."""

import sys
from pathlib import Path

import platformdirs
import pytest
from platformdirs.macos import MacOS
from platformdirs.unix import Unix
from platformdirs.windows import Windows

from fedamp.data import load_data
from fedamp.data.published.folder import data_dir


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, "/home/u/.cache/fedamp"),
        ("linux", {"XDG_CACHE_HOME": "/cache"}, "/cache/fedamp"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/u/.cache/fedamp"),
        ("darwin", {}, "/home/u/Library/Caches/fedamp"),
        ("darwin", {"XDG_CACHE_HOME": "/cache"}, "/home/u/Library/Caches/fedamp"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/fedamp"),
        ("win32", {}, "/home/u/AppData/Local/fedamp"),
        ("linux", {"FEDAMP_DATA": "/data", "XDG_CACHE_HOME": "/cache"}, "/data"),
        ("linux", {"FEDAMP_DATA": "~/data"}, "/home/u/data"),
        ("linux", {"FEDAMP_DATA": ""}, "/home/u/.cache/fedamp"),
    ],
)
def test_where_data_lies(monkeypatch, platform, environment, expected):
    for name in ("FEDAMP_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (environment | {"HOME": "/home/u"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(platformdirs, "PlatformDirs", {"linux": Unix, "darwin": MacOS, "win32": Windows}[platform])
    # Windows is asked for this folder, which it has whether or not the variable is set.
    local = {"CSIDL_LOCAL_APPDATA": environment.get("LOCALAPPDATA", "/home/u/AppData/Local")}
    monkeypatch.setattr(platformdirs.windows, "get_win_folder", local.__getitem__)
    assert data_dir() == Path(expected)
    assert data_dir(Path("/given")) == Path("/given")
    assert data_dir(Path("~/given")) == Path("/home/u/given")


def test_digits_need_no_folder(monkeypatch, tmp_path):
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as where no home is known
    monkeypatch.delenv("FEDAMP_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert load_data("digits", tmp_path / "none").name == "digits"
    assert load_data("digits").name == "digits"
    with pytest.raises(
        ValueError, match=r"no folder for data sets \(.*home.*\); name one with --data-dir or FEDAMP_DATA"
    ):
        load_data("mnist")
