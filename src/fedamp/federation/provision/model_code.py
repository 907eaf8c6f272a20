"""The code of a user's own model: found, copied into server and bundles, and tried from its copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import fedamp
from fedamp import models
from fedamp.errors import UserError
from fedamp.federation.plan import Plan
from fedamp.federation.provision.writing import FOLDER


def code_of(plan: Plan) -> Path | None:
    """Return the file or package that a model `module:function` comes from; None for what pip installs."""
    spec = plan.config.model.name
    if ":" not in spec:
        return None
    models.load_builder(spec)
    module = sys.modules[spec.partition(":")[0].partition(".")[0]]
    if not getattr(module, "__file__", None):
        raise UserError(f"model {spec} does not come from a file; give its code with --code")
    path = Path(str(module.__file__)).resolve()
    if {"site-packages", "dist-packages"} & set(path.parts):
        return None
    return path.parent if path.name == "__init__.py" else path


def copy_code(code: Path | None, target: Path) -> None:
    """Copy a module's file or package, or all that is in a folder named `code`."""
    target.mkdir(mode=FOLDER)
    if code is None:
        return
    if not code.exists():
        raise UserError(f"{code} does not exist; expected the file or the folder with the model's code")
    skip = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    if code.is_file():
        shutil.copy(code, target / code.name)
    elif (code / "__init__.py").exists():
        shutil.copytree(code, target / code.name, ignore=skip)
    else:
        shutil.copytree(code, target, ignore=skip, dirs_exist_ok=True)


def check_code(plan: Plan, code: Path | None, copy: Path) -> None:
    """Refuse a model whose code is not copied completely: it must import from its copy alone, as in a silo."""
    if code is None:
        return
    spec = plan.config.model.name
    program = f"from fedamp import models; models.load_builder({spec!r})"
    paths = os.pathsep.join([str(copy), str(Path(fedamp.__file__).parents[1])])
    env = {**os.environ, "PYTHONPATH": paths}
    tried = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=copy.parent, capture_output=True, text=True, timeout=300
    )
    if tried.returncode:
        last = (tried.stderr.strip().splitlines() or ["no error message"])[-1]
        raise UserError(
            f"model {spec} can't be imported from a copy of {code} alone ({last}); give a folder with all of its "
            "code with --code"
        )
