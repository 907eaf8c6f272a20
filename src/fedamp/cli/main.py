"""The command line: parse, call, print. Every mistake of a user is one line and exit code 2."""

import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from fedamp import __version__
from fedamp.cli.data import data_app
from fedamp.cli.federation import federation_app, silo_app
from fedamp.cli.terminal import INTERRUPTED, Bar, Bars, fail, out, show_result, warn, warning
from fedamp.errors import UserError

app = typer.Typer(
    help="Personalized federated learning by attentive message passing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"fedamp {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


Flag = typer.Option


@app.command("run")
def run_command(
    data: Annotated[str | None, Flag(help="Data set; `fedamp list data`.")] = None,
    setting: Annotated[str | None, Flag(help="How data is split among clients; `fedamp list settings`.")] = None,
    clients: Annotated[int | None, Flag(help="Number of clients.")] = None,
    model: Annotated[str | None, Flag(help="A model's name, or your own as module:function.")] = None,
    method: Annotated[str | None, Flag(help="One of the nine; `fedamp list methods`.")] = None,
    rounds: Annotated[int | None, Flag(help="Communication rounds.")] = None,
    epochs: Annotated[int | None, Flag(help="Local passes over the data in a round.")] = None,
    steps: Annotated[int | None, Flag(help="Or: local minibatches in a round.")] = None,
    batch_size: Annotated[int | None, Flag(help="Samples in a minibatch.")] = None,
    optimizer: Annotated[str | None, Flag(help="adam or sgd; by default the method's own.")] = None,
    lr: Annotated[float | None, Flag(help="Learning rate; by default the method's own.")] = None,
    momentum: Annotated[float | None, Flag(help="Momentum of sgd.")] = None,
    weight_decay: Annotated[float | None, Flag(help="L2 weight decay.")] = None,
    preset: Annotated[str | None, Flag(help="An experiment of the paper, say paper/emnist-practical.")] = None,
    data_dir: Annotated[
        Path | None, Flag(help="Where data sets lie; else $FEDAMP_DATA, else your cache folder.")
    ] = None,
    label: Annotated[str | None, Flag(help="Of your own csv silos: the column to predict.")] = None,
    task: Annotated[
        str | None, Flag(help="Of your own silos: classification or regression; by default by the labels.")
    ] = None,
    schema: Annotated[Path | None, Flag(help="Of your own silos: a schema that was agreed on.")] = None,
    held_out: Annotated[float | None, Flag(help="Of your own silos: share of each held out for testing.")] = None,
    label_noise: Annotated[float | None, Flag(help="Share of wrong training labels.")] = None,
    noisy_clients: Annotated[str | None, Flag(help="Who has wrong labels, say 0,3; by default everyone.")] = None,
    poisoned: Annotated[str | None, Flag(help="Clients that send scaled, sign-flipped models, say 0,3.")] = None,
    poison_scale: Annotated[float | None, Flag(help="How much larger they are.")] = None,
    replies: Annotated[
        str | None, Flag(help="checked: refuse as a federation does; any: take what is finite; auto: if some lie.")
    ] = None,
    init: Annotated[str | None, Flag(help="First models: common, or each client its own.")] = None,
    absent: Annotated[
        float | None, Flag(help="Probability that a client is away from a round; one always comes.")
    ] = None,
    validation: Annotated[float | None, Flag(help="Share of each client's training data held out.")] = None,
    seed: Annotated[int | None, Flag(help="One seed gives one result.")] = None,
    engine: Annotated[str | None, Flag(help="auto, stacked (all clients at once) or loop (one at a time).")] = None,
    device: Annotated[str | None, Flag(help="auto, cpu or cuda.")] = None,
    precision: Annotated[str | None, Flag(help="fp32, tf32 or bf16; auto is tf32 on a GPU and fp32 on a CPU.")] = None,
    compile: Annotated[
        str | None, Flag(help="torch.compile on a GPU: on, off, or auto: where the run is long enough.")
    ] = None,
    deterministic: Annotated[bool | None, Flag("--deterministic", help="The same bits on a GPU too; slower.")] = None,
    out: Annotated[
        Path | None, Flag(help="Folder to write to; by default runs/ and a name from the description.")
    ] = None,
    config: Annotated[Path | None, Flag(help="TOML file with settings; flags come before it.")] = None,
    set: Annotated[
        list[str] | None, Flag(help="A detail, say method.sigma=25 or setting.share=0.8; can be repeated.")
    ] = None,
    dry_run: Annotated[bool, Flag("--dry-run", help="Say what the run would need, and run nothing.")] = False,
    json_: Annotated[bool, Flag("--json", help="End with one line of JSON on stdout.")] = False,
) -> None:
    """Run one experiment and write its record."""
    flags = dict(locals())
    flags["schema"] = None if schema is None else str(schema)
    for kept_apart in ("out", "config", "set", "json_", "preset", "data_dir", "dry_run"):
        del flags[kept_apart]
    description = describe(preset, config, flags, set or [])
    if dry_run:
        return show_needs(description, data_dir, json_)
    run_one(description, out, json_, data_dir)


def show_needs(description: Any, data_dir: Path | None, as_json: bool) -> None:
    """Print what a run would need; warn where there is less."""
    from fedamp.runs.needs import needs, told
    from fedamp.runs.setup import assemble

    setup = assemble(description, data_dir=data_dir)
    if as_json:
        need = needs(setup, description.rounds)
        summary = {"total": need.total, "fits": need.fits, "engine": setup.choice.engine}
        print(json.dumps({**vars(need), **summary, "warnings": setup.warnings}))
        return
    lines, less = told(setup, description.rounds)
    for line in lines:
        out.print(line, soft_wrap=True)
    if less:
        out.print(warning(less), soft_wrap=True)
    for doubt in setup.warnings:
        warn(doubt)


def describe(preset: str | None, config: Path | None, flags: Mapping[str, Any], overrides: list[str]) -> Any:
    """Return the description that a preset, a file, flags and `--set` together stand for; later ones win."""
    from fedamp import models
    from fedamp.config import Named, RunConfig, presets
    from fedamp.config.overrides import apply_overrides, read_toml
    from fedamp.config.run_config import NAMED
    from fedamp.runs.loop import natural

    given = read_toml(config) if config else {}
    method = flags["method"] or Named.of(given.get("method", "fedamp")).name
    values = {**(presets.preset(preset, method) if preset else {}), **given}
    for name, value in flags.items():
        if value is None:
            continue
        if name in NAMED and name in values and Named.of(values[name]).name == value:
            continue  # the file's parameters of this very choice stay
        values[name] = value
    # One of the two on the command line takes the place of the other in the file.
    if (flags["epochs"] is None) != (flags["steps"] is None):
        values.pop("steps" if flags["steps"] is None else "epochs", None)
    values = apply_overrides(natural(values), overrides)
    if "model" in values and ":" in Named.of(values["model"]).name:
        values["model_code"] = models.code_digest(Named.of(values["model"]).name)
    return RunConfig.of(values)


def run_one(description: Any, folder: Path | None, as_json: bool, data_dir: Path | None) -> None:
    """Run a description, or show what it came to if that run is there already, of these data and this model."""
    from fedamp.records.folder import RunFolder
    from fedamp.runs.identity import inputs_of, slug
    from fedamp.runs.loop import play
    from fedamp.runs.setup import assemble, load_material

    material = load_material(description, data_dir)
    inputs = inputs_of(description, material)
    record = RunFolder(folder or Path("runs") / slug(description, inputs), inputs)
    if done := record.finished(description.to_dict()):
        if not as_json:
            out.print(f"This very run is there already: {record.path}", soft_wrap=True)
        return show_result(done, record.path, as_json)
    setup = assemble(description, material)
    try:
        name, scored = description.method.name, setup.method.scored
        with Bar(description.rounds, name, scored, description.poisoned) as bar:
            result = play(description, setup, record, bar.advance)
    except KeyboardInterrupt:
        fail(f"interrupted; the rounds so far are in {record.path}, and the same command goes on there", INTERRUPTED)
    show_result({"finished": True, **result.to_dict()}, record.path, as_json)


def compare_command(**given: Any) -> None:
    """Run several methods and seeds over one setting, and show who gains; the same command goes on after a stop."""
    from fedamp.runs import compare

    methods, seeds, against, grid = (given.pop(name) for name in ("methods", "seeds", "against", "grid"))
    folder, config, overrides, form, preset, data_dir = (
        given.pop(name) for name in ("out", "config", "set", "format", "preset", "data_dir")
    )

    given["schema"] = None if given["schema"] is None else str(given["schema"])

    if seeds < 1:
        raise UserError(f"seeds is {seeds}; expected a whole number of 1 or more")
    names = compare.method_names(methods)

    def described(method: str) -> Any:
        mine = compare.overrides_for(method, overrides or [], names)
        return describe(preset, config, {**given, "method": method}, mine)

    if against is not None:
        _one_of("against", against, names)
    first = given["seed"] or 0
    values = compare.parse_grid(grid or [])
    render = _renderer(form)
    runs = compare.plan(described, names, range(first, first + seeds), values)
    folder = folder or Path("runs") / f"compare-{compare.digest(runs, data_dir)}"
    _play_comparison(runs, folder, data_dir, against, render)
    if form == "text":
        out.print(f"record: {folder}    page: fedamp report {folder}", soft_wrap=True)


def _play_comparison(runs: Any, folder: Path, data_dir: Path | None, against: str | None, render: Any) -> None:
    from fedamp.methods import METHODS
    from fedamp.report.table import comparison_table
    from fedamp.runs import compare

    with Bars(runs, {name: method.scored for name, method in METHODS.items()}) as bars:
        try:
            compare.play_all(runs, folder, data_dir, bars.advance)
        except KeyboardInterrupt:
            fail(f"interrupted; the same command goes on in {folder}", INTERRUPTED)
    settled = compare.settle(runs, folder)
    print(render(comparison_table(settled, against)))
    for doubt in _common_warnings(settled):
        warn(doubt)


def _common_warnings(records: Any) -> list[str]:
    """Return what every run warned of: of the data, then, and not of a method."""
    told = [(record.result or {}).get("warnings", []) for record in records]
    return [warning for warning in (told[0] if told else []) if all(warning in others for others in told)]


def _renderer(form: str) -> Any:
    from fedamp.report import render

    forms = {"text": render.as_text, "csv": render.as_csv, "markdown": render.as_markdown}
    _one_of("format", form, list(forms))
    return forms[form]


@app.command("report")
def report_command(
    folders: Annotated[list[Path], typer.Argument(help="Runs or comparisons.")],
    out: Annotated[Path | None, Flag(help="File to write; by default report.html in the first folder.")] = None,
    against: Annotated[str | None, Flag(help="The method that the others' p values are against.")] = None,
    format: Annotated[str | None, Flag(help="Print the table instead: text, csv or markdown.")] = None,
) -> None:
    """Write one page that opens offline: the table, the curves, who listens to whom; or print the table."""
    from fedamp.records.reading import read_runs
    from fedamp.report.page import write_report
    from fedamp.report.table import comparison_table

    if format is None:
        print(write_report(folders, out, against))
        return
    render = _renderer(format)
    print(render(comparison_table([record for folder in folders for record in read_runs(folder)], against)))


def _one_of(what: str, value: str, choices: list[str]) -> None:
    from fedamp import checks

    checks.one_of(what, value, choices)


def _comparing() -> None:
    """Give `compare` the flags of `run`, and its own."""
    shared = dict(inspect.signature(run_command).parameters)
    for name in ("method", "json_", "dry_run"):
        del shared[name]
    own = {
        "methods": (Annotated[str, Flag(help="all, or names like fedamp,fedavg-ft; Separate is always in it.")], "all"),
        "seeds": (Annotated[int, Flag(help="How many seeds, from --seed on.")], 1),
        "against": (Annotated[str | None, Flag(help="The method that the others' p values are against.")], None),
        "grid": (
            Annotated[list[str] | None, Flag(help="Values to choose from by validation, say method.sigma=1,10.")],
            None,
        ),
        "format": (Annotated[str, Flag(help="How the table is printed: text, csv or markdown.")], "text"),
    }
    for name, (kind, default) in own.items():
        shared[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shared.values()]
    compare_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    compare_command.__annotations__ = {p.name: p.annotation for p in parameters}
    app.command("compare")(compare_command)


_comparing()


@app.command("resume")
def resume_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or a comparison that was broken off.")],
    data_dir: Annotated[
        Path | None, Flag(help="Where data sets lie; else $FEDAMP_DATA, else your cache folder.")
    ] = None,
    json_: Annotated[bool, Flag("--json", help="End with one line of JSON on stdout.")] = False,
) -> None:
    """Go on with a run or a comparison that was broken off; it ends as if it never had been."""
    from fedamp.config import RunConfig
    from fedamp.records.reading import read_run
    from fedamp.runs import compare

    if (folder / compare.PLAN).exists():
        return _play_comparison(compare.read_plan(folder), folder, data_dir, None, _renderer("text"))
    run = read_run(folder)
    description = RunConfig.of(run.config)
    if description.setting.name == "federation" and run.finished and run.result is not None:
        return show_result(run.result, folder, json_)  # nobody has its data in one place: there is nothing to compare
    run_one(description, folder, json_, data_dir)


@app.command("export")
def export_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    client: Annotated[int, Flag(help="Number of the client.")],
    out: Annotated[Path | None, Flag(help="File to write; by default client-N.safetensors in the folder.")] = None,
) -> None:
    """Write a client's model as safetensors, with a JSON of how to build it."""
    from fedamp.runs.export import export_client

    print(export_client(folder, client, out))


@app.command("list")
def list_command(
    kind: Annotated[str, typer.Argument(help="methods, data, settings, models, attention or presets.")],
) -> None:
    """Show what there is to choose from, with parameters and defaults."""
    from fedamp.cli.listing import KINDS, entries

    _one_of("list", kind, [*KINDS, "presets"])
    for name, parameters, about in entries(kind):
        out.print(Text.assemble((name, "bold"), f"  {about}"), soft_wrap=True)
        if parameters:
            out.print(f"    {parameters}", soft_wrap=True)


app.add_typer(data_app, name="data")
app.add_typer(federation_app, name="federation")
app.add_typer(silo_app, name="silo")


def main() -> None:
    """Run the command line."""
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except UserError as error:
        fail(str(error))
    except Exception as error:
        # The option parser's own errors: an unknown flag, a word where a number belongs.
        if not hasattr(error, "format_message"):
            raise
        if not error.format_message():  # help was asked for, and shown
            sys.exit(2)
        fail(error.format_message())
    if code == INTERRUPTED:
        fail("interrupted", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)
