"""XIDs and SXids as counters and times, from the driver's events and the kernel log together.

The counters begin with the agent, never fall, and do not care how often a driver host is replaced. The total
of a GPU is there from 0 as soon as one of the two sources watches it, so `increase()` sees the first one too.
A code has a series from its first event on; one from before the agent's start has its time, and 0.

MIG: an event is counted for the board, whose kernel line often names no instance; the instance is told to
whoever takes the events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from clusterwatt.catalog import CORE, STANDARD, Table
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import DriverXid, GpuInfo
from clusterwatt.readings.gpu_measured import GpuXid, GpuXids, HardwareEvent, SwitchSxid
from clusterwatt.readings.kernel_log import KernelSxid, KernelXid
from clusterwatt.xids import Code, catalogue

ALL = Table(GpuXids, labels=("gpu", "uuid"))
BY_CODE = Table(GpuXid, labels=("gpu", "uuid", "xid", "xid_class", "severity"))
SWITCH = Table(SwitchSxid, labels=("switch", "sxid", "fatality"))
METRICS = (
    ALL.counter("gpu_xid_events_total", "XIDs of the GPU since the agent started, of all codes.", "events"),
    BY_CODE.gauge(
        "gpu_last_xid_timestamp_seconds",
        "Time of the newest XID of a code, also of one before the agent's start.",
        "last_timestamp_seconds",
        CORE,
    ),
    BY_CODE.counter(
        "gpu_xid_errors_total", "XIDs of the GPU since the agent started, by code.", "events", STANDARD
    ),
    SWITCH.gauge(
        "nvswitch_last_sxid_timestamp_seconds",
        "Time of the newest SXid of a code, also of one before the agent's start.",
        "last_timestamp_seconds",
        CORE,
    ),
    SWITCH.counter(
        "nvswitch_sxid_errors_total",
        "SXids of the NVSwitch since the agent started, by code.",
        "events",
        STANDARD,
    ),
)

SAME_WITHIN_S = 10.0  # the driver's and the kernel's word for one event; a driver in trouble is late
MOST_WAITING = 1000

Address = tuple[int, int, int]


class Count:
    """Events of one code, and the time of the newest."""

    def __init__(self) -> None:
        self.events = 0
        self.last_s = 0.0

    def add(self, wall_s: float, *, history: bool) -> None:
        """Take an event; one of before the agent's start is not counted."""
        self.events += not history
        self.last_s = max(self.last_s, wall_s)


class Board:
    """What is known of one GPU."""

    def __init__(self) -> None:
        self.gpu = ""
        self.pci = ""
        self.watched = False
        self.codes: dict[int, Count] = {}


class Told(NamedTuple):
    """An event that only one source has told yet."""

    by_kernel: bool
    at_s: float


