"""Write into docs/architecture.md what the code itself says: `python docs/architecture.py`.

The tree of src/fedamp takes a line for each package and file from its docstring, and the rule of who may import whom
comes from pyproject.toml. tests/test_architecture.py fails where the page is not up to date.
"""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "fedamp"
PAGE = ROOT / "docs" / "architecture.md"
COLUMN, WIDTH = 27, 118


def contracts() -> list[dict[str, Any]]:
    """Return the import contracts."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return found


def layers() -> list[list[str]]:
    """Return the layers of rooms and modules, the highest first; those on one line do not see each other."""
    (found,) = (contract["layers"] for contract in contracts() if contract["type"] == "layers")
    return [[_short(name) for name in layer.split(" | ")] for layer in found]


def _short(module: str) -> str:
    """Return a module's name inside fedamp; other packages keep theirs."""
    return module.strip().removeprefix("fedamp.")


def tree() -> str:
    """Return the packages and files of fedamp with the first sentence of each docstring, the lowest layer first."""
    rooms = [room for layer in reversed(layers()) for room in layer if (PACKAGE / room).is_dir()]
    forgotten = {path.name for path in _packages(PACKAGE)} - set(rooms)
    assert not forgotten, f"the import contracts in pyproject.toml do not name {sorted(forgotten)}"
    lines = [_line(0, "src/fedamp/", PACKAGE / "__init__.py")]
    lines += [_line(1, path.name, path) for path in _modules(PACKAGE)]
    for room in rooms:
        lines += ["", *_room(1, PACKAGE / room)]
    return "```text\n" + "\n".join(lines) + "\n```"


def _room(depth: int, folder: Path) -> Iterator[str]:
    yield _line(depth, f"{folder.name}/", folder / "__init__.py")
    for path in _modules(folder):
        yield _line(depth + 1, path.name, path)
    for package in _packages(folder):
        yield from _room(depth + 1, package)


def _modules(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]


def _packages(folder: Path) -> list[Path]:
    return [path.parent for path in sorted(folder.glob("*/__init__.py"))]


def _line(depth: int, name: str, path: Path) -> str:
    """Return a name and what it is, wrapped so that the second column stays one."""
    start = ("  " * depth + name).ljust(COLUMN - 1) + " "
    return "\n".join(
        textwrap.wrap(start + first_sentence(path), WIDTH, subsequent_indent=" " * COLUMN, break_on_hyphens=False)
    )


def first_sentence(path: Path) -> str:
    """Return the first sentence of a file's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring, f"{path} has no docstring"
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", paragraph)[0].replace("`", "")


def rules() -> str:
    """Return who may import whom."""
    lines = ["```text", *(" | ".join(layer) for layer in layers()), "```", ""]
    for contract in contracts():
        if contract["type"] == "forbidden":
            sources, others = _listed(contract["source_modules"]), _listed(contract["forbidden_modules"], "or")
            lines.append(f"- {contract['name']}: {sources} must not import {others}, not even through another room.")
        elif contract["type"] == "independence":
            lines.append(f"- {contract['name']}: {_listed(contract['modules'])} must not import each other.")
    return "\n".join(lines)


def _listed(modules: list[str], word: str = "and") -> str:
    names = [f"`{_short(name)}`" for name in modules]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


PARTS: dict[str, Callable[[], str]] = {"tree": tree, "rules": rules}


def page() -> str:
    """Return the page with its written parts up to date."""
    text = PAGE.read_text(encoding="utf-8")
    for name, part in PARTS.items():
        begin, end = f"<!-- {name}: written by docs/architecture.py -->\n", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        assert found, f"{PAGE} has no place for the {name}"
        text = f"{before}{begin}{part()}\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
