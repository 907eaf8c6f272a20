"""A Flower message as the pieces that travel: gathered, measured before they are put together, and put together.

Flower cuts a message into objects that are known by their hash: message, records, arrays, chunks of arrays. An array
names its chunks, and may name one of them many times: 14 MB on the wire can be 800 MB of zeros once put together. So
the sum is done first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from flwr.app import Array, Message, RecordDict
from flwr.app.message import make_message
from flwr.app.message.arraychunk import ArrayChunk
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_body,
    get_object_head_values_from_object_content,
    get_object_tree,
    get_object_type_from_object_content,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedamp.federation.wire.encoding import RefusedError
from fedamp.rows import Message as Rows

SPARE = 1 << 20
"""Bytes that a message may have beside its rows: names, numbers, heads of arrays."""


def most_bytes(template: Rows) -> int:
    """Return how many bytes a message like this one may have."""
    tensors = (tensor for rows in template.values() for tensor in (rows.params[0], rows.buffers[0]))
    return SPARE + sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def in_pieces(message: Message) -> tuple[dict[str, bytes], ObjectTree]:
    """Return a message's pieces, each by its hash, and the list of them; its own hash becomes the message's number."""
    with no_object_id_recompute():
        message.metadata.__dict__["_message_id"] = message.object_id
        pieces = {name: piece.deflate() for name, piece in get_all_nested_objects(message).items()}
        return pieces, get_object_tree(message)


def gather(root: str, find: Callable[[str], bytes | None]) -> dict[str, bytes] | None:
    """Return all pieces of a message, or None as long as one of them is missing. `find` gives a piece by its hash."""
    found: dict[str, bytes] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        piece = find(name)
        if not piece:
            return None
        found[name] = piece
        waiting += get_object_head_values_from_object_content(piece)[1]
    return found


def whole_size(pieces: Mapping[str, bytes]) -> int:
    """Return how many bytes the arrays among these pieces come to, each chunk counted as often as it is named."""
    total = 0
    for piece in pieces.values():
        kind, children, _ = get_object_head_values_from_object_content(piece)
        if kind == Array.__qualname__:
            chunks = [pieces[child] for child in children]
            if any(get_object_type_from_object_content(chunk) != ArrayChunk.__qualname__ for chunk in chunks):
                raise RefusedError("an array is made of other things than chunks")
            total += sum(len(chunks[index]) for index in json.loads(get_object_body(piece, Array))["arraychunk_ids"])
    return total


def put_together(announced: Message, pieces: dict[str, bytes], most: int) -> Message:
    """Return the reply in these pieces; raise `RefusedError` if it has more than `most` bytes, or is no message.

    What was announced says from whom it is and what it answers: Flower has checked that, and the pieces may say else.
    """
    try:
        size = max(whole_size(pieces), sum(len(piece) for piece in pieces.values()))
        if size > most:
            raise RefusedError(f"it has {size} bytes; expected {most} at the most")
        found = inflate_object_from_contents(announced.metadata.message_id, pieces)
        if not isinstance(found, Message):
            raise RefusedError("it is no message")
        if found.has_error():
            return make_message(announced.metadata, error=found.error)
        if not isinstance(found.content, RecordDict):
            raise RefusedError("its content is no set of records")
        return make_message(announced.metadata, content=found.content)
    except RefusedError:
        raise
    except Exception:  # whatever bytes from elsewhere do to the reader
        raise RefusedError("it is damaged") from None
