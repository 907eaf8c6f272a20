"""Where the data sets are: a data folder holds a folder for each, mnist/, fmnist/, emnist/, cifar100/."""

import os
import sys
from pathlib import Path

from fedamp.errors import UserError


def data_dir(given: Path | None = None) -> Path:
    """Return the folder of the data sets: the given one, else $FEDAMP_DATA, else the user's cache folder."""
    try:
        if given is not None:
            return given.expanduser()
        if named := os.environ.get("FEDAMP_DATA"):
            return Path(named).expanduser()
        return _cache_dir()
    except RuntimeError as error:  # no home folder is known
        raise UserError(
            f"there is no folder for data sets ({error}); name one with --data-dir or FEDAMP_DATA"
        ) from None


def _cache_dir() -> Path:
    """Return ~/.cache/fedamp (or below $XDG_CACHE_HOME), ~/Library/Caches/fedamp, or %LOCALAPPDATA%\\fedamp."""
    if sys.platform == "darwin":
        # By hand: newer versions of platformdirs follow $XDG_CACHE_HOME here too, and what was fetched before into
        # Library/Caches would no longer be found.
        return Path.home() / "Library" / "Caches" / "fedamp"
    import platformdirs  # here, as few commands need it

    # opinion=False: on Windows, no sub-folder "Cache".
    folder = platformdirs.user_cache_path("fedamp", appauthor=False, opinion=False)
    # Older versions accept a relative $XDG_CACHE_HOME, which the XDG standard says to ignore, or leave a ~ as it is.
    return folder if folder.is_absolute() else Path.home() / ".cache" / "fedamp"


def locate(folder: Path, name: str) -> Path | None:
    """Return where a file is: under its published name, else under that without ".gz", else None."""
    for path in dict.fromkeys((folder / name, folder / name.removesuffix(".gz"))):
        try:
            path.stat()
        except OSError:
            continue
        return path
    return None


def find(name: str, folder: Path, file: str) -> Path:
    """Return where a file of a data set is; if it is missing, the error says how to get it."""
    path = locate(folder, file)
    if path is None:
        raise UserError(
            f"{name} needs {file} in {folder}, which is not there; `fedamp data fetch {name}` gets it, "
            "or point --data-dir (or FEDAMP_DATA) to where you keep it"
        )
    return path
