"""The framing of TensorFlow's record files, which hold TensorBoard's events.

A record is its length (8 bytes, little endian), the masked checksum of these 8 bytes, the data, and the
masked checksum of the data: tensorflow/core/lib/io/record_writer.h. A writer appends, and may be caught in
the middle of a record: what is missing then comes later. What is there and does not fit its checksum never
will; the next record is then found by a length that fits its own.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from clusterwatt.training.crc32c import ALL_ONES, MASK_DELTA, crc32c, masked

HEADER = struct.Struct("<QI")
CHECKSUM = struct.Struct("<I")
HEADER_BYTES = HEADER.size
FRAME_BYTES = HEADER_BYTES + CHECKSUM.size

MAX_RECORD_BYTES = 1 << 18  # scalars are a hundred bytes; what is larger is an image, a graph or a histogram
MAX_MISFITS = 64  # in one stretch: headers that fit and data that does not; forged ones could be endless
MAX_LENGTH = 1 << 31  # no message of protobuf is longer: https://protobuf.dev/programming-guides/proto-limits

SHORT = 4096


class Shape(NamedTuple):
    """What is the same in all records of a length.

    `length_sum`: the masked checksum of the length. `unpack`: the data, their checksum, and the header of the
    next record, from behind the header; `width`: bytes from there to behind the next header.
    """

    length_sum: int
    unpack: Callable[[bytes, int], tuple[Any, ...]]
    width: int


SHAPES: dict[int, Shape] = {}  # of short records by length: there are few different lengths

# A length under 4 GiB that is not 0. The regular expression passes over holes, which read as zeros, quickly.
MAYBE_HEADER = re.compile(rb"(?s)(?=.{4}\0{4})(?!\0{8})")


class Found(NamedTuple):
    """What a stretch of a file holds.

    `next_at`: where to go on, from the beginning of the stretch; behind its end when a long record is to be
    passed over unread. `synced`: a record begins there. `corrupt`: how many times something did not fit.
    """

    records: list[bytes]
    next_at: int
    synced: bool
    corrupt: int


def find(data: bytes, *, synced: bool, at_end: bool) -> Found:
    """All whole records in a stretch of a file, checked, without their frames.

    `synced`: whether a record begins at its first byte. `at_end`: the file ends with it; zeros at the end of
    a file are then what a network file system shows of data that has not arrived, and are waited for.
    """
    records: list[bytes] = []
    corrupt, misfits, at, size = 0, 0, 0, len(data)
    while size - at >= HEADER_BYTES:
        if synced:
            at = _in_a_row(data, at, records)
        length, length_sum = HEADER.unpack_from(data, at)
        if _sum_of_length(length) == length_sum and length <= MAX_LENGTH:
            end = at + FRAME_BYTES + length
            if length > MAX_RECORD_BYTES:
                at, synced = end, True
                continue
            if end > size:
                break
            record = data[at + HEADER_BYTES : end - 4]
            if masked(record) == CHECKSUM.unpack_from(data, end - 4)[0]:
                records.append(record)
                at, synced = end, True
                continue
            misfits += 1
        else:
            end = at + HEADER_BYTES
        if synced:
            if at_end and len(data.rstrip(b"\0")) < end:
                break
            corrupt, synced = corrupt + 1, False
        at = _next_header(data, at + 1 if misfits < MAX_MISFITS else size)
    return Found(records, at, synced, corrupt)


def _in_a_row(data: bytes, at: int, records: list[bytes]) -> int:
    """Take the good records from a place on that have a header behind them; returns where that ends.

    Nothing here is new: it is `find` for records as they should be, which nearly all are. Its body runs for
    each event: one call unpacks a record with the header behind it, and `masked` is written out.
    """
    last = len(data)
    length, length_sum = HEADER.unpack_from(data, at)
    at += HEADER_BYTES
    while length in SHAPES:
        sum_of_length, unpack, width = SHAPES[length]
        if sum_of_length != length_sum or at + width > last:
            break
        record, record_sum, length, length_sum = unpack(data, at)
        checksum = crc32c(record)
        if ((checksum >> 15 | checksum << 17) + MASK_DELTA) & ALL_ONES != record_sum:
            break
        records.append(record)
        at += width
    return at - HEADER_BYTES


def _sum_of_length(length: int) -> int:
    known = SHAPES.get(length)
    if known is not None:
        return known.length_sum
    length_sum = masked(length.to_bytes(8, "little"))
    if length <= SHORT:
        unpack = struct.Struct(f"<{length}sIQI").unpack_from
        SHAPES[length] = Shape(length_sum, unpack, length + CHECKSUM.size + HEADER_BYTES)
    return length_sum


def _next_header(data: bytes, at: int) -> int:
    """Where the next header may be; at the end, the first place at which it is not yet whole."""
    match = MAYBE_HEADER.search(data, at)
    return match.start() if match is not None else max(at, len(data) - HEADER_BYTES + 1)
