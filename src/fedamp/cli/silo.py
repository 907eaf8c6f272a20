"""`fedamp silo`: a silo's side of a federation over real machines."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedamp.cli.predict import Encoding, Force, Id, NewRows, Out, write_predictions
from fedamp.cli.terminal import fail, in_words, needs_extra, out, say, warn
from fedamp.cli.watching import AsJson, TokenFile, WatchPort
from fedamp.config import RunConfig
from fedamp.config.metrics import info
from fedamp.config.run_config import PRIVACY
from fedamp.errors import UserError

Flag = typer.Option
Bundle = Annotated[Path, typer.Argument(help="The bundle from the federation's operator, unpacked.")]
Data = Annotated[Path, Flag(help="Your data: a csv, parquet or npz file, or a folder of them. It stays there.")]

Epsilon = Annotated[
    float | None,
    Flag(
        help="Protect single samples (differential privacy): the most that all rounds together may spend, by the "
        "silo's own ledger (run/privacy.json). Then it trains no more.",
        rich_help_panel=PRIVACY,
    ),
]
Delta = Annotated[
    float | None,
    Flag(
        help=f"The delta beside --dp-epsilon, well below 1 / samples; by default {RunConfig.dp_delta:g}.",
        rich_help_panel=PRIVACY,
    ),
]
Clip = Annotated[
    float | None,
    Flag(
        help=f"The longest that the gradient of one sample may be; by default {RunConfig.dp_clip:g}.",
        rich_help_panel=PRIVACY,
    ),
]
Noise = Annotated[
    float | None,
    Flag(help="Noise, in units of --dp-clip, instead of what suits the planned rounds.", rich_help_panel=PRIVACY),
]
Rounds = Annotated[
    int | None, Flag(help="Rounds to plan the noise for; by default the plan's.", rich_help_panel=PRIVACY)
]
Spent = Annotated[
    str | None,
    Flag(
        help="Epsilon (or EPSILON,DELTA) that these samples have spent before: to begin a ledger, once; 0 if they "
        "were never used.",
        rich_help_panel=PRIVACY,
    ),
]

silo_app = typer.Typer(help="A federation over real machines: a silo's side.", no_args_is_help=True)


@silo_app.command("key")
def silo_key(
    silo: Annotated[Path, typer.Argument(help="The silo's name, say hospital-a: a folder of that name holds the key.")],
    renew: Annotated[bool, Flag("--renew", help="Make a key that replaces the one in use.")] = False,
) -> None:
    """Make your silo's key. The private half never leaves the folder; the operator gets the .pub file."""
    needs_extra()
    from fedamp.federation.silo import own_key

    public, fingerprint = own_key.make(silo, renew)
    say(f"hand over to the federation's operator: {public}")
    say(f"then compare by telephone: {fingerprint}")


@silo_app.command("check")
def silo_check(
    bundle: Bundle,
    data: Data,
    offline: Annotated[bool, Flag("--offline", help="Don't contact the server.")] = False,
    dp_epsilon: Epsilon = None,
    dp_delta: Delta = None,
    dp_clip: Clip = None,
    dp_noise: Noise = None,
    dp_rounds: Rounds = None,
    dp_spent: Spent = None,
) -> None:
    """Check everything that can be checked before going online; with --dp flags, what `silo up` would promise."""
    needs_extra()
    from fedamp.federation.silo import checkup
    from fedamp.federation.silo.privacy_wishes import Wishes

    wishes, faults = Wishes(dp_epsilon, dp_delta, dp_clip, dp_noise, dp_rounds, dp_spent), 0
    for finding in checkup.check(bundle, data, offline, wishes):
        word = ("fault", "red") if finding.fault else ("ok   ", "green")
        out.print(Text.assemble(word, f"  {finding.what:<12}"), end="")
        print(finding.fault or finding.note, flush=True)
        faults += bool(finding.fault)
    if faults:
        fail(f"{'1 fault' if faults == 1 else f'{faults} faults'}: not ready yet")


