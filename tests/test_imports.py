"""Imports go one way: from data towards the command line, and methods know neither engine nor network."""

import ast
import subprocess
import sys
from pathlib import Path

import fedamp

ROOT = Path(fedamp.__file__).parent

# Each room, and the rooms of this package that it may import. A new room is a new line.
MAY_IMPORT = {
    "errors": set(),
    "checks": set(),
    "code_digest": set(),
    "inputs": {"description"},
    "identity": {"assembly", "clients", "code_digest", "data", "description", "inputs", "methods", "models"},
    "results": {"checkpoints", "data", "description", "flat", "methods", "metrics", "rows"},
    "seeds": set(),
    "rows": set(),
    "replies": {"rows"},
    "metrics": set(),
    "tasks": set(),
    "presets": {"checks"},
    "data": {"checks", "seeds", "data"},
    "settings": {"checks", "seeds"},
    "clients": {"checks", "seeds"},
    "attention": {"checks", "rows"},
    "methods": {"checks", "rows", "attention", "methods"},
    "modes": set(),
    "traces": set(),
    "stacked": {"modes", "traces"},
    "chunks": set(),
    "precision": {"checks"},
    "graphs": set(),
    "gradients": {"dropout", "flat", "graphs", "tasks"},
    "flat": {"modes", "rows", "stacked", "traces"},
    "batches": {"checks"},
    "optimizers": {"checks"},
    "dropout": {"seeds"},
    "models": {"checks", "dropout", "seeds"},
    "local": {
        *("seeds", "batches", "chunks", "clients", "dropout", "flat", "gradients", "methods", "optimizers"),
        *("precision", "rows", "tasks"),
    },
    "engine": {"batches", "checks", "clients", "dropout", "evaluate", "flat", "local", "promise", "rows"},
    "promise": {"dropout", "flat", "traces"},
    "model_check": {"clients", "flat", "promise", "tasks"},
    "rounds": {"checks", "seeds", "methods", "optimizers", "replies", "rows"},
    "evaluate": {"clients", "dropout", "local", "precision", "rows", "seeds"},
    "needs": {"assembly", "dropout", "flat", "methods", "rows"},
    "description": {"__version__", "checks", "data"},
    "given": {"checks", "clients", "data", "description"},
    "reading": set(),
    "checkpoints": {"rows"},
    "records": {"checkpoints", "description", "inputs", "reading", "rows"},
    "assembly": {
        *(
            "attention",
            "batches",
            "checks",
            "chunks",
            "clients",
            "data",
            "description",
            "dropout",
            "engine",
            "flat",
            "local",
            "methods",
            "model_check",
        ),
        *("models", "optimizers", "precision", "promise", "rounds", "rows", "settings", "tasks"),
    },
    "experiment": {
        *(
            "assembly",
            "checkpoints",
            "checks",
            "chunks",
            "clients",
            "data",
            "description",
            "engine",
            "evaluate",
            "flat",
            "given",
            "local",
            "methods",
        ),
        *("identity", "metrics", "reading", "records", "results", "rounds", "rows"),
    },
    "compare": {
        *("assembly", "checkpoints", "checks", "description", "experiment", "methods", "metrics", "reading"),
        *("identity", "inputs", "records", "rows"),
    },
    "report": {"checks", "metrics", "reading", "report"},
    "export": {
        *("checkpoints", "code_digest", "data", "description", "dropout", "flat", "models", "reading", "records"),
        *("results", "rows"),
    },
    "listing": {"attention", "data", "methods", "models", "presets", "settings"},
    "terminal": {"metrics"},
    "cli_data": {"data", "terminal"},
    "deploy": {
        *("__version__", "assembly", "attention", "checkpoints", "checks", "clients", "data", "deploy", "description"),
        *("engine", "evaluate", "export", "flat", "local", "methods", "metrics", "models", "reading", "records"),
        *("batches", "replies", "rounds", "rows", "seeds", "settings", "tasks", "terminal"),
    },
    "cli_federation": {"data", "deploy", "description", "models", "terminal"},
    "cli": {
        *("__version__", "assembly", "data", "description", "experiment", "listing", "models", "presets", "reading"),
        *("records", "compare", "report", "checks", "export", "cli_data", "cli_federation", "terminal", "needs"),
        *("identity", "inputs", "methods"),
    },
    "__main__": {"cli"},
}


EVERYWHERE = {"errors"}


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == "fedamp":
                found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("fedamp.")}
    return found


def test_every_import_is_allowed():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        if path.parent == ROOT and path.name == "__init__.py":
            continue
        assert room(path) in MAY_IMPORT, f"{path.name}: say in MAY_IMPORT what this room may import"
        allowed = MAY_IMPORT[room(path)] | EVERYWHERE
        wrong += [f"{path.relative_to(ROOT)} imports {other}" for other in imported_rooms(path) - allowed]
    assert wrong == []


def test_the_graph_has_no_cycle():
    left = {name: others - {name} for name, others in MAY_IMPORT.items()}
    while left:
        leaves = [name for name, others in left.items() if not others & left.keys()]
        assert leaves, f"a cycle among {sorted(left)}"
        for name in leaves:
            del left[name]


def test_import_needs_torch_and_numpy_alone():
    code = (
        "import sys, fedamp, fedamp.runs.round, fedamp.training.local, fedamp.methods; "
        "print(*{'flwr', 'ray', 'matplotlib', 'scipy', 'rich', 'typer'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == []


def test_descriptions_are_quick_to_import():
    code = "import sys, fedamp.runs.config as d; d.is_folder('digits'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
