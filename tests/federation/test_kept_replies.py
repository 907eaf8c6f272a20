"""A private silo that is asked for the same again answers with the same bits, and spends nothing."""

import shutil
from dataclasses import replace

import pytest
import torch

from fedamp.federation.silo.kept_replies import LAST, KeptReplies, digest_of
from fedamp.federation.silo.ledger import Ledger
from fedamp.federation.silo.memory import Memory
from fedamp.federation.silo.privacy_account import Account
from fedamp.federation.silo.privacy_ledger import LOST, PrivacyLedger
from fedamp.federation.silo.unwilling import UnwillingError
from fedamp.federation.wire.phrases import SPENT_PRIVACY
from fedamp.records.reading import read_lines
from fedamp.rows import Rows
from fedamp.training.trainer import Trainer
from federation.inprocess import Local, plan_of, write_silos
from federation.private import cost, lose_patience, protect

pytestmark = pytest.mark.many
"""Run after the fast tests, on all cores: these train."""


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    lose_patience(monkeypatch)


@pytest.fixture
def secrets(monkeypatch) -> list[int]:
    """The secrets that were drawn: one for each round that was trained with noise."""
    found, changed = [], Trainer.changed

    def noted(self, **settings):
        if privacy := settings.get("privacy"):
            found.append(privacy.secret)
        return changed(self, **settings)

    monkeypatch.setattr(Trainer, "changed", noted)
    return found


class Post:
    """What leaves one silo: round, arrays, metrics, and its state then; the answers `lost`, by number, never arrive."""

    def __init__(self, number: int = 1, lost=()) -> None:
        self.number, self.lost, self.left, self.states, self.house = number, set(lost), [], [], None

    def __call__(self, number, reply):
        if number != self.number or "refusal" in reply.content.config_records:
            return reply
        arrays = {name: array.data for name, array in reply.content.array_records["arrays"].items()}
        self.left.append((reply.metadata.group_id, arrays, dict(reply.content.metric_records["metrics"])))
        memory = self.house.folder / "memory"
        self.states.append({path.name: path.read_bytes() for path in memory.glob("*.safetensors")})
        return None if len(self.left) in self.lost else reply


def private(tmp_path, post, method="fedamp", who=(1,), rounds=3, **promised) -> Local:
    """Return a federation of two silos that needs both; the second one, at least, protects its samples."""
    data = write_silos(tmp_path / "data", 2)
    local = Local(tmp_path, plan_of(data, method, rounds=rounds, epochs=1), data, tamper=post)
    local.rules = replace(local.rules, min_silos=2)
    protect(local, *who, **promised)
    post.house = local.houses[1]
    return local


def paid(local: Local, number: int = 1) -> list[int]:
    return [each.round for each in PrivacyLedger(local.houses[number].folder).account().rounds]


@pytest.mark.parametrize("method", ["fedamp", "scaffold", "apfl", "autoamp"])
def test_a_lost_reply_leaves_again_bit_for_bit_and_costs_nothing(tmp_path, method, secrets):
    post = Post(lost=(2, 3))
    local = private(tmp_path, post, method)
    local.serve()
    assert [k for k, _, _ in post.left] == ["1", "2", "2", "2", "3"]
    assert post.left[1] == post.left[2] == post.left[3]
    assert post.states[1] == post.states[2] == post.states[3]  # no update is made twice
    assert post.states[1] != post.states[4]
    assert paid(local) == [1, 2, 3]
    assert len(secrets) == 3
    assert Ledger(local.houses[1].folder).trained == 3
    assert (local.houses[1].folder / "log.txt").read_text().count("gets the same reply; it costs nothing") == 2


def test_a_silo_that_has_spent_all_still_repeats_its_last_reply(tmp_path):
    """And nothing else: the next round is refused."""
    post = Post(lost=(3,))
    local = private(tmp_path, post, who=(), rounds=4)
    protect(local, 1, limit=(cost(local, 1, 3) + cost(local, 1, 4)) / 2)
    local.serve(rounds=3)
    assert [k for k, _, _ in post.left] == ["1", "2", "3", "3"]
    assert paid(local) == [1, 2, 3]
    local.rules = replace(local.rules, min_silos=1)
    local.serve(rounds=4)
    (line,) = (line for line in read_lines(tmp_path / "record/rounds.jsonl") if line["round"] == 4 and "absent" in line)
    assert line["absent"] == {"silo-1": SPENT_PRIVACY}


@pytest.mark.parametrize("method", ["fedamp", "scaffold"])
def test_killed_after_it_was_paid_for_a_reply_leaves_all_the_same(tmp_path, monkeypatch, method, secrets):
    """The ledger holds it: that it did not leave is no reason to pay again, and its state is not lost."""
    post = Post()
    local = private(tmp_path, post, method, rounds=2)
    kill, save = [True], Memory.save

    def killed(self, *what, **more):
        if kill and self.folder == local.houses[1].folder / "memory":
            kill.clear()
            raise RuntimeError("killed")
        save(self, *what, **more)

    monkeypatch.setattr(Memory, "save", killed)
    record = local.serve()
    assert not kill
    assert paid(local) == [1, 2]
    assert len(secrets) == 2
    assert Ledger(local.houses[1].folder).trained == 2
    assert record.state.standing(record.keys[1]).accepted == 2
    assert all("forgot" not in metrics for _, _, metrics in post.left)


