"""A method that hands silos' models out as they are: only where the plan says that all silos agreed to it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from fedamp.config import RunConfig
from fedamp.config.reply_limits import Rules
from fedamp.data.silos.schema_file import write_schema
from fedamp.errors import UserError
from fedamp.federation import provision
from fedamp.federation.plan import disagreement
from fedamp.federation.plan_files import read_federation, read_silo_config
from fedamp.federation.silo import checkup
from fedamp.methods import METHODS, FedAvg
from federation.provisioned import HOSTS, NAMES, make_plan, silo_data

OPEN = sorted(name for name, method in METHODS.items() if method.hands_out_models)
MIXED = sorted(set(METHODS) - set(OPEN))
WORDS = ("can hand each silo other silos' models as they are", "share_models", "--share-models", "another method")


def agreed(method: str = OPEN[0], **settings):
    return make_plan(method=method, share_models=True, **settings)


@pytest.fixture
def shared(tmp_path) -> Path:
    folder = tmp_path / "shared"
    (warning,) = provision.init(folder, NAMES, agreed(), Rules(), HOSTS, 9092, None)
    assert "handed to other silos as it is" in warning
    return folder


def without_consent(path: Path) -> None:
    content = json.loads(path.read_text())
    del content["description"]["share_models"]
    path.write_text(json.dumps(content))


def test_there_are_methods_of_both_kinds():
    assert "fedfomo" in OPEN
    assert {"fedavg", "fedamp", "autoamp", "pfedgraph"} <= set(MIXED)


@pytest.mark.parametrize("method", OPEN)
def test_no_plan_without_consent(method):
    with pytest.raises(UserError) as refused:
        make_plan(method=method)
    assert repr(method) in str(refused.value)
    assert all(word in str(refused.value) for word in WORDS)
    assert agreed(method).hands_out_models


@pytest.mark.parametrize("method", MIXED)
def test_other_methods_need_none(method):
    plan = make_plan(method=method)
    assert not plan.hands_out_models
    assert plan.sharing() == ""


def test_it_is_the_class_that_says_so(monkeypatch):
    """Any method with that word: the check knows no names."""

    class Open(FedAvg):
        hands_out_models: ClassVar[bool] = True

    monkeypatch.setitem(METHODS, "fedavg", Open)
    with pytest.raises(UserError, match="method 'fedavg' can hand each silo other silos' models"):
        make_plan(method="fedavg")


def test_consent_is_a_word_and_not_written_where_it_is_not_given():
    with pytest.raises(UserError, match="share_models is 'yes'; expected true or false"):
        RunConfig(share_models="yes")
    assert "share_models" not in RunConfig().to_dict()
    assert RunConfig.of(RunConfig(share_models=True).to_dict()).share_models


def test_sides_compare_it():
    said, plain = agreed("fedavg"), make_plan(method="fedavg")
    assert said.agreed()["share_models"] is True
    assert "share_models" in disagreement(said.told(), plain.told())
    assert "share_models" in disagreement(plain.told(), said.told())
    assert disagreement(said.told(), replace(said).told()) == ""


def test_init_takes_the_flag(fedamp_command, tmp_path):
    write_schema(tmp_path / "schema.json", make_plan().schema)
    words = ["federation", "init", tmp_path / "fed", "--silos", ",".join(NAMES), "--make-keys"]
    words += ["--schema", tmp_path / "schema.json", "--method", OPEN[0], "--model", "mlp"]
    code, _, err = fedamp_command(*words)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert all(word in err for word in (OPEN[0], *WORDS))
    assert not (tmp_path / "fed").exists()
    code, _, err = fedamp_command(*words, "--share-models")
    assert code == 0, err
    assert "make sure that all have agreed" in " ".join(err.split())
    assert read_federation(tmp_path / "fed").plan.config.share_models


def test_a_file_can_say_it(fedamp_command, tmp_path):
    write_schema(tmp_path / "schema.json", make_plan().schema)
    (tmp_path / "plan.toml").write_text(f'method = "{OPEN[0]}"\nshare_models = true\n')
    words = ["--schema", tmp_path / "schema.json", "--config", tmp_path / "plan.toml", "--make-keys"]
    code, _, err = fedamp_command("federation", "init", tmp_path / "fed", "--silos", ",".join(NAMES), *words)
    assert code == 0, err
    assert read_silo_config(tmp_path / "fed/bundles" / NAMES[0]).plan.config.share_models


def test_a_trial_needs_it_too(fedamp_command, tmp_path):
    code, _, err = fedamp_command("federation", "try", "--method", OPEN[0], "--dir", tmp_path / "trial")
    assert code == 2
    assert all(word in err for word in WORDS)
    assert not (tmp_path / "trial/federation").exists()


def test_a_server_does_not_start_without_it(fedamp_command, shared):
    without_consent(shared / "federation.json")
    with pytest.raises(UserError, match=r"federation\.json: method"):  # first of all: else `up` would wait for silos
        read_federation(shared)
    code, _, err = fedamp_command("federation", "up", shared)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert all(word in err for word in ("federation.json", OPEN[0], *WORDS))


def test_a_silo_does_not_start_without_it(fedamp_command, shared, tmp_path):
    bundle, data = shared / "bundles" / NAMES[0], silo_data(tmp_path / "own.npz")
    without_consent(bundle / "silo.json")
    (found,) = checkup.check(bundle, data, offline=True)
    assert found.what == "bundle"
    assert all(word in found.fault for word in (OPEN[0], *WORDS))
    code, _, err = fedamp_command("silo", "up", bundle, "--data", data)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert all(word in err for word in WORDS)


def test_a_silos_operator_reads_it(fedamp_command, shared, federation, tmp_path):
    data = silo_data(tmp_path / "own.npz")
    code, out, err = fedamp_command("silo", "check", shared / "bundles" / NAMES[0], "--data", data, "--offline")
    assert code == 0, err
    (line,) = [line for line in out.splitlines() if "sharing" in line.split()]
    assert f"{OPEN[0]}, can hand your silo's model to other silos as it is" in line
    readme = " ".join((shared / "bundles" / NAMES[0] / "README.md").read_text().split())
    assert f"**Other silos get your model.** In this federation the method, {OPEN[0]}, can hand your silo's" in readme

    code, out, _ = fedamp_command("silo", "check", federation / "bundles" / NAMES[0], "--data", data, "--offline")
    assert code == 0
    assert "sharing" not in out
    assert "Other silos get your model" not in (federation / "bundles" / NAMES[0] / "README.md").read_text()


def test_a_simulation_needs_no_consent(fedamp_command, tmp_path):
    words = ["--data", "digits", "--clients", "5", "--rounds", "1", "--epochs", "1", "--out", tmp_path / "run"]
    code, _, err = fedamp_command("run", "--method", OPEN[0], *words)
    assert code == 0, err
    assert "share" not in err
