"""What going on alone after the last round is worth: small silos and the digits, with held-out samples that choose.

    python benchmarks/then_alone.py                          # prints the table, in about 15 minutes on two cores
    python benchmarks/then_alone.py --into docs/autoamp.md   # writes it between the page's markers
    python benchmarks/then_alone.py --pictures DIR           # likewise of FMNIST, in about 25; DIR is its --data-dir

Everyone holds out a fifth of the training samples; they choose what clients take home, whose mean test accuracy is
shown (percent). 30 rounds, and with "then alone" up to 30 more. Separate has them too, so that nobody trains longer
than it. Silos and digits are those of without_tuning.py, with seeds that nothing was chosen on. The last two columns
are of AutoAMP, then alone: its gain over Separate with a 95 % interval (Student's t over the seeds), and after how many
of the 30 rounds alone held-out samples stopped, on average. Pictures: 20 clients with 100 of them each (practical:
200 in the first three groups), `cnn-small`, 20 rounds of two passes, and up to 20 alone.
"""

import argparse
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import t as students_t
from without_tuning import SETTINGS, silos

import fedamp

SILO_SEEDS, DIGIT_SEEDS = range(940, 950), range(804, 809)
ROUNDS = 30
COLUMNS = {
    "Separate": ("separate", True),
    "FedAvg-FT": ("fedavg-ft", False),
    "AutoAMP": ("autoamp", False),
    "FedAvg-FT, then alone": ("fedavg-ft", True),
    "AutoAMP, then alone": ("autoamp", True),
}
OURS, YARDSTICK = "AutoAMP, then alone", "Separate"
PICTURE_SEEDS = range(31, 34)
SIZES: dict[str, dict[str, Any]] = {
    "practical": {"sizes": [200, 200, 200, 100, 100]},
    "pathological": {"samples": 100},
    "iid": {"samples": 100},
}
PLACES = {
    pictures: re.compile(rf"(<!-- then alone{', pictures' * pictures}: [^>]* -->\n).*?(<!-- end -->)", re.DOTALL)
    for pictures in (False, True)
}

Job = tuple[Any, str, bool, int]


def taken_home(job: Job) -> tuple[float, int]:
    """Return the mean test accuracy of what clients take home, and the rounds that they went on alone for it."""
    what, method, then_alone, seed = job
    torch.set_num_threads(1)
    shared: dict[str, Any] = {"rounds": ROUNDS, "method": method, "seed": seed}
    shared |= {"validation": 0.2, "take_home": "chosen", "progress": False}
    if isinstance(what, Path):
        name = what.name
        setting = {"name": name, "test_samples": 100, **SIZES[name]}
        shared |= {"data": "fmnist", "data_dir": what.parent, "setting": setting, "clients": 20, "model": "cnn-small"}
        shared |= {"rounds": 20, "epochs": 2, "batch_size": 20}
    elif isinstance(what, tuple):
        shared |= {"clients": silos(*what, seed), "batch_size": 20}
    else:
        shared |= {"data": "digits", "setting": SETTINGS[what], "clients": 20}
    run = fedamp.run(then_alone=shared["rounds"] if then_alone else 0, **shared)
    assert run.take_home is not None
    return run.take_home.mean, 0 if run.then_alone is None else run.then_alone.taken


def kinds_of(pictures: Path | None) -> list[tuple[str, Any, range]]:
    """Return the lines' titles, what they are about, and their seeds."""
    if pictures is not None:
        return [(f"FMNIST, {name}", pictures / name, PICTURE_SEEDS) for name in SIZES]
    kinds: list[tuple[str, Any, range]] = [
        (f"{count} {rule}", (count, rule), SILO_SEEDS)
        for rule in ("opposite", "alike", "related", "different")
        for count in (2, 3, 10)
    ]
    return kinds + [(f"digits, {name}", name, DIGIT_SEEDS) for name in SETTINGS]


def lines(pool: ProcessPoolExecutor, pictures: Path | None) -> Iterator[str]:
    """Return the table, line by line."""
    yield f"| | {' | '.join(COLUMNS)} | gain over {YARDSTICK} | rounds alone |"
    yield f"|---|{'---:|' * (len(COLUMNS) + 2)}"
    for title, what, seeds in kinds_of(pictures):
        jobs = [(what, *COLUMNS[column], seed) for column in COLUMNS for seed in seeds]
        found = np.array(list(pool.map(taken_home, jobs))).reshape(len(COLUMNS), len(seeds), 2)
        scores = dict(zip(COLUMNS, found[:, :, 0], strict=True))
        gain = scores[OURS] - scores[YARDSTICK]
        half = students_t.ppf(0.975, len(seeds) - 1) * gain.std(ddof=1) / len(seeds) ** 0.5
        cells = [f"{each.mean():.2f}" for each in scores.values()]
        alone = found[list(COLUMNS).index(OURS), :, 1].mean()
        yield f"| {title} | {' | '.join(cells)} | {gain.mean():+.2f} ± {half:.2f} | {alone:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, help="a page with the markers to write between")
    parser.add_argument("--pictures", type=Path, help="where FMNIST is: then it is about that")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    asked = parser.parse_args()
    found = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        for line in lines(pool, asked.pictures):
            print(line, flush=True)
            found.append(line)
    if asked.into:
        page, text = asked.into.read_text(encoding="utf-8"), "\n".join(["", *found, "", ""])
        page, number = PLACES[asked.pictures is not None].subn(lambda place: f"{place[1]}{text}{place[2]}", page)
        if not number:
            parser.error(f"{asked.into} has no markers to write between")
        asked.into.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
