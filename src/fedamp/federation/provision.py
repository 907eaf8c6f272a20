"""From nothing to a federation: certificates, keys, the server's folder and a bundle for each silo.

DIR/federation.json, schema.json, README.md
DIR/ca/{ca.crt, ca.key}
DIR/server/{server.crt, server.key, ca.crt, address.json, keys/NAME.pub, app/, code/, nginx.conf, start.sh, *.service}
DIR/bundles/NAME/{silo.json, schema.json, ca.crt, key, key.pub, code/, start.sh, *.service, README.md} and NAME.zip

A bundle holds nothing of another silo, not even its name.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from string import Template

import torch

from fedamp import __version__, checks, models
from fedamp.data.clients import Clients
from fedamp.errors import UserError
from fedamp.federation.plan import Federation, Member, Plan, Rules, SiloConfig
from fedamp.federation.plan_files import read_federation, write_federation, write_silo_config
from fedamp.files import read_json
from fedamp.runs.material import Material, outputs_of
from fedamp.runs.setup import assemble

ADDRESS = "address.json"
SECRET, PUBLIC, SCRIPT, FOLDER = 0o600, 0o644, 0o755, 0o700
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
TWO = (
    "with two silos each can compute the other's model from its own and from what the server sends it: "
    "take a third, or make sure that both agree to that"
)
DOOR = (
    "Open TCP port $port, from the silos' addresses only, and nothing else. Silos reach the server as $server; they "
    "open nothing themselves.\n\nThe silos come in through nginx: `server/nginx.conf` lets in what a silo may call, "
    "and nothing else. Flower's own port must stay closed to the outside: whoever reaches it can start runs and "
    "register keys, and so run code here."
)
NO_DOOR = (
    "Nothing: this federation was made for one machine, whose silos reach Flower's server on the loopback interface as "
    "$server. To let in others, make one with `--host NAME`."
)


@dataclass(frozen=True)
class Address:
    """Where the server is."""

    hosts: tuple[str, ...]  # the first is what silos connect to
    port: int  # that they connect to
    listen: int  # of Flower's server, on the loopback interface; another one where nginx stands before it

    @classmethod
    def of(cls, hosts: Sequence[str], port: int) -> Address:
        """Return the address for silos that know the server under these names."""
        for host in hosts:
            _check_host(host)
        checks.count("port", port)
        if port > 65534:
            raise UserError(f"port is {port}; expected a number up to 65534")
        alone = not set(hosts) - LOOPBACK
        return cls(tuple(hosts), port, port if alone else port + 1)

    @property
    def server(self) -> str:
        """The address as a silo writes it."""
        host = self.hosts[0]
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def read_address(folder: Path) -> Address:
    """Return the server's address from a federation's folder."""
    value = read_json(folder / "server" / ADDRESS)
    try:
        return Address(tuple(value["hosts"]), int(value["port"]), int(value["listen"]))  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{folder / 'server' / ADDRESS} is missing or damaged; take it from a copy") from None


def init(
    folder: Path, silos: list[str], plan: Plan, rules: Rules, hosts: list[str], port: int, code: Path | None
) -> list[str]:
    """Write a new federation; return warnings. It is made elsewhere and moved, so that it is whole or not there."""
    from fedamp.federation import certificates

    _check_names(silos)
    _check_title(plan.name)
    if len(silos) < 2:
        raise UserError(f"silos are {', '.join(silos) or 'none'}; a federation needs two or more")
    if rules.min_silos > len(silos):
        raise UserError(f"min_silos is {rules.min_silos}, but there are {len(silos)} silos; expected no more")
    check_plan(plan)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already and is not empty; give a new folder")
    address = Address.of(hosts, port)
    folder = folder.absolute()
    if unfit := set(str(folder)) & set('"\\%$' + os.pathsep):
        words = " and ".join(sorted(unfit))
        raise UserError(f"{folder} has {words} in its path, which units and nginx can't quote; give another folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise UserError(f"{folder} can't be made: {error.strerror or error}; give another folder") from None
    try:
        for name in ("ca", "server", "server/keys", "bundles"):
            (made / name).mkdir(mode=FOLDER)
        authority, authority_key = certificates.make_authority(plan.name)
        certificate, key = certificates.make_server_certificate(authority, authority_key, address.hosts)
        _write(made / "ca/ca.crt", authority)
        _write(made / "ca/ca.key", authority_key, SECRET)
        _write(made / "server/ca.crt", authority)
        _write(made / "server/server.crt", certificate)
        _write(made / "server/server.key", key, SECRET)
        _write(made / "server" / ADDRESS, (json.dumps(asdict(address), indent=2) + "\n").encode())
        _copy_code(code, made / "server/code")
        _check_code(plan, code, made / "server/code")
        _write_server(made, folder, plan, address)
        members = _add_members(made, plan, address, silos, 0)
        write_federation(made, Federation(plan, tuple(members), rules))
        made.replace(folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return [TWO] if len(silos) == 2 else []


def add(folder: Path, names: list[str]) -> list[str]:
    """Give a federation more silos; return warnings."""
    federation = read_federation(folder)
    known = [member.name for member in federation.members]
    _check_names([*known, *names])
    if not names:
        raise UserError("there are no names of silos; expected one or more")
    number = max(member.number for member in federation.members) + 1
    (folder / "bundles").mkdir(mode=FOLDER, exist_ok=True)
    members = _add_members(folder, federation.plan, read_address(folder), names, number)
    # Last of all: until it is written the new silos are not there, and the same command can be given again.
    write_federation(folder, replace(federation, members=(*federation.members, *members)))
    return []


def check_plan(plan: Plan) -> None:
    """Refuse a plan that no silo could follow, by trying it with rows of zeros."""
    outputs, task = outputs_of(plan.schema)
    x = torch.zeros(20, *plan.schema.input_shape)
    y = torch.zeros(20) if plan.schema.labels is None else torch.arange(20) % outputs
    clients = Clients.of([(x, y)]).hold_out(plan.config.held_out, plan.config.seed, "test")
    config = replace(plan.config, clients=1, engine="loop", device="cpu")
    assemble(config, Material(clients, outputs, task, schema=plan.schema))


def code_of(plan: Plan) -> Path | None:
    """Return the file or package that a model `module:function` comes from; None for what pip installs."""
    spec = plan.config.model.name
    if ":" not in spec:
        return None
    models.load_builder(spec)
    module = sys.modules[spec.partition(":")[0].partition(".")[0]]
    if not getattr(module, "__file__", None):
        raise UserError(f"model {spec} comes from no file; give its code with --code")
    path = Path(str(module.__file__)).resolve()
    if {"site-packages", "dist-packages"} & set(path.parts):
        return None
    return path.parent if path.name == "__init__.py" else path


def _write_server(made: Path, folder: Path, plan: Plan, address: Address) -> None:
    server = made / "server"
    words = {
        "name": plan.name,
        "folder": str(folder),
        "version": __version__,
        "server": address.server,
        "hosts": " ".join(address.hosts),
        "port": str(address.port),
        "listen": str(address.listen),
    }
    words["door"] = Template(NO_DOOR if address.port == address.listen else DOOR).substitute(words)
    (server / "app/fedamp_app").mkdir(mode=FOLDER, parents=True)
    _fill("app/pyproject.toml", server / "app/pyproject.toml", words)
    for name in ("__init__.py", "server_app.py", "client_app.py"):
        _fill(f"app/{name}", server / "app/fedamp_app" / name, words)
    _fill("nginx.conf", server / "nginx.conf", words)
    _fill("start-server.sh", server / "start.sh", words, SCRIPT)
    _fill("fedamp-federation.service", server / "fedamp-federation.service", words)
    _fill("federation.md", made / "README.md", words)


def _add_members(folder: Path, plan: Plan, address: Address, names: Sequence[str], number: int) -> list[Member]:
    """Write a bundle for each silo, numbered from `number` on."""
    from fedamp.federation import certificates

    members = []
    for name in names:
        private, public = certificates.make_key_pair(name)
        _write_bundle(folder, SiloConfig(plan, name, number, address.server), private, public)
        _write(folder / "server/keys" / f"{name}.pub", public)
        members.append(Member(name, number, certificates.key_digest(public)))
        number += 1
    return members


def _write_bundle(folder: Path, silo_config: SiloConfig, private: bytes, public: bytes) -> None:
    bundles = folder / "bundles"
    bundle = bundles / silo_config.name
    shutil.rmtree(bundle, ignore_errors=True)  # of an `add` that was broken off
    bundle.mkdir(mode=FOLDER)
    words = {
        "name": silo_config.plan.name,
        "silo": silo_config.name,
        "server": silo_config.server,
        "version": __version__,
    }
    write_silo_config(bundle, silo_config)
    _write(bundle / "ca.crt", (folder / "server/ca.crt").read_bytes())
    _write(bundle / "key", private, SECRET)
    _write(bundle / "key.pub", public)
    _copy_code(folder / "server/code", bundle / "code")
    _fill("start-silo.sh", bundle / "start.sh", words, SCRIPT)
    _fill("fedamp-silo.service", bundle / "fedamp-silo.service", words)
    _fill("silo.md", bundle / "README.md", words)
    _zip(bundle, bundles / f"{silo_config.name}.zip")


def _zip(bundle: Path, target: Path) -> None:
    """Pack a bundle; the entries carry their permissions, and the archive is as secret as the key in it."""
    target.unlink(missing_ok=True)
    with os.fdopen(_create(target, SECRET), "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in [bundle, *sorted(bundle.rglob("*"))]:
            name = f"{bundle.name}/{path.relative_to(bundle).as_posix()}".removesuffix("/.")
            entry = zipfile.ZipInfo(f"{name}/" if path.is_dir() else name)
            kind = stat.S_IFDIR if path.is_dir() else stat.S_IFREG
            entry.external_attr = (kind | stat.S_IMODE(path.stat().st_mode)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, b"" if path.is_dir() else path.read_bytes())


def _copy_code(code: Path | None, target: Path) -> None:
    """Copy a module's file or package, or all that is in a folder named `code`."""
    target.mkdir(mode=FOLDER)
    if code is None:
        return
    if not code.exists():
        raise UserError(f"there is no {code}; expected the file or the folder with the model's code")
    leave = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    if code.is_file():
        shutil.copy(code, target / code.name)
    elif (code / "__init__.py").exists():
        shutil.copytree(code, target / code.name, ignore=leave)
    else:
        shutil.copytree(code, target, ignore=leave, dirs_exist_ok=True)


