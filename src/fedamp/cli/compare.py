"""`fedamp compare`: several methods and seeds over one setting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedamp.cli.flags_from_fields import config_fields, given_flags, takes_fields
from fedamp.cli.report import Render, renderer
from fedamp.cli.run import Config, DataDir, Details, Flag, Out, Preset, Track
from fedamp.cli.terminal import Bars, announce, by_all, interrupted, out, warn
from fedamp.config.run_config import RunConfig
from fedamp.ranks.launched import is_leader

if TYPE_CHECKING:
    from fedamp.records.reading import RunRecord
    from fedamp.runs.compare import Planned

CompareFlags = takes_fields({RunConfig: config_fields(leave_out=("method",))})


def compare_command(
    context: typer.Context,
    methods: Annotated[
        str,
        Flag(
            help="Names like fedamp,fedavg-ft; usual: the paper's nine and AutoAMP; all; a group of fedamp list "
            "methods, like clusters or personal-parts. Separate always takes part."
        ),
    ] = "usual",
    seeds: Annotated[int, Flag(help="How many seeds, counting up from --seed.")] = 1,
    against: Annotated[str | None, Flag(help="The method that p compares the others with.")] = None,
    grid: Annotated[
        list[str] | None,
        Flag(
            help="Values to choose from by validation: lr=0.01,0.001, model=mlp,logistic, method.sigma=1,10; for one "
            "method fedamp:lr=0.1,1 or fedamp.sigma=1,10. setting.NAME=VALUE,VALUE makes a table for each value."
        ),
    ] = None,
    format: Annotated[str, Flag(help="How the table is printed: text, csv or markdown.")] = "text",
    preset: Preset = None,
    data_dir: DataDir = None,
    folder: Out = None,
    config: Config = None,
    details: Details = None,
    track: Track = None,
) -> None:
    """Run several methods and seeds over one setting and show who gains; if interrupted, the same command continues."""
    from fedamp import checks
    from fedamp.config.effects import check_effects
    from fedamp.config.sources import configured
    from fedamp.runs import compare

    def asked() -> tuple[list[Planned], Render]:
        checks.count("seeds", seeds)
        flags, names = given_flags(context), compare.method_names(methods)
        having = compare.hyperparameters(names)
        fixed = compare.parse_axes(details or [], having, "--set")

        def config_for(method: str) -> RunConfig:
            (mine,) = compare.points_of(method, fixed, having)
            return compare.at_point(configured(preset, config, {**flags, "method": method}, []), mine)

        compare.check_against(against, names)
        first = flags.get("seed", RunConfig.seed)
        axes, render = compare.parse_axes(grid or [], having), renderer(format)
        planned = compare.plan(config_for, having, range(first, first + seeds), axes)
        check_effects([run.config for run in planned])
        return planned, render

    runs, render = by_all("the configuration", asked)
    if folder is None:
        folder = Path("runs") / f"compare-{by_all('the data', lambda: compare.digest(runs, data_dir))}"
    play_comparison(runs, folder, data_dir, against, render, newcomers=format != "csv", track=track)
    if format == "text":
        out.print(f"record: {folder}    page: fedamp report {folder}", soft_wrap=True)


def play_comparison(
    runs: Sequence[Planned],
    folder: Path,
    data_dir: Path | None,
    against: str | None,
    render: Render,
    newcomers: bool = True,
    track: str | None = None,
) -> None:
    """Play what is not finished yet, and print the table; below it, a second one of what `newcomers` get."""
    from fedamp.comparison.comparison import common_warnings
    from fedamp.methods import METHODS
    from fedamp.ranks.team import from_leader
    from fedamp.records.against import keep_against
    from fedamp.records.privacy import PROTECTS_NOBODY
    from fedamp.report.newcomers import by_method
    from fedamp.report.privacy import privacy_note
    from fedamp.report.table import comparison_table
    from fedamp.runs import compare
    from fedamp.runs.handed_over import HandedOver
    from fedamp.runs.watching.track import tracker_names
    from fedamp.runs.watching.watched import play_tracked

    names = by_all("the trackers", lambda: tracker_names(track))
    player = partial(play_tracked, names, warn=warn, store=folder) if names else None

    def begin(effort: str) -> None:
        from_leader("what p compares with", lambda: keep_against(folder, against))
        announce(effort)

    try:
        with Bars(runs, {name: method.scored for name, method in METHODS.items()}) as bars:
            compare.play_all(runs, folder, HandedOver(data_dir), bars.advance, begin, player)
    except KeyboardInterrupt:
        interrupted(folder / compare.PLAN, f"the same command continues in {folder}", everywhere=True)
    if not is_leader():
        return
    settled = compare.settle(runs, folder)
    print(render(comparison_table(settled, against)))
    if newcomers and (text := by_method(settled)):
        print(text)
    if newcomers and (text := privacy_note(settled)):
        print(f"{text}\n{PROTECTS_NOBODY}")
    for each in [*common_warnings(settled), *_worse_than_alone(settled)]:
        warn(each)


def _worse_than_alone(records: Sequence[RunRecord]) -> list[str]:
    """Return for each run in which clients are worse off than alone, if that was asked for, who they are."""
    from fedamp.records.beside_alone import BesideAlone

    asked = [run for run in records if run.result is not None and "alone" in run.result]
    found = [(run, BesideAlone.of((run.result or {})["alone"])) for run in asked]
    return [f"{run.path.name}: {each.headline(run.facts.names)}" for run, each in found if each.worse_off]
