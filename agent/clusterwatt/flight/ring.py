"""A bounded ring of readings. A minute is packed and compressed together, because most hardly change."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from typing import get_args

import msgspec

from clusterwatt.readings.agent import CollectorState
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import (
    GpuClock,
    GpuGpm,
    GpuMemory,
    GpuPower,
    GpuProcess,
    GpuTemperature,
    GpuThrottle,
    GpuUse,
    HostReading,
)
from clusterwatt.readings.gpu_measured import (
    DriverDown,
    DriverInfo,
    DriverUp,
    GpuBusy,
    GpuDown,
    GpuEnergy,
    GpuUp,
)
from clusterwatt.readings.network import Network, RdmaCongestion, RdmaError, RdmaPort
from clusterwatt.readings.snapshot import Snapshot

CHUNK_S = 60.0
LEVEL = 3  # a tenth smaller than with 1, at the same cost; 4 takes half as long again
MAX_BYTES = 8 << 20
LENGTH_BYTES = 4  # before each moment

# What tells how a fault came about is recorded at each tick, all else as often as it may matter.
OFTEN: tuple[type[Reading], ...] = (
    DriverUp,
    DriverDown,
    GpuUp,
    GpuDown,
    GpuUse,
    GpuGpm,
    GpuPower,
    GpuClock,
    GpuTemperature,
    GpuThrottle,
    GpuMemory,
    GpuEnergy,
    RdmaPort,
    Network,
    CollectorState,
)
NOW_AND_THEN_S = 10.0
UNRECORDED: tuple[type[Reading], ...] = (GpuProcess,)  # a bundle is shown to others
RECORDED: tuple[type[Reading], ...] = (
    *OFTEN,
    DriverInfo,
    *(kind for kind in get_args(HostReading) if kind not in OFTEN + UNRECORDED),
    GpuBusy,
    RdmaError,
    RdmaCongestion,
)


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """What was known at one time, as it is encoded; `flight.bundle` decodes it."""

    wall_s: float
    monotonic_s: float
    readings: list[Reading]


class Ring:
    """The newest `seconds` of moments, in compressed chunks; never more than `max_bytes` of them."""

    def __init__(self, seconds: float, max_bytes: int = MAX_BYTES) -> None:
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._encoder = msgspec.msgpack.Encoder()
        self._chunks: deque[tuple[float, bytes]] = deque()  # time of the newest moment, compressed
        self._bytes = 0
        self._open = Packed()
        self._opened_s: float | None = None
        self._newest_s = 0.0
        self._whole_s = float("-inf")

    def add(self, snapshot: Snapshot) -> None:
        """Keep the readings of a snapshot that are recorded."""
        now_s = snapshot.monotonic_s
        often = now_s - self._whole_s < NOW_AND_THEN_S
        if not often:
            self._whole_s = now_s
        readings = [reading for kind in (OFTEN if often else RECORDED) for reading in snapshot.of(kind)]
        moment = self._encoder.encode(Moment(snapshot.wall_s, now_s, readings))
        self._open.add(len(moment).to_bytes(LENGTH_BYTES, "little") + moment)
        self._opened_s = now_s if self._opened_s is None else self._opened_s
        self._newest_s = now_s
        if now_s - self._opened_s >= CHUNK_S:
            self._close_chunk()
        while self._chunks and (now_s - self._chunks[0][0] > self._seconds or self._bytes > self._max_bytes):
            self._bytes -= len(self._chunks.popleft()[1])

    def frozen(self) -> list[bytes]:
        """All chunks, oldest first; the open one as it stands."""
        chunks = [chunk for _, chunk in self._chunks]
        return chunks if self._opened_s is None else [*chunks, self._open.so_far()]

    def _close_chunk(self) -> None:
        chunk = self._open.so_far()
        self._chunks.append((self._newest_s, chunk))
        self._bytes += len(chunk)
        self._open, self._opened_s = Packed(), None


class Packed:
    """A chunk that grows. Each moment is compressed as it comes: a minute of them would hold up a tick."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(LEVEL)
        self._parts: list[bytes] = []

    def add(self, content: bytes) -> None:
        """Put this behind the rest."""
        self._parts.append(self._packer.compress(content))

    def so_far(self) -> bytes:
        """All of it; more may be added."""
        return b"".join(self._parts) + self._packer.copy().flush()


def moments(chunk: bytes) -> Iterator[object]:
    """The moments of a chunk, undecoded beyond msgpack. Raises ValueError when it is damaged."""
    try:
        content = zlib.decompress(chunk)
        at = 0
        while at < len(content):
            start = at + LENGTH_BYTES
            at = start + int.from_bytes(content[at:start], "little")
            yield msgspec.msgpack.decode(content[start:at])
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"a part of it is damaged: {error}") from None
