"""Modules that look as if clients could stand side by side, and where they can't: every way gives the same numbers."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fedamp
from fedamp.methods import FedAvg
from fedamp.models.flat_model import FlatModel
from fedamp.models.zoo import cnn, cnn_small, mlp, resnet18
from fedamp.training.stacked.same_as_loop import same_as_loop


def tied() -> nn.Module:
    conv = nn.Conv2d(2, 2, 3, padding=1)
    return nn.Sequential(conv, nn.ReLU(), nn.MaxPool2d(3, 1, 1), conv, nn.Flatten(), nn.Linear(72, 3))


def pooled_twice() -> nn.Module:
    conv = nn.Conv2d(2, 2, 3, padding=1)
    first, second = (nn.Sequential(conv, nn.ReLU(), nn.MaxPool2d(3, 1, 1)) for _ in range(2))
    return nn.Sequential(first, second, nn.Flatten(), nn.Linear(72, 3))


class Skip(nn.Module):
    """Keeps its promise, and calls a layer of a Sequential by itself."""

    side_by_side = True

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 1, 1))

    def forward(self, x):
        return self.body(x) + self.body[0](x)


class Breaks(nn.Module):
    """Mixes channels, and so clients."""

    side_by_side = True

    def forward(self, x):
        return x.softmax(1)


class Honest(Breaks):
    side_by_side = False


class Counts(nn.Module):
    side_by_side = True

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen = self.seen + 1
        return x * (1 + 0.1 * self.seen)


class Remembers(nn.Module):
    """Leaves a tensor of its last pass behind."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.last = nn.Linear(72, 3), None

    def forward(self, x):
        out = self.linear(x.flatten(1))
        if self.last is not None:
            out = out + 0 * self.last.mean()
        self.last = out.detach()
        return out


def patched() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(72, 3))
    module[1].forward = lambda x: F.relu(x - x.mean(1, keepdim=True))
    return module


def forgetful_norm() -> nn.Module:
    module = nn.Sequential(nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, 3))
    module[0].track_running_stats = False
    return module


def flat_pool(pool: nn.Module, after: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(1, 2), pool, nn.Flatten(), nn.Linear(after, 3))


ODD = {
    "tied": tied,
    "pooled twice": pooled_twice,
    "skip": lambda: nn.Sequential(Skip(), nn.Flatten(), nn.Linear(72, 3)),
    "breaks": lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 8), Breaks(), nn.Linear(8, 3)),
    "honest": lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 8), Honest(), nn.Linear(8, 3)),
    "counts": lambda: nn.Sequential(Counts(), nn.Flatten(), nn.Linear(72, 3)),
    "patched": patched,
    "forgetful norm": forgetful_norm,
    "average pool without channels": lambda: flat_pool(nn.AvgPool2d(3, 1, 1), 72),
    "max pool without channels": lambda: flat_pool(nn.MaxPool2d(3, 2, 1), 18),
    "in place": lambda: nn.Sequential(nn.LeakyReLU(0.5, inplace=True), nn.Flatten(), nn.Linear(72, 3)),
}


def clients() -> list:
    g = torch.Generator().manual_seed(0)
    return [(torch.randn(n, 2, 6, 6, generator=g) + i, torch.arange(n) % 3) for i, n in enumerate((12, 9, 7, 5))]


@pytest.mark.parametrize("method", ["fedavg", "apfl"])
@pytest.mark.parametrize("kind", ODD)
def test_odd_modules_give_the_same_numbers_in_every_way(kind, method):
    torch.manual_seed(0)
    module = ODD[kind]()
    settings = {"clients": clients(), "model": module, "method": method, "optimizer": "sgd", "lr": 0.05}
    settings |= {"batch_size": 4, "epochs": 1, "rounds": 2, "precision": "fp32"}  # a GPU's products would keep 10 bits
    loop, stacked = (fedamp.run(**settings, engine=engine) for engine in ("loop", "stacked"))
    torch.testing.assert_close(stacked.models["own"].params, loop.models["own"].params, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(stacked.models["own"].buffers, loop.models["own"].buffers, rtol=1e-4, atol=1e-5)


def test_a_module_that_remembers_its_last_pass_is_no_worse_off_for_having_been_tried():
    """Nor for remembering: 0 times what a trial left behind would be nan, or an error, in the run."""
    settings = {"clients": clients(), "method": "fedavg", "batch_size": 4, "epochs": 1, "rounds": 2}
    settings |= {"precision": "fp32"}
    remembers = Remembers()
    plain = nn.Sequential(nn.Flatten(), remembers.linear)
    expected = fedamp.run(**settings, model=plain, engine="loop").models["own"].params
    for engine in ("loop", "auto", "stacked"):
        params = fedamp.run(**settings, model=remembers, engine=engine).models["own"].params
        torch.testing.assert_close(params, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("module", "shape"),
    [(mlp((8, 8), 10), (8, 8)), (cnn_small((8, 8), 10), (8, 8)), (cnn((1, 12, 12), 5), (1, 12, 12)),
     pytest.param(resnet18((3, 8, 8), 4), (3, 8, 8), marks=pytest.mark.slow)],
)  # fmt: skip
def test_our_own_models_keep_the_promise(module, shape):
    assert same_as_loop(FlatModel(module), torch.rand(2, 3, *shape))


@pytest.mark.parametrize(("flag", "word"), [("precision", "tf32"), ("compile", "on")])
def test_what_only_a_gpu_has_is_refused_elsewhere(fedamp_command, flag, word):
    code, _, err = fedamp_command("run", "--device", "cpu", f"--{flag}", word)
    assert (code, err.count("\n")) == (2, 1)
    assert word in err


def test_a_method_may_keep_a_gradient():
    """A direction that holds on to the last step's gradient finds it as it was."""
    seen = []

    class Keeps(FedAvg):
        def train(self, w, local):
            def direction(w, grad):
                now = grad(w)
                seen.append((now, now.clone()))
                return now

            return local.run(w, direction)

    fedamp.run(clients=clients(), model=mlp((2, 6, 6), 3), method=Keeps(), rounds=1, epochs=1, engine="stacked")
    assert all(torch.equal(kept, as_it_was) for kept, as_it_was in seen)
