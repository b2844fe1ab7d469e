"""XIDs and SXids in the kernel log, from /dev/kmsg (Documentation/ABI/testing/dev-kmsg).

The driver's event set misses codes that say that the driver itself is stuck or gone (79, 119, 120), and
NVSwitches have no event set. The forms of the lines stand in data/xid.yaml.

What is in the log when it is opened is history: told as such, so that it is shown with its time and not
counted again by each agent that starts. Only lines of the kernel count: what a program writes into the device
carries another facility.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from clusterwatt.clock import Clock
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.kernel_log import KernelLog, KernelSxid, KernelXid

log = logging.getLogger("clusterwatt.collectors.kmsg")

PATH = "/dev/kmsg"
RECORD_BYTES = 8192  # the kernel's own limit (PRINTK_MESSAGE_MAX, before 6.x CONSOLE_EXT_LOG_MAX)
MOST_HISTORY = 1 << 18  # records: a log of 16 MB holds no more
MOST_RECORDS = 20_000  # of one pass; what is left stays in the kernel for the next
MOST_EVENTS = 4_000  # of one pass: an aborted job writes an XID 45 for each of its channels
KEPT_PASSES = 3  # an event is told again until whoever listens cannot have missed it
DETAIL_CHARACTERS = 300
NOT_HERE = frozenset({errno.EPERM, errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO})
FACILITY_SHIFT = 3  # below it the severity; 0 above it is the kernel

XID = re.compile(
    r"NVRM: Xid \(PCI:(?P<pci>[0-9A-Fa-f:.]+)(?: GPU-I:(?P<gpu_instance>\d+))?"
    r"(?: GPU-CI:(?P<compute_instance>\d+))?\): (?P<code>\d+)(?:, (?P<detail>.*))?"
)
SXID = re.compile(
    r"nvidia-nvswitch(?P<switch>\d+): SXid \(PCI:(?P<pci>[0-9A-Fa-f:.]+)\): (?P<code>\d+), "
    r"(?P<fatality>Fatal|Non-fatal)(?:, Link (?P<link>\d+))?(?P<detail>.*)"
)


class Record(NamedTuple):
    """A record of the kernel's: its number, when it was written (the kernel's clock), its text."""

    sequence: int
    written_s: float
    text: str


def record(raw: bytes) -> Record | None:
    """A record as /dev/kmsg gives it: `priority,sequence,microseconds,flags;text`; None for other people's.

    Lines behind the first describe the device that it is about.
    """
    head, _, rest = raw.partition(b";")
    try:
        priority, sequence, microseconds = (int(number) for number in head.split(b",")[:3])
    except ValueError:
        return None
    if priority >> FACILITY_SHIFT:
        return None
    text = rest.split(b"\n", 1)[0].decode("utf-8", "replace")
    return Record(sequence, microseconds / 1e6, text)


def open_log(path: str) -> int:
    """Open the log at its oldest record; a read never waits."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


class KmsgCollector:
    """Reads what is new in the kernel log. Where that is not allowed there is nothing to tell."""

    name = "kmsg"

    def __init__(self, root: str, clock: Clock, *, open_log: Callable[[str], int] = open_log) -> None:
        self._path = root.rstrip("/") + PATH
        self._clock = clock
        self._open = open_log
        self._descriptor: int | None = None
        self._refused = False
        self._records = 0
        self._passes: deque[list[Reading]] = deque(maxlen=KEPT_PASSES)

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def collect(self) -> Iterator[Reading]:
        """The events of this pass and of those before it, each with its number, and what went wrong."""
        if self._refused:
            return
        history = self._descriptor is None
        if self._descriptor is None:
            try:
                self._descriptor = self._open(self._path)
            except OSError as error:
                if error.errno not in NOT_HERE:
                    raise  # too many open files, say: that may be better at the next pass
                self._refused = True
                log.info("no XIDs from the kernel log: %s: %s", self._path, error.strerror)
                return
        events: list[Reading] = []
        for raw in self._raw(self._descriptor, MOST_HISTORY if history else MOST_RECORDS):
            if isinstance(raw, Failure):
                yield raw
                continue
            event = self._event(raw, history=history)
            if event is not None:
                events.append(event)
                if len(events) >= MOST_EVENTS and not history:
                    break
        self._passes.append(events[-MOST_EVENTS:])
        yield KernelLog(records=float(self._records))
        for kept in self._passes:
            yield from kept

    def _raw(self, descriptor: int, most: int) -> Iterator[bytes | Failure]:
        """Records until there is none, or a failure in between; a read gives exactly one."""
        for _ in range(most):
            try:
                raw = os.read(descriptor, RECORD_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:
                # Overtaken by the writer. The next read goes on at the oldest record that is left.
                yield Failure(item=PATH, reason="overrun", detail="records were overwritten unread")
                continue
            if not raw:
                return
            self._records += 1
            yield raw

    def _event(self, raw: bytes, *, history: bool) -> Reading | None:
        if b"Xid (" not in raw:
            return None
        found = record(raw)
        if found is None:
            return None
        wall_s, monotonic_s = self._clock.wall_s(), self._clock.monotonic_s()
        if history:  # the kernel's clock drifts from ours over weeks: good enough for the past only
            wall_s += found.written_s - monotonic_s
            monotonic_s = found.written_s
        xid = XID.search(found.text)
        if xid is not None:
            return KernelXid(
                sequence=found.sequence,
                pci=xid["pci"],
                xid=int(xid["code"]),
                detail=(xid["detail"] or "")[:DETAIL_CHARACTERS],
                wall_s=wall_s,
                monotonic_s=monotonic_s,
                history=history,
                gpu_instance=_number(xid["gpu_instance"]),
                compute_instance=_number(xid["compute_instance"]),
            )
        sxid = SXID.search(found.text)
        if sxid is not None:  # lines with Severity or Data are about one that was told before
            link = "" if sxid["link"] is None else f"link {sxid['link']}"
            return KernelSxid(
                sequence=found.sequence,
                switch=sxid["switch"],
                pci=sxid["pci"],
                sxid=int(sxid["code"]),
                fatal=sxid["fatality"] == "Fatal",
                detail=f"{link}{sxid['detail']}"[:DETAIL_CHARACTERS].strip(" ,"),
                wall_s=wall_s,
                monotonic_s=monotonic_s,
                history=history,
            )
        return None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