def _check_code(plan: Plan, code: Path | None, copy: Path) -> None:
    """Refuse a model whose code does not come along whole: it must import from its copy alone, as in a silo."""
    if code is None:
        return
    spec = plan.config.model.name
    program = f"from fedamp import models; models.load_builder({spec!r})"
    paths = os.pathsep.join([str(copy), str(Path(__file__).parents[2])])
    env = {**os.environ, "PYTHONPATH": paths}
    tried = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=copy.parent, capture_output=True, text=True, timeout=300
    )
    if tried.returncode:
        last = (tried.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UserError(
            f"model {spec} can't be imported from a copy of {code} alone ({last}); give a folder with all of its "
            "code with --code"
        )


def _fill(template: str, target: Path, words: dict[str, str], mode: int = PUBLIC) -> None:
    text = resources.files("fedamp.federation").joinpath("templates", f"{template}.tmpl").read_text(encoding="utf-8")
    _write(target, Template(text).substitute(words).encode(), mode)


def _write(path: Path, data: bytes, mode: int = PUBLIC) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(_create(path, mode), "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), mode)  # whatever the umask took away


def _create(path: Path, mode: int) -> int:
    """Open a new file that has its permissions from the first byte on."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)


def _check_names(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) or name.endswith((".zip", ".")):
            raise UserError(
                f"a silo is named {name!r}; expected 1 to 64 letters, digits, dashes, dots and underscores, a letter "
                "or digit first, and no .zip at the end: names become file names"
            )
        if name.lower() in seen:
            raise UserError(f"silo {name!r} is there twice; expected a name of its own for each")
        seen.add(name.lower())


def _check_title(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,63}", name):
        raise UserError(
            f"the federation is named {name!r}; expected 1 to 64 letters, digits, blanks, dashes, dots and "
            "underscores, a letter or digit first: give one with --name"
        )


def _check_host(host: str) -> None:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", host):
            raise UserError(f"host is {host!r}; expected a name like fl.example.org, or an address") from None
