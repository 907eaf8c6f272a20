"""Clients by name or by number: the one place that says which client is meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from fedamp import checks
from fedamp.errors import UserError

SHOWN = 12
"""Names that an error lists."""


def client_number(client: object, names: Sequence[str] | None, count: int) -> int:
    """Return the number of a client that is given by its name or its number; there are `count` clients.

    A text is a name first, and a number only if no client has that name: hospitals may be called "10" and "2". A whole
    number of Python's is always the number.

    >>> client_number("hospital-b", ["hospital-a", "hospital-b"], 2), client_number("1", None, 2)
    (1, 1)
    >>> client_number("2", ["10", "2"], 2), client_number(0, ["10", "2"], 2)
    (1, 0)
    """
    known, number = list(names or ()), client
    if isinstance(client, str):
        if client in known:
            return known.index(client)
        number = int(client) if client.isascii() and client.isdigit() else None
    if checks.is_whole(number) and 0 <= number < count:
        return int(number)
    which = "no client is named" if client is None else f"client is {client!r}"
    one = "the only client is" if count == 1 else "expected"
    numbers = "number 0" if count == 1 else f"a number from 0 to {count - 1}"
    if not known:
        raise UserError(f"{which}; {one} {numbers}")
    near = difflib.get_close_matches(str(client), known, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    listed = ", ".join(repr(name) for name in known[:SHOWN])
    raise UserError(f"{which}{hint}; {one} {listed}{more}, or {numbers}")


def name_or_number_note(client: object, names: Sequence[str] | None, count: int) -> str:
    """Return what to say if a text is the name of one client and the number of another, "" if it is not."""
    if not isinstance(client, str) or client not in (names or ()) or not (client.isascii() and client.isdigit()):
        return ""
    number = client_number(client, names, count)
    if int(client) == number or int(client) >= count:
        return ""
    assert names is not None, "it has this name"
    other = names[int(client)]
    return f"client {client!r} is the one of that name, number {number}; the client with number {client} is {other!r}"


def client_title(number: int, names: Sequence[str] | None) -> str:
    """Return a client as errors call it."""
    return f"client {number}" if names is None else f"client {names[number]!r}"


def client_name(i: int, names: Sequence[str] | None) -> str:
    """Return what a client is called: by its silo's name, if it has one."""
    return f"client {i}" if names is None else str(names[i])
