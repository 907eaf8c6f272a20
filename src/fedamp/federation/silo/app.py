"""The silo's Flower app: a ClientApp that serves all methods. What it replies is what `Silo` gives it.

Three kinds of messages come: `query` at the first contact, `train` each round, `evaluate` after the last one; with
validation samples a last `query` says which models all silos take home. A silo
that can't take part replies with one of a few fixed phrases; the details stay in its log. An error is never passed on
as it is: its text might hold what must not leave the silo.
"""

from __future__ import annotations

import contextlib
import errno
import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedamp import __version__
from fedamp.config.metrics import info
from fedamp.federation.plan import SiloConfig
from fedamp.federation.plan_files import read_silo_config
from fedamp.federation.processes import rotation
from fedamp.federation.silo import diary, kept_models
from fedamp.federation.silo.alone import against_alone, begins_late
from fedamp.federation.silo.kept_replies import digest_of
from fedamp.federation.silo.ledger import Ledger
from fedamp.federation.silo.privacy_ledger import EXPOSED, PrivacyLedger
from fedamp.federation.silo.privacy_words import spent_text
from fedamp.federation.silo.round import Silo, open_silo
from fedamp.federation.silo.unwilling import UnwillingError
from fedamp.federation.wire.encoding import RefusedError, decode, encode
from fedamp.rows import Message as Received

RUN = "run"  # of a bundle: what the silo writes
LOG = "log.txt"
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # full, in full or for this user, or not to be written
_LAST_LINE: dict[Path, str] = {}  # of each silo's log, as long as this process lives


