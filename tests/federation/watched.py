"""A federation in one process whose folder and bundles are as `init` writes them, to be watched while it is played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedamp.config.reply_limits import Rules
from fedamp.federation.plan import Federation, SiloConfig
from fedamp.federation.plan_files import write_federation, write_silo_config
from fedamp.federation.server.app import serve
from fedamp.federation.silo.app import House
from federation.inprocess import Local, Tamper, plan_of, write_silos


class Watched(Local):
    """Silos with these names: the federation is in `folder`, their bundles are in `folder/bundles`."""

    def __init__(self, folder: Path, names: Sequence[str], tamper: Tamper | None = None, alone=(), **settings) -> None:
        self.names = names
        data = write_silos(folder / "data", len(names))
        plan = plan_of(data, **{"method": "autoamp", **settings})
        keep = {} if tamper is None else {"tamper": tamper}
        super().__init__(folder, plan, data, Rules(min_silos=min(2, len(names))), **keep)
        for i, path in enumerate(self.paths):
            silo_config = SiloConfig(self.plan, names[i], i, "nowhere:1")
            self.bundle(i).mkdir(parents=True)
            write_silo_config(self.bundle(i), silo_config)
            self.houses[i] = House(silo_config, path, self.bundle(i) / "run", alone=i in alone)
        write_federation(folder, self.federation)
        (folder / "server").mkdir()
        (folder / "server/address.json").write_text('{"hosts": ["localhost"], "port": 9092, "listen": 9092}')

    def bundle(self, i: int) -> Path:
        return self.folder / "bundles" / self.names[i]

    @property
    def federation(self) -> Federation:
        made = super().federation
        members = [replace(member, name=self.names[member.number]) for member in made.members]
        return replace(made, members=tuple(members))

    def play(self) -> None:
        serve(self.grid(), self.federation, self.folder / "record")
