"""The code of a federation's own model, which comes with the bundle."""

import sys
from pathlib import Path


def use_code(bundle: Path) -> None:
    """Let a federation's own model be imported from the bundle."""
    code = str((bundle / "code").absolute())
    if code not in sys.path:
        sys.path.insert(0, code)
