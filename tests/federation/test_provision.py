"""What `federation init` writes, and what `silo check` finds."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from fedamp import __version__
from fedamp.config.reply_limits import Rules
from fedamp.federation import provision, silo_keys
from fedamp.federation.plan_files import read_federation, read_silo_config
from federation.provisioned import HOSTS, NAMES, make_plan, mode, silo_data


def test_secrets_are_the_owners_alone(federation):
    secret = [federation / "ca/ca.key", federation / "server/server.key"]
    secret += [federation / "bundles" / name / "key" for name in NAMES]
    secret += [federation / "bundles" / f"{name}.zip" for name in NAMES]
    assert {path: mode(path) for path in secret} == dict.fromkeys(secret, 0o600)
    folders = [federation, federation / "ca", federation / "server", federation / "bundles"]
    folders += [federation / "bundles" / name for name in NAMES]
    assert {path: mode(path) for path in folders} == dict.fromkeys(folders, 0o700)
    # No private key lies anywhere else.
    found = [path for path in federation.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert sorted(found) == sorted(path for path in secret if path.suffix != ".zip")


def test_a_secret_is_never_open_not_even_for_a_moment(tmp_path, monkeypatch):
    created = {}
    real = os.open

    def watched(path, flags, mode=0o777, **more):
        if flags & os.O_CREAT:
            created[Path(path).name] = (mode, bool(flags & os.O_EXCL))
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", watched)
    before = os.umask(0)
    try:
        provision.init(tmp_path / "fed", NAMES, make_plan(), Rules(), HOSTS, 9092, None)
    finally:
        os.umask(before)
    assert {created[name] for name in ("ca.key", "server.key", "key", f"{NAMES[0]}.zip")} == {(0o600, True)}


@pytest.mark.parametrize(
    "name", ["", "a b", "../up", "a/b", ".hidden", "-flag", "a\nb", "é", "x" * 65, "a.zip", "a;rm", "a.", "$(id)"]
)
def test_names_that_are_no_file_names_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        provision.init(tmp_path / "fed", ["fine", "good", name], make_plan(), Rules(), HOSTS, 9092, None)
    assert not (tmp_path / "fed").exists()


def test_a_name_twice_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'CLINIC' is named twice"):
        provision.init(tmp_path / "fed", ["clinic", "CLINIC"], make_plan(), Rules(), HOSTS, 9092, None)


def test_two_silos_are_warned_and_one_is_refused(tmp_path):
    warnings = provision.init(tmp_path / "two", NAMES[:2], make_plan(), Rules(), HOSTS, 9092, None)
    assert len(warnings) == 1
    assert "each can compute the other's model" in warnings[0]
    with pytest.raises(ValueError, match="a federation needs two or more"):
        provision.init(tmp_path / "one", NAMES[:1], make_plan(), Rules(), HOSTS, 9092, None)


def test_a_folder_with_something_in_it_is_not_touched(tmp_path):
    (tmp_path / "fed").mkdir()
    provision.init(tmp_path / "fed", NAMES, make_plan(), Rules(), HOSTS, 9092, None)  # an empty one will do
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match="not empty"):
        provision.init(tmp_path / "fed", NAMES, make_plan(), Rules(), HOSTS, 9092, None)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_failure_leaves_nothing_behind(tmp_path):
    with pytest.raises(ValueError, match=r"missing\.py does not exist"):
        provision.init(tmp_path / "fed", NAMES, make_plan(), Rules(), HOSTS, 9092, tmp_path / "missing.py")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("hosts", "word"), [(["a b"], "'a b'"), (["https://x"], "'https://x'"), (["-x"], "'-x'")])
def test_a_host_that_is_none_is_refused(tmp_path, hosts, word):
    with pytest.raises(ValueError, match=f"host is {word}"):
        provision.init(tmp_path / "fed", NAMES, make_plan(), Rules(), hosts, 9092, None)


def test_add_gives_a_new_silo_the_next_number(federation):
    before = read_federation(federation).members
    bundle = (federation / "bundles" / f"{NAMES[0]}.zip").read_bytes()
    provision.add(federation, ["wombat-institute"])
    after = read_federation(federation).members
    assert after[:3] == before
    assert (after[3].name, after[3].number) == ("wombat-institute", 3)
    assert after[3].key == silo_keys.key_digest((federation / "server/keys/wombat-institute.pub").read_bytes())
    silo_config = read_silo_config(federation / "bundles/wombat-institute")
    assert (silo_config.number, silo_config.server) == (3, "fl.example.org:9092")
    assert (federation / "bundles" / f"{NAMES[0]}.zip").read_bytes() == bundle
    with pytest.raises(ValueError, match="'zebra-clinic' is named twice"):
        provision.add(federation, ["zebra-clinic"])
    assert read_federation(federation).members == after


def test_a_key_that_was_replaced_comes_back_under_no_name(federation, tmp_path):
    old = (federation / "server/keys" / f"{NAMES[0]}.pub").read_bytes()
    _, new = silo_keys.make_key_pair(NAMES[0])
    (tmp_path / "new.pub").write_bytes(new)
    provision.rekey(federation, NAMES[0], tmp_path / "new.pub")
    with pytest.raises(ValueError, match=f"the key of yak-ward was that of {NAMES[0]}"):
        provision.add(federation, ["yak-ward"], {"yak-ward": old})


def test_nginx_lets_in_what_a_silo_calls_and_nothing_else(federation):
    text = (federation / "server/nginx.conf").read_text()
    assert "listen 9092 ssl;" in text
    assert "proxy_pass https://127.0.0.1:9093/v1/fleet/$1;" in text
    assert "client_max_body_size 16m;" in text
    assert re.search(r"location / \{\s*return 403;\s*\}", text)
    (allowed,) = re.findall(r"location ~ (\^\S+\$) \{", text)
    from flwr.supernode import fleet_http_client

    from fedamp.federation.server.fleet import CALLS

    called = set(re.findall(r'path="(/v1/\S+?)"', Path(fleet_http_client.__file__).read_text()))
    # Silos without a key of the federation register themselves; and code is never fetched.
    others = {f"/v1/fleet/{call}" for call in ("register-node", "unregister-node", "get-run", "get-fab")}
    assert {path for path in called if re.fullmatch(allowed, path)} == called - others
    assert {path for path in called if path.removeprefix("/v1/fleet/") in CALLS} == called - others
    for path in ["/v1/control/start-run", "/v1/runtime/acquire-task", "/health", "/docs", "/v1/fleet/../control/x"]:
        assert not re.fullmatch(allowed, path)


def test_the_scripts_are_valid(federation):
    for script in [federation / "server/start.sh", federation / "bundles" / NAMES[0] / "start.sh"]:
        assert mode(script) == 0o755
        subprocess.run(["sh", "-n", script], check=True, timeout=10)
    assert "$" not in (federation / "README.md").read_text()
    assert __version__ in (federation / "README.md").read_text()


def test_each_silos_operator_learns_what_can_be_promised(federation):
    for name in NAMES:
        readme = " ".join((federation / "bundles" / name / "README.md").read_text().split())
        assert "`fedamp silo up . --data /path/to/your/data --dp-epsilon 2 --dp-spent 0`" in readme
        assert "`docs/privacy.md`" in readme


def test_init_unites_schemas(fedamp_command, tmp_path):
    for i in range(3):
        silo_data(tmp_path / f"{i}.npz", seed=i, rows=30 + i)
        fedamp_command("data", "schema", "--yes", tmp_path / f"{i}.npz", "--out", f"{i}.json")
    given = [word for i in range(3) for word in ("--schema", f"{i}.json")]
    code, _, err = fedamp_command("federation", "init", "fed", "--silos", "a,b,c", "--make-keys", *given)
    assert (code, err.count("\n")) == (0, 1), err
    assert "private keys were made here" in err
    assert read_federation(Path("fed")).plan.schema.count == 30 + 31 + 32
    assert json.loads(Path("fed/server/address.json").read_text())["listen"] == 9092  # loopback: nothing before it


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--silos", "a"], "a federation needs two"),
        (["--silos", "a,b/c"], "'b/c'"),
        (["--silos", "a,b", "--method", "fedmagic"], "fedmagic"),
        (["--silos", "a,b", "--model", "hugenet"], "hugenet"),
        (["--silos", "a,b", "--task", "regression"], "regression"),
        (["--silos", "a,b", "--set", "method.wrong=1"], "wrong"),
        (["--silos", "a,b", "--min-silos", "0"], "min_silos"),
        (["--silos", "a,b", "--min-silos", "3"], "min_silos is 3"),
        (["--silos", "a,b", "--name", 'x"y'], "--name"),
        (["--silos", "a,b", "--port", "99999"], "99999"),
        (["--silos", "a,b", "--optimizer", "rmsprop"], "rmsprop"),
    ],
)
def test_a_mistake_is_one_line_and_no_folder(fedamp_command, tmp_path, flags, word):
    silo_data(tmp_path / "own.npz")
    fedamp_command("data", "schema", "--yes", tmp_path / "own.npz", "--out", "s.json")
    code, _, err = fedamp_command("federation", "init", "fed", "--schema", "s.json", "--make-keys", *flags)
    assert code == 2
    assert word in err
    assert len(err.splitlines()) == 1
    assert not Path("fed").exists()


def test_the_label_comes_with_the_schema(fedamp_command, tmp_path):
    for name in "ab":
        rows = "".join(f"{i},{i % 3},{'yes' if i % 2 else 'no'}\n" for i in range(20))
        (tmp_path / f"{name}.csv").write_text("age,ward,outcome\n" + rows)
        flags = ["--label", "outcome", "--keep", "age", "--out", f"{name}.json", "--yes"]  # the ages number the rows
        fedamp_command("data", "schema", f"{name}.csv", *flags)
    flags = ["--schema", "a.json", "--schema", "b.json", "--silos", "a,b", "--make-keys"]
    code, _, err = fedamp_command("federation", "init", "wrong", *flags, "--label", "outcom")
    assert (code, "the schema predicts 'outcome'" in err) == (2, True)
    code, _, err = fedamp_command("federation", "init", "fed", *flags)
    assert code == 0, err
    silo_config = read_silo_config(tmp_path / "fed/bundles/a")
    assert silo_config.plan.config.label == "outcome"
    assert read_federation(tmp_path / "fed").rules.min_silos == 2
    assert fedamp_command("silo", "check", "fed/bundles/a", "--data", "a.csv", "--offline")[0] == 0


def test_a_folder_that_can_not_be_made_is_one_line(fedamp_command, tmp_path):
    fedamp_command("data", "schema", "--yes", silo_data(tmp_path / "own.npz"), "--out", "s.json")
    for folder in ("/proc/x/fed", 'a"b/fed', "a%b"):
        code, _, err = fedamp_command(
            "federation", "init", folder, "--schema", "s.json", "--silos", "a,b", "--make-keys"
        )
        assert (code, err.count("\n")) == (2, 2 if "warning" in err else 1), err
