"""`fedamp.compare`: the command's numbers, with one's own data, model and methods; a table for people and programs."""

import gc
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import fedamp
from fedamp.errors import FedampWarning, UserError
from fedamp.files import read_json
from fedamp.methods.fedprox import FedProx
from fedamp.records.reading import read_runs
from fedamp.report import as_text, comparison_table
from fedamp.runs.compare import playing

QUICK = {"rounds": 2, "epochs": 1, "clients": 5}


def net(input_shape, num_outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_outputs))


def three_silos(seed=0, amounts=False):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(3, 40, 4)).astype("float32")
    y = x[..., 0] if amounts else (x[..., 0] > 0).astype("int64")
    return list(zip(x, y, strict=True))


def test_it_is_the_commands_comparison(fedamp_command, monkeypatch):
    told = ["--rounds", "2", "--epochs", "1", "--clients", "5", "--validation", "0.2", "--seed", "3"]
    tried = ["--grid", "lr=0.01,0.001", "--grid", "fedamp.sigma=1,10"]
    code, out, err = fedamp_command("compare", "--methods", "fedamp,fedavg-ft", *told, *tried, "--out", "here")
    assert code == 0, err
    monkeypatch.setattr(playing, "play", lambda *_: pytest.fail("a run of the same comparison was played again"))
    found = fedamp.compare(
        ["fedamp", "fedavg-ft"], seed=3, grid={"lr": [0.01, 0.001], "fedamp.sigma": [1, 10]},
        validation=0.2, out="here", **QUICK,
    )  # fmt: skip
    assert out.startswith(str(found))
    assert str(found) == as_text(comparison_table(read_runs(Path("here"))))
    best = {row["method"]: row["best"] for row in found.table}
    for name, results in found.results.items():
        assert sorted(results) == [3]
        assert np.mean([result.best for result in results.values()]) == pytest.approx(best[name])
    assert {*found.chosen["fedamp"]} == {"lr", "sigma"}
    again = fedamp.run(method={"name": "fedamp", "sigma": found.chosen["fedamp"]["sigma"]}, seed=3, validation=0.2,
                       lr=found.chosen["fedamp"]["lr"], **QUICK)  # fmt: skip
    assert again.summary == found.results["fedamp"][3].summary


def test_what_says_nothing_new_is_no_mistake(tmp_path):
    usual = {"missing": "refuse", "indicate_missing": False, "columns": [], "drop": (), "schema": None, "label": None}
    quick = {"clients": three_silos(), "model": net, "rounds": 1, "epochs": 1}
    best = fedamp.run(method="fedamp", **usual, **quick).best
    assert fedamp.compare(["fedamp"], **usual, **quick).results["fedamp"][0].best == best
    for name, value in {"missing": "fill", "columns": ["a"], "schema": tmp_path / "s.json"}.items():
        for call in (fedamp.run, fedamp.compare):
            with pytest.raises(UserError, match=f"{name} is .* as .x, y."):
                call(**{name: value}, **quick)


def test_the_table_for_programs_and_notebooks():
    found = fedamp.compare("fedamp", **QUICK)
    frame = found.to_pandas()
    assert list(frame["method"]) == [row["method"] for row in found.table] == ["separate", "fedamp"]
    assert frame["best"].tolist() == [row["best"] for row in found.table]
    assert found._repr_html_().count("<tr>") == 3
    assert found._repr_markdown_().startswith("| method |")
    assert found.chosen == {"separate": {}, "fedamp": {}}


def test_names_of_a_users_own_are_no_html():
    found = fedamp.compare([Shy()], clients=three_silos(), model=net, rounds=1, steps=1)
    object.__setattr__(found.rows[0], "method", "<b>")
    assert "<b>" not in found._repr_html_()


@dataclass(frozen=True)
class Shy(FedProx):
    """FedProx with a pull of another default."""

    mu: float = 0.5


def test_own_data_own_model_and_own_method(tmp_path):
    given = {"clients": three_silos(), "rounds": 2, "epochs": 1, "out": tmp_path / "here"}
    found = fedamp.compare(["fedamp", Shy()], model=net, grid={"shy.mu": [0.1, 5.0]}, validation=0.2, **given)
    assert list(found.results) == ["separate", "fedamp", "shy"]
    mu = found.chosen["shy"]["mu"]
    assert found.results["shy"][0].method == Shy(mu)
    alone = fedamp.run(
        method=Shy(mu), model=net, clients=three_silos(), rounds=2, epochs=1, validation=0.2, progress=False
    )
    assert alone.summary == found.results["shy"][0].summary
    assert isinstance(found.results["fedamp"][0].client_model(1), nn.Sequential)