def test_killed_before_it_was_paid_for_a_reply_never_leaves(tmp_path, monkeypatch, secrets):
    post = Post()
    local = private(tmp_path, post, rounds=1)
    spend, folder, aside = PrivacyLedger.spend, local.houses[1].folder / "replies", tmp_path / "aside"

    def killed(self, *what):
        if not aside.exists():
            shutil.copytree(folder, aside)
            raise RuntimeError("killed")
        return spend(self, *what)

    monkeypatch.setattr(PrivacyLedger, "spend", killed)
    find = KeptReplies.find

    def with_what_the_killed_one_left(self, asked):
        if aside.exists():
            shutil.copytree(aside, folder, dirs_exist_ok=True)
        return find(self, asked)

    monkeypatch.setattr(KeptReplies, "find", with_what_the_killed_one_left)
    local.serve()
    assert len(list(aside.iterdir())) == 1
    assert len(secrets) == 2  # what was not paid for was made again
    assert paid(local) == [1]


def test_another_message_of_the_same_round_costs(tmp_path):
    local = private(tmp_path, Post())
    silo = local.houses[1].open(None)
    message, _ = silo.templates()
    other = {name: Rows(rows.params + (name == "u"), rows.buffers) for name, rows in message.items()}

    def play(received, life="a", k=1, accepted=0, anew=False) -> torch.Tensor:
        asked = digest_of(life, k, accepted, anew, received)
        return silo.play(k, accepted, received, anew, asked)[0]["w"].params

    first = play(message)
    assert torch.equal(play(message), first)
    assert paid(local) == [1]
    for changed in ({"received": other}, {"life": "b"}, {"anew": True}, {"k": 2}):
        assert not torch.equal(play(**{"received": message, **changed}), first)
    assert paid(local) == [1, 1, 1, 1, 2]
    assert len({digest_of("a", 1, accepted, False, message) for accepted in (0, 1)}) == 2


def test_only_the_last_ones_are_kept(tmp_path):
    local = private(tmp_path, Post(), rounds=LAST + 2)
    local.serve()
    ledger = PrivacyLedger(local.houses[1].folder)
    there = {path.stem for path in (ledger.folder / "replies").iterdir()}
    assert there == {each.asked for each in ledger.account().rounds[-LAST:]}
    assert len(there) == LAST
    assert not (local.houses[0].folder / "replies").exists()  # it promises nothing


@pytest.mark.parametrize(("method", "who"), [("fedamp", (1,)), ("fedavg", (0, 1)), ("apfl", (0, 1))])
def test_a_server_that_goes_back_to_an_older_record_costs_nothing(tmp_path, method, who):
    post = Post()
    local = private(tmp_path, post, method, who, rounds=5)
    local.serve(rounds=2)
    shutil.copytree(tmp_path / "record", tmp_path / "backup")
    local.serve(rounds=4)
    shutil.rmtree(tmp_path / "record")
    shutil.copytree(tmp_path / "backup", tmp_path / "record")
    record = local.serve(rounds=5)
    assert record.state.k == 5
    assert [k for k, _, _ in post.left] == ["1", "2", "3", "4", "3", "4", "5"]
    assert post.left[2:4] == post.left[4:6]
    for then, now, k in ((2, 4, 3), (3, 5, 4)):
        name = f"state-{k:07d}.safetensors"
        assert post.states[then][name] == post.states[now][name]
    for number in who:
        assert paid(local, number) == [1, 2, 3, 4, 5]


def test_a_reply_that_the_ledger_does_not_name_does_not_leave(tmp_path):
    local = private(tmp_path, Post(), rounds=2)
    local.serve(rounds=1)
    ledger = PrivacyLedger(local.houses[1].folder)
    copy = ledger.path.read_bytes()
    local.serve()
    silo, asked = local.houses[1].open(None), ledger.account().rounds[-1].asked
    assert silo.answered(asked) is not None
    newest = ledger.path.read_bytes()
    ledger.path.write_bytes(copy)
    assert silo.answered(asked) is None
    ledger.path.unlink()
    with pytest.raises(UnwillingError) as told:
        silo.answered(asked)
    assert told.value.public == LOST
    ledger.path.write_bytes(newest)
    (path,) = (path for path in (ledger.folder / "replies").iterdir() if path.stem == asked)
    path.write_bytes(path.read_bytes()[:-1] + b"x")  # damaged
    assert silo.answered(asked) is None


def test_an_account_that_was_written_before_replies_were_kept_is_read(tmp_path):
    local = private(tmp_path, Post(), rounds=1)
    local.serve()
    account = PrivacyLedger(local.houses[1].folder).account()
    values = account.to_dict()
    for each in values["rounds"]:
        del each["asked"], each["reply"]
    assert [each.asked for each in Account.of(values).rounds] == [None]
    assert Account.of(values).spending == account.spending
