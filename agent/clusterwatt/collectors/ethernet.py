"""Network interfaces: counters from /proc/1/net/dev, state of the links from /sys/class/net.

Specified in Documentation/networking/statistics.rst and Documentation/ABI/testing/sysfs-class-net. RDMA
traffic passes the kernel by and does not appear here. One read of the table costs less than eight files for
each interface and asks each driver once (net/core/net-procfs.c); its `drop` of receive holds the packets that
the card missed for want of buffers as well.

Namespaces: `/proc/net` is the reader's own, so a container that mounts the host's /proc would see itself
there; /proc/1/net is the host's. /sys/class/net is that of the process which mounted sysfs. Where the two
show different interfaces, the side that shows hardware is the node's, and the other is left alone.

Counters pass as the kernel counts them, over driver reloads too. Only a counter that had counted and reads
exactly 0 is held back for one pass: some kernels show a zero for a moment (netdata/netdata#6077), which
Prometheus would take for a reset and count everything anew. When the next pass reads 0 too, it is a reset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from clusterwatt.catalog import CORE, FULL, STANDARD, LevelBy, Table
from clusterwatt.clock import Clock
from clusterwatt.collectors import bond
from clusterwatt.collectors.interfaces import CLASS, has_hardware, is_interface, kind_by_name, kind_of
from clusterwatt.config.model import EthernetCollector as Settings
from clusterwatt.failures import failure
from clusterwatt.learnt import Learnt
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.network import Network, NetworkInfo
from clusterwatt.sysfs import LISTING_SECONDS, Files

TABLES = ("/proc/1/net/dev", "/proc/net/dev")  # the second where /proc/1 is hidden from us (hidepid)
# Columns of the table, and files below statistics/ in the same order.
COLUMNS = (0, 8, 1, 9, 2, 10, 3, 11)
STATISTICS = tuple(
    f"{way}_{what}" for what in ("bytes", "packets", "errors", "dropped") for way in ("rx", "tx")
)

MEGABIT_BYTES = 125_000
UNKNOWN_SPEEDS = (0, 65_535, 4_294_967_295)  # SPEED_UNKNOWN in the widths of old and new drivers; -1 in sysfs
KINDS_WITH_SPEED = ("physical", "bond", "vlan")  # what bridges and virtual interfaces state is made up

Counters = tuple[float | None, ...]
NO_COUNTERS: Counters = (None,) * len(COLUMNS)

BY_KIND = LevelBy("kind", {"physical": CORE, "bond": CORE, "vlan": FULL, "bridge": FULL, "virtual": FULL})
LINK = Table(Network, labels=("device",), row_level=BY_KIND)
INFO = Table(NetworkInfo, labels=("device", "kind", "master"), row_level=BY_KIND)
METRICS = (
    LINK.counter(
        "network_receive_bytes_total", "Bytes received by the interface, without RDMA.", "receive_bytes"
    ),
    LINK.counter(
        "network_transmit_bytes_total", "Bytes sent by the interface, without RDMA.", "transmit_bytes"
    ),
    LINK.counter("network_receive_packets_total", "Packets received.", "receive_packets", level=STANDARD),
    LINK.counter("network_transmit_packets_total", "Packets sent.", "transmit_packets", level=STANDARD),
    LINK.counter(
        "network_receive_errors_total", "Packets received with an error.", "receive_errors", level=STANDARD
    ),
    LINK.counter(
        "network_transmit_errors_total", "Packets that could not be sent.", "transmit_errors", level=STANDARD
    ),
    LINK.counter(
        "network_receive_drops_total",
        "Packets received and dropped, those that the card missed included.",
        "receive_drops",
        level=STANDARD,
    ),
    LINK.counter(
        "network_transmit_drops_total",
        "Packets dropped before they were sent.",
        "transmit_drops",
        level=STANDARD,
    ),
    LINK.gauge("network_up", "1 while the interface is operational.", "up"),
    LINK.gauge(
        "network_link_rate_bytes_per_second",
        "Speed of the link; absent while it is down and on virtual interfaces.",
        "link_rate_bytes_per_second",
        level=STANDARD,
    ),
    LINK.counter(
        "network_carrier_changes_total", "Times the link went up or down.", "carrier_changes", level=STANDARD
    ),
    INFO.info(
        "network_info",
        "Kind of an interface, and the bond or bridge above it. Add up kind physical only.",
        level=STANDARD,
    ),
    *bond.METRICS,
)


class _Interface(msgspec.Struct):
    """What is known of an interface between two passes. `base` is empty while sysfs is not the node's."""

    name: str
    kind: str
    master: str = ""
    base: str = ""
    counters: Counters = NO_COUNTERS
    counts_changes: bool = False
    carrier_changes: int | None = None
    link_rate: float | None = None


