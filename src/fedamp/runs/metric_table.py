"""All usual metrics of what the clients take home: of each client, and on all clients' test samples together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedamp.config.metrics import info
from fedamp.records.metric_scores import Scored
from fedamp.records.summaries import mean_of_known
from fedamp.rows import Rows
from fedamp.runs.setup import Setup
from fedamp.training.evaluate import answers_of, worst_if_broken
from fedamp.training.metrics import functions


def metric_table(setup: Setup, rows: Rows, counted: Sequence[bool]) -> dict[str, Scored]:
    """Return every metric that fits the task, and a user's own, of models on their clients' test samples."""
    task = setup.trainer.task
    judges = functions(task.name, setup.facts.num_outputs or 0, task.positive)
    if task.judge is not None:
        judges.setdefault(task.metric, task.judge)
    answers = answers_of(setup.trainer, setup.clients, rows)
    mine = [pair for pair, counts in zip(answers, counted, strict=True) if counts]
    together = torch.cat([output for output, _ in mine]), torch.cat([y for _, y in mine])
    found = {}
    for name, judge in judges.items():
        factor = info(name).factor
        scores = [factor * worst_if_broken(name, judge, output, y) for output, y in answers]
        known = [score for score, counts in zip(scores, counted, strict=True) if counts]
        pooled = factor * worst_if_broken(name, judge, *together)
        found[name] = Scored(scores, mean_of_known(known), pooled)
    return found
