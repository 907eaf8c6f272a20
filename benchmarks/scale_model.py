"""A model of a round's time, memory and traffic, fitted to what was measured, and what it says of larger runs.

    python benchmarks/scale_model.py            print it
    python benchmarks/scale_model.py --write    write it into docs/scale.md

Symbols: m clients, d parameters that are shared, R processes. The fit is to benchmarks/results/growth-*.json: one
FedAMP round of 100 pictures a client on one device. The constants below the fit are assumptions, and called so.

    server    t0 + 4 m^2 d / F + m d / B       distances and mixture, and passes over the rows
    clients   t0 + s m                         for each model; all clients have as many samples
    memory    STACKS stacks of m d numbers     in each process: the server's rows are in all of them
    traffic   what a process hears in a round  as docs/scale.md has it, for 256 clients or more
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scale.md"
PLACE = re.compile(r"(<!-- model -->\n).*?(<!-- end -->)", re.DOTALL)
GIB, NUMBER = 2**30, 4
STACKS = 4.1  # measured for FedAMP with --rows device: docs/many_clients.md

MANY, TOLD = 256, 4 << 14  # models from which on a mixture is shared; bytes of four small messages
HEARD = {(20, 150_010): 6_069_248, (60, 38_410): 4_703_808, (300, 9_610): 13_890_768}
"""Bytes that the first of two processes heard in a round, on a CPU: benchmarks/traffic.py 20 2000, 60 512, 300 128."""

BANDWIDTH = 50e9  # assumed: bytes a second into a process, 400 Gb/s for each GPU
TOKEN_RATE = 300e12  # assumed: FLOP/s of a GPU in a language model's passes, bf16
TOKENS = 100_000  # assumed: of a client in a round
BASE = 1_235_814_400  # parameters of a 1 B model: 16 layers of width 2048, inner width 8192, keys and values of 512
LAYERS, WIDTH, INNER, KEYS, RANK = 16, 2048, 8192, 512, 16
GPUS, CLIENTS, GPU_MEMORY = 64, 1000, 139


def adapters() -> int:
    """Return the parameters of adapters of one rank on all seven matrices of each layer: rank (in + out) each."""
    shapes = [(WIDTH, WIDTH), (WIDTH, KEYS), (WIDTH, KEYS), (WIDTH, WIDTH), *[(WIDTH, INNER)] * 2, (INNER, WIDTH)]
    return LAYERS * sum(RANK * (into + out) for into, out in shapes)


def fitted(columns: list[np.ndarray], measured: np.ndarray) -> np.ndarray:
    """Return factors of 0 or more of least relative squared error; a column that would be negative is left out."""
    table, kept = np.stack(columns, 1) / measured[:, None], list(range(len(columns)))
    while True:
        found = np.linalg.lstsq(table[:, kept], np.ones(len(measured)), rcond=None)[0]
        if (found >= 0).all():
            factors = np.zeros(len(columns))
            factors[kept] = found
            return factors
        kept.pop(int(found.argmin()))


def server_columns(m: np.ndarray, d: np.ndarray) -> list[np.ndarray]:
    """Return what the server's time is made of: a start, operations, numbers that are passed over."""
    return [np.ones_like(m), 4 * m**2 * d, m * d]


def fits() -> dict[str, tuple[np.ndarray, list[tuple[dict, float, float]]]]:
    """Return for each device the server's factors, and each case with what is predicted of server and clients."""
    result = {}
    for device in ("cuda", "cpu"):
        rows = json.loads((ROOT / "benchmarks" / "results" / f"growth-{device}.json").read_text())
        m, d, server, clients = (
            np.array([row[key] for row in rows], float) for key in ("m", "d", "server_s", "clients_s")
        )
        factors = fitted(server_columns(m, d), server)
        predicted = np.stack(server_columns(m, d), 1) @ factors
        trained = np.zeros_like(clients)
        for model in {row["model"] for row in rows}:
            of = np.array([row["model"] == model for row in rows])
            columns = [np.ones(of.sum()), m[of]]
            trained[of] = np.stack(columns, 1) @ fitted(columns, clients[of])
        result[device] = factors, list(zip(rows, predicted, trained, strict=True))
    return result


def heard(m: int, d: int, processes: int) -> float:
    """Return the bytes that a process hears in a FedAMP round: replies, distances, mixture and what is told besides."""
    others = 1 - 1 / processes
    mixture = m * d * NUMBER * others if m >= MANY else 0
    return m * (NUMBER * d + 8) * others + 8 * m**2 * (processes - 1) + mixture + TOLD * (processes - 1)


def plan(name: str, d: int, rate: float) -> str:
    """Return a line of the table of what is predicted for many GPUs."""
    stack = CLIENTS * d * NUMBER / GIB
    compute = 4 * CLIENTS**2 * d / rate / GPUS
    travel = heard(CLIENTS, d, GPUS) / BANDWIDTH
    local = CLIENTS * TOKENS * (6 if d == BASE else 4) * BASE / (GPUS * TOKEN_RATE)
    memory = f"{STACKS * stack:,.0f} | {STACKS * stack / GPUS:,.1f}"
    return f"| {name} | {d:,} | {stack:,.0f} | {memory} | {compute:.2f} | {travel:.1f} | {local:.0f} |"


def text() -> str:
    """Return the tables in Markdown."""
    found = fits()
    lines = ["| device | model | m | server, s: predicted | measured | | clients, s: predicted | measured | |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for device, (_, cases) in found.items():
        for row, server, clients in cases:
            off = [f"{made / row[key] - 1:+.0%}" for made, key in ((server, "server_s"), (clients, "clients_s"))]
            served = f"{server:.4f} | {row['server_s']:.4f} | {off[0]}"
            worked = f"{clients:.3f} | {row['clients_s']:.3f} | {off[1]}"
            where = {"cuda": "H200", "cpu": "two cores"}[device]
            lines.append(f"| {where} | {row['model']} | {row['m']} | {served} | {worked} |")
    rates = {device: 1 / factors[1] for device, (factors, _) in found.items()}
    lines += [
        "",
        f"Fitted F: {rates['cuda'] / 1e12:.0f} TFLOP/s on the H200, {rates['cpu'] / 1e9:.0f} GFLOP/s on two cores.",
    ]
    lines += ["", "| two processes, CPU: m | d | heard in a round, bytes: predicted | measured | |"]
    lines.append("|---:|---:|---:|---:|---:|")
    for (m, d), counted in HEARD.items():
        made = heard(m, d, 2)
        lines.append(f"| {m} | {d:,} | {made:,.0f} | {counted:,} | {made / counted - 1:+.0%} |")
    lines += ["", f"{CLIENTS:,} clients on {GPUS} GPUs, in a round:", ""]
    lines.append(
        "| shared | d | stack, GiB | process today, GiB | rows by columns, GiB | server, s | traffic, s | clients, s |"
    )
    lines.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    lines += [
        plan(f"adapters of rank {RANK}", adapters(), rates["cuda"]),
        plan("all of the model", BASE, rates["cuda"]),
    ]
    return "\n".join(lines)


def written(page: str) -> str:
    """Return the page with its tables as the model has them."""
    return PLACE.sub(lambda at: f"{at[1]}\n{text()}\n\n{at[2]}", page)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(text())
