"""Keys made in the silo: the private half never leaves it, and a mix-up is told before anything goes online."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from fedamp.config.reply_limits import Rules
from fedamp.federation import provision, silo_keys
from fedamp.federation.plan_files import read_federation
from fedamp.federation.processes import ports
from fedamp.federation.silo import checkup, own_key
from federation.provisioned import HOSTS, NAMES, make_plan, mode, silo_data


@pytest.fixture
def houses(tmp_path) -> dict[str, Path]:
    """The folders of three silos, each with a key of its own."""
    return {name: own_key.make(tmp_path / "houses" / name)[0].parent for name in NAMES}


@pytest.fixture
def given(tmp_path, houses) -> Path:
    """A federation made from the silos' public keys."""
    keys = provision.read_keys([house / f"{name}.pub" for name, house in houses.items()], NAMES)
    provision.init(tmp_path / "fed", NAMES, make_plan(), Rules(), HOSTS, 9092, None, keys)
    return tmp_path / "fed"


def unpack(federation: Path, name: str, over: Path) -> None:
    with zipfile.ZipFile(federation / "bundles" / f"{name}.zip") as archive:
        archive.extractall(over)


def key_fault(bundle: Path, data: Path) -> str:
    return {found.what: found.fault for found in checkup.check(bundle, data, offline=True)}["key"]


def test_a_private_key_never_leaves_its_silo(houses, given):
    for name, house in houses.items():
        assert (mode(house), mode(house / "key")) == (0o700, 0o600)
        lines = (house / "key").read_bytes().splitlines()[1:-1]
        files = [path for path in given.rglob("*") if path.is_file()]
        assert not [path for path in files for line in lines[3:] if line in path.read_bytes()]
        with zipfile.ZipFile(given / "bundles" / f"{name}.zip") as archive:
            names = archive.namelist()
            assert f"{name}/key" not in names
            assert not [entry for entry in names if b"PRIVATE KEY" in archive.read(entry)]
    secret = {path.name for path in given.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()}
    assert secret == {"ca.key", "server.key"}


def test_the_bundle_unpacked_over_the_keys_folder_is_ready(houses, given, tmp_path):
    members = {member.name: member.key for member in read_federation(given).members}
    data = silo_data(tmp_path / "own.npz")
    for name, house in houses.items():
        before = (house / "key").read_bytes()
        unpack(given, name, house.parent)
        assert (house / "key").read_bytes() == before
        assert [found for found in checkup.check(house, data, offline=True) if found.fault] == []
        assert silo_keys.key_digest(silo_keys.public_of(before, name)) == members[name]


def test_a_missing_key_and_that_of_another_silo_are_told(houses, given, tmp_path):
    data, elsewhere = silo_data(tmp_path / "own.npz"), tmp_path / "elsewhere"
    unpack(given, NAMES[0], elsewhere)
    bundle = elsewhere / NAMES[0]
    assert f"has no `key`; unpack the bundle over the folder {NAMES[0]}" in key_fault(bundle, data)
    (bundle / "key").write_bytes((houses[NAMES[1]] / "key").read_bytes())
    fault = key_fault(bundle, data)
    mine, others = (silo_keys.fingerprint((houses[name] / f"{name}.pub").read_bytes()) for name in NAMES[:2])
    assert f"({others}) is not the key that the operator knows {NAMES[0]} by ({mine})" in fault


def test_a_fingerprint_is_the_one_that_openssh_shows(houses):
    public = houses[NAMES[0]] / f"{NAMES[0]}.pub"
    try:
        shown = subprocess.run(["ssh-keygen", "-lf", public], capture_output=True, text=True, timeout=10).stdout
    except FileNotFoundError:
        pytest.skip("ssh-keygen is not installed")
    assert shown.split()[:3] == ["384", silo_keys.fingerprint(public.read_bytes()), NAMES[0]]


def test_a_key_is_not_overwritten(fedamp_command, tmp_path):
    code, out, _ = fedamp_command("silo", "key", "hospital-a")
    public = tmp_path / "hospital-a/hospital-a.pub"
    assert (code, str(public) in out, silo_keys.fingerprint(public.read_bytes()) in out) == (0, True, True)
    key = (tmp_path / "hospital-a/key").read_bytes()
    code, _, err = fedamp_command("silo", "key", "hospital-a")
    assert (code, err.count("\n"), "not overwritten" in err) == (2, 1, True)
    assert (tmp_path / "hospital-a/key").read_bytes() == key
    assert fedamp_command("silo", "key", "a b")[0] == 2
    assert "has no key yet" in fedamp_command("silo", "key", "other", "--renew")[2]


