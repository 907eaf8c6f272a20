"""The end of a run: its last models are scored, and everything becomes a result; or a finished one is read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from fedamp.config import RunConfig
from fedamp.config.metrics import OWN, info
from fedamp.methods.alone_beside import without_alone
from fedamp.records.client_names import client_name
from fedamp.records.facts import Facts
from fedamp.records.folder import RunFolder
from fedamp.records.last_state import LastState
from fedamp.records.newcomers import Newcomers
from fedamp.records.summaries import counted_clients, score_table, with_scores
from fedamp.records.take_home import CHOSEN, TakeHome
from fedamp.rows import Rows
from fedamp.runs.in_use.loading import recorded
from fedamp.runs.journal import Journal, unplayed_line
from fedamp.runs.metric_table import metric_table
from fedamp.runs.newcomers.newcomer import with_joined
from fedamp.runs.result import Result
from fedamp.runs.scoring import AT_HOME, better, kept, scores, summary, take_home_rule, with_choice
from fedamp.runs.setup import Setup
from fedamp.runs.standing import Standing
from fedamp.runs.then_alone import WentOn, go_on_alone
from fedamp.runs.with_alone import with_alone


def conclude(
    config: RunConfig,
    setup: Setup,
    at: Standing,
    journal: Journal,
    newcomers: Newcomers | None = None,
    further: Callable[[Mapping[str, Any]], object] | None = None,
) -> Result:
    """Return the result of a run that ends here, and write it down; it may not have reached its last round.

    `newcomers` are those who have joined it since. Where clients go on alone after the last round, `further` sees these
    rounds, and the last models before them; None if it has not come to that. Ctrl-C in them is raised when all that was
    played is written down.
    """
    finished, stopped = at.k == config.rounds and (further is not None or not config.then_alone), None
    if not finished or config.then_alone:  # rounds alone take their time, too: after a stop it goes on from here
        journal.save(partial(at.checkpoint, setup))
    models = at.models(setup)
    if "received" in models:  # what the last round made has not been sent to anyone yet: score it as if it were
        last = {"received": models["received"]}
        line = journal.add(unplayed_line(at.k + 1, scores(setup, last, torch.arange(len(setup.clients)))))
        if at.held_out is not None:
            said, best = at.held_out.after(line), better(config, setup, at.best, last, at.k + 1)
            at = replace(at, best=with_choice(best, at.held_out, said, last), held_out=said)
    went_on = None
    if further is not None:
        if journal.lines[-1]["round"] > at.k:
            setup.shard.from_leader("the last models", partial(further, journal.lines[-1]))
        try:
            went_on = go_on_alone(config, setup, at, further)
        except KeyboardInterrupt as stop:
            finished, stopped = False, stop
        at = at if went_on is None else went_on.at
    at = replace(at, best={name: each for name, each in at.best.items() if name != AT_HOME})
    # From here on it is all clients' models, wherever they have been.
    models, at = setup.shard.all_rows(models), replace(at, best=at.all_best(setup))
    best, take_home = dict(at.best), None
    if (taken := best.pop(CHOSEN, None)) is not None and at.held_out is not None:
        scored = kept(setup, taken.round, taken.models).scores
        take_home = TakeHome.of_choice(take_home_rule(config, setup.method), at.held_out, scored)
    facts, unscored = _without_own_score(setup, journal)
    result = Result(
        config=config,
        history=journal.lines,
        summary=summary(config, setup, journal.lines),
        last_models={entry: kept(setup, at.k, rows) for entry, rows in models.items()},
        xi=at.weights,
        warnings=list(dict.fromkeys([*_warnings(setup, journal), *unscored, *_of_going_on(config, finished, went_on)])),
        facts=facts,
        seconds=sum(line["seconds"] for line in journal.lines) + (went_on.seconds if went_on else 0.0),
        method=without_alone(setup.method),
        scored=setup.method.scored,
        model=setup.trainer.model,
        schema=setup.schema,
        folder=journal.path,
        best_models={entry: kept(setup, best.round, best.models, best.score) for entry, best in best.items()},
        take_home=take_home,
        taken=None if taken is None else taken.models,
        then_alone=None if went_on is None else went_on.record,
        newcomers=newcomers,
        last_state=LastState(at.k, at.server) if finished else None,
    )
    result = with_joined(with_alone(with_metrics(result, setup), setup), setup, at)
    if journal.path is not None:
        # Nobody goes on before it is all there: another process may read it next.
        write = partial(_finish, journal, finished, result, models, at)
        setup.shard.from_leader("the record", write)
        result = replace(result, last_state=None)  # it is in the folder: memory is for those who have none
    if stopped is not None:
        raise stopped
    return result


def _finish(journal: Journal, finished: bool, result: Result, models: Mapping[str, Rows], at: Standing) -> None:
    """Write the end of a record, in the process that has its folder."""
    if journal.folder is not None:
        best = {entry: each.models for entry, each in at.best.items()}
        text = {"finished": finished, **result.to_dict()}
        journal.folder.finish(text, models, result.xi, best, last=result.last_state)


def with_metrics(result: Result, setup: Setup) -> Result:
    """Return the result with all usual metrics of what clients take home."""
    counted = counted_clients(len(setup.clients), result.config.poisoned)
    return replace(result, metrics=metric_table(setup, result.chosen.models, counted))


def _warnings(setup: Setup, journal: Journal) -> list[str]:
    """Return what the user should know, each once: about the data, the way of training and the rounds."""
    way = [setup.choice.warning] if setup.choice.warning else []
    return list(dict.fromkeys([*setup.warnings, *way, *(event for line in journal.lines for event in line["events"])]))


def _of_going_on(config: RunConfig, finished: bool, went_on: WentOn | None) -> list[str]:
    """Return the warnings of the rounds alone; one if there are none, since there was nothing to begin from."""
    if went_on is not None:
        return went_on.events
    if not finished or not config.then_alone:
        return []
    return [
        f"nobody went on alone (then_alone is {config.then_alone}): held-out samples gave no model a score by which it "
        "could be chosen. Hold out more (--validation), or look at the metric"
    ]


def _without_own_score(setup: Setup, journal: Journal) -> tuple[Facts, list[str]]:
    """Return the facts with the clients to whom a user's own metric never gave a number, and a warning about them."""
    facts, metric = setup.facts, setup.trainer.task.metric
    if not metric.startswith(f"{OWN}:"):
        return facts, []
    table = score_table(journal.lines, setup.method.scored, metric)
    without = [i for i, known in enumerate(with_scores(table)) if not known]
    if not without:
        return facts, []
    who = ", ".join(client_name(i, facts.names) for i in without)
    words = info(metric).words
    return replace(facts, undefined=without), [
        f"{words} is nan for {who} in every round: no score, and no part in means and p. Hold out more (--held-out), "
        "or look at what the metric does with these samples"
    ]


def read_again(config: RunConfig, setup: Setup, folder: RunFolder) -> Result:
    """Return the result of a run that is finished in this folder."""
    return recorded(folder.read(), config, without_alone(setup.method), setup.trainer.model, setup.schema)
