"""The wire format of protocol buffers, as far as it takes to find a few fields and pass over the rest.

https://protobuf.dev/programming-guides/encoding. Groups, which proto3 does not have, are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
WIDTHS = {FIXED64: 8, FIXED32: 4}
LONGEST_VARINT = 10
SIGN_BIT = 1 << 63

DOUBLE = struct.Struct("<d")
FLOAT = struct.Struct("<f")


class MalformedError(ValueError):
    """The bytes are no message."""


Buffer = bytes | memoryview


class Field(NamedTuple):
    """A field of a message: its number and wire type, and where its content stands.

    `number` is the content itself of a varint, without a sign.
    """

    tag: int
    wire: int
    start: int
    end: int
    number: int = 0


def fields(data: Buffer, start: int, end: int) -> Iterator[Field]:
    """The fields of the message between two places. Raises MalformedError."""
    at = start
    while at < end:
        key, at = varint(data, at, end)
        tag, wire = key >> 3, key & 7
        if tag == 0:
            raise MalformedError("a field with the number 0")
        if wire == VARINT:
            begin = at
            number, at = varint(data, at, end)
            yield Field(tag, wire, begin, at, number)
            continue
        if wire == LENGTH:
            width, at = varint(data, at, end)
        elif wire in WIDTHS:
            width = WIDTHS[wire]
        else:
            raise MalformedError(f"wire type {wire}")
        if at + width > end:
            raise MalformedError("a field ends behind its message")
        yield Field(tag, wire, at, at + width)
        at += width


def varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    """A number in groups of seven bits, and where it ends. Raises MalformedError."""
    number = 0
    for shift in range(0, 7 * LONGEST_VARINT, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> 64:
                raise MalformedError("a number of more than 64 bits")
            return number, at
    raise MalformedError("a number does not end")


def signed(number: int) -> int:
    """A varint as a signed number of 64 bits."""
    return number - (1 << 64) if number & SIGN_BIT else number


def text(data: Buffer, field: Field) -> str:
    """A string, whose bytes that are not UTF-8 are replaced."""
    return str(data[field.start : field.end], "utf-8", "replace")


def double(data: Buffer, field: Field) -> float:
    """A number of 64 bits. Raises MalformedError."""
    return _unpacked(DOUBLE, data, field, FIXED64)


def single(data: Buffer, field: Field) -> float:
    """A number of 32 bits. Raises MalformedError."""
    return _unpacked(FLOAT, data, field, FIXED32)


def _unpacked(form: struct.Struct, data: Buffer, field: Field, wire: int) -> float:
    if field.wire != wire:
        raise MalformedError(f"field {field.tag} has wire type {field.wire}")
    number: float = form.unpack_from(data, field.start)[0]
    return number
