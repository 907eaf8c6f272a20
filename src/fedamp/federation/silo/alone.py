"""A silo that also trains alone: how what it gets from the federation compares, told at home and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fedamp.methods.alone_beside import ALONE, AloneBeside
from fedamp.records.beside_alone import BesideAlone, score_text
from fedamp.rows import Message, State
from fedamp.runs.scoring import kept
from fedamp.runs.with_alone import compared

if TYPE_CHECKING:
    from fedamp.federation.silo.round import Silo


def joined(silo: Silo, state: State) -> State:
    """Return a state that was kept, with a model to train alone: the first one, if it had none so far."""
    method = silo.setup.method
    if not isinstance(method, AloneBeside) or ALONE in state.rows:
        return state
    return method.with_alone(state, silo.setup.w)


def carried_over(silo: Silo, state: State) -> State:
    """Return a state that begins anew, with the model trained alone that is kept, if one is: it owes nothing to the
    server, and so need not begin anew.
    """
    method, kept = silo.setup.method, _newest(silo)
    if not isinstance(method, AloneBeside) or kept is None or ALONE not in kept.rows:
        return state
    alone, device = kept.rows[ALONE], silo.setup.w.params.device
    return state.replace(rows={ALONE: alone.to(device)})


def begins_late(silo: Silo, accepted: int) -> bool:
    """Return whether the silo has taken part before without training alone, or has lost what it trained."""
    if accepted == 0 or not isinstance(silo.setup.method, AloneBeside):
        return False
    before = silo.memory.load(accepted) or _newest(silo)
    return before is None or ALONE not in before.rows


def _newest(silo: Silo) -> State | None:
    """Return the newest state that is kept."""
    rounds = silo.memory.rounds()
    return silo.memory.load(rounds[-1]) if rounds else None


def against_alone(silo: Silo, k: int, message: Message) -> str:
    """Return in words how the silo's model after round k compares with the one trained alone; "" if there is none."""
    setup = silo.setup
    if not isinstance(setup.method, AloneBeside) or silo.forgot(k):
        return ""
    message = silo.here(message)
    models = setup.method.client_models(silo.state(k, message), message)
    if torch.equal(models[setup.method.scored].params, setup.w.params):  # sent before anyone had trained
        return ""
    home, alone = (kept(setup, k, models[entry]) for entry in (setup.method.scored, ALONE))
    return in_words(compared(setup, home, alone, [True]))


def in_words(found: BesideAlone) -> str:
    """Return a silo's comparison as a line of its log."""
    if found.samples is None:
        home, alone = (score_text(models.test[0], found.metric) for models in (found.home, found.alone))
        return f"{home} against {alone} alone on test samples; to be warned, the plan must hold out validation samples"
    if found.worse_off:
        return f"worse off than alone: {found.both(0)}; use the model trained alone, or ask for another method"
    return f"not worse off than alone by more than chance: {found.both(0)}"
