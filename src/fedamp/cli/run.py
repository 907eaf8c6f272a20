"""`fedamp run`: one experiment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedamp.cli.flags_from_fields import config_fields, given_flags, takes_fields
from fedamp.cli.terminal import Bar, by_all, interrupted, out, show_result, warn, warning
from fedamp.config import RunConfig
from fedamp.ranks.launched import is_leader

Flag = typer.Option
DataDir = Annotated[Path | None, Flag(help="Where data sets are; by default $FEDAMP_DATA, else your cache folder.")]
Preset = Annotated[str | None, Flag(help="An experiment of the paper, say paper/emnist-practical.")]
Config = Annotated[Path | None, Flag(help="TOML file with settings; flags win over it.")]
Details = Annotated[
    list[str] | None, Flag("--set", help="A detail, say method.sigma=25 or setting.share=0.8; can be repeated.")
]
Out = Annotated[
    Path | None, Flag("--out", help="Folder to write to; by default runs/ and a name made from the configuration.")
]
Track = Annotated[
    str | None, Flag(help="Show the rounds in tensorboard, mlflow or wandb too; several are separated by commas.")
]
AsJson = Annotated[bool, Flag("--json", help="End with one line of JSON on stdout.")]

RunFlags = takes_fields({RunConfig: config_fields()})


def run_command(
    context: typer.Context,
    preset: Preset = None,
    data_dir: DataDir = None,
    folder: Out = None,
    config: Config = None,
    details: Details = None,
    dry_run: Annotated[bool, Flag("--dry-run", help="Say what the run would need, without running it.")] = False,
    as_json: AsJson = False,
    track: Track = None,
) -> None:
    """Run one experiment and write its record."""
    from fedamp.config.effects import check_effects
    from fedamp.config.sources import configured

    asked = by_all("the configuration", lambda: configured(preset, config, given_flags(context), details or []))
    check_effects([asked])
    if dry_run:
        show_needs(asked, data_dir, as_json, folder)
    else:
        run_one(asked, folder, as_json, data_dir, track)


def show_needs(config: RunConfig, data_dir: Path | None, as_json: bool, folder: Path | None = None) -> None:
    """Print what a run would need; warn if there is less."""
    from fedamp.ranks.team import team
    from fedamp.runs.memory.needs import in_words, needs
    from fedamp.runs.memory.process_memory import resident
    from fedamp.runs.setup import assemble

    program = resident()  # before any data are read
    if not is_leader():
        team()  # the first process waits for the others, and then speaks for all
        return
    setup = assemble(config, data_dir=data_dir)
    need = needs(config, setup, program, folder or Path("runs"))
    if as_json:
        summary = {"fits": need.fits, "engine": setup.choice.engine}
        print(json.dumps({**vars(need), **summary, "warnings": setup.warnings}))
        return
    lines, shortage = in_words(need, config, setup)
    for line in lines:
        out.print(line, soft_wrap=True)
    if shortage:
        out.print(warning(shortage), soft_wrap=True)
    for each in setup.warnings:
        warn(each)


def run_one(
    config: RunConfig, folder: Path | None, as_json: bool, data_dir: Path | None, track: str | None = None
) -> None:
    """Run a configuration, or show the result if this run, with these data and this model, is already finished."""
    from fedamp.ranks.team import from_leader
    from fedamp.records.folder import RunFolder
    from fedamp.records.reading import DESCRIPTION
    from fedamp.runs.earlier_split import as_begun
    from fedamp.runs.identity import inputs_of, slug
    from fedamp.runs.material import load_material
    from fedamp.runs.setup import assemble
    from fedamp.runs.watching.track import tracker_names
    from fedamp.runs.watching.watched import play_tracked

    trackers = by_all("the trackers", lambda: tracker_names(track))
    material = by_all("the data", lambda: load_material(config, data_dir))
    inputs = inputs_of(config, material)
    if folder is not None:
        material, inputs = as_begun(config, material, inputs, folder)
    record = RunFolder(folder or Path("runs") / slug(config, inputs), inputs)
    if done := from_leader("the folder", lambda: record.finished(config.to_dict())):
        if not as_json:
            out.print(f"This run is already finished: {record.path}", soft_wrap=True)
        return show_result(done, record.path, as_json)
    setup = by_all("the run", lambda: assemble(config, material))
    told = () if as_json else setup.warnings  # before the rounds: they may take hours
    for each in told:
        warn(each)
    try:
        with Bar(config.all_rounds, config.method.name, setup.method.scored, config.poisoned) as bar:
            result = play_tracked(trackers, config, setup, record, bar.advance, warn)
    except KeyboardInterrupt:
        where = f"the rounds so far are in {record.path}, and the same command continues from there"
        interrupted(record.path / DESCRIPTION, where, everywhere=True)
    show_result({"finished": True, **result.to_dict()}, record.path, as_json, told)
