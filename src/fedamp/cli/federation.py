"""`fedamp federation`: the server's side of a federation over real machines."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from fedamp.cli.flags_from_fields import config_fields, given_flags, takes_fields
from fedamp.cli.run import Config
from fedamp.cli.terminal import needs_extra, out, say, warn
from fedamp.cli.watching import AsJson, TokenFile, WatchPort
from fedamp.config.of_the_silos import FROM_THE_SILOS
from fedamp.config.reply_limits import Rules
from fedamp.config.run_config import FAULTS, MACHINE, PRIVACY, RunConfig
from fedamp.errors import UserError
from fedamp.records.facts import WITHHELD

Flag = typer.Option
Folder = Annotated[Path, typer.Argument(help="The federation's folder, as `init` wrote it.")]

ShareModels = Annotated[
    bool,
    Flag(
        "--share-models",
        help="All silos agreed that each may get other silos' models as they are: methods that hand them out need it.",
    ),
]

federation_app = typer.Typer(help="A federation over real machines: the server's side.", no_args_is_help=True)

COUNTS = ("samples", "strikes", "reason")

FederationFlags = takes_fields(
    {
        RunConfig: config_fields(FROM_THE_SILOS, leave_out_groups=(FAULTS, MACHINE, PRIVACY)),
        Rules: ("reply_timeout", "late_after", "min_silos", "move_factor", "norm_factor", "strikes"),
    }
)


@federation_app.command("init", cls=FederationFlags)
def federation_init(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="New folder to write to.")],
    silos: Annotated[str, Flag(help="Names of the silos, say hospital-a,hospital-b,hospital-c.")],
    schema: Annotated[list[Path], Flag(help="From `fedamp data schema`; give one for each silo to merge them.")],
    key: Annotated[list[Path] | None, Flag(help="NAME.pub of a silo, or a folder of them; can be repeated.")] = None,
    make_keys: Annotated[
        bool, Flag("--make-keys", help="Make the silos' keys here instead, and put them into the bundles: for trials.")
    ] = False,
    host: Annotated[list[str] | None, Flag(help="Name or address of the server; can be repeated.")] = None,
    port: Annotated[int, Flag(help="Port that the silos connect to.")] = 9092,
    name: Annotated[str | None, Flag(help="Name of the federation; by default the folder's.")] = None,
    code: Annotated[
        Path | None, Flag(help="A module:function's code for the silos, file or folder; by default the module's own.")
    ] = None,
    share_models: ShareModels = False,
    config: Config = None,
    details: Annotated[list[str] | None, Flag("--set", help="A detail, say method.sigma=25; can be repeated.")] = None,
) -> None:
    """Make a federation from the silos' schemas and public keys: certificates, the server's folder, their bundles."""
    needs_extra()
    from fedamp.config.sources import read_toml
    from fedamp.data.silos.identifiers import check_schemas
    from fedamp.data.silos.schema import merge_schemas
    from fedamp.data.silos.schema_file import read_schema
    from fedamp.data.silos.warnings import schema_warnings
    from fedamp.federation import provision
    from fedamp.federation.configure import configured_for
    from fedamp.federation.plan import Plan

    names = [part.strip() for part in silos.split(",") if part.strip()]
    if len(names) < 2:
        raise UserError(f"silos are {silos!r}; a federation needs two or more, say hospital-a,hospital-b,hospital-c")
    # Two silos can compute each other's model: with three or more, no round begins with fewer.
    rules = Rules(**{"min_silos": min(3, len(names)), **given_flags(context, Rules)})
    parts, paths = [read_schema(path) for path in schema], [str(path) for path in schema]
    check_schemas(parts, paths)
    agreed = parts[0] if len(parts) == 1 else merge_schemas(parts, paths)
    title, flags = name or folder.absolute().name, given_flags(context)
    flags |= {"share_models": True} if share_models else {}
    plan = Plan(title, configured_for(title, len(names), agreed, config, flags, details or []), agreed)
    keys = _keys(names, key or [], make_keys)
    code = code or provision.code_of(plan)
    for each in provision.init(folder, names, plan, rules, host or ["localhost"], port, code, keys):
        warn(each)
    if 1 < len(parts) < len(names):  # a single one may be of all
        warn(f"{len(parts)} schemas for {len(names)} silos: the columns of the others were not compared")
    asked = flags.get("task") or (read_toml(config) if config else {}).get("task", "auto")
    for each in schema_warnings(parts, paths, asked):
        warn(each)
    say(f"{folder} holds the federation {title}; read {folder / 'README.md'}")
    _hand_over(folder, names, keys)


def _keys(names: list[str], given: list[Path], make: bool) -> dict[str, bytes] | None:
    """Return the silos' public keys, or None if they are to be made here."""
    from fedamp.federation import provision

    if given and make:
        raise UserError("--key and --make-keys are both given; expected one: silos' own keys, or a trial")
    return None if make else provision.read_keys(given, names)


