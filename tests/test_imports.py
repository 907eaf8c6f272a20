"""What a plain run needs: few packages, loaded late. Which room may see which is in pyproject.toml (import-linter)."""

import ast
import fnmatch
import runpy
import subprocess
import sys
from pathlib import Path

import fedamp
from fedamp.errors import UserError

ROOT = Path(fedamp.__file__).parent

EVERY_ROOM_USES = {
    "__init__",
    "__main__",
    "rows",
    "row_store",
    "used_memory",
    "checks",
    "seeds",
    "files",
    "fields",
    "errors",
}

LOADED_WHERE_USED = {
    "flwr",
    "ray",
    "matplotlib",
    "scipy",
    "jinja2",
    "pydantic",
    "platformdirs",
    "pooch",
    "cryptography",
    "prometheus_client",
}


def modules_after(code: str) -> set[str]:
    """Return the modules that are loaded once this code has run in an interpreter of its own."""
    code = f"import sys\n{code}\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_the_top_folder_holds_what_every_room_uses_and_nothing_else():
    assert {path.stem for path in ROOT.glob("*.py")} == EVERY_ROOM_USES


def test_the_public_names_are_shown_before_they_are_used():
    assert dir(fedamp) == sorted(fedamp.__all__)
    assert all(hasattr(fedamp, name) for name in fedamp.__all__)
    assert fedamp.UserError is UserError


def test_import_needs_torch_and_numpy_alone():
    import_all = "import fedamp, fedamp.runs.loop, fedamp.training.local, fedamp.methods"
    assert not modules_after(import_all) & {*LOADED_WHERE_USED, "rich", "typer"}


def test_a_plain_run_needs_none_of_the_optional_packages():
    """Torch itself may load jinja2 and scipy, and pooch has always been there: these are not in question."""
    block = (
        "import importlib.abc\n"
        "class Refuse(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {sorted(LOADED_WHERE_USED - {'jinja2', 'scipy', 'pooch'})!r}:\n"
        "            raise ModuleNotFoundError(f'no {name} here', name=name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
    )
    run = "import fedamp\nfedamp.run(method='fedamp', clients=5, rounds=1, steps=1)"
    assert "torch" in modules_after(block + run)


def test_configurations_are_quick_to_import():
    assert "torch" not in modules_after("import fedamp.config.run_config as c; c.is_folder('digits')")


def test_modules_of_an_optional_library_are_left_out_of_the_tests_where_it_is_missing():
    """Their doctests are collected by importing them; `make test` must pass without Triton, say."""
    top = Path(__file__).parents[1]
    left_out = runpy.run_path(str(top / "conftest.py"))["OF"]
    found = dict.fromkeys(left_out, 0)
    for path in sorted(ROOT.rglob("*.py")):
        here = path.relative_to(top).as_posix()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for library in {name.partition(".")[0] for name in names} & left_out.keys():
                found[library] += 1
                assert any(fnmatch.fnmatch(here, pattern) for pattern in left_out[library]), here
    assert found["flwr"] > 0
    assert found["triton"] > 0
