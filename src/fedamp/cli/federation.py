"""`fedamp federation` on the server, `fedamp silo` in each silo: a federation over real machines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fedamp.cli.terminal import fail, out, warn
from fedamp.errors import UserError

if TYPE_CHECKING:
    from fedamp.data.silos.schema import Schema

Flag = typer.Option
Folder = Annotated[Path, typer.Argument(help="The federation's folder, as `init` wrote it.")]
Bundle = Annotated[Path, typer.Argument(help="The bundle from the federation's operator, unpacked.")]
Data = Annotated[Path, Flag(help="Your data: a csv or npz file, or a folder of them. It stays there.")]

federation_app = typer.Typer(help="A federation over real machines: the server's side.", no_args_is_help=True)
silo_app = typer.Typer(help="A federation over real machines: a silo's side.", no_args_is_help=True)


def say(text: str) -> None:
    """Print a line as it is, at once: also where it goes to a file."""
    print(text, flush=True)


def needs_extra() -> None:
    """Refuse to go on where the extra is not installed."""
    from importlib.util import find_spec

    if missing := [name for name in ("flwr", "cryptography") if find_spec(name) is None]:
        raise UserError(f"{' and '.join(missing)} is not installed; install it: pip install 'fedamp[federation]'")


@federation_app.command("init")
def federation_init(
    folder: Annotated[Path, typer.Argument(help="New folder to write to.")],
    silos: Annotated[str, Flag(help="Names of the silos, say hospital-a,hospital-b,hospital-c.")],
    schema: Annotated[list[Path], Flag(help="Of `fedamp data schema`; several, one a silo, are united.")],
    host: Annotated[list[str] | None, Flag(help="Name or address of the server; can be repeated.")] = None,
    port: Annotated[int, Flag(help="Port that the silos connect to.")] = 9092,
    name: Annotated[str | None, Flag(help="Name of the federation; by default the folder's.")] = None,
    code: Annotated[
        Path | None, Flag(help="Of a model module:function: file or folder to hand to the silos, if not its own.")
    ] = None,
    method: Annotated[str | None, Flag(help="One of the nine; `fedamp list methods`.")] = None,
    model: Annotated[str | None, Flag(help="A model's name, or your own as module:function.")] = None,
    rounds: Annotated[int | None, Flag(help="Communication rounds.")] = None,
    epochs: Annotated[int | None, Flag(help="Local passes over the data in a round.")] = None,
    steps: Annotated[int | None, Flag(help="Or: local minibatches in a round.")] = None,
    batch_size: Annotated[int | None, Flag(help="Samples in a minibatch.")] = None,
    optimizer: Annotated[str | None, Flag(help="adam or sgd; by default the method's own.")] = None,
    lr: Annotated[float | None, Flag(help="Learning rate; by default the method's own.")] = None,
    momentum: Annotated[float | None, Flag(help="Momentum of sgd.")] = None,
    weight_decay: Annotated[float | None, Flag(help="L2 weight decay.")] = None,
    init: Annotated[str | None, Flag(help="First models: common, or each silo its own.")] = None,
    held_out: Annotated[float | None, Flag(help="Share of each silo's samples held out for testing.")] = None,
    validation: Annotated[float | None, Flag(help="Share of each silo's training samples held out.")] = None,
    label: Annotated[str | None, Flag(help="The csv column to predict.")] = None,
    task: Annotated[str | None, Flag(help="classification or regression; by default as the schema says.")] = None,
    seed: Annotated[int | None, Flag(help="Seed of all random numbers.")] = None,
    config: Annotated[Path | None, Flag(help="TOML file with settings; flags come before it.")] = None,
    set: Annotated[list[str] | None, Flag(help="A detail, say method.sigma=25; can be repeated.")] = None,
    reply_timeout: Annotated[float | None, Flag(help="Seconds that a round waits for replies.")] = None,
    min_silos: Annotated[int | None, Flag(help="Replies without which a round does not count; 3, or 2 of 2.")] = None,
    move_factor: Annotated[
        float | None, Flag(help="How many times as far as the median a reply may lie from what was sent.")
    ] = None,
    norm_factor: Annotated[float | None, Flag(help="How many times as long as the median a reply may be.")] = None,
    strikes: Annotated[int | None, Flag(help="Bad replies in a row after which a silo is set aside.")] = None,
) -> None:
    """Make a federation: certificates, keys, the server's folder, a bundle for each silo."""
    given = dict(locals())
    needs_extra()
    from fedamp.config.overrides import read_toml
    from fedamp.data.silos.schema import merge_schemas
    from fedamp.data.silos.schema_file import read_schema
    from fedamp.data.silos.warnings import schema_warnings
    from fedamp.federation import provision
    from fedamp.federation.plan import Plan, Rules

    names = [part.strip() for part in silos.split(",") if part.strip()]
    if len(names) < 2:
        raise UserError(f"silos are {silos!r}; a federation needs two or more, say hospital-a,hospital-b,hospital-c")
    # Two silos can compute each other's model: with three or more, no round begins with fewer.
    given["min_silos"] = min(3, len(names)) if min_silos is None else min_silos
    ruled = ("reply_timeout", "min_silos", "move_factor", "norm_factor", "strikes")
    rules = Rules(**{name: given[name] for name in ruled if given[name] is not None})
    flags = {name: given[name] for name in DESCRIBED}
    read = [read_schema(path) for path in schema]
    paths = [str(path) for path in schema]
    agreed = read[0] if len(read) == 1 else merge_schemas(read, paths)
    title = name or folder.absolute().name
    description = describe(title, len(names), agreed, flags, config, set or [])
    plan = Plan(title, description, agreed)
    hosts = host or ["localhost"]
    for warning in provision.init(folder, names, plan, rules, hosts, port, code or provision.code_of(plan)):
        warn(warning)
    asked = task or (read_toml(config) if config else {}).get("task", "auto")
    for warning in schema_warnings(read, paths, asked):
        warn(warning)
    say(f"{folder} holds the federation {title}; read {folder / 'README.md'}")
    for each in names:
        say(f"for the operator of {each}: {folder / 'bundles' / each}.zip")