def _hand_over(folder: Path, names: list[str], keys: Mapping[str, bytes] | None) -> None:
    """Say which bundle is for whom, and what to compare by telephone."""
    from fedamp.federation import certificates, silo_keys

    authority = folder / "server" / "ca.crt"
    for each in names:
        compare = "" if keys is None else f"; its key: {silo_keys.fingerprint(keys[each])}"
        say(f"for the operator of {each}: {folder / 'bundles' / each}.zip{compare}")
    if keys is not None:
        say(f"the authority, as `fedamp silo check` shows it: {certificates.fingerprint(authority.read_bytes())}")
        return say("compare keys and authority by telephone with each silo before you start the server")
    warn(
        "the silos' private keys were made here and are in the bundles, so whoever sees a bundle can pose as its silo: "
        "good for a trial; otherwise let each silo make its own (fedamp silo key NAME)"
    )


@federation_app.command("add")
def federation_add(
    folder: Folder,
    silos: Annotated[str, Flag(help="Names of the new silos, say hospital-d,hospital-e.")],
    key: Annotated[list[Path] | None, Flag(help="NAME.pub of a silo, or a folder of them; can be repeated.")] = None,
    make_keys: Annotated[
        bool, Flag("--make-keys", help="Make the silos' keys here instead, and put them into the bundles: for trials.")
    ] = False,
) -> None:
    """Add silos to a federation."""
    needs_extra()
    from fedamp.federation import provision
    from fedamp.federation.server import commands

    names = [part.strip() for part in silos.split(",") if part.strip()]
    keys = _keys(names, key or [], make_keys)
    for warning in provision.add(folder, names, keys):
        warn(warning)
    _hand_over(folder, names, keys)
    if commands.status(folder)[0] is not None:
        say("the server is up: stop it and start it again to let them in; it continues where it left off")


@federation_app.command("up")
def federation_up(
    folder: Folder,
    host: Annotated[
        str | None,
        Flag(
            help="Address to listen on; by default all, or 127.0.0.1 if made for one machine. 127.0.0.1: behind nginx."
        ),
    ] = None,
    port: Annotated[int | None, Flag(help="Port to listen on; by default the one that `init` was given.")] = None,
) -> None:
    """Run the server until the last round is done; stopped and started again, it continues where it left off."""
    needs_extra()
    from fedamp.federation import expiry
    from fedamp.federation.server import commands

    for text in expiry.check_server(folder):
        warn(text)
    commands.up(folder, host, port, say)


@federation_app.command("status")
def federation_status(folder: Folder, as_json: AsJson = False) -> None:
    """Show whether the server is up, and which silos are in."""
    needs_extra()
    from fedamp.federation import expiry
    from fedamp.federation.server import commands

    if as_json:
        from fedamp.federation.server.overview import overview, see

        return say(json.dumps(overview(see(folder)), allow_nan=False))
    pid, said = commands.status(folder)
    for text in expiry.at_server(folder):
        warn(text)
    say(f"the server is up, as process {pid}" if pid else "the server is not up")
    if not said:
        return say("no round has been played yet")
    say(f"{said.get('state', '?')}: round {said.get('round', '?')} of {said.get('rounds', '?')}, {said.get('updated')}")
    silos = said.get("silos", [])
    other = ["version"] if any(silo.get("version") for silo in silos) else []  # that silos run, if not the server's
    whole = (Column(name, no_wrap=True) for name in ("silo", "state"))
    table = Table(*whole, "since round", Column("last seen", min_width=10), *other, "samples", "bad replies", "reason")
    for silo in silos:
        since = " ".join(str(silo[key]) for key in ("since", "since_time") if silo.get(key) is not None)
        changed = f"its data changed in round {silo['data_changed']}" if silo.get("data_changed") else None
        withheld = f"scores {WITHHELD}" if silo.get("withholds") else None
        silo["reason"] = "; ".join(filter(None, [silo.get("reason"), changed, withheld]))
        seen = (silo.get("seen") or "")[:16].replace("T", " ")
        shown = (silo.get("name"), silo.get("state"), since, seen, *(silo.get(key) for key in (*other, *COUNTS)))
        table.add_row(*("" if value is None else str(value) for value in shown))
    out.print(table)


