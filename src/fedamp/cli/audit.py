"""`fedamp audit`: does what leaves a client tell more than was promised?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fedamp.cli.flags_from_fields import config_fields, given_flags, takes_fields
from fedamp.cli.run import AsJson, Config, DataDir, Details, Preset
from fedamp.cli.terminal import fail, out, progress
from fedamp.config import RunConfig
from fedamp.config.run_config import FAULTS
from fedamp.errors import INTERRUPTED

Flag = typer.Option
# What an audit does not play: what is held out, who is absent, models that nobody sends, more clients than memory.
AuditFlags = takes_fields(
    {
        RunConfig: config_fields(
            ["validation", "take_home", "alone", "then_alone", "newcomers", "metric", "positive", "rows"], [FAULTS]
        )
    }
)
BROKEN = 1
"""The exit code if more leaks than was claimed."""


def audit_command(
    context: typer.Context,
    canaries: Annotated[int, Flag(help="Samples made for the audit; each is in or not by a fair coin.")] = 1000,
    client: Annotated[str, Flag(help="The client that gets them, by its name or its number from 0.")] = "0",
    repeats: Annotated[
        int, Flag(help="How often the run is played, with other seeds: a few dozen see that noise was halved.")
    ] = 1,
    claim: Annotated[
        float | None, Flag(help="The epsilon to compare with, instead of the account's of these flags.")
    ] = None,
    confidence: Annotated[float, Flag(help="How sure the lower bound is.")] = 0.95,
    preset: Preset = None,
    data_dir: DataDir = None,
    config: Config = None,
    details: Details = None,
    as_json: AsJson = False,
) -> None:
    """Attack what leaves a client, and give a lower bound of epsilon beside the claimed one.

    It takes the flags of the run that is to be audited, plays it with canaries among one client's samples, and guesses
    from what that client sends which of them it trained on. Exit code 1: more leaks than is claimed.
    """
    from fedamp.config.sources import configured
    from fedamp.runs.audit import audit

    asked = configured(preset, config, given_flags(context), details or [])
    bar = progress()
    task = bar.add_task("audit", total=repeats * asked.rounds, score="")
    try:
        with bar:
            found = audit(
                asked,
                canaries=canaries,
                client=client,
                repeats=repeats,
                claim=claim,
                confidence=confidence,
                data_dir=data_dir,
                observer=lambda played: bar.update(task, completed=played),
            )
    except KeyboardInterrupt:
        fail("interrupted; an audit leaves nothing behind", INTERRUPTED)
    if as_json:
        print(json.dumps(found.to_dict(), allow_nan=False))
    else:
        for line in found.in_words():
            out.print(line, soft_wrap=True)
    if found.broken:
        raise typer.Exit(BROKEN)
