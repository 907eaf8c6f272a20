"""The methods, by name. Each is one short file with both halves; adding one takes a file and a line here."""

from dataclasses import fields
from typing import Any

from fedamp import checks
from fedamp.errors import UserError
from fedamp.methods.apfl import APFL
from fedamp.methods.autoamp import AutoAMP
from fedamp.methods.base import Direction, Directions, Grad, Local, Method
from fedamp.methods.cfl import CFL
from fedamp.methods.cfl_ft import CFLFT
from fedamp.methods.ditto import Ditto
from fedamp.methods.fedala import FedALA
from fedamp.methods.fedamp import FedAMP
from fedamp.methods.fedavg import FedAvg
from fedamp.methods.fedavg_ft import FedAvgFT
from fedamp.methods.fedbn import FedBN
from fedamp.methods.fedfomo import FedFomo
from fedamp.methods.fedper import FedPer
from fedamp.methods.fedprox import FedProx
from fedamp.methods.fedprox_ft import FedProxFT
from fedamp.methods.fedrep import FedRep
from fedamp.methods.heurfedamp import HeurFedAMP
from fedamp.methods.ifca import IFCA
from fedamp.methods.ifca_ft import IFCAFT
from fedamp.methods.mr_mtl import MRMTL
from fedamp.methods.per_fedavg import PerFedAvg
from fedamp.methods.pfedgraph import PFedGraph
from fedamp.methods.pfedme import PFedMe
from fedamp.methods.scaffold import Scaffold
from fedamp.methods.separate import Separate

METHODS: dict[str, type[Method]] = {
    "separate": Separate,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedavg-ft": FedAvgFT,
    "fedprox-ft": FedProxFT,
    "scaffold": Scaffold,
    "apfl": APFL,
    "fedamp": FedAMP,
    "heurfedamp": HeurFedAMP,
    "autoamp": AutoAMP,
    "per-fedavg": PerFedAvg,
    "ditto": Ditto,
    "mr-mtl": MRMTL,
    "pfedme": PFedMe,
    "fedper": FedPer,
    "fedrep": FedRep,
    "fedbn": FedBN,
    "fedala": FedALA,
    "pfedgraph": PFedGraph,
    "fedfomo": FedFomo,
    "ifca": IFCA,
    "ifca-ft": IFCAFT,
    "cfl": CFL,
    "cfl-ft": CFLFT,
}

USUAL = (
    *("separate", "fedavg", "fedprox", "fedavg-ft", "fedprox-ft", "scaffold", "apfl", "fedamp", "heurfedamp"),
    "autoamp",
)
"""What is compared unless somebody says otherwise: the paper's nine, and AutoAMP."""


def in_group(name: str) -> tuple[str, ...]:
    """Return the methods of a group, whose name may have hyphens for blanks; none if there is no such group.

    >>> in_group("clusters"), in_group("one-model-for-all")
    (('ifca', 'cfl'), ('fedavg', 'fedprox', 'scaffold'))
    """
    group = name.replace("-", " ")
    return tuple(each for each, kind in METHODS.items() if kind.group.replace("-", " ") == group)


def make_method(name: str, **hyperparameters: Any) -> Method:
    """Return a method by its name; a wrong name or hyperparameter is an error that lists the right ones.

    >>> make_method("fedprox", mu=0.1)
    FedProx(mu=0.1)
    """
    checks.one_of("method", name, METHODS)
    known = {f.name for f in fields(METHODS[name])}
    for given in hyperparameters:
        if not known:
            raise UserError(f"method {name!r} takes no hyperparameters, but got {given!r}; leave it out")
        checks.one_of(f"hyperparameter of {name}", given, known)
    return METHODS[name](**checks.plain(hyperparameters))


__all__ = [
    "APFL",
    "CFL",
    "CFLFT",
    "IFCA",
    "IFCAFT",
    "METHODS",
    "MRMTL",
    "USUAL",
    "AutoAMP",
    "Direction",
    "Directions",
    "Ditto",
    "FedALA",
    "FedAMP",
    "FedAvg",
    "FedAvgFT",
    "FedBN",
    "FedFomo",
    "FedPer",
    "FedProx",
    "FedProxFT",
    "FedRep",
    "Grad",
    "HeurFedAMP",
    "Local",
    "Method",
    "PFedGraph",
    "PFedMe",
    "PerFedAvg",
    "Scaffold",
    "Separate",
    "in_group",
    "make_method",
]