@federation_app.command("watch")
def federation_watch(folder: Folder, port: WatchPort = 0, token_file: TokenFile = None) -> None:
    """Serve a live page about the federation to this machine, and metrics for Prometheus, until Ctrl-C."""
    needs_extra("prometheus_client")
    from fedamp.federation.server import live
    from fedamp.federation.watch.page import watch

    watch(live.view(folder), port, token_file, say)


@federation_app.command("stop")
def federation_stop(folder: Folder) -> None:
    """Stop the server; started again, it continues where it left off."""
    from fedamp.federation.server import commands

    say("stopped" if commands.stop(folder) else "the server is not up")


@federation_app.command("admit")
def federation_admit(folder: Folder, silo: Annotated[str, typer.Argument(help="A silo that was set aside.")]) -> None:
    """Let a silo that was set aside take part again."""
    from fedamp.federation.server import commands

    commands.admit(folder, silo)
    say(f"{silo} may take part again, from the next round on")


@federation_app.command("renew")
def federation_renew(
    folder: Folder,
    ca_key: Annotated[Path | None, Flag(help="The authority's ca.key, from the safe place where it is.")] = None,
) -> None:
    """Renew the server's certificate. The silos need nothing."""
    needs_extra()
    from fedamp.federation import provision

    end = provision.renew(folder, ca_key)
    say(f"the server's certificate is valid until {end:%Y-%m-%d}; the silos need nothing")
    say("to use it, stop the server and start it again; if nginx is in front of it: nginx -s reload")


@federation_app.command("rekey")
def federation_rekey(
    folder: Folder,
    silo: Annotated[str, typer.Argument(help="A silo that has a new key.")],
    key: Annotated[Path, typer.Argument(help="Its new NAME.pub.")],
) -> None:
    """Let a silo be known by a new key; its row stays its own. The old key is refused from then on."""
    needs_extra()
    from fedamp.federation import provision, silo_keys
    from fedamp.federation.server import commands

    if commands.status(folder)[0] is not None:
        raise UserError(f"the server is up; stop it first: fedamp federation stop {folder}")
    public = provision.rekey(folder, silo, key)
    say(f"{silo} is known by {silo_keys.fingerprint(public)}: compare by telephone, then start the server again")
    say(f"for the operator of {silo}, to be unpacked over the old one: {folder / 'bundles' / silo}.zip")


@federation_app.command("readmit")
def federation_readmit(
    folder: Folder, silo: Annotated[str, typer.Argument(help="A silo that has lost its memory.")]
) -> None:
    """Let a silo that has lost its memory of earlier rounds begin anew from what the server sends it."""
    needs_extra()
    from fedamp.federation.server import recovery

    say(recovery.readmit(folder, silo))


@federation_app.command("rewind")
def federation_rewind(
    folder: Folder, round: Annotated[int, typer.Argument(help="The round to go on after; its checkpoint is kept.")]
) -> None:
    """Go on after an earlier round; the server must be stopped. The last three rounds are kept, and every tenth."""
    needs_extra()
    from fedamp.federation.server import recovery

    say(recovery.rewind(folder, round))


@federation_app.command("remove")
def federation_remove(
    folder: Folder, silo: Annotated[str, typer.Argument(help="A silo whose key was stolen, or that leaves for good.")]
) -> None:
    """Remove a silo for good: its key is refused, and its row leaves all mixtures."""
    needs_extra()
    from fedamp.federation.server import commands, recovery

    for warning in recovery.remove(folder, silo):
        warn(warning)
    when = "from the next round on" if commands.status(folder)[0] is not None else "when the server is started"
    say(f"{silo} is removed: its key is refused and its row is in no mixture, {when}")
    say("what others have learned from it stays in their models; to undo that too: fedamp federation rewind")


@federation_app.command("try")
def federation_try(
    method: Annotated[str, Flag(help="One of the methods that `fedamp list methods` shows.")] = "autoamp",
    rounds: Annotated[int, Flag(help="Communication rounds.")] = 3,
    dir: Annotated[Path | None, Flag(help="New folder to work in; it is kept.")] = None,
    keep: Annotated[bool, Flag("--keep", help="Keep the folder even without --dir.")] = False,
    share_models: ShareModels = False,
) -> None:
    """Try a whole federation on this machine: a server and three silos with digits, certificates and keys."""
    needs_extra()
    from fedamp.federation import demo

    demo.play(method, rounds, dir, keep, share_models, say, out.print)
