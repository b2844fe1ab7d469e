"""RDMA ports (InfiniBand, RoCE, EFA), from /sys/class/infiniband.

Specified in Documentation/ABI/stable/sysfs-class-infiniband; `rdma_ports` knows which file holds what. The
data counters of InfiniBand count words and become bytes here.

The other counters of InfiniBand pass as they are, and saturate: they stop at their width (`link_downed` at
255, `symbol_error` at 65535, `port_xmit_wait` at 4294967295) until someone clears them with `perfquery -R`,
so at that value they say "at least". Byte and packet counters of 32 bits are full within seconds; one that is
full is left out, because its rate of 0 would be taken for silence. The counters of mlx5 below hw_counters are
32 bits wide and wrap, which reads as a reset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusterwatt.catalog import FULL, STANDARD, LevelBy, Table
from clusterwatt.clock import Clock
from clusterwatt.collectors.attempts import Attempts
from clusterwatt.collectors.rdma_expectation import GIGABIT_BYTES, Expectations
from clusterwatt.collectors.rdma_ports import CLASS, Port, Traffic, find_ports
from clusterwatt.collectors.rdma_rails import Rails
from clusterwatt.config.model import RdmaCollector as Settings
from clusterwatt.learnt import Learnt
from clusterwatt.readings.base import Reading
from clusterwatt.readings.network import (
    RdmaCongestion,
    RdmaError,
    RdmaPort,
    RdmaPortExpectation,
    RdmaPortInfo,
)
from clusterwatt.sysfs import Files

ACTIVE = "4"  # of NOP, DOWN, INIT, ARMED, ACTIVE, ACTIVE_DEFER; the text behind it is not to be trusted
RATE = re.compile(r"(\d+(?:\.\d+)?) ?Gb/sec")  # "400 Gb/sec (4X NDR)"; the width in brackets is in it already
ALL_ONES_32 = 0xFFFF_FFFF

BY_ERROR = LevelBy(
    "error",
    {
        "symbol": STANDARD,
        "local_link_integrity": STANDARD,
        "buffer_overrun": STANDARD,
        "transmit_discard": STANDARD,
        "retransmit": STANDARD,
        "timeout": STANDARD,
        "link_recovery": FULL,
        "receive": FULL,
        "remote_physical": FULL,
        "out_of_sequence": FULL,
        "rnr": FULL,
        "icrc": FULL,
    },
)

PORT = Table(RdmaPort, labels=("device", "port"))
EXPECTATION = Table(RdmaPortExpectation, labels=("device", "port"))
ERROR = Table(RdmaError, labels=("device", "port", "error"))
CONGESTION = Table(RdmaCongestion, labels=("device", "port", "kind"))
INFO = Table(RdmaPortInfo, labels=("device", "port", "link_layer", "netdev", "rail", "firmware"))
METRICS = (
    PORT.counter("rdma_receive_bytes_total", "Bytes received by the port.", "receive_bytes"),
    PORT.counter("rdma_transmit_bytes_total", "Bytes sent by the port.", "transmit_bytes"),
    PORT.counter(
        "rdma_receive_packets_total", "Packets received by the port.", "receive_packets", level=FULL
    ),
    PORT.counter("rdma_transmit_packets_total", "Packets sent by the port.", "transmit_packets", level=FULL),
    PORT.gauge("rdma_port_up", "1 while the port is active; 0 also for an expected port that is gone.", "up"),
    EXPECTATION.gauge(
        "rdma_port_expected",
        "1 for a port that should be up: configured, else seen up for an hour.",
        "expected",
    ),
    PORT.gauge(
        "rdma_link_rate_bytes_per_second",
        "Speed of the link as the kernel states it; none while the port is down.",
        "link_rate_bytes_per_second",
        level=STANDARD,
    ),
    EXPECTATION.gauge(
        "rdma_link_rate_expected_bytes_per_second",
        "Speed that the link should have: configured, else the highest seen.",
        "link_rate_bytes_per_second",
        level=STANDARD,
    ),
    PORT.counter(
        "rdma_link_downed_total",
        "Times the link went down. Counters of InfiniBand stop at 255 until they are cleared.",
        "link_downed",
    ),
    ERROR.counter(
        "rdma_errors_total",
        "Errors of the port by kind. Those of the InfiniBand link stop at their width until cleared.",
        "errors",
        by=BY_ERROR,
    ),
    CONGESTION.counter(
        "rdma_congestion_total",
        "Signs of congestion. transmit_wait is in ticks of the device.",
        "events",
        level=STANDARD,
    ),
    INFO.info("rdma_port_info", "What the port is, and its place among the rails.", level=STANDARD),
)


class RdmaCollector:
    """Reads every port of every device; what a port is and has is found out at each new listing only."""

    name = "rdma"

    def __init__(self, files: Files, settings: Settings, clock: Clock, learnt: Learnt | None = None) -> None:
        self._files = files
        self._rails = Rails(settings.rails)
        self._attempts = Attempts()
        self._expectations = Expectations(settings, clock, learnt or Learnt(None, clock))
        self._cards: dict[str, str] = {}
        self._listing: tuple[str, ...] = ()
        self._ports: list[Port] = []
        self._rates: dict[str, tuple[bool, float | None]] = {}

    def collect(self) -> Iterator[Reading]:
        """The readings of each port; what should be up and is gone is a port that is down."""
        known = {port.item for port in self._ports}
        listing = self._files.names(CLASS)
        if listing is not self._listing:
            self._ports = find_ports(self._files, self._attempts, self._rails)
            self._listing = listing
            self._rates.clear()
            self._cards = {
                port.device: self._attempts.get(
                    self._files.text, f"{CLASS}/{port.device}/node_guid", port.item
                )
                or ""
                for port in self._ports
            }
        present = set()
        for port in self._ports:
            readings = self._read(port)
            if readings:
                present.add(port.item)
            yield from readings
        if known - present:
            # Descriptors that are kept would keep the remains of a device; the next pass lists anew.
            self._files.forget(CLASS)
            self._ports = [port for port in self._ports if port.item in present]
        for item in self._expectations.missing(present):
            device, _, name = item.partition("/")
            yield RdmaPort(device=device, port=name, up=0.0)
            yield self._expectation(device, name)
        yield from self._attempts.take()

    def _read(self, port: Port) -> list[Reading]:
        """All readings of one port; none when it is gone."""
        state = self._attempts.get(self._files.text, f"{port.base}/state", port.item)
        up = None if state is None else state.partition(":")[0] == ACTIVE
        if up is None and not self._files.exists(port.base):
            return []
        rate = self._link_rate(port, up)
        if up is not None:
            card = self._cards.get(port.device, "")
            self._expectations.see(port.item, up=up, rate=rate, virtual=port.virtual, card=card)
        traffic = port.traffic
        readings: list[Reading] = [
            RdmaPort(
                device=port.device,
                port=port.port,
                receive_bytes=self._amount(traffic.get("receive_bytes"), port),
                transmit_bytes=self._amount(traffic.get("transmit_bytes"), port),
                receive_packets=self._amount(traffic.get("receive_packets"), port),
                transmit_packets=self._amount(traffic.get("transmit_packets"), port),
                up=None if up is None else float(up),
                link_rate_bytes_per_second=None if up is False else rate,
                link_downed=self._count(port.link_downed, port) if port.link_downed else None,
            ),
            self._expectation(port.device, port.port),
            port.info,
        ]
        for error, path in port.errors.items():
            errors = self._count(path, port)
            if errors is not None:
                readings.append(RdmaError(device=port.device, port=port.port, error=error, errors=errors))
        for kind, path in port.congestion.items():
            events = self._count(path, port)
            if events is not None:
                readings.append(RdmaCongestion(device=port.device, port=port.port, kind=kind, events=events))
        return readings

    def _count(self, path: str, port: Port) -> float | None:
        return self._attempts.get(self._files.integer, path, port.item)

    def _amount(self, traffic: Traffic | None, port: Port) -> float | None:
        if traffic is None:
            return None
        total = 0
        for path in traffic.paths:
            count = self._attempts.get(self._files.integer, path, port.item)
            if count is None or (traffic.narrow and count == ALL_ONES_32):
                return None
            total += count
        return float(total * traffic.unit)

    def _link_rate(self, port: Port, up: bool | None) -> float | None:
        """Bytes per second; firmware answers, so it is asked at each listing and when the state changed."""
        known = self._rates.get(port.item)
        if known is not None and known[0] == up:
            return known[1]
        text = self._attempts.get(self._files.text, f"{port.base}/rate", port.item)
        match = RATE.match(text or "")
        rate = float(match[1]) * GIGABIT_BYTES if match else None
        if up is not None:
            self._rates[port.item] = (up, rate)
        return rate

    def _expectation(self, device: str, port: str) -> RdmaPortExpectation:
        item = f"{device}/{port}"
        return RdmaPortExpectation(
            device=device,
            port=port,
            expected=float(self._expectations.expected(item)),
            link_rate_bytes_per_second=self._expectations.rate(item),
        )
