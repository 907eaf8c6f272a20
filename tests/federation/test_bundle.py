"""A bundle is a silo's whole side, and holds nothing of the others."""

import stat
import zipfile

from fedamp.federation.plan_files import read_federation, read_silo_config
from federation.provisioned import NAMES


def test_a_bundle_holds_nothing_of_the_others(federation):
    foreign_secrets = [(federation / "ca/ca.key").read_bytes(), (federation / "server/server.key").read_bytes()]
    members = {member.name: member for member in read_federation(federation).members}
    for name in NAMES:
        bundle = federation / "bundles" / name
        with zipfile.ZipFile(federation / "bundles" / f"{name}.zip") as archive:
            contents = {entry: archive.read(entry) for entry in archive.namelist()}
        contents |= {str(path): path.read_bytes() for path in bundle.rglob("*") if path.is_file()}
        text = b"\n".join([*contents.values(), *(entry.encode() for entry in contents)]).replace(
            str(federation).encode(), b""
        )
        assert name.encode() in text
        words = [secret.splitlines()[1] for secret in foreign_secrets]
        for other in set(NAMES) - {name}:
            words += [other.encode(), members[other].key.encode()]
            words += (federation / "bundles" / other / "key").read_bytes().splitlines()[3:5]
            words += (federation / "bundles" / other / "key.pub").read_bytes().split()[1:2]
        assert [word for word in words if word in text] == []


def test_the_bundle_is_a_silos_whole_side(federation, tmp_path):
    target = tmp_path / "elsewhere"
    with zipfile.ZipFile(federation / "bundles" / f"{NAMES[1]}.zip") as archive:
        archive.extractall(target)
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    assert stat.S_IMODE(modes[f"{NAMES[1]}/key"]) == 0o600
    assert stat.S_IMODE(modes[f"{NAMES[1]}/start.sh"]) == 0o755
    assert stat.S_ISDIR(modes[f"{NAMES[1]}/"])
    bundle = target / NAMES[1]
    silo_config = read_silo_config(bundle)
    assert (silo_config.name, silo_config.number, silo_config.server) == (NAMES[1], 1, "fl.example.org:9092")
    assert silo_config.plan == read_federation(federation).plan
    names = {path.name for path in bundle.iterdir()}
    assert names == {
        *("silo.json", "schema.json", "ca.crt", "key", "key.pub", "code", "start.sh", "fedamp-silo.service"),
        "README.md",
    }
    assert (bundle / "ca.crt").read_bytes() == (federation / "ca/ca.crt").read_bytes()