DESCRIBED = (
    *("method", "model", "rounds", "epochs", "steps", "batch_size", "optimizer", "lr", "momentum", "weight_decay"),
    *("init", "held_out", "validation", "label", "task", "seed"),
)
"""The flags of a run that a federation has too."""

SIMULATED = (
    "data",
    "setting",
    "clients",
    "schema",
    "absent",
    "label_noise",
    "noisy_clients",
    "poisoned",
    "poison_scale",
    "replies",
)
"""What the silos themselves decide, or what nobody wants."""


def describe(
    name: str, silos: int, schema: "Schema", flags: dict[str, Any], config: Path | None, overrides: list[str]
) -> Any:
    """Return the description that a file, flags and `--set` stand for; data and clients are the silos themselves."""
    from fedamp import models
    from fedamp.config import Named, RunConfig
    from fedamp.config.overrides import apply_overrides, read_toml
    from fedamp.config.run_config import NAMED
    from fedamp.data.silos.schema import check_agreed

    values = read_toml(config) if config else {}
    for key in SIMULATED:
        if key in values:
            raise UserError(f"{config} sets {key}, which is for simulations; leave it out: silos are real here")
    for key, value in flags.items():
        # The file's parameters of this very choice stay.
        if value is not None and not (key in NAMED and key in values and Named.of(values[key]).name == value):
            values[key] = value
    if (flags["epochs"] is None) != (flags["steps"] is None):
        values.pop("steps" if flags["steps"] is None else "epochs", None)
    check_agreed(schema, values.get("task", "auto"), values.get("label"))
    values["label"] = schema.label or values.get("label")
    values = apply_overrides({**values, "task": schema.task}, overrides)
    spec = Named.of(values.get("model", "mlp")).name
    if ":" in spec:
        models.load_builder(spec)
        values["model_code"] = models.code_digest(spec)
    return RunConfig.of({**values, "data": name, "setting": "natural", "clients": silos})