class _Sources(msgspec.Struct, frozen=True):
    """Where the node's interfaces are read. `table` is None for sysfs only."""

    table: str | None
    sysfs: bool
    mismatch: bool = False


class EthernetCollector:
    """Reads every interface but the loopback, as far as the settings let it."""

    name = "ethernet"

    def __init__(self, files: Files, settings: Settings, clock: Clock, learnt: Learnt | None = None) -> None:
        self._files = files
        self._clock = clock
        self._included = re.compile(settings.include) if settings.include else None
        self._excluded = re.compile(settings.exclude) if settings.exclude else None
        self._sources: _Sources | None = None
        self._interfaces: dict[str, _Interface | None] = {}  # None: left out
        self._described_s = clock.monotonic_s()
        self._bonds = bond.Bonds(files, clock, learnt or Learnt(None, clock))

    def collect(self) -> Iterator[Reading]:
        """Two readings for each interface, one for each bond; none for what goes away during the pass."""
        if self._sources is None:
            self._sources = _choose_sources(self._files)
            if self._sources.mismatch:
                taken = CLASS if self._sources.sysfs else self._sources.table
                yield Failure(
                    item=CLASS,
                    reason="namespace_mismatch",
                    detail=f"{CLASS} and procfs show different network namespaces; read from {taken} only",
                )
        rows = self._rows(self._sources)
        if rows is None:
            self._sources = None
            return
        for name in self._interfaces.keys() - rows.keys():
            del self._interfaces[name]
            self._files.forget(f"{CLASS}/{name}/")
        now_s = self._clock.monotonic_s()
        again = now_s - self._described_s >= LISTING_SECONDS
        if again:
            self._described_s = now_s
        for name, row in rows.items():
            try:
                if again or name not in self._interfaces:
                    self._interfaces[name] = self._describe(name, self._sources)
                interface = self._interfaces[name]
                if interface is not None:
                    counted = self._statistics(interface) if row is None else row
                    yield from self._read(interface, counted)
            except OSError as error:
                yield failure(name, error)

    def _rows(self, sources: _Sources) -> Mapping[str, Counters | None] | None:
        """Counters by interface, None where sysfs has them; nothing at all when the table went away."""
        if sources.table is None:
            return dict.fromkeys(self._files.names(CLASS))
        table = self._files.raw(sources.table)
        return None if table is None else _rows(table)

    def _describe(self, name: str, sources: _Sources) -> _Interface | None:
        """Find out what an interface is; None for one to leave out, and for what is none."""
        if self._included is not None and not self._included.fullmatch(name):
            return None
        if self._excluded is not None and self._excluded.fullmatch(name):
            return None
        before = self._interfaces.get(name)
        counters = NO_COUNTERS if before is None else before.counters
        if not sources.sysfs:
            kind = kind_by_name(name)
            return None if kind == "loopback" else _Interface(name, kind, counters=counters)
        if not is_interface(self._files, name):
            return None
        kind = kind_of(self._files, name)
        if kind == "loopback":
            return None
        base = f"{CLASS}/{name}"
        interface = _Interface(name, kind, base=base, counters=counters)
        interface.master = (self._files.link(f"{base}/master") or "").rpartition("/")[2]
        interface.counts_changes = self._files.exists(f"{base}/carrier_changes")
        interface.carrier_changes = self._files.integer(f"{base}/carrier_changes")
        interface.link_rate = self._link_rate(interface)
        return interface

    def _read(self, interface: _Interface, counted: Counters) -> Iterator[Reading]:
        up = changes = None
        if interface.base:
            state = self._files.text(f"{interface.base}/operstate")
            changes = self._files.integer(f"{interface.base}/carrier_changes")
            if (changes is None and interface.counts_changes) or (
                state is None and not is_interface(self._files, interface.name)
            ):
                return  # it offers them as long as it lives
            up = self._up(interface, state)
            if changes != interface.carrier_changes:
                interface.carrier_changes = changes
                interface.link_rate = self._link_rate(interface)
        # Index by index: the counter is None when it had counted and shows a zero for the first time.
        steady = [
            None if now == 0 and before else now
            for now, before in zip(counted, interface.counters, strict=True)
        ]
        interface.counters = counted
        yield Network(
            device=interface.name,
            kind=interface.kind,
            receive_bytes=steady[0],
            transmit_bytes=steady[1],
            receive_packets=steady[2],
            transmit_packets=steady[3],
            receive_errors=steady[4],
            transmit_errors=steady[5],
            receive_drops=steady[6],
            transmit_drops=steady[7],
            up=up,
            link_rate_bytes_per_second=interface.link_rate if up else None,
            carrier_changes=changes,
        )
        yield NetworkInfo(device=interface.name, kind=interface.kind, master=interface.master)
        if interface.kind == "bond" and interface.base:
            state_of_bond = self._bonds.read(interface.name)
            if state_of_bond is not None:
                yield state_of_bond

    def _up(self, interface: _Interface, state: str | None) -> float | None:
        if state == "up":
            return 1.0
        # Tunnels and many virtual cards say `unknown` while they work. The carrier is asked only then: the
        # kernel takes the lock of all interfaces for it, and answers EINVAL while this one is shut.
        carrier = self._files.integer(f"{interface.base}/carrier")
        if state is None and carrier is None:
            return None
        return float(carrier == 1)

    def _link_rate(self, interface: _Interface) -> float | None:
        """Bytes per second; read only after a change, because it takes the lock of all interfaces."""
        if interface.kind not in KINDS_WITH_SPEED:
            return None
        megabit = self._files.integer(f"{interface.base}/speed")
        if megabit is None or megabit < 0 or megabit in UNKNOWN_SPEEDS:
            return None
        return float(megabit * MEGABIT_BYTES)

    def _statistics(self, interface: _Interface) -> Counters:
        """The counters from sysfs, for when the table in procfs is that of another namespace."""
        folder = f"{interface.base}/statistics"
        counted = {name: self._files.integer(f"{folder}/{name}") for name in STATISTICS}
        dropped, missed = counted["rx_dropped"], self._files.integer(f"{folder}/rx_missed_errors")
        counted["rx_dropped"] = None if dropped is None else dropped + (missed or 0)
        return tuple(counted.values())


