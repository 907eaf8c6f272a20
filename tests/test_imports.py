"""What a plain run needs: few packages, loaded late. Which room may see which is in pyproject.toml (import-linter)."""

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
