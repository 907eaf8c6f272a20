"""All nine methods on the handwritten digits: does collaborating help, and whom?"""

from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from fedamp.experiment import run
from fedamp.methods import METHODS
from fedamp.metrics import worse_off

DIGITS: dict[str, Any] = {
    "data": "digits",
    "setting": "practical",
    "clients": 20,
    "model": "mlp",
    "rounds": 30,
    "epochs": 5,
    "batch_size": 10,
}
"""The demo's setting: 20 clients in five groups of four, each group with two dominating digits."""


def demo(console: Console) -> None:
    """Run and show."""
    results = {}
    for name in track(METHODS, "nine methods", console=console, transient=True, disable=not console.is_terminal):
        results[name] = run(**{**DIGITS, "method": name})
    alone = results["separate"].summary.per_client
    table = Table("method", "BMTA %", "worst client %", "worse off than alone", "seconds")
    for name, result in results.items():
        worse = "" if name == "separate" else f"{worse_off(result.summary.per_client, alone)} of {len(alone)}"
        table.add_row(name, f"{result.bmta:.2f}", f"{result.summary.worst:.1f}", worse, f"{result.seconds:.1f}")
    console.print(table)