def test_a_renewed_key_waits_until_the_operator_has_it(houses, given, tmp_path):
    """Until then the old one stays in use; the bundle that comes back puts the new one in its place."""
    name, data = NAMES[0], silo_data(tmp_path / "own.npz")
    house = houses[name]
    unpack(given, name, house.parent)
    old = (house / "key").read_bytes()
    public, _ = own_key.make(house, renew=True)
    assert key_fault(house, data) == ""
    assert (house / "key").read_bytes() == old
    (house / "key.pub").write_bytes(public.read_bytes())  # as the operator's new bundle has it
    assert key_fault(house, data) == ""
    assert silo_keys.public_of((house / "key").read_bytes(), name) == public.read_bytes()
    assert (mode(house / "key"), (house / "key.new").exists()) == (0o600, False)


def test_init_takes_the_silos_keys_and_asks_for_them(fedamp_command, tmp_path):
    for name in ("a", "b"):
        fedamp_command("silo", "key", name)
    fedamp_command("data", "schema", "--yes", silo_data(tmp_path / "own.npz"), "--out", "s.json")
    flags = ["--silos", "a,b", "--schema", "s.json"]

    def refused(*more: str) -> str:
        code, _, err = fedamp_command("federation", "init", "fed", *flags, *more)
        assert (code, err.count("\n"), (tmp_path / "fed").exists()) == (2, 1, False), err
        return err

    assert "there is no key of a, b; each silo makes its own with `fedamp silo key NAME`" in refused()
    assert "there is no key of b" in refused("--key", "a/a.pub")
    (tmp_path / "b.pub").write_bytes((tmp_path / "a/a.pub").read_bytes())
    assert "b.pub holds the key of a" in refused("--key", "a/a.pub", "--key", "b.pub")
    (tmp_path / "b.pub").write_bytes(b" ".join((tmp_path / "a/a.pub").read_bytes().split()[:2]))
    assert "a and b have the same key" in refused("--key", "a/a.pub", "--key", "b.pub")
    (tmp_path / "b.pub").write_bytes((tmp_path / "b/key").read_bytes())
    assert "it is a private key, which never leaves its silo" in refused("--key", "a/a.pub", "--key", "b.pub")
    assert "is the key of no silo named here" in refused("--key", "a/a.pub", "--key", "c.pub")
    assert "both given" in refused("--key", "a/a.pub", "--make-keys")
    mine = (tmp_path / "b/b.pub").read_bytes()
    (tmp_path / "b.pub").write_bytes(mine + b"and more\n" + (tmp_path / "a/a.pub").read_bytes())
    assert provision.read_keys([tmp_path / "b.pub"], ["b"]) == {"b": mine}  # nothing else comes in with it
    (tmp_path / "b.pub").unlink()
    code, out, err = fedamp_command("federation", "init", "fed", *flags, "--key", "a/a.pub", "--key", "b")
    assert code == 0, err
    assert all(silo_keys.fingerprint(Path(name, f"{name}.pub").read_bytes()) in out for name in "ab")
    fedamp_command("silo", "key", "c")
    code, out, err = fedamp_command("federation", "add", "fed", "--silos", "c", "--key", "c/c.pub")
    assert code == 0, err
    assert [member.name for member in read_federation(Path("fed")).members] == ["a", "b", "c"]
    assert not Path("fed/bundles/c/key").exists()


@pytest.mark.slow
def test_a_silo_takes_part_with_its_own_key_and_then_with_a_new_one(fedamp_command, tmp_path):
    """Over real processes: its row is the one that it had."""
    from federation.test_processes import Command

    for name in ("a", "b"):
        fedamp_command("silo", "key", name)
    data = silo_data(tmp_path / "own.npz")
    fedamp_command("data", "schema", "--yes", data, "--out", "s.json")
    flags = ["--silos", "a,b", "--schema", "s.json", "--key", "a", "--key", "b", "--port", ports.free_port()]
    made = fedamp_command("federation", "init", "fed", *flags, "--rounds", 1, "--min-silos", 1, "--method", "fedamp")
    assert made[0] == 0, made
    fed = tmp_path / "fed"

    def play(rounds: int) -> None:
        with (
            Command(tmp_path / f"up-{rounds}.txt", "federation", "up", fed) as up,
            Command(tmp_path / f"silo-{rounds}.txt", "silo", "up", tmp_path / "a", "--data", data) as silo,
        ):
            assert up.shows("finished; the record is in", 200), up.text + silo.text
            assert f"round {rounds}/{rounds}: 1 of 2 silos" in up.text

    unpack(fed, "a", tmp_path)
    play(1)
    fedamp_command("silo", "key", "a", "--renew")
    code, _, err = fedamp_command("federation", "rekey", "fed", "a", "a/a.pub")
    assert code == 0, err
    unpack(fed, "a", tmp_path)
    text = (fed / "federation.json").read_text()
    (fed / "federation.json").write_text(text.replace('"rounds": 1,', '"rounds": 2,'))
    play(2)
    assert "continuing after round 1" in (fed / "record/log.txt").read_text()
    assert "first time" not in (fed / "record/log.txt").read_text().partition("continuing")[2]
