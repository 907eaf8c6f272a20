"""What the paper printed: Tables 1 to 3 of Huang et al., AAAI 2021, best mean test accuracy in percent."""

SETTING = {"table1": "iid", "table2": "pathological", "table3": "practical"}
"""The setting of each of the paper's tables."""

DATA = ("mnist", "fmnist", "emnist", "cifar100")

Setting = tuple[str, str]  # which of the tables, and the data
TWELVE: list[Setting] = [(kind, data) for kind in ("table3", "table2", "table1") for data in DATA]
"""All that the paper has, the practical settings first."""

# Separate, FedAvg, FedProx, FedAvg-FT, FedProx-FT, SCAFFOLD, APFL, FedAMP, HeurFedAMP.
PAPER = {
    "table1": {
        "mnist": (99.27, 99.31, 98.81, 98.98, 98.72, 98.89, 98.93, 99.22, 99.28),
        "fmnist": (81.66, 91.94, 90.19, 90.17, 89.02, 89.04, 91.03, 92.05, 91.80),
        "emnist": (54.41, 74.38, 73.14, 70.53, 69.49, 72.51, 73.95, 74.07, 74.07),
        "cifar100": (9.82, 49.59, 46.50, 35.07, 40.77, 43.06, 49.02, 45.68, 45.88),
    },
    "table2": {
        "mnist": (98.73, 98.39, 97.15, 99.66, 99.63, 99.34, 98.24, 99.53, 99.38),
        "fmnist": (97.67, 77.88, 83.80, 98.07, 98.00, 94.58, 97.44, 97.95, 98.17),
        "emnist": (99.15, 19.44, 48.81, 99.24, 99.27, 98.75, 98.90, 99.27, 99.26),
        "cifar100": (92.67, 2.70, 2.81, 95.00, 94.36, 2.04, 52.11, 94.87, 94.74),
    },
    "table3": {
        "mnist": (86.30, 81.82, 81.46, 91.79, 94.10, 98.50, 85.05, 97.59, 97.36),
        "fmnist": (86.73, 79.50, 78.71, 89.73, 87.51, 40.20, 84.08, 90.97, 91.37),
        "emnist": (61.78, 72.27, 70.55, 78.93, 77.31, 77.98, 59.07, 81.22, 81.47),
        "cifar100": (39.99, 35.21, 37.31, 49.00, 50.24, 21.29, 16.45, 53.04, 53.27),
    },
}
