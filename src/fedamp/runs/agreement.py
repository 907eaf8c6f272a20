"""Processes that play a run together must mean the same run: the same configuration, samples, model and programs."""

from __future__ import annotations

import json

import torch

from fedamp import __version__
from fedamp.config import RunConfig
from fedamp.ranks.team import Team
from fedamp.runs.identity import tensors_digest
from fedamp.runs.setup import Setup


def agree(team: Team, config: RunConfig, setup: Setup) -> None:
    """Raise if another process has another configuration, other data or another way of training."""
    clients = setup.clients
    team.agree("the program", [__version__, torch.__version__], "install the same versions of fedamp and torch for all")
    team.agree("the configuration", json.dumps(config.to_dict(), sort_keys=True), "give all of them the same command")
    held = [clients.x, clients.y, *clients.train, *clients.test, *clients.validation]
    team.agree("the data", tensors_digest(held), "give all of them the same files, and the same --data-dir")
    team.agree("the first models", tensors_digest([setup.w.params, setup.w.buffers]), "give all of them the same model")
    way = [setup.choice.engine, setup.w.params.device.type, setup.trainer.config.precision]
    team.agree("the way of training", way, "give all of them --engine and --device, and machines of one kind")