def _rows(table: bytes) -> Mapping[str, Counters]:
    """Counters in /proc/net/dev by interface; an alias such as `eth0:1` contains a colon itself."""
    rows: dict[str, Counters] = {}
    for line in table.splitlines()[2:]:
        name, _, numbers = line.rpartition(b":")
        columns = numbers.split()
        if len(columns) > max(COLUMNS):
            rows[name.strip().decode("utf-8", "replace")] = tuple(float(columns[index]) for index in COLUMNS)
    return rows


def _choose_sources(files: Files) -> _Sources:
    """Compare procfs and sysfs, and take what shows the node's interfaces."""
    listed = {name for name in files.names(CLASS) if is_interface(files, name)}
    table = next((path for path in TABLES if _table(files, path) is not None), None)
    if table is None or not listed:
        return _Sources(table=table, sysfs=bool(listed))
    if _agree(files, table, listed) or _agree(files, table, listed):  # pods come and go even during a look
        return _Sources(table=table, sysfs=True)
    if any(has_hardware(files, name) for name in listed):
        return _Sources(table=None, sysfs=True, mismatch=True)
    return _Sources(table=table, sysfs=False, mismatch=True)


def _agree(files: Files, path: str, listed: set[str]) -> bool:
    """Whether a table and sysfs show the same interfaces, apart from those that come or go at this moment."""
    counted = set(_rows(_table(files, path) or b""))
    return all(is_interface(files, name) for name in counted - listed) and not any(
        is_interface(files, name) for name in listed - counted
    )


def _table(files: Files, path: str) -> bytes | None:
    try:
        return files.raw(path)
    except PermissionError:
        return None
