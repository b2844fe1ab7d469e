"""CRC-32C (Castagnoli, RFC 3720 appendix B.4) and the mask that TensorFlow puts over it.

google-crc32c comes with the extra `training`. Without it a table in Python does the same, some thirty times
slower.
"""

from __future__ import annotations

from collections.abc import Callable

POLYNOMIAL = 0x82F63B78  # reflected
ALL_ONES = 0xFFFF_FFFF
MASK_DELTA = 0xA282_EAD8  # tensorflow/core/lib/hash/crc32c.h: a checksum of checksums would be weak


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        remainder = byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (POLYNOMIAL if remainder & 1 else 0)
        table.append(remainder)
    return tuple(table)


TABLE = _table()


def crc32c_in_python(data: bytes) -> int:
    """The checksum, one byte after another."""
    remainder = ALL_ONES
    for byte in data:
        remainder = TABLE[(remainder ^ byte) & 0xFF] ^ (remainder >> 8)
    return remainder ^ ALL_ONES


crc32c: Callable[[bytes], int]
try:
    from google_crc32c import value as crc32c
except ImportError:
    crc32c = crc32c_in_python


def masked(data: bytes) -> int:
    """The checksum as it stands in a file of records."""
    checksum = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + MASK_DELTA) & ALL_ONES
