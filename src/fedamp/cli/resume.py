"""`fedamp resume`: continue a run or a comparison that was interrupted."""

from pathlib import Path
from typing import Annotated

import typer

from fedamp.cli.compare import play_comparison
from fedamp.cli.report import renderer
from fedamp.cli.run import AsJson, DataDir, Track, run_one
from fedamp.cli.terminal import show_result
from fedamp.config import RunConfig
from fedamp.config.run_config import GIVEN
from fedamp.errors import UserError


def resume_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or a comparison that was interrupted.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
    track: Track = None,
) -> None:
    """Continue a run or a comparison that was interrupted; the result is the same as without the interruption."""
    from fedamp.ranks.team import from_leader
    from fedamp.records.against import kept_against
    from fedamp.records.reading import read_run
    from fedamp.runs import compare

    runs = from_leader("the plan", lambda: compare.read_plan(folder) if (folder / compare.PLAN).exists() else None)
    if runs is not None:
        for planned in runs:
            _check_from_words(planned.config, folder, "compare")
        against = from_leader("what it was compared with", lambda: kept_against([folder]))
        return play_comparison(runs, folder, data_dir, against, renderer("text"), track=track)
    run = from_leader("the record", lambda: read_run(folder))
    config = RunConfig.of(run.config)
    if (config.setting.name == "federation" or _from_python(config)) and run.finished and run.result is not None:
        # Not all that it was made from is here, so there is nothing to compare with.
        return show_result(run.result, folder, as_json)
    _check_from_words(config, folder, "run")
    return run_one(config, folder, as_json, data_dir, track)


def _from_python(config: RunConfig) -> str:
    """Return which of data, model and method were given from Python: their names here are not what they are made from.

    Empty if none were.
    """
    from fedamp.methods import METHODS
    from fedamp.runs.trained_model import built_by_name

    given = {
        "data": config.setting.name == GIVEN,
        f"model ({config.model.name})": not built_by_name(config),
        f"method ({config.method.name})": config.method.name not in METHODS,
    }
    return " and ".join(name for name, from_python in given.items() if from_python)


def _check_from_words(config: RunConfig, folder: Path, call: str) -> None:
    """Raise if something was given from Python."""
    if what := _from_python(config):
        raise UserError(
            f"the {what} of {folder} came from Python; continue there, with the same "
            f"fedamp.{call}(..., out={str(folder)!r})"
        )
