"""What is left out of the tests where an optional library is not installed: Flower, Triton, trackers."""

from importlib.util import find_spec

OF = {
    "flwr": ["src/fedamp/federation/*", "tests/federation/*"],
    "triton": ["src/fedamp/kernels/[!_]*"],
    **{name: [f"src/fedamp/runs/watching/track/to_{name}.py"] for name in ("tensorboard", "mlflow", "wandb")},
}
collect_ignore_glob = [path for library, paths in OF.items() if not find_spec(library) for path in paths]
