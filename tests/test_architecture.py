"""docs/architecture.md is true: its tree is the code's, and every path that it names exists."""

import re
from pathlib import Path

import pytest

from docs import architecture

ROOT = architecture.ROOT
PLACES = (ROOT, ROOT / "src" / "fedamp", ROOT / "docs")
"""What a path on the page may begin at."""
ENDINGS = (".py", ".md", ".toml", ".svg", ".png", ".json", "/")


def written() -> str:
    return architecture.PAGE.read_text(encoding="utf-8")


def paths_in(text: str) -> set[str]:
    """Return what looks like a path: in backticks, as a link's target, or as a file's name in a picture."""
    words = re.findall(r"`([^`\n]+)`", text) + re.findall(r"\]\(([^)#]+)\)", text)
    words += re.findall(r">([\w/.-]+)<", text)
    return {word for word in words if word.endswith(ENDINGS) and "://" not in word and " " not in word}


def there_is(path: str) -> bool:
    if path.startswith("yours") or "/yours" in path:  # a file that the reader is to write: its folder must be there
        path = str(Path(path).parent)
    return any((place / path).exists() for place in PLACES)


def pictures() -> list[Path]:
    return sorted((ROOT / "docs" / "images").glob("way-of-*.svg"))


def test_the_tree_and_the_rules_are_what_the_code_says():
    assert architecture.page() == written(), "run: python docs/architecture.py"


def test_every_path_on_the_page_exists():
    named = paths_in(written())
    assert len(named) > 50
    assert [path for path in sorted(named) if not there_is(path)] == []


@pytest.mark.parametrize("picture", pictures(), ids=lambda path: path.stem)
def test_every_path_in_a_picture_exists(picture):
    named = paths_in(picture.read_text(encoding="utf-8"))
    assert len(named) > 5
    assert [path for path in sorted(named) if not there_is(path)] == []
    assert f"images/{picture.name}" in written()


def test_both_ways_are_drawn():
    assert [path.stem for path in pictures()] == ["way-of-a-reply", "way-of-a-run"]


def test_a_path_that_does_not_exist_is_noticed():
    assert paths_in("see `runs/nothing.py` or [this](nothing.md)") == {"runs/nothing.py", "nothing.md"}
    assert not there_is("runs/nothing.py")
    assert not there_is("nowhere/yours.py")
    assert there_is("methods/yours.py")


def test_where_to_add_what_names_a_test_for_everything():
    rows = [line for line in written().splitlines() if line.startswith("| ") and "tests/" in line]
    assert len(rows) >= 15
    for row in rows:
        touch, test = row.strip("| ").split(" | ")[-2:]
        assert paths_in(touch), row
        assert paths_in(test), row
