"""Nodes of MLCommons' Chakra execution traces (schema/protobuf/et_def.proto of mlcommons/chakra), as bytes.

A file is a list of messages, each behind its length: the metadata, then nodes. Of protobuf's wire format this takes
whole numbers and what has a length; a field is its number and one of these two kinds, then the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

VERSION = "0.0.4"
_WHOLE, _LONG = 0, 2
_ATTRIBUTE_FIELDS = {"bool": 27, "int32": 7, "int64": 9, "string": 29}
ATTRIBUTES = {
    "is_cpu_op": "bool", "num_ops": "int64", "comm_type": "int64", "comm_size": "int64", "comm_src": "int32",
    "comm_dst": "int32", "comm_tag": "int32", "pg_name": "string",
}  # fmt: skip
"""What the schema's readers know of a node, and as which type."""


class NodeType(IntEnum):
    """Of a node."""

    COMPUTE = 4
    SEND = 5
    RECEIVE = 6
    COLLECTIVE = 7


COLLECTIVES = {"all-reduce": 0, "all-gather": 2, "broadcast": 5, "all-to-all": 6, "reduce-scatter": 7}
"""Numbers of the collectives."""


def metadata() -> bytes:
    """The first message of a file."""
    return _behind_length(_text(1, VERSION))


def node(
    number: int, name: str, kind: NodeType, after: Iterable[int], duration_us: int, attributes: Mapping[str, int | str]
) -> bytes:
    """A node that waits for the nodes `after`; attributes: those of ATTRIBUTES."""
    waits = b"".join(map(_number, after))
    return _behind_length(
        b"".join([
            _whole(1, number),
            _text(2, name),
            _whole(3, kind),
            _field(5, waits) if waits else b"",  # a list of numbers is packed
            _whole(7, duration_us),
            *(_field(10, _attribute(name, value)) for name, value in attributes.items()),
        ])
    )  # fmt: skip


def _attribute(name: str, value: int | str) -> bytes:
    field = _ATTRIBUTE_FIELDS[ATTRIBUTES[name]]
    return _text(1, name) + (_text(field, value) if isinstance(value, str) else _whole(field, value))


def _whole(field: int, value: int) -> bytes:
    return _number(field << 3 | _WHOLE) + _number(value)


def _text(field: int, value: str) -> bytes:
    return _field(field, value.encode())


def _field(field: int, content: bytes) -> bytes:
    return _number(field << 3 | _LONG) + _behind_length(content)


def _behind_length(content: bytes) -> bytes:
    return _number(len(content)) + content


def _number(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
