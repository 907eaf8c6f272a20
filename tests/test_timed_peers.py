"""What benchmarks/peers.py gives to us and to peers, and how it compares; without any peer installed."""

import copy
import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from fedamp.data.clients import Clients

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("peers")


@pytest.fixture
def work(peers):
    """Three clients with 4, 8 and 12 samples, batch 4."""
    g = torch.Generator().manual_seed(0)
    pairs = [(torch.rand(n, 5, generator=g), torch.randint(3, (n,), generator=g)) for n in (4, 8, 12)]
    return peers.Work(Clients.of(pairs), nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)), batch=4)


class Plain:
    """FedAvg in plain PyTorch, one client after the other: a peer that is always here."""

    lost = 0  # minibatches that each client leaves out

    def __init__(self, work):
        self.work, self.module = work, copy.deepcopy(work.module)
        self.given = [positions.split(work.batch) for positions in work.clients.train]

    def follow(self, batches):
        self.given = batches

    def round(self):
        total, ended = 0, []
        for batches in self.given:
            mine, loss, size = copy.deepcopy(self.module), nn.CrossEntropyLoss(), sum(map(len, batches))
            optimizer = torch.optim.SGD(mine.parameters(), lr=0.005)
            for batch in batches[self.lost :]:
                x, y = self.work.clients.samples(batch)
                optimizer.zero_grad()
                loss(mine(x), y).backward()
                optimizer.step()
            total += size
            ended.append([size * p.detach() for p in mine.parameters()])
        for own, theirs in zip(self.module.parameters(), zip(*ended, strict=True), strict=True):
            own.data = sum(theirs) / total

    def models(self):
        return torch.cat([p.detach().reshape(-1) for p in self.module.parameters()])[None]


class Short(Plain):
    lost = 1


class PlainAMP:
    """FedAMP as PFLlib and fluke describe it, pair by pair: Eq. 5 and 6, from where a client's last round ended."""

    sigma, alpha, lam, lr = 1.0, 0.04, 1.0, 0.005

    def __init__(self, work):
        self.work, self.clients = work, [copy.deepcopy(work.module) for _ in work.clients.train]
        self.given = []

    def follow(self, batches):
        self.given = batches

    def round(self):
        w = self.models()
        for i, (mine, batches) in enumerate(zip(self.clients, self.given, strict=True)):
            xi = torch.exp(-(w[i] - w).square().sum(1) / self.sigma) * self.alpha / self.sigma
            xi[i] = 0
            xi[i] = 1 - xi.sum()
            u = xi @ w
            optimizer = torch.optim.SGD(mine.parameters(), lr=self.lr)
            for batch in batches:
                x, y = self.work.clients.samples(batch)
                own = torch.cat([p.reshape(-1) for p in mine.parameters()])
                optimizer.zero_grad()
                pull = self.lam / (2 * self.alpha) * (own - u).square().sum()
                (nn.functional.cross_entropy(mine(x), y) + pull).backward()
                optimizer.step()

    def models(self):
        return torch.stack([torch.cat([p.detach().reshape(-1) for p in mine.parameters()]) for mine in self.clients])


def test_our_fedamp_is_that_of_a_plain_loop_on_the_same_minibatches(peers, work):
    assert peers.apart(replace(work, method="FedAMP"), PlainAMP) < 1e-12
    assert peers.apart(replace(work, method="FedAMP", lam=0.0), PlainAMP) > 1e-2


def test_our_round_is_that_of_a_plain_loop_on_the_same_minibatches(peers, work):
    assert peers.apart(work, Plain) < 1e-12
    assert peers.apart(work, Short) > 1e-2


def test_steps_and_samples_of_a_peer_are_counted(peers, work):
    of_optimizers = importlib.import_module("torch.optim.optimizer")._global_optimizer_post_hooks
    hooks = nn.modules.module._global_forward_hooks, of_optimizers
    before = [len(each) for each in hooks]
    assert peers.counted(Plain(work)) == (work.num_steps, work.num_samples) == (6, 24)
    assert peers.counted(Short(work)) == (3, 12)
    assert [len(each) for each in hooks] == before  # what counts is in nobody's way afterwards


