"""What tests of a provisioned federation share: names of silos, their data, a plan."""

import stat
from pathlib import Path

import numpy as np

from fedamp.config import RunConfig
from fedamp.data.silos.read import RawSilo
from fedamp.data.silos.schema import make_schema
from fedamp.federation.plan import Plan

# Words that occur nowhere else, so that a search through all bytes tells something.
NAMES = ["zebra-clinic", "yak-hospital", "xenops-lab"]


HOSTS = ["fl.example.org", "192.0.2.7"]


def silo_data(path: Path, seed: int = 0, rows: int = 40) -> Path:
    rng = np.random.default_rng(seed)
    np.savez(path, x=rng.normal(size=(rows, 4)).astype(np.float32), y=np.arange(rows) % 3)
    return path


def make_plan(name: str = "trio", **settings) -> Plan:
    rng = np.random.default_rng(0)
    schema = make_schema([RawSilo("any", rng.normal(size=(30, 4)), np.arange(30) % 3)])
    values = {"data": name, "setting": "natural", "clients": 3, "task": "classification", "rounds": 2}
    return Plan(name, RunConfig.of({**values, **settings}), schema)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