def test_seeds_hold_out_other_samples_and_what_is_finished_stays(tmp_path, monkeypatch):
    given = {"clients": iter(three_silos(amounts=True)), "rounds": 1, "steps": 1, "out": tmp_path / "here"}
    first = fedamp.compare("fedamp", model=net, seeds=[0, 5], **given)
    assert first.table[0]["metric"] == "rmse"
    held = [read_json(path)["split"] for path in sorted((tmp_path / "here").glob("fedamp*/inputs.json"))]
    assert len(set(held)) == 2
    monkeypatch.setattr(playing, "play", lambda *_: pytest.fail("played again"))
    again = fedamp.compare("fedamp", model=net, seeds=[0, 5], **given | {"clients": three_silos(amounts=True)})
    assert again.table == first.table
    monkeypatch.undo()
    with pytest.raises(UserError, match="holds another comparison"):
        fedamp.compare("fedamp", model=net, seeds=[0, 5], **given | {"clients": three_silos(1, amounts=True)})


def test_another_body_of_an_own_method_is_another_comparison(tmp_path):
    given = {"clients": three_silos(), "model": net, "rounds": 1, "steps": 1, "out": tmp_path / "here"}
    fedamp.compare([Shy()], **given)

    @dataclass(frozen=True)
    class Shy2(FedProx):
        mu: float = 0.5

        def server_init(self, w):
            return super().server_init(w)

    Shy2.__name__ = "Shy"
    with pytest.raises(UserError, match="method"):
        fedamp.compare([Shy2()], **given)


def test_methods_by_name_by_table_and_of_this_package():
    found = fedamp.compare(
        [{"name": "fedamp", "sigma": 3}, fedamp.make_method("fedprox-ft", mu=0.1)], rounds=1, steps=1, clients=5
    )
    assert list(found.results) == ["separate", "fedprox-ft", "fedamp"]
    told = {name: results[0].config.method.parameters for name, results in found.results.items()}
    assert told["fedamp"] == {"sigma": 3}
    assert told["fedprox-ft"]["mu"] == 0.1


def test_a_sweep_has_its_blocks_in_the_keys():
    found = fedamp.compare("fedamp", grid={"setting.share": [0.5, 0.9]}, rounds=1, steps=1, clients=5)
    assert list(found.results) == [
        f"{method} (setting.share={share})" for share in (0.5, 0.9) for method in ("separate", "fedamp")
    ]
    assert found._repr_html_().count("<caption>") == 2


def test_without_a_folder_nothing_is_left():
    found = fedamp.compare("fedamp", rounds=1, steps=1, clients=5)
    folder = found.folder
    assert folder.is_dir()
    del found
    gc.collect()
    assert not folder.exists()


def test_warnings_about_the_data_point_at_the_call():
    silos = [(x, np.zeros_like(y)) for x, y in three_silos()]
    with pytest.warns(FedampWarning, match="nothing to learn") as seen:
        fedamp.compare(
            "fedamp", clients=silos, model=lambda input_shape, num_outputs: net(input_shape, 2), rounds=1, steps=1
        )
    assert {each.filename for each in seen if each.category is FedampWarning} == {__file__}


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ({"methods": ["fedamp", "fedapm"]}, "did you mean 'fedamp'"),
        ({"methods": ["fedamp", {"name": "fedamp", "sigma": 3}]}, "'fedamp' twice"),
        ({"methods": [3]}, "method is 3"),
        ({"methods": ""}, "methods is ''; expected names"),
        ({"methods": []}, "methods is empty"),
        ({"poison_scale": 2.0}, "nobody is poisoned"),
        ({"method": "fedamp"}, r"methods=\[...\]"),
        ({"round": 3}, "did you mean 'rounds'"),
        ({"seeds": 0}, "seeds is 0"),
        ({"seeds": []}, "seeds is empty"),
        ({"seeds": "3"}, "seeds is '3'"),
        ({"seeds": [0, -1]}, "seed is -1"),
        ({"seeds": [2**64]}, "seed is 18446744073709551616"),
        ({"against": "fedavg"}, "against is 'fedavg', which is not among the compared methods: these are separate, "),
        ({"grid": {"lr": 0.1}}, "expected a list of values"),
        ({"grid": {"lrr": [1, 2]}}, "did you mean 'lr'"),
        ({"grid": {"lr": [0.1, 0.2]}}, "validation= in Python"),
        ({"grid": {"model": ["mlp"]}, "model": net}, "a function of your own"),
        ({"grid": {"model.hidden": [3]}, "model": nn.Linear(64, 10)}, "a module of your own"),
        ({"grid": {"setting.share": [0.5]}, "clients": three_silos()}, "their own samples"),
        ({"track": "tensorbord"}, "did you mean 'tensorboard'"),
        ({"progress": "loud"}, "progress is 'loud'"),
    ],
)
def test_mistakes(mistake, words):
    given = {"methods": "fedamp", "rounds": 1, "clients": 5} | mistake
    with pytest.raises(UserError, match=words):
        fedamp.compare(**given)


def test_a_fault_leaves_no_temporary_folder(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(playing, "play", stop)
    with pytest.raises(KeyboardInterrupt):
        fedamp.compare("fedamp", **QUICK)
    assert list(tmp_path.iterdir()) == []