class XidMeter:
    """Counts the XIDs of every GPU and the SXids of every NVSwitch, each event once."""

    def __init__(self) -> None:
        self._boards: dict[str, Board] = {}
        self._uuids: dict[Address, str] = {}
        self._told: dict[tuple[str, int], deque[Told]] = {}
        self._switches: dict[tuple[str, int, str], Count] = {}
        self._read_to = -1  # number of the newest record of the kernel that was taken
        self._waiting: deque[KernelXid] = deque(maxlen=MOST_WAITING)  # for their GPU to be known
        self._events: list[HardwareEvent] = []
        self._newest_cause_s: float | None = None

    def measure(
        self,
        gpus: Iterable[GpuInfo],
        driver_xids: Iterable[DriverXid],
        watched: Collection[str],
        kernel_events: Sequence[KernelXid | KernelSxid] | None,
    ) -> Iterator[Reading]:
        """Take what the sources say now; yield every count.

        `watched`: GPUs whose events the driver tells. `kernel_events`: None when the log cannot be read;
        those that were taken before are passed over.
        """
        for info in gpus:
            self._know(info)
        for uuid, board in self._boards.items():
            board.watched |= uuid in watched or kernel_events is not None
        self._take_waiting()
        fresh = [event for event in kernel_events or () if event.sequence > self._read_to]
        for event in sorted(fresh, key=lambda event: event.sequence):
            self._read_to = event.sequence
            if isinstance(event, KernelXid):
                self._take_kernel_xid(event)
            else:
                self._take_sxid(event)
        for xid in driver_xids:
            self._take_driver_xid(xid)
        yield from self._counts()

    def take_events(self) -> list[HardwareEvent]:
        """Events since the last call, each once; none of those of before the agent's start."""
        events, self._events = self._events, []
        return events

    def _know(self, info: GpuInfo) -> None:
        if info.parent_uuid:
            return
        board = self._boards.setdefault(info.uuid, Board())
        board.gpu = info.gpu
        place = address(info.pci_bus_id)
        if place is not None:
            board.pci = info.pci_bus_id
            self._uuids[place] = info.uuid

    def _take_waiting(self) -> None:
        for _ in range(len(self._waiting)):
            self._is_news(self._waiting.popleft())

    def _is_news(self, event: KernelXid) -> bool:
        """Count a kernel's event, or put it by until its GPU is known; whether it is new to everybody."""
        uuid = self._uuid_at(event.pci)
        if not uuid:
            self._waiting.append(event)
            return not event.history
        if not event.history and self._told_by_both(uuid, event.xid, event.monotonic_s, by_kernel=True):
            return False
        self._count(uuid, event.xid, event.wall_s, history=event.history)
        return not event.history

    def _take_kernel_xid(self, event: KernelXid) -> None:
        if self._is_news(event):
            # A GPU that does not come up has no UUID here, and the event must not wait for one.
            self._announce(event, self._uuid_at(event.pci), event.pci, event.detail)

    def _take_driver_xid(self, event: DriverXid) -> None:
        if self._told_by_both(event.uuid, event.xid, event.monotonic_s, by_kernel=False):
            return
        if event.uuid:
            self._count(event.uuid, event.xid, event.wall_s)
        board = self._boards.get(event.uuid)
        self._announce(event, event.uuid, board.pci if board else "", "")

    def _take_sxid(self, event: KernelSxid) -> None:
        code, fatality = catalogue().sxid(event.sxid, fatal=event.fatal)
        count = self._switches.setdefault((event.switch, event.sxid, fatality), Count())
        count.add(event.wall_s, history=event.history)
        if event.history:
            return
        self._events.append(
            HardwareEvent(
                kind="sxid",
                code=event.sxid,
                **code._asdict(),
                gpu="",
                uuid="",
                pci=event.pci,
                instance="",
                switch=event.switch,
                fatality=fatality,
                detail=event.detail,
                echo=False,
                wall_s=event.wall_s,
                monotonic_s=event.monotonic_s,
            )
        )

    def _told_by_both(self, uuid: str, xid: int, at_s: float, *, by_kernel: bool) -> bool:
        """Whether the other source has told of this event already: one of its events is one of ours."""
        told = self._told.setdefault((uuid, xid), deque())
        while told and at_s - told[0].at_s > SAME_WITHIN_S:
            told.popleft()
        if told and told[0].by_kernel != by_kernel:  # all in the queue are of one source
            told.popleft()
            return True
        told.append(Told(by_kernel, at_s))
        return False

    def _count(self, uuid: str, xid: int, wall_s: float, *, history: bool = False) -> None:
        board = self._boards.setdefault(uuid, Board())
        board.codes.setdefault(xid, Count()).add(wall_s, history=history)

    def _announce(self, event: KernelXid | DriverXid, uuid: str, pci: str, detail: str) -> None:
        code = catalogue().xid(event.xid)
        board = self._boards.get(uuid)
        self._events.append(
            HardwareEvent(
                kind="xid",
                code=event.xid,
                **code._asdict(),
                gpu=board.gpu if board else "",
                uuid=uuid,
                pci=pci,
                instance=_instance(event),
                switch="",
                fatality="",
                detail=detail,
                echo=self._is_echo(event.xid, event.monotonic_s),
                wall_s=event.wall_s,
                monotonic_s=event.monotonic_s,
            )
        )

    def _is_echo(self, xid: int, at_s: float) -> bool:
        codes = catalogue()
        if xid not in codes.echo_codes:
            self._newest_cause_s = at_s
            return False
        return self._newest_cause_s is not None and at_s - self._newest_cause_s <= codes.echo_window_s

    def _uuid_at(self, pci: str) -> str:
        place = address(pci)
        return "" if place is None else self._uuids.get(place, "")

    def _counts(self) -> Iterator[Reading]:
        for uuid, board in self._boards.items():
            if not board.gpu:
                continue  # heard of, not seen yet
            if board.watched or board.codes:
                total = sum(count.events for count in board.codes.values())
                yield GpuXids(gpu=board.gpu, uuid=uuid, events=float(total))
            for xid, count in board.codes.items():
                code: Code = catalogue().xid(xid)
                yield GpuXid(
                    gpu=board.gpu,
                    uuid=uuid,
                    xid=str(xid),
                    xid_class=code.xid_class,
                    severity=code.severity,
                    events=float(count.events),
                    last_timestamp_seconds=count.last_s,
                )
        for (switch, sxid, fatality), count in self._switches.items():
            yield SwitchSxid(
                switch=switch,
                sxid=str(sxid),
                fatality=fatality,
                events=float(count.events),
                last_timestamp_seconds=count.last_s,
            )


def address(pci: str) -> Address | None:
    """Domain, bus and device of a PCI address; the kernel's lines lack the function. None for other text."""
    try:
        domain, bus, device = pci.split(".", maxsplit=1)[0].split(":")
        return int(domain, 16), int(bus, 16), int(device, 16)
    except ValueError:
        return None


def _instance(event: KernelXid | DriverXid) -> str:
    parts = (event.gpu_instance, event.compute_instance)
    return "/".join(str(part) for part in parts if part is not None)
