"""The numbers in the page's text, by the names that page.md has for them."""

from __future__ import annotations

import itertools

from paper import measures, sizes
from paper.experiments import CHOICE_SEED, TROUBLES, VARIANTS
from paper.outcomes import (
    OURS,
    ROBUST,
    ROWS,
    Row,
    gain_in_words,
    mean,
    row_named,
    scores_of,
    scores_of_label,
)
from paper.plans import AUTO_ROUNDS, CIFAR100, PATIENCE, TUNING_ROUNDS
from paper.published import PAPER

SETTINGS = (("", "table3"), ("pathological_", "table2"))
"""What stands before a name, and the table it is of."""
DATA = ("emnist", "fmnist", "mnist")


def facts() -> dict[str, object]:
    """Return them all."""
    return {**_means(), **_gains(), **_variants(), **_details(), **_robust(), **_auto(), **_choices()}


def _name(row: Row) -> str:
    return f"{row.run.replace('-', '_')}_{row.entry}"


def _means() -> dict[str, object]:
    """Return the mean of every row, in the practical and in the pathological setting."""
    return {
        f"{prefix}{data}_{_name(row)}": mean(scores_of(f"{table}-{data}", row))
        for (prefix, table), data, row in itertools.product(SETTINGS, DATA, ROWS)
    }


def _gains() -> dict[str, object]:
    """Return what our rows gain over four others, in the same settings."""
    others = ("Separate", "FedAvg", "FedAvg-FT", "FedProx-FT")
    return {
        f"gain_{prefix}{data}_{_name(ours)}_{other.replace('-', '')}": gain_in_words(
            scores_of(f"{table}-{data}", ours), scores_of(f"{table}-{data}", row_named(other))
        )
        for (prefix, table), data, ours, other in itertools.product(SETTINGS, DATA, OURS, others)
    }


def _variants() -> dict[str, object]:
    """Return the means of the ablation, and what each change loses."""
    numbers: dict[str, object] = {}
    for data, variant, entry in itertools.product(("emnist", "fmnist"), VARIANTS, ("own", "received")):
        name = f"{data}_{variant.replace('-', '_')}_{entry}"
        scores = scores_of_label(f"ablation-{data}", variant, entry)
        numbers[name] = mean(scores)
        numbers[f"lost_{name}"] = gain_in_words(scores_of_label(f"ablation-{data}", "base", entry), scores)
    return numbers


def _details() -> dict[str, object]:
    """Return single numbers of single runs."""
    short = scores_of_label("ablation-emnist", "no-oracle", "received")
    faster = scores_of_label("ablation-emnist", "base", "received")
    by_group = measures.gains_by_group(faster, scores_of("table3-emnist", row_named("FedAMP, u")))
    within, between = measures.weights_within_and_between("table3-emnist", "fedamp-local", 10)
    windows = itertools.product((("w", "heurfedamp-sigma-10"), ("ft", "fedavg")), (51, 61))
    return {
        **{f"group_{group}": text for group, text in by_group.items()},
        **{
            f"brief_{other.replace('-', '')}": gain_in_words(short, scores_of("table3-emnist", row_named(other)))
            for other in ("FedAvg-FT", "FedProx-FT")
        },
        **{f"{name}_{k}": measures.mean_of_rounds(label, "own", k, k + 9) for (name, label), k in windows},
        **{f"tried_{value}": measures.accuracy_of_tuning_run(value) for value in (1, 100)},
        "u_early": measures.mean_of_rounds("fedamp-sigma-10", "received", 8, 12),
        "u_middle": measures.mean_of_rounds("fedamp-sigma-10", "received", 51, 60),
        "emnist_fedamp_1000_own": mean(scores_of_label("table3-emnist", "fedamp-sigma-1000", "own")),
        "emnist_tuned_spread": measures.tuned_spread("emnist", (10.0, 100.0, 1000.0)),
        "local_in": within,
        "local_out": between,
        "heard": measures.largest_share("table3-fmnist", "fedamp-local", 90),
        "last_read": measures.last_round_with_groups("heurfedamp-sigma-10"),
        "gradient_w": measures.latest_best_round("ablation-emnist", "gradient", "own"),
        "gradient_u": measures.latest_best_round("ablation-emnist", "gradient", "received"),
        **measures.earlier_cifar100(),
        "diminishing": measures.diminishing(),
    }


def _robust() -> dict[str, object]:
    """Return the robustness table's means, and where AutoAMP's u has the highest."""
    numbers: dict[str, object] = {}
    for trouble, row, which in itertools.product(TROUBLES, ROBUST, ("best", "last")):
        scores = scores_of_label("robust-fmnist", f"{trouble}-{row.run}", row.entry)
        numbers[f"robust_{'' if which == 'best' else 'last_'}{trouble}_{_name(row)}"] = mean(scores, which)
    behind = measures.behind_the_best("AutoAMP, u")
    return {
        **numbers,
        "robust_rows": len(TROUBLES),
        "robust_first": len(TROUBLES) - len(behind),
        "robust_not_first": "; ".join(behind) or "all of them",
        "robust_flipped": measures.largest_loss("flipped"),
    }


def _auto() -> dict[str, object]:
    """Return AutoAMP's gains over FedAMP's fast schedule, and what its newer code reaches beside the older."""
    auto = scores_of("table3-emnist", row_named("AutoAMP, u"))
    gains = {
        name: gain_in_words(auto, scores_of_label("ablation-emnist", variant, "received"))
        for name, variant in (("auto_over_brief", "base"), ("auto_over_no_oracle", "no-oracle"))
    }
    again = {
        f"auto_again_{entry}": mean(scores_of_label("robust-fmnist", "clean-autoamp", entry))
        for entry in ("own", "received")
    }
    before = {
        f"auto_before_{entry}": measures.best_of_first("auto-fmnist", "practical", entry, TUNING_ROUNDS)
        for entry in ("own", "received")
    }
    brief = {"auto_brief": measures.best_of_first("auto-emnist", "practical", "received", TUNING_ROUNDS)}
    return gains | again | before | brief


def _choices() -> dict[str, object]:
    """Return what was decided beforehand, and a figure of the paper's."""
    return {
        "paper_gain": f"{PAPER['table3']['emnist'][7] - PAPER['table3']['emnist'][3]:.2f}",
        "tuning_rounds": TUNING_ROUNDS,
        "falls": TUNING_ROUNDS // 3,
        **{f"patience_{method}": rounds for method, rounds in PATIENCE.items()},
        "auto_rounds": AUTO_ROUNDS,
        "cifar100_rounds": CIFAR100.auto_rounds,
        "cifar100_tuning_rounds": CIFAR100.tuning_rounds,
        "choice_seed": CHOICE_SEED,
        **{f"trial_{name}": value for name, value in sizes.TRIAL.items()},
    }
