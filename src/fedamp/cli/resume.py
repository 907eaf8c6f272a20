"""`fedamp resume`: continue a run or a comparison that was interrupted."""

from pathlib import Path
from typing import Annotated

import typer

from fedamp.cli.compare import play_comparison
from fedamp.cli.report import renderer
from fedamp.cli.run import AsJson, DataDir, Track, run_one
from fedamp.cli.terminal import show_result
from fedamp.config import RunConfig


def resume_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or a comparison that was interrupted.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
    track: Track = None,
) -> None:
    """Continue a run or a comparison that was interrupted; the result is the same as without the interruption."""
    from fedamp.ranks.team import from_leader
    from fedamp.records.reading import read_run
    from fedamp.runs import compare

    runs = from_leader("the plan", lambda: compare.read_plan(folder) if (folder / compare.PLAN).exists() else None)
    if runs is not None:
        return play_comparison(runs, folder, data_dir, None, renderer("text"), track=track)
    run = from_leader("the record", lambda: read_run(folder))
    config = RunConfig.of(run.config)
    if config.setting.name == "federation" and run.finished and run.result is not None:
        # Nobody has its data in one place, so there is nothing to compare with.
        return show_result(run.result, folder, as_json)
    return run_one(config, folder, as_json, data_dir, track)
