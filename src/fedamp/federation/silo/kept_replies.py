"""The replies of a private silo's last rounds, as they left: whoever asks the same again gets the same bits again.

run/replies/DIGEST.safetensors   by the digest of the message: the reply, its metrics, the silo's state after it

The same bits tell nothing new, and so cost nothing. A reply is on the disk before the ledger pays for it, and is sent
only if the ledger names it: whenever the machine stops, nothing leaves that was not paid for, and what was paid for is
not lost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from fedamp.federation.silo.privacy_ledger import PrivacyLedger
from fedamp.privacy.events import Spending
from fedamp.records.checkpoints import state_of, state_tensors
from fedamp.records.tensor_file import write_tensors
from fedamp.rows import Message, State

LAST = 3
"""Rounds whose replies are kept: as many as a server keeps checkpoints of in a row, in case it goes back to one."""
REPLY, SILO = "reply", "silo"
ENDING = ".safetensors"


@dataclass(frozen=True)
class Answer:
    """What a silo has made of a round's message."""

    state: State  # of the silo, after the round
    reply: Message
    metrics: dict[str, float]  # all but the scores; not all of them leave


def digest_of(life: str, k: int, accepted: int, anew: bool, message: Message) -> str:
    """Return a digest of all that a reply is made of besides the silo's own: of the federation `life`, for round k."""
    found = hashlib.sha256(json.dumps([life, k, accepted, anew]).encode())
    for name in sorted(message):
        for part in (message[name].params, message[name].buffers):
            found.update(json.dumps([name, str(part.dtype), list(part.shape)]).encode())
            found.update(part.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


@dataclass(frozen=True)
class KeptReplies:
    """The replies beside a ledger: a file for each."""

    ledger: PrivacyLedger

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self.ledger.folder / "replies"

    def pay(self, k: int, spending: Spending, asked: str | None, answer: Answer) -> None:
        """Write down what round k has cost, before its state is used: the next reply could be made of that.

        Without a digest of its message the answer is not kept.
        """
        if asked is None:
            self.ledger.spend(k, spending)
            return
        try:
            self.ledger.spend(k, spending, asked, self._write(asked, answer))
        except BaseException:  # the promise is spent, a full disk
            self._path(asked).unlink(missing_ok=True)
            raise
        self._drop_all_but(self.ledger.last_asked(LAST))

    def find(self, asked: str) -> Answer | None:
        """Return the answer to the message with this digest, if it is kept and is what was paid for."""
        paid = self.ledger.paid(asked)
        try:
            if paid is None or self._digest(asked) != paid:
                return None
            with safe_open(self._path(asked), framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                metrics = json.loads(file.metadata()["metrics"])
        except OSError:
            return None
        return Answer(state_of(SILO, 1, tensors), state_of(REPLY, 1, tensors).rows, metrics)

    def _write(self, asked: str, answer: Answer) -> str:
        """Keep an answer; return the digest of its file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {**state_tensors(REPLY, State(1, answer.reply)), **state_tensors(SILO, answer.state)}
        write_tensors(self._path(asked), tensors, {"metrics": json.dumps(answer.metrics)})
        return self._digest(asked)

    def _drop_all_but(self, kept: Collection[str]) -> None:
        for path in self.folder.glob(f"*{ENDING}"):
            if path.name.removesuffix(ENDING) not in kept:
                path.unlink(missing_ok=True)

    def _digest(self, asked: str) -> str:
        with self._path(asked).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _path(self, asked: str) -> Path:
        return self.folder / f"{asked}{ENDING}"
