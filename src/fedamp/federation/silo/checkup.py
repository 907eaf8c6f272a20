"""What a silo can check before it goes online: its bundle, installation, data, and connection to the server."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from fedamp import __version__
from fedamp.data.silos.identifiers import schema_suspects
from fedamp.data.silos.leaving import at_home
from fedamp.data.silos.read import read_silo
from fedamp.data.silos.schema import apply_schema, make_schema, schema_notes
from fedamp.data.silos.schema.missing import READING
from fedamp.data.silos.warnings import empty_warnings, schema_warnings
from fedamp.errors import UserError
from fedamp.federation.plan import PROTOCOL, SiloConfig, disagreement
from fedamp.federation.plan_files import SCHEMA, SILO, read_silo_config
from fedamp.federation.silo import own_key
from fedamp.federation.silo.bundle_code import use_code
from fedamp.federation.silo.privacy_ledger import PrivacyLedger
from fedamp.federation.silo.privacy_wishes import NO_WISHES, Wishes
from fedamp.federation.silo.privacy_words import NOTHING_PROMISED, summary

FILES = (SILO, SCHEMA, "ca.crt")
AHEAD, BEHIND = 5.0, 300.0  # seconds by which Flower lets a silo's clock differ; the Date header has whole ones

ROOM = 20
"""Models that there must be room for: those of a few rounds, and what is remembered between them."""
LINES, MEGA = 1 << 20, 1e6  # bytes: of logs and other lines; of a MB


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    fault: str = ""  # "" if all is well
    note: str = ""


def check(bundle: Path, data: Path, offline: bool = False, wishes: Wishes = NO_WISHES) -> Iterator[Finding]:
    """Yield one finding after another; what can't be checked because of an earlier fault is left out.

    `wishes` are about privacy, as `silo up` would be told; nothing is written.
    """
    complete = _try("bundle", lambda: _bundle(bundle))
    yield complete
    if complete.fault:
        return
    silo_config = read_silo_config(bundle)
    if sharing := silo_config.plan.sharing():
        yield Finding("sharing", note=f"warning: {sharing}; if yours has not, do not start")
    yield _try("key", lambda: own_key.check(bundle, silo_config.name))
    yield _try("certificate", lambda: _certificate(bundle / "ca.crt"))
    yield _try("version", lambda: _version(silo_config, bundle))
    if not wishes.private:
        yield _try("privacy", lambda: _privacy(bundle))
    readable = _try("data", lambda: _data(silo_config, data))
    yield readable
    if not readable.fault:
        yield _try("model", lambda: _model(silo_config, bundle, data))
        yield _try("disk", lambda: _disk(silo_config, bundle, data))
    if not readable.fault and wishes.private:
        yield _try("privacy", lambda: _promised(silo_config, bundle, data, wishes))
    if not offline:
        yield _try("server", lambda: _server(silo_config, bundle / "ca.crt"))


def check_quickly(bundle: Path, data: Path) -> SiloConfig:
    """Return a silo's config from its bundle; the first fault that is found without the network is an error.

    All but privacy's: `protection.settle` judges that, by what the operator wishes.
    """
    for finding in check(bundle, data, offline=True):
        if finding.fault and finding.what != "privacy":
            raise UserError(f"{finding.what}: {finding.fault}")
    return read_silo_config(bundle)


def _try(what: str, test: Callable[[], str]) -> Finding:
    try:
        return Finding(what, note=test())
    except (UserError, OSError) as error:
        return Finding(what, fault=" ".join(str(error).split()) or type(error).__name__)


def _bundle(bundle: Path) -> str:
    if bundle.suffix == ".zip" and bundle.is_file():
        raise UserError(f"{bundle} is packed; unpack it with unzip and give the folder")
    missing = [name for name in FILES if not (bundle / name).is_file()]
    if missing:
        raise UserError(f"{bundle} has no {', '.join(missing)}; expected a bundle from the federation's operator")
    silo_config = read_silo_config(bundle)
    return f"silo {silo_config.name} of the federation {silo_config.plan.name}"


def _certificate(path: Path) -> str:
    from fedamp.federation import certificates
    from fedamp.federation.silo import server_seen

    start, end = certificates.validity(path.read_bytes())
    now = datetime.now(UTC)
    if not start <= now <= end:
        raise UserError(
            f"{path} is valid from {start:%Y-%m-%d} to {end:%Y-%m-%d}, and this machine's clock says "
            f"{now:%Y-%m-%d %H:%M} UTC; set the clock, or ask for a new bundle"
        )
    note = f"of the authority {certificates.fingerprint(path.read_bytes())}, valid until {end:%Y-%m-%d}"
    return _with_warning(note, server_seen.authority_ending(path))


def _version(silo_config: SiloConfig, bundle: Path) -> str:
    use_code(bundle)
    here = silo_config.plan.here()
    if difference := disagreement(silo_config.plan.agreed(), here):
        raise UserError(f"{difference} (there: the federation's plan); install what the plan names")
    made = silo_config.plan.config.version
    other = "" if made == __version__ else f" (the plan was made with {made}, which does not matter)"
    return f"fedamp {__version__}{other}, protocol {PROTOCOL}"


def _data(silo_config: SiloConfig, data: Path) -> str:
    schema = silo_config.plan.schema
    raw = read_silo(data, silo_config.plan.config.label, schema.dropped, missing=READING[schema.missing], agreed=True)
    apply_schema(schema, raw)
    here = make_schema([raw], schema.task, missing=schema.missing, indicate=schema.indicate)
    found = schema_warnings([here, schema], [raw.name, "the schema"], schema.task) + empty_warnings([raw], schema)
    found += [f"column {column!r} of the schema looks like {why}" for column, why in schema_suspects(schema).items()]
    warnings = [f"warning: {line}" for line in found]
    return "; ".join([f"{len(raw)} rows", *schema_notes(schema, [raw]), *at_home(schema, raw), *warnings])


def _model(silo_config: SiloConfig, bundle: Path, data: Path) -> str:
    from fedamp.federation.silo.round import open_silo

    silo = open_silo(silo_config, data, bundle / "run")
    held, validation = len(silo.setup.clients.test[0]), silo.setup.clients.validation
    choose = f", {len(validation[0])} to choose by" if validation else ""
    text = f"{silo_config.plan.config.model.name}; {silo.samples} samples to train on, {held} to test{choose}"
    return "; ".join([text, *(f"warning: {line}" for line in silo.setup.warnings)])


def _disk(silo_config: SiloConfig, bundle: Path, data: Path) -> str:
    """Return how much room there is for what rounds write: memory, models, logs."""
    from fedamp.federation.silo.round import open_silo

    folder = bundle / "run" if (bundle / "run").is_dir() else bundle
    model = open_silo(silo_config, data, bundle / "run").setup.w.params.nbytes
    needed, free = ROOM * model + LINES, shutil.disk_usage(folder).free
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0" * LINES)
    except OSError as error:
        raise UserError(
            f"{folder} can't be written ({error.strerror or error}); make room, or let it be yours"
        ) from None
    if free < needed:
        raise UserError(
            f"{folder} has {free / MEGA:.1f} MB free, and rounds need {needed / MEGA:.1f} MB: {ROOM} models of "
            f"{model / MEGA:.1f} MB, and logs; make room"
        )
    return f"{folder} can be written, {free / MEGA:.0f} MB are free"


def _privacy(bundle: Path) -> str:
    account = PrivacyLedger(bundle / "run").promised()
    return NOTHING_PROMISED if account is None else summary(account)


def _promised(silo_config: SiloConfig, bundle: Path, data: Path, wishes: Wishes) -> str:
    """Return what `silo up` would promise, what is spent and what is left; a promise that can't be given is a fault."""
    from fedamp.federation.silo.protection import intended

    said: list[str] = []
    account = intended(silo_config, bundle / "run", data, wishes, said.append)
    promise = account.promise
    limit = "no limit, as only --dp-noise is given" if promise.limit is None else f"epsilon {promise.limit:g}"
    return "; ".join([f"would be promised: {limit}, at delta {account.delta:g}", summary(account), *said])


def _server(silo_config: SiloConfig, authority: Path) -> str:
    from fedamp.federation.silo import server_seen

    seen = server_seen.look_at(silo_config.server, authority)
    _clock(seen.date)
    return _with_warning(f"{silo_config.server} answers, and is the right server", server_seen.server_ending(seen))


def _with_warning(note: str, warning: str) -> str:
    return f"{note}; warning: {warning}" if warning else note


def _clock(date: str | None) -> None:
    """Refuse a clock that Flower would: a silo's may be 5 s ahead of the server's and 300 s behind it."""
    if date is None:
        return
    ahead = (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds()
    if not -BEHIND < ahead < AHEAD:
        where = "ahead of" if ahead > 0 else "behind"
        raise UserError(
            f"this machine's clock is {abs(ahead):.0f} s {where} the server's, which Flower refuses; synchronise both "
            "with a time server (NTP)"
        )
