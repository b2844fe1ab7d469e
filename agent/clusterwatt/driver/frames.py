"""What the driver host and the agent say to each other: msgpack behind a four-byte length, on two pipes.

The agent writes one `HostSettings` to the host's standard input and then nothing; the end of that pipe tells
the host to leave. The host writes one `Frame` for each cadence to its standard output. Most of what it knows
of a GPU is read every 10 or 30 seconds and goes over the pipe only when it has changed.

Times are CLOCK_MONOTONIC, which is the same in both processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, repeat
from typing import IO

import msgspec

from clusterwatt.config.model import Simulate
from clusterwatt.nvml.call_times import CallTime
from clusterwatt.readings.base import Failure
from clusterwatt.readings.gpu import DriverXid, GpuGpm, Group, HostReading

LENGTH_BYTES = 4
MAX_MESSAGE_BYTES = 16 << 20  # the first frame of 8 GPUs is 120 kB; more is not a frame


class HostSettings(msgspec.Struct, frozen=True):
    """What the host needs to know; times in seconds.

    GPUs that `release_file` lists are not read; that the host has to leave, it is told otherwise. `root` is
    that of the node's processes; empty where the driver's are not among them, as with a simulated one.
    `library_roots`: see `nvml.library`.
    """

    every_seconds: float
    slow_seconds: float
    deadline_seconds: float
    retry_seconds: float
    simulate: Simulate
    log_level: str = "info"
    log_format: str = "logfmt"
    release_file: str = ""
    gpm: bool = True
    root: str = ""
    library_roots: tuple[str, ...] = ()


class DriverState(msgspec.Struct, frozen=True, array_like=True):
    """Whether NVML answers, why not (`reason`, empty when it does), and what it is."""

    up: bool
    reason: str = ""
    driver: str = ""
    nvml: str = ""
    cuda: str = ""


class DeviceFrame(msgspec.Struct, frozen=True, array_like=True):
    """One GPU or MIG instance: its newest readings and the time they were taken.

    `reason` is empty while it answers, else lost, reset_required, timeout, permission, unknown, or released:
    the operator wants it left alone. Failures are those since the last frame. `call_since_s` is the start of
    a call that has not come back, else None. `parent_uuid` is empty for a whole GPU. An instance is read by
    its GPU's thread and stands behind it; one that was destroyed has no frame any more.
    """

    gpu: str
    uuid: str
    reason: str
    read_s: float
    call_since_s: float | None
    groups: tuple[Group, ...]
    failures: tuple[Failure, ...]
    parent_uuid: str = ""

    @property
    def readings(self) -> tuple[HostReading, ...]:
        """All of them, in their order."""
        return tuple(chain.from_iterable(self.groups))


class GpmFrame(msgspec.Struct, frozen=True, array_like=True):
    """GPM of all GPUs. `offered`: whether any GPU has it or may have it; None before the first pass.

    `read_s` is the time of the newest sample, `call_since_s` the start of a pass that has not come back.
    Readings are those that are not stale, failures those since the last frame.
    """

    offered: bool | None
    read_s: float | None
    call_since_s: float | None
    readings: tuple[GpuGpm, ...]
    failures: tuple[Failure, ...]


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """State of driver and GPUs at one time. `leaving`: why the host ends after this frame, else empty.

    `xids` are those since the last frame, `xids_watched` the UUIDs of the GPUs whose XIDs the driver tells.
    `failures` are those of the driver as a whole, `search_since_s` the start of a call that opens it or looks
    for GPUs and has not come back.
    """

    sent_s: float
    driver: DriverState
    gpus_visible: int
    devices: tuple[DeviceFrame, ...]
    leaving: str = ""
    xids: tuple[DriverXid, ...] = ()
    xids_watched: tuple[str, ...] = ()
    gpm: GpmFrame | None = None
    calls: tuple[CallTime, ...] = ()
    failures: tuple[Failure, ...] = ()
    search_since_s: float | None = None


_encoder = msgspec.msgpack.Encoder()


def write_message(pipe: IO[bytes], message: msgspec.Struct) -> None:
    """Write one message whole and flush it. Raises OSError when the other side has gone."""
    body = _encoder.encode(message)
    pipe.write(len(body).to_bytes(LENGTH_BYTES, "little") + body)
    pipe.flush()


def read_message(pipe: IO[bytes]) -> bytes | None:
    """Wait for one message; None at the end of the pipe, also in the middle of a message.

    Raises ValueError when the length is impossible: the stream is not ours or has lost its step.
    """
    head = pipe.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "little")
    if length > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {length} bytes; at most {MAX_MESSAGE_BYTES} are allowed")
    body = pipe.read(length)
    return body if len(body) == length else None


class FrameWriter:
    """Writes frames; in place of a group that the last one had at the same place it leaves an empty one."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._before: Mapping[str, tuple[Group, ...]] = {}

    def write(self, frame: Frame) -> None:
        """Write one frame. Raises OSError when the other side has gone."""
        devices = tuple(
            msgspec.structs.replace(device, groups=_changed(device.groups, self._before.get(device.uuid, ())))
            for device in frame.devices
        )
        write_message(self._pipe, msgspec.structs.replace(frame, devices=devices))
        self._before = {device.uuid: device.groups for device in frame.devices}


class FrameReader:
    """Reads frames, and puts in again what the writer left out."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._decoder = msgspec.msgpack.Decoder(Frame)
        self._before: Mapping[str, tuple[Group, ...]] = {}

    def read(self) -> Frame | None:
        """Wait for one frame; None at the end of the pipe. Raises ValueError when what comes is no frame."""
        message = read_message(self._pipe)
        if message is None:
            return None
        frame = self._decoder.decode(message)
        devices = tuple(
            msgspec.structs.replace(device, groups=_whole(device.groups, self._before.get(device.uuid, ())))
            for device in frame.devices
        )
        self._before = {device.uuid: device.groups for device in devices}
        return msgspec.structs.replace(frame, devices=devices)


def _changed(groups: tuple[Group, ...], before: tuple[Group, ...]) -> tuple[Group, ...]:
    pairs = zip(groups, chain(before, repeat(None)), strict=False)
    return tuple([() if group == last else group for group, last in pairs])


def _whole(groups: tuple[Group, ...], before: tuple[Group, ...]) -> tuple[Group, ...]:
    try:
        return tuple(group or before[place] for place, group in enumerate(groups))
    except IndexError:
        raise ValueError("it leaves out what it has never said") from None
