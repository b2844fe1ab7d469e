"""The wire format of protobuf, as far as a few messages need it (protobuf.dev/programming-guides/encoding).

Fields that nobody asks for are passed over, so that a later kubelet may send more. Groups, which proto3 does
not have, are refused.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_VARINT_BYTES = 10
MAX_FIELDS = 4_000_000  # of a whole answer: what is read takes some seconds at most


class WireError(ValueError):
    """Bytes that are not a message."""


class Reader:
    """Reads the messages of one answer; counts their fields, so that none is read without end."""

    def __init__(self, max_fields: int = MAX_FIELDS) -> None:
        self._left = max_fields

    def parts(self, message: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Number and content of each field that holds bytes: text or a message. Raises WireError."""
        at, end = 0, len(message)
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise WireError("too many fields")
            key, at = _varint(message, at)
            number, kind = key >> 3, key & 7
            if number == 0:
                raise WireError("a field with the number 0")
            if kind == BYTES:
                length, at = _varint(message, at)
                if length > end - at:
                    raise WireError("a field that is longer than its message")
                yield number, message[at : at + length]
                at += length
            elif kind == VARINT:
                _, at = _varint(message, at)
            elif kind in {FIXED64, FIXED32}:
                at += 8 if kind == FIXED64 else 4
                if at > end:
                    raise WireError("a number that ends behind its message")
            else:
                raise WireError(f"a field of the unknown kind {kind}")


def text(content: memoryview) -> str:
    """A string; what is not UTF-8 in it is replaced."""
    return str(content, "utf-8", "replace")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number, and where the next field begins."""
    number = 0
    for index, byte in enumerate(message[at : at + MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if number >> 64:
                raise WireError("a number of more than 64 bits")
            return number, at + index + 1
    raise WireError("a number without an end")