@federation_app.command("add")
def federation_add(
    folder: Folder, silos: Annotated[str, Flag(help="Names of the new silos, say hospital-d,hospital-e.")]
) -> None:
    """Give a federation more silos."""
    needs_extra()
    from fedamp.federation import provision
    from fedamp.federation.server import operate

    names = [part.strip() for part in silos.split(",") if part.strip()]
    for warning in provision.add(folder, names):
        warn(warning)
    for each in names:
        say(f"for the operator of {each}: {folder / 'bundles' / each}.zip")
    if operate.status(folder)[0] is not None:
        say("the server is up: stop it and start it again to let them in; it goes on where it was")


@federation_app.command("up")
def federation_up(
    folder: Folder,
    host: Annotated[str, Flag(help="127.0.0.1, with nginx before it to let the silos in; or 0.0.0.0.")] = "127.0.0.1",
    port: Annotated[int | None, Flag(help="Port to listen on; by default the one that `init` chose.")] = None,
) -> None:
    """Run the server until the last round is done; stopped and started again, it goes on where it was."""
    needs_extra()
    from fedamp.federation.server import operate

    if host != operate.HERE:
        warn(
            "whoever reaches this port can start runs and register keys, not only the silos; "
            "better leave --host as it is, and let the silos in through nginx (server/nginx.conf)"
        )
    code = operate.up(folder, host, port, say)
    if code:
        raise typer.Exit(code)


@federation_app.command("status")
def federation_status(folder: Folder) -> None:
    """Show whether the server is up, and who is in."""
    from fedamp.federation.server import operate

    pid, said = operate.status(folder)
    say(f"the server is up, as process {pid}" if pid else "the server is not up")
    if not said:
        return say("no round has been played yet")
    say(f"{said.get('state', '?')}: round {said.get('round', '?')} of {said.get('rounds', '?')}, {said.get('updated')}")
    table = Table("silo", "state", "since round", "samples", "bad replies", "reason")
    for silo in said.get("silos", []):
        shown = (silo.get(key) for key in ("name", "state", "since", "samples", "strikes", "reason"))
        table.add_row(*("" if value is None else str(value) for value in shown))
    out.print(table)


@federation_app.command("stop")
def federation_stop(folder: Folder) -> None:
    """Stop the server; started again, it goes on where it was."""
    from fedamp.federation.server import operate

    say("stopped" if operate.stop(folder) else "the server is not up")


@federation_app.command("admit")
def federation_admit(folder: Folder, silo: Annotated[str, typer.Argument(help="A silo that was set aside.")]) -> None:
    """Let a silo that was set aside take part again."""
    from fedamp.federation.server import operate

    operate.admit(folder, silo)
    say(f"{silo} may take part again, from the next round on")


@federation_app.command("try")
def federation_try(
    method: Annotated[str, Flag(help="One of the nine; `fedamp list methods`.")] = "fedamp",
    rounds: Annotated[int, Flag(help="Communication rounds.")] = 3,
    dir: Annotated[Path | None, Flag(help="New folder to work in; it stays.")] = None,
    keep: Annotated[bool, Flag("--keep", help="Keep the folder, also where none was given.")] = False,
) -> None:
    """Show the whole thing on this machine: a server and three silos with digits, with certificates and keys."""
    needs_extra()
    from fedamp.federation import trial

    trial.play(method, rounds, dir, keep, say, out.print)


@silo_app.command("check")
def silo_check(
    bundle: Bundle,
    data: Data,
    offline: Annotated[bool, Flag("--offline", help="Leave the server out.")] = False,
) -> None:
    """Check all that can be checked before going online."""
    needs_extra()
    from fedamp.federation.silo import checkup

    faults = 0
    for finding in checkup.check(bundle, data, offline):
        word = ("fault", "red") if finding.fault else ("ok   ", "green")
        out.print(Text.assemble(word, f"  {finding.what:<12}"), end="")
        print(finding.fault or finding.note, flush=True)
        faults += bool(finding.fault)
    if faults:
        fail(f"{faults} fault(s): not ready yet")


@silo_app.command("up")
def silo_up(bundle: Bundle, data: Data) -> None:
    """Take part in the federation until Ctrl-C."""
    needs_extra()
    from fedamp.federation.silo import checkup, connect

    seat = checkup.check_quickly(bundle, data)
    connect.up(seat, bundle, data, say)
