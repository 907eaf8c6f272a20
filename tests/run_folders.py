"""Small run folders, written by hand, that the tests of records and reports share."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from fedamp.config import RunConfig

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{data}}"
"""A name that tries to break out of the page."""


def write_run(
    folder: Path,
    method="fedamp",
    seed=0,
    accuracies=((0.5, 0.7), (0.6, 0.8)),
    metric="accuracy",
    finished=True,
    result=True,
    groups=None,
    xi=None,
    warnings=(),
    names=None,
    found=None,
    **config,
) -> Path:
    """Write a run whose clients have these scores after each round, and whose last line has what the method found."""
    folder.mkdir(parents=True)
    method = {"name": method} if isinstance(method, str) else method
    description = RunConfig.of({"seed": seed, "method": method, "clients": len(accuracies[0]), **config}).to_dict()
    (folder / "description.json").write_text(json.dumps(description))
    first = [None if all(score is None for score in scores) else 0.0 for scores in zip(*accuracies, strict=True)]
    lines = [{"round": 0, "events": [], "test": {"own": {metric: first}}}]
    for k, scores in enumerate(accuracies, 1):
        lines.append({"round": k, "events": [], "test": {"own": {metric: list(scores)}}, "seconds": 1.0})
    lines[-1] |= found or {}
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if result:
        facts = {"groups": groups, "sizes": [10] * len(accuracies[0])} | ({"names": names} if names else {})
        value = {"finished": finished, "metric": metric, "seconds": 2.0, "warnings": list(warnings), "facts": facts}
        (folder / "result.json").write_text(json.dumps(value))
    if xi is not None:
        save_file({"xi": np.ascontiguousarray(xi, dtype=np.float32)}, folder / "xi.safetensors")
    return folder


def grouped_xi(rounds: int, groups: list[int], among: float = 3.0) -> np.ndarray:
    same = np.equal.outer(groups, groups)
    weights = np.where(same, among, 1.0)
    weights /= weights.sum(1, keepdims=True)
    uniform = np.full_like(weights, 1 / len(groups))
    return np.stack([uniform if k == 0 else weights for k in range(rounds)])