def test_the_digits_are_shared_out_in_whole_minibatches_of_the_runs_own_samples(peers):
    same = importlib.import_module("same_work")
    drawn = same.load_material(same.RunConfig(data="digits", clients=20)).clients
    work = same.digits("mlp")
    assert len(work.clients) == 20
    for positions, (x, y) in zip(drawn.train, work.samples(), strict=True):
        assert len(y) % work.batch == 0
        assert 0 <= len(positions) - len(y) < work.batch
        theirs = drawn.samples(positions[: len(y)])
        assert torch.equal(x, theirs[0])
        assert torch.equal(y, theirs[1])


def test_the_large_case_has_the_parameters_that_it_is_named_after(peers):
    work = importlib.import_module("same_work").pictures()
    assert sum(p.numel() for p in work.module.parameters()) == 582_026
    assert {len(positions) for positions in work.clients.train} == {200}


def test_files_for_pfllib_hold_the_same_samples(peers, work, tmp_path):
    importlib.import_module("peer_pfllib").write_samples(work, tmp_path)
    for i, (x, y) in enumerate(work.samples()):
        held = np.load(tmp_path / f"dataset/peers/train/{i}.npz", allow_pickle=True)["data"].tolist()
        assert np.array_equal(held["x"], x.numpy())
        assert np.array_equal(held["y"], y.numpy())


def test_loaders_for_fluke_hold_the_same_samples(peers, work, monkeypatch):
    loaders = SimpleNamespace(FastDataLoader=lambda x, y, **settings: (x, y, settings))
    monkeypatch.setitem(sys.modules, "fluke", SimpleNamespace(data=loaders))
    monkeypatch.setitem(sys.modules, "fluke.data", loaders)
    (train, test), server = importlib.import_module("peer_fluke").SameSamples(work).assign(3, 4)
    assert test == [None] * 3
    assert server is None
    for (x, y, settings), mine in zip(train, work.samples(), strict=True):
        assert torch.equal(x, mine[0])
        assert torch.equal(y, mine[1])
        assert settings["batch_size"] == 4


def test_the_pool_for_flbench_is_the_same_and_stays_as_it_is(peers, work, monkeypatch):
    flbench, made = importlib.import_module("peer_flbench"), SimpleNamespace(BaseDataset=lambda **given: given)
    monkeypatch.setattr(flbench.importlib, "import_module", lambda name: made)
    assert flbench.dataset(work)["data"] is work.clients.x
    assert flbench.dataset(work)["targets"] is work.clients.y
    work.clients.x[0, 0] = 2.0
    with pytest.raises(ValueError, match="is above 1"):
        flbench.dataset(work)


def test_who_is_missing_is_told_in_a_line_and_the_rest_goes_on(peers, work, monkeypatch, capsys, tmp_path):
    for name in ("fluke", "flcore", "src.server"):
        monkeypatch.setitem(sys.modules, name, None)
    assert peers.found_peers(tmp_path, None) == {}
    told = capsys.readouterr().out.splitlines()
    assert [line.split(": left out")[0] for line in told] == ["PFLlib", "fluke", "FL-bench"]
    assert str(tmp_path) in told[0]
    assert "git clone" in told[0]
    assert "pip install fluke-fl" in told[1]
    assert "--flbench" in told[2]
    monkeypatch.setattr(peers, "CASES", {"small": lambda: work})
    monkeypatch.setattr(peers, "METHODS", ("FedAvg",))
    others = {"plain": peers.Peer(Plain), "another": peers.Peer(Plain, methods=())}
    *_, row = peers.times(others, ["small"])
    assert row.startswith("| small | FedAvg | stacked, 1 thread |")
    assert row.endswith(") | - |")


def test_a_table_is_written_between_its_own_markers(peers, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- one thread: x -->\nold\n<!-- end -->\n<!-- same work: x -->\nkept\n<!-- end -->\nb\n")
    assert peers.write(["| new |"], page, "one thread")
    assert page.read_text() == (
        "a\n<!-- one thread: x -->\n\n| new |\n\n<!-- end -->\n<!-- same work: x -->\nkept\n<!-- end -->\nb\n"
    )
    assert not peers.write(["| new |"], page, "all threads")


def test_the_page_has_all_three_places(peers):
    text = (BENCHMARKS / "peers.md").read_text(encoding="utf-8")
    assert [text.count(f"<!-- {marker}:") for marker in ("all threads", "one thread", "same work")] == [1, 1, 1]
