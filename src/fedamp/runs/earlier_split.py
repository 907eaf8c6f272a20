"""Runs on silos' files from before rows were held out by what they hold: it goes on with those it began with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from fedamp.config import RunConfig
from fedamp.files import read_json
from fedamp.ranks.team import from_leader
from fedamp.records.inputs import Inputs
from fedamp.records.reading import INPUTS
from fedamp.runs.identity import split_digest
from fedamp.runs.material import Material


def as_begun(config: RunConfig, material: Material, inputs: Inputs, folder: Path) -> tuple[Material, Inputs]:
    """Return what a run in this folder learns from: with rows held out at random, if it was begun so."""
    clients = material.clients
    there = from_leader("the split", lambda: (read_json(folder / INPUTS) or {}).get("split"))
    if clients.digests is None or there in (None, inputs.split):
        return material, inputs
    rows = [torch.cat(both).sort().values for both in zip(clients.train, clients.test, strict=True)]
    whole = replace(clients, train=tuple(rows), test=(), digests=None)
    earlier = whole.hold_out(config.held_out, config.seed, "test")
    if split_digest(earlier) != there:  # it is another run, which the folder itself will say
        return material, inputs
    return replace(material, clients=earlier), replace(inputs, split=there)