@dataclass(frozen=True)
class House:
    """A silo's config, its data, and the folder that it writes to."""

    config: SiloConfig
    data: Path
    folder: Path  # for memory, models and log
    alone: bool = False  # whether it also trains a model alone
    max_rounds: int | None = None  # that it trains, by its own ledger
    private: bool = False  # whether it protects its samples, as its privacy ledger says

    def open(self, theirs: Any) -> Silo:
        """Return the silo, ready to train; one that has promised to protect its samples does so or stays closed."""
        if not self.private and (promised := self.privacy.promised()) and promised.unprotected is None:
            raise UnwillingError(
                EXPOSED, f"{self.privacy.path} promises privacy, and `silo up` was not told to keep it"
            )
        return open_silo(self.config, self.data, self.folder, theirs, self.alone, self.private)

    @property
    def ledger(self) -> Ledger:
        """The rounds that it has trained."""
        return Ledger(self.folder, self.max_rounds)

    @property
    def privacy(self) -> PrivacyLedger:
        """What it has promised about its samples, and spent of it."""
        return PrivacyLedger(self.folder)

    def check(self, accepted: int | None = None) -> None:
        """Raise if it does not allow itself another round; the server has taken its reply of round `accepted`."""
        self.ledger.check()
        if self.private:
            self.privacy.check(accepted)

    def log_once(self, text: str) -> None:
        """Write a line, unless it is the last one: a silo may be asked several times a second."""
        if _LAST_LINE.get(self.folder) != text:
            self.log(text)

    def log(self, text: str) -> None:
        """Write a line for the silo's operator; a full disk must neither end the round nor reach the server."""
        _LAST_LINE[self.folder] = text
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            rotation.append(self.folder / LOG, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n".encode())


def house_of(context: Context) -> House:
    """Return the house whose paths `fedamp silo up` wrote down."""
    bundle = Path(str(context.node_config["bundle"]))
    alone, private = (bool(context.node_config.get(name, False)) for name in ("alone", "private"))
    most = context.node_config.get("max-rounds")
    data = Path(str(context.node_config["data"]))
    return House(read_silo_config(bundle), data, bundle / RUN, alone, None if most is None else int(str(most)), private)


def make_client_app(house: Callable[[Context], House] = house_of) -> ClientApp:
    """Return the app of a silo; `house` finds its data and memory."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        """Compare plans, and reply how many samples there are."""
        return _answer(message, context, house, _query)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        """Train for a round; score the received model and the trained one."""
        return _answer(message, context, house, _train)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        """Take the last cloud model, and score it."""
        return _answer(message, context, house, _evaluate)

    return app


Act = Callable[[Silo, House, Message], RecordDict]


def _answer(message: Message, context: Context, find: Callable[[Context], House], act: Act) -> Message:
    """Act on a message; whatever goes wrong is logged here in full, and the server gets a fixed phrase."""
    house: House | None = None
    try:
        house = find(context)
        theirs = json.loads(str(message.content.config_records["config"]["agreement"]))
        content = act(house.open(theirs), house, message)
    except UnwillingError as error:
        content = _refusal(error.public, house, str(error), error.newest)
    except RefusedError as error:
        content = _refusal("it can't use the server's message", house, f"the server's message can't be used: {error}")
    except Exception as error:  # whatever a model or a disk does
        content = _refusal("it failed; its own log says why", house, _failure(error, house))
    return Message(content, reply_to=message)


def _failure(error: Exception, house: House | None) -> str:
    """Return why the silo failed: of a disk in a line, of anything else all that a programmer needs."""
    if isinstance(error, OSError) and error.errno in DISK:
        where = error.filename or (house.folder if house else "its folder")
        return f"can't write {where}: {error.strerror}; make room, or let it be written to: then the silo goes on"
    return f"an unexpected error\n{traceback.format_exc()}"


def _refusal(public: str, house: House | None, private: str, newest: int | None = None) -> RecordDict:
    if house is None:  # its bundle can't be read, so where its log is remains unknown
        print(f"not taking part: {private}", file=sys.stderr)
    else:
        house.log_once(f"not taking part: {private}")
        diary.note_refusal(house.folder, public, private)
    refusal = ConfigRecord({"reason": public})
    if newest is not None:
        refusal["newest"] = newest
    return RecordDict({"refusal": refusal})


def _take(silo: Silo, house: House, message: Message) -> None:
    """Keep what all silos are to take home, if the server names it; it may not yet, or nothing is held out."""
    told = message.content.config_records["config"].get("take-home")
    if told is not None:
        silo.take(json.loads(str(told)))


def _query(silo: Silo, house: House, message: Message) -> RecordDict:
    if "take-home" in message.content.config_records["config"]:  # after the last scores: a farewell
        _take(silo, house, message)
        house.log(f"what the silos' held-out samples chose for all is {silo.models / 'chosen.safetensors'}")
        return RecordDict({"metrics": MetricRecord({"num-examples": silo.samples})})
    house.check()
    house.log(f"first contact with the federation {silo.config.plan.name!r}: {silo.samples} training samples")
    return RecordDict({"metrics": MetricRecord({"num-examples": silo.samples})})


def _about(message: Message) -> dict[str, ConfigRecord]:
    """Return this silo's version, for the server's log, if it is not the server's."""
    theirs = json.loads(str(message.content.config_records["config"]["agreement"]))
    return {} if theirs.get("version") == __version__ else {"about": ConfigRecord({"version": __version__})}


def _train(silo: Silo, house: House, message: Message) -> RecordDict:
    config, arrays = message.content.config_records["config"], message.content.array_records["arrays"]
    k, accepted = int(config["server-round"]), int(config["accepted"])  # type: ignore[arg-type]
    anew = bool(config.get("anew", False))
    life = str(config["life"])
    silo.heed(life, int(config["serial"]))  # type: ignore[arg-type]
    _take(silo, house, message)
    received = decode(arrays, silo.templates()[0])
    asked = digest_of(life, k, accepted, anew, received)
    if repeated := silo.answered(asked) is not None:
        house.log(f"round {k}: the server asks for the same again, and gets the same reply; it costs nothing")
    else:
        house.check(accepted)
    if begins_late(silo, accepted):
        house.log(f"training alone begins in round {k}, from the first model: it has missed the rounds before")
    _log_changes(silo, house, k)
    _log_anew(silo, house, accepted, anew)
    reply, metrics = silo.play(k, accepted, received, anew, asked)
    if not repeated or house.privacy.uncounted():
        house.ledger.count()  # before anything leaves the silo
    house.log(f"round {k}: {_score_text(silo, metrics)}, trained in {metrics['train-seconds']:.1f} s")
    if fault := diary.new_fault(house.folder):
        house.log(f"round {k}: {fault}; make room: until then `fedamp silo status` stays at an older round")
    _log_privacy(silo, house, k)
    _log_alone(silo, house, k, received)
    if (trained := house.ledger.trained) == house.max_rounds:
        house.log(f"round {k}: this was the last of the {trained} rounds that --max-rounds allows; it trains no more")
    return RecordDict({"arrays": encode(reply), "metrics": MetricRecord(dict(metrics)), **_about(message)})


def _evaluate(silo: Silo, house: House, message: Message) -> RecordDict:
    config, arrays = message.content.config_records["config"], message.content.array_records["arrays"]
    _take(silo, house, message)
    k, accepted = int(config["server-round"]), int(config["accepted"])  # type: ignore[arg-type]
    received = decode(arrays, silo.templates()[0])
    _log_changes(silo, house, k)
    metrics = silo.look(k - 1, accepted, received, bool(config.get("anew", False)))
    house.log(f"the federation has ended: {_score_text(silo, metrics)}; your models are in {silo.models}")
    if silo.setup.method.scored == "received":  # its own model is the one that the last round told of
        _log_alone(silo, house, accepted, received)
    return RecordDict({"arrays": ArrayRecord(), "metrics": MetricRecord(dict(metrics))})


def _log_changes(silo: Silo, house: House, k: int) -> None:
    """Say at home whether the data has changed since the last round, and how."""
    if text := silo.rows.note(k, silo.setup.clients):
        house.log(f"round {k}: {text}")


def _log_anew(silo: Silo, house: House, accepted: int, anew: bool) -> None:
    """Say so when what the server goes on from is not, or no longer, here."""
    method, name = silo.setup.method, silo.config.plan.config.method.name
    gone = f"the server goes on from round {accepted}, and the rounds kept in {silo.memory.folder} are: "
    if silo.forgot(accepted) and not method.remembers:
        house.log(f"{gone}{silo.memory.listed()}; {name} needs none of them, so this silo goes on")
    elif silo.forgot(accepted) and anew:
        house.log(f"{gone}{silo.memory.listed()}; readmitted, this silo begins anew: {method.anew}")
    elif anew and not accepted:
        house.log(f"the server lets its silos begin anew: {method.anew}")


def _log_privacy(silo: Silo, house: House, k: int) -> None:
    """Say at home what has been spent, if the silo protects its samples."""
    if silo.privacy is not None:
        house.log(f"round {k}: {spent_text(silo.privacy.account())}")


def _log_alone(silo: Silo, house: House, k: int, received: Received) -> None:
    """Say at home how the silo would do alone, if it trains alone too."""
    if text := against_alone(silo, k, received):
        house.log(f"round {k}: {text}")


def _score_text(silo: Silo, metrics: dict[str, float]) -> str:
    """Return the scores in words; those that do not leave stand beside the models."""
    metric = silo.setup.trainer.task.metric
    names = {"own": "own model", "received": "received model"}
    scores = {entry: metrics.get(f"test.{entry}.{metric}") for entry in names}
    if silo.privacy is not None:
        scores = {one.entry: one.test for one in kept_models.kept(silo.models) if one.name in names}
    about = info(metric)
    known = {names[entry]: about.named(about.factor * score) for entry, score in scores.items() if score is not None}
    return ", ".join(f"{name} {text.replace(' %', '%')}" for name, text in known.items()) or (
        f"no score: the test samples do not define {about.words}"
    )


app = make_client_app()
