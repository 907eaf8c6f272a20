"""What is left out of the tests where Flower is not installed: the deployment is an extra."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("flwr") else ["src/fedamp/federation/*", "tests/federation/*"]
