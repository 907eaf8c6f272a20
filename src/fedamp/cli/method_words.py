"""The methods in words, as their own files have them: what each does, when to use it, where it comes from."""

import inspect
import re
import sys
from dataclasses import dataclass

from fedamp.cli.choices import summary
from fedamp.methods import METHODS
from fedamp.methods.base import GROUPS, Method

_SOURCE = re.compile(r"\bSources?:\s+(.+?)(?:\n\n|\Z)", re.DOTALL)


@dataclass(frozen=True)
class MethodWords:
    """One method in words."""

    name: str
    group: str
    what: str  # in a sentence
    equation: str
    when: str
    scored: str  # at which of a client's models
    trained: str  # optimiser and learning rate
    source: str  # empty for what is nobody's idea


def in_words(name: str) -> MethodWords:
    """Return a method in words.

    >>> in_words("fedprox").what
    'FedAvg whose clients stay near the global model.'
    """
    kind = METHODS[name]
    what = _first_line(kind).partition(": ")[2]
    return MethodWords(
        name=name,
        group=kind.group,
        what=what[:1].upper() + what[1:],
        equation=summary(kind),
        when=kind.when,
        scored=kind.scored,
        trained=f"{'Adam' if kind.optimizer == 'adam' else kind.optimizer.upper()} {kind.lr:g}",
        source=_source(kind),
    )


def by_group() -> dict[str, list[MethodWords]]:
    """Return all methods, group by group, in the order in which they are listed; a group without any is left out."""
    everyone = [in_words(name) for name in METHODS]
    groups = {group: [each for each in everyone if each.group == group] for group in GROUPS}
    return {group: methods for group, methods in groups.items() if methods}


def _first_line(kind: type[Method]) -> str:
    """Return the first line of a method's file, which is its name and what it does."""
    return (inspect.getdoc(sys.modules[kind.__module__]) or "").partition("\n")[0]


def _source(kind: type[Method]) -> str:
    """Return the source that a method's file names, or else that of the method that it is a form of."""
    for each in kind.__mro__:
        found = _SOURCE.search(inspect.getdoc(sys.modules[each.__module__]) or "")
        if found and each is not Method:
            return " ".join(found[1].split())
    return ""