@silo_app.command("up")
def silo_up(
    bundle: Bundle,
    data: Data,
    alone: Annotated[
        bool,
        Flag(
            "--alone",
            help="Train a model alone beside it, and log whether the federation's is worse. It stays here; a round "
            "takes about twice as long.",
        ),
    ] = False,
    max_rounds: Annotated[
        int | None,
        Flag(min=1, help="Most rounds that this silo trains, by its own count (run/ledger.json); by default any."),
    ] = None,
    dp_epsilon: Epsilon = None,
    dp_delta: Delta = None,
    dp_clip: Clip = None,
    dp_noise: Noise = None,
    dp_rounds: Rounds = None,
    dp_spent: Spent = None,
    unprotected: Annotated[
        bool,
        Flag(
            "--unprotected",
            help="Give up for good what the ledger promises: from now on replies leave unprotected.",
            rich_help_panel=PRIVACY,
        ),
    ] = False,
) -> None:
    """Take part in the federation until Ctrl-C."""
    needs_extra()
    from fedamp.federation.silo import checkup, connect, server_seen
    from fedamp.federation.silo.privacy_wishes import Wishes

    wishes = Wishes(dp_epsilon, dp_delta, dp_clip, dp_noise, dp_rounds, dp_spent, unprotected)
    silo_config = checkup.check_quickly(bundle, data)
    for text in server_seen.endings(silo_config.server, bundle / "ca.crt"):
        warn(text)
    connect.up(silo_config, bundle, data, say, alone, max_rounds, wishes)


@silo_app.command("models")
def silo_models(bundle: Bundle) -> None:
    """List the models that your silo has at home, with their scores."""
    from fedamp.federation.silo import kept_models

    folder = bundle / "run" / "models"
    kept = kept_models.kept(folder)
    if not kept:
        raise UserError(f"{folder} has no models yet; they come with the first round")
    metric = kept[0].metric
    table = Table("model", "of round", f"{info(metric).short} on validation samples", "on test samples")
    for one in kept:
        scores = (_score(value, metric) for value in (one.validation, one.test))
        table.add_row(one.name, str(one.round), *scores)
    out.print(table)
    say(f"they are in {folder}, each as .safetensors, with a .json that says how to build and feed it")
    if kept[0].samples is not None:
        say(f"best: by your own {kept[0].samples} validation samples; chosen: by those of all silos together")
    if any(one.validation is not None for one in kept):
        return say("choose by validation samples; test samples only say how good what you chose is")
    lacking = "the plan holds out no validation samples (federation init --validation 0.2)"
    if any(one.name.startswith("chosen") for one in kept):  # by the other silos' samples
        lacking = f"your own validation samples define no {info(metric).short}"
    say(f"no best one is kept: {lacking}, and test samples are not there to choose by")


@silo_app.command("predict")
def silo_predict(
    bundle: Bundle,
    data: NewRows,
    model: Annotated[
        str | None, Flag(help="A model of `fedamp silo models`; by default the chosen or best one, else the newest.")
    ] = None,
    out_file: Out = None,
    id: Id = None,
    force: Force = False,
    encoding: Encoding = None,
) -> None:
    """Write labels and probabilities, or values, for new rows, by a model that your silo has at home."""
    from fedamp.federation.silo.asking import own_predictor

    _, asked = own_predictor(bundle, model)
    write_predictions(asked, data, out_file, id, force, encoding)


def _score(value: float | None, metric: str) -> str:
    return "-" if value is None else in_words(info(metric).factor * value, metric)


@silo_app.command("status")
def silo_status(bundle: Bundle, as_json: AsJson = False) -> None:
    """Show whether the silo is connected, its last round, and how its own models do."""
    from fedamp.federation.silo.live import in_words
    from fedamp.federation.silo.overview import overview

    found = overview(bundle)
    if as_json:
        return say(json.dumps(found, allow_nan=False))
    for line in in_words(found):
        say(line)


@silo_app.command("privacy")
def silo_privacy(bundle: Bundle, as_json: AsJson = False) -> None:
    """Print the silo's privacy account: what is promised, spent by which round, left, and what is not covered."""
    from fedamp.federation.silo import privacy_words
    from fedamp.federation.silo.privacy_ledger import PrivacyLedger

    account = PrivacyLedger(bundle / "run").promised()
    if as_json:
        return say(json.dumps(None if account is None else privacy_words.in_numbers(account), allow_nan=False))
    for line in [privacy_words.NOTHING_PROMISED] if account is None else privacy_words.in_words(account):
        say(line)


@silo_app.command("watch")
def silo_watch(bundle: Bundle, port: WatchPort = 0, token_file: TokenFile = None) -> None:
    """Serve a live page about this silo alone to this machine, and metrics for Prometheus, until Ctrl-C."""
    needs_extra("prometheus_client")
    from fedamp.federation.silo import live
    from fedamp.federation.watch.page import watch

    watch(live.view(bundle), port, token_file, say)
