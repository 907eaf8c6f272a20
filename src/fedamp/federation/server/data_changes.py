"""What silos say about changes of their data: one number each, the round; it is told once, and noted in the status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedamp.federation.plan import Member
from fedamp.federation.server.state import Reply, ServerState
from fedamp.federation.wire.allowed_metrics import DATA_CHANGED


def news(state: ServerState, replies: Mapping[str, Reply], members: Sequence[Member]) -> list[str]:
    """Note whose data has changed, and return in words what was not known before."""
    lines = []
    for member in members:
        if member.key not in replies or not (said := replies[member.key].metrics.get(DATA_CHANGED)):
            continue
        changed, standing = int(said), state.standing(member.key)
        if changed != standing.data_changed:
            standing.data_changed = changed
            lines.append(
                f"{member.name}: its data changed in round {changed}; its scores before and after are on different "
                "test samples"
            )
    return lines
