"""The silo's Flower app: a ClientApp that serves all nine methods. What it replies is what `silo` gives it.

Three kinds of messages come: `query` at the first contact, `train` each round, `evaluate` after the last one. A silo
that can't take part says so in a word of its own; the details stay in its log. An error is never passed on as it is:
its text might hold what must not leave the house.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedamp.deploy.plan import Seat, read_seat
from fedamp.deploy.silo import Silo, UnwillingError, open_silo
from fedamp.deploy.wire import RefusedError, decode, encode

RUN = "run"  # of a bundle: what the silo writes
LOG = "log.txt"


@dataclass(frozen=True)
class House:
    """Where a silo keeps what it has."""

    seat: Seat
    data: Path
    folder: Path  # for memory, models and log

    def open(self, theirs: Any) -> Silo:
        """Return the silo, ready to train."""
        return open_silo(self.seat, self.data, self.folder, theirs)

    def log(self, text: str) -> None:
        """Write a line for the silo's operator."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")


def house_of(context: Context) -> House:
    """Return the house that `fedamp silo up` told the SuperNode of."""
    bundle = Path(str(context.node_config["bundle"]))
    return House(read_seat(bundle), Path(str(context.node_config["data"])), bundle / RUN)


def make_client_app(house: Callable[[Context], House] = house_of) -> ClientApp:
    """Return the app of a silo; `house` finds its data and memory."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        """Compare plans; tell how many samples there are."""
        return _answer(message, house(context), _query)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        """Train for a round; score what was received and what came of it."""
        return _answer(message, house(context), _train)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        """Take the last cloud model, and score it."""
        return _answer(message, house(context), _evaluate)

    return app


def _answer(message: Message, house: House, act: Callable[[Silo, House, Message], RecordDict]) -> Message:
    try:
        config = message.content.config_records["config"]
        theirs = json.loads(str(config["agreement"]))
        content = act(house.open(theirs), house, message)
    except UnwillingError as error:
        house.log(f"not taking part: {error}")
        content = _refusal(error.public)
    except RefusedError as error:
        house.log(f"not taking part: the server's message can't be used: {error}")
        content = _refusal("it can't use the server's message")
    except Exception:  # whatever a model or a disk does: told here in full, and there in a word
        house.log(f"not taking part: an error\n{traceback.format_exc()}")
        content = _refusal("it failed; its own log says why")
    return Message(content, reply_to=message)


def _refusal(reason: str) -> RecordDict:
    return RecordDict({"refusal": ConfigRecord({"reason": reason})})


def _query(silo: Silo, house: House, message: Message) -> RecordDict:
    house.log(f"first contact with the federation {silo.seat.plan.name!r}: {silo.samples} training samples")
    return RecordDict({"metrics": MetricRecord({"num-examples": silo.samples})})


def _train(silo: Silo, house: House, message: Message) -> RecordDict:
    config, arrays = message.content.config_records["config"], message.content.array_records["arrays"]
    k, accepted = int(config["server-round"]), int(config["accepted"])  # type: ignore[arg-type]
    silo.heed(int(config["serial"]))  # type: ignore[arg-type]
    reply, metrics = silo.play(k, accepted, decode(arrays, silo.templates()[0]))
    house.log(f"round {k}: {_told(silo, metrics)}, trained in {metrics['train-seconds']:.1f} s")
    return RecordDict({"arrays": encode(reply), "metrics": MetricRecord(dict(metrics))})


def _evaluate(silo: Silo, house: House, message: Message) -> RecordDict:
    config, arrays = message.content.config_records["config"], message.content.array_records["arrays"]
    metrics = silo.look(int(config["accepted"]), decode(arrays, silo.templates()[0]))  # type: ignore[arg-type]
    house.log(f"the federation has come to its end: {_told(silo, metrics)}; your models are in {silo.models}")
    return RecordDict({"arrays": ArrayRecord(), "metrics": MetricRecord(dict(metrics))})


def _told(silo: Silo, metrics: dict[str, float]) -> str:
    """Return the scores in words."""
    metric = silo.federation.training.task.metric
    words = {"own": "own model", "received": "received model"}
    scores = {entry: metrics.get(f"test.{entry}.{metric}") for entry in words}
    form = "{} {:.2%}" if metric == "accuracy" else "{} RMSE {:.4g}"
    return ", ".join(form.format(words[entry], score) for entry, score in scores.items() if score is not None)


app = make_client_app()
