"""Which way to train goes by a stated rule, and what can't be stacked is looped."""

import re

import pytest
import torch
from torch import nn

from fedamp.data.clients import Clients
from fedamp.models.flat_model import FlatModel
from fedamp.training import stacked_or_loop
from fedamp.training.batches import Batching
from fedamp.training.config import TrainingConfig
from fedamp.training.optimizers import Optimizer
from fedamp.training.stacked_or_loop import choose_engine
from fedamp.training.torch_switches import use_threads
from fedamp.training.trainer import Trainer
from helpers import data, mlp


class CallsItem(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 3).double()

    def forward(self, x):
        return self.out(x * (2.0 if x.mean().item() > 0 else 1.0))


class Draws(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 3).double()

    def forward(self, x):
        return self.out(x + torch.randn_like(x))


def chosen(module: nn.Module, requested: str, clients: Clients | None = None):
    clients = clients or data((6, 7))
    model = FlatModel(module)
    trainer = Trainer(model, TrainingConfig(Optimizer(), Batching(4, epochs=1)))
    return choose_engine(requested, trainer, clients, model.row().repeat(len(clients)))


@pytest.mark.parametrize("module", [CallsItem(), Draws()])
@pytest.mark.parametrize("requested", ["auto", "stacked"])
def test_a_module_that_vmap_can_not_take_is_looped_and_says_so(module, requested):
    choice = chosen(module, requested)
    assert choice.engine == "loop"
    assert f"{type(module).__name__} can't be trained for all clients at once" in choice.warning
    assert "one at a time" in choice.warning


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.inner, self.out = kind(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.inner(x.reshape(len(x), 2, 3).float())[0][:, -1])


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.inner(x.float()[:, None])[:, 0])


OPERATIONS = [
    (Recurrent(nn.LSTM), r"\w*(lstm|rnn)\w*(\.\w+)?"),
    (Recurrent(nn.GRU), r"gru\.input"),
    (Attends(), r"_(transformer|scaled_dot_product)\w+"),  # by torch's version and the model's mode
]


@pytest.mark.parametrize(("module", "operation"), OPERATIONS, ids=["LSTM", "GRU", "Transformer"])
def test_an_operation_without_a_batched_form_is_named_in_plain_words(module, operation):
    warning = chosen(module, "auto").warning
    name = type(module).__name__
    why = rf"vmap has no batched form of one of the model's operations, {operation}"
    assert re.fullmatch(
        rf"{name} can't be trained for all clients at once \({why}\); clients train one at a time instead", warning
    ), warning


def test_a_module_that_looks_at_values_is_told_so():
    assert (
        "(what it does depends on the values in a tensor, as with .item() or an if"
        in chosen(CallsItem(), "auto").warning
    )


def test_known_layers_in_an_unknown_place_are_left_to_vmap():
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6, 3)).double()
    model = FlatModel(module)
    assert model.side_by_side
    clients = Clients.of([(torch.randn(6, 2, 4, dtype=torch.float64), torch.randint(3, (6,))) for _ in range(3)])
    trainer = Trainer(model, TrainingConfig(Optimizer(), Batching(4, epochs=1)))
    choice = choose_engine("auto", trainer, clients, model.row().repeat(3))
    assert (choice.engine, choice.warning) == ("stacked", None)
    assert not model.side_by_side


def test_the_rule_of_auto(monkeypatch):
    assert chosen(mlp(), "auto").engine == "stacked"
    assert chosen(mlp(), "loop").engine == "loop"
    assert chosen(mlp(), "auto", data((6,))).engine == "loop"
    monkeypatch.setattr(stacked_or_loop, "STACKED_ON_CPU", 10)
    made = chosen(mlp(), "auto")
    assert (made.engine, made.warning) == ("loop", None)
    assert "more than 10" in made.why
    assert chosen(mlp(), "stacked").engine == "stacked"
    monkeypatch.setattr(stacked_or_loop, "STACKED_ON_CPU", 1000)
    assert chosen(mlp(), "auto").engine == "stacked"
    monkeypatch.setattr(stacked_or_loop, "STACKED_WORK", (6 * 7 + 7 * 3) * 4 - 1)  # a minibatch of 4 takes one more
    assert "252 multiply-adds per step" in chosen(mlp(), "auto").why


def test_small_models_take_one_thread_and_give_the_others_back(monkeypatch):
    with use_threads(2):
        assert chosen(mlp(), "auto").threads == 1
        monkeypatch.setattr(stacked_or_loop, "SMALL", 10)
        assert chosen(mlp(), "auto").threads == 2
        with use_threads(1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2


def test_small_models_take_all_cores_if_a_layer_has_much_to_do(monkeypatch):
    few, many = data((6, 7)), data((6, 7, 8, 9))
    with use_threads(2):
        monkeypatch.setattr(stacked_or_loop, "LAYER_WORK", 126)  # two layers: 252 multiply-adds for a minibatch of 4
        assert [chosen(mlp(), "auto", some).threads for some in (few, many)] == [1, 1]
        monkeypatch.setattr(stacked_or_loop, "LAYER_WORK", 125)
        assert [chosen(mlp(), "auto", some).threads for some in (few, many)] == [2, 2]
        assert chosen(mlp(), "stacked").threads == 2
        assert chosen(mlp(), "loop").threads == 1  # its kernels are those of one client
        monkeypatch.setattr(stacked_or_loop, "STACKED_WORK", 251)
        assert chosen(mlp(), "auto").threads == 2  # looped since one client's are large


def test_a_stack_on_a_cpu_takes_as_many_clients_as_need_no_new_pages(monkeypatch):
    monkeypatch.setattr(stacked_or_loop, "STACK_VALUES", 200)
    assert chosen(nn.Linear(6, 3).double(), "auto").chunk == 200 // 24  # parameters: 21; a minibatch: 4 x 6
    assert chosen(mlp(), "auto").chunk == 200 // (6 * 7 + 7 + 7 * 3 + 3)
    monkeypatch.setattr(stacked_or_loop, "STACK_VALUES", 20)
    assert chosen(mlp(), "auto").chunk == 1


def test_a_module_without_a_matrix_takes_one_thread():
    class Shift(nn.Module):
        def __init__(self):
            super().__init__()
            self.by = nn.Parameter(torch.zeros(6, dtype=torch.float64))

        def forward(self, x):
            return x + self.by

    with use_threads(2):
        assert chosen(Shift(), "stacked").threads == 1


def test_unknown_engine():
    with pytest.raises(ValueError, match="choose from auto, loop, stacked"):
        chosen(mlp(), "fast")


def test_choosing_leaves_no_trace():
    module = mlp(norm=True, dropout=0.5)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.get_rng_state()
    chosen(module, "auto")
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_few_samples_to_try_a_model_with():
    pairs = [(torch.arange(n)[:, None].double(), torch.zeros(n)) for n in (5, 2)]
    assert Clients.of(pairs).few().flatten(1).tolist() == [[0, 1, 2], [1, 0, 1]]
    assert Clients.of(pairs[:1]).few().flatten(1).tolist() == [[0, 1, 2], [4, 3, 2]]
