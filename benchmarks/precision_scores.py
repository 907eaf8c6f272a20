"""What precision does to accuracy: BMTA on real data in fp32, TF32 and bf16, over three seeds.

python benchmarks/precision_scores.py --data-dir DIR [--preset paper/emnist-practical] [--rounds 10] [--seeds 3]
"""

import argparse
import statistics
import time

import fedamp
from fedamp.config.presets import preset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--preset", default="paper/emnist-practical")
    parser.add_argument("--method", default="fedamp")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    settings = {**preset(asked.preset, asked.method), "rounds": asked.rounds}
    means = {}
    for precision in ("fp32", "tf32", "bf16"):
        began, scores = time.perf_counter(), []
        for seed in range(asked.seeds):
            result = fedamp.run(**settings, seed=seed, precision=precision, data_dir=asked.data_dir)
            scores.append(result.bmta)
        means[precision] = statistics.mean(scores)
        each = ", ".join(f"{score:.2f}" for score in scores)
        apart = means[precision] - means["fp32"]
        print(
            f"{precision}: {each}; mean {means[precision]:.2f} ({apart:+.2f})  {time.perf_counter() - began:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
