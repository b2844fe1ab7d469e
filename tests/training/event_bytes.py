"""Events as bytes, made by hand after event.proto and summary.proto of tensorflow/core.

The checksum is worked out bit by bit, as RFC 3720 defines it, so that nothing is taken from what is tested.
"""

from __future__ import annotations

import struct
from pathlib import Path


def crc32c(data: bytes) -> int:
    """Castagnoli's polynomial, reflected, by long division."""
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    checksum = crc32c(data)
    rotated = ((checksum >> 15) | (checksum << 17)) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    groups = []
    while True:
        groups.append(number & 0x7F)
        number >>= 7
        if not number:
            return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


def field(tag: int, content: bytes) -> bytes:
    return varint(tag << 3 | 2) + varint(len(content)) + content


def number(tag: int, value: int) -> bytes:
    return varint(tag << 3) + varint(value)


def event(wall_s: float, step: int, *values: bytes) -> bytes:
    head = b"\x09" + struct.pack("<d", wall_s) + (number(2, step) if step else b"")
    return head + (field(5, b"".join(field(1, value) for value in values)) if values else b"")


def simple(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def scalar(tag: str, value: float, step: int, wall_s: float) -> bytes:
    """A whole record."""
    return record(event(wall_s, step, simple(tag, value)))


VERSION = record(b"\x09" + struct.pack("<d", 1_700_000_000.0) + field(3, b"brain.Event:2"))


class EventFile:
    """An event file that a test writes by hand."""

    def __init__(self, folder: Path, name: str = "events.out.tfevents.1700000000.here.1.0") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / name
        self.append(VERSION)

    def append(self, *records: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(records))

    def log(self, step: int, wall_s: float, **values: float) -> None:
        self.append(*(scalar(tag, value, step, wall_s) for tag, value in values.items()))
