"""The network of a simulated node: a 400 Gbit/s port for each GPU, and two bonded 100 Gbit/s interfaces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from clusterwatt.readings.base import Reading
from clusterwatt.readings.network import (
    Bond,
    Network,
    NetworkInfo,
    NetworkPause,
    RdmaCongestion,
    RdmaError,
    RdmaPort,
    RdmaPortExpectation,
    RdmaPortInfo,
)
from clusterwatt.simulate.troubles import Troubles
from clusterwatt.simulate.work import Signal

PORT_BYTES_PER_S = 400e9 / 8
INTERFACE_BYTES_PER_S = 100e9 / 8
FRAME_BYTES, PACKET_BYTES = 6_000.0, 4_096.0
CHATTER_BYTES_PER_S = 60_000.0  # of what runs on every node
FLAP_EVERY_S, FLAP_DOWN_S = 60.0, 10.0
ERRORS = (
    "symbol",
    "local_link_integrity",
    "buffer_overrun",
    "transmit_discard",
    "retransmit",
    "timeout",
    "link_recovery",
    "receive",
    "remote_physical",
    "out_of_sequence",
    "rnr",
    "icrc",
)
CONGESTION = ("transmit_wait", "ecn_marked", "cnp_sent", "cnp_handled")


class Fabric:
    """Ports and interfaces.

    `rails`: share of each port in use, each way. `shared`: bytes a second of file systems, which go over the
    interfaces.
    """

    def __init__(self, rails: Sequence[Signal], shared: Signal, boot_s: float, troubles: Troubles) -> None:
        self._rails = rails
        self._shared = shared
        self._boot_s = boot_s
        self._troubles = troubles

    def rdma(self, time_s: float) -> Iterator[Reading]:
        """All ports."""
        for rail, signal in enumerate(self._rails):
            yield from self._port(f"mlx5_{rail}", rail, signal, time_s)

    def _port(self, device: str, rail: int, signal: Signal, time_s: float) -> Iterator[Reading]:
        of = (device, "1")
        troubles = self._troubles
        carried = PORT_BYTES_PER_S * (signal.integral(time_s) - signal.integral(self._boot_s))
        slow = troubles.now("port_slow", time_s, device)
        rate = PORT_BYTES_PER_S if slow is None else PORT_BYTES_PER_S * slow.amount
        up = self._up(device, time_s)
        yield RdmaPort(
            *of,
            receive_bytes=float(math.floor(carried * 0.998)),
            transmit_bytes=float(math.floor(carried)),
            receive_packets=float(math.floor(carried * 0.998 / PACKET_BYTES)),
            transmit_packets=float(math.floor(carried / PACKET_BYTES)),
            up=float(up),
            link_rate_bytes_per_second=rate if up else None,
            link_downed=self._downed(device, time_s),
        )
        yield RdmaPortExpectation(*of, expected=1.0, link_rate_bytes_per_second=PORT_BYTES_PER_S)
        yield RdmaPortInfo(
            *of, link_layer="InfiniBand", netdev=f"ib{rail}", rail=str(rail), firmware="28.43.2026"
        )
        for error in ERRORS:
            found = sum(
                trouble.amount * trouble.seconds(time_s)
                for trouble in troubles.all("port_errors", device)
                if error == "symbol"
            )
            yield RdmaError(*of, error=error, errors=float(math.floor(found)))
        waits = float(math.floor(carried / 2e6))
        for kind in CONGESTION:
            yield RdmaCongestion(*of, kind=kind, events=waits if kind == "transmit_wait" else 0.0)

    def _up(self, device: str, time_s: float) -> bool:
        flapping = self._troubles.now("port_flaps", time_s, device)
        if flapping is not None and flapping.seconds(time_s) % FLAP_EVERY_S < FLAP_DOWN_S:
            return False
        return self._troubles.now("port_down", time_s, device) is None

    def _downed(self, device: str, time_s: float) -> float:
        flaps = sum(
            math.ceil(trouble.seconds(time_s) / FLAP_EVERY_S)
            for trouble in self._troubles.all("port_flaps", device)
        )
        return float(flaps + sum(t.from_s <= time_s for t in self._troubles.all("port_down", device)))

    def ethernet(self, time_s: float) -> Iterator[Reading]:
        """A bond and its two members."""
        up_s = time_s - self._boot_s
        carried = 0.5 * (self._shared.integral(time_s) - self._shared.integral(self._boot_s))
        member = carried + 0.5 * CHATTER_BYTES_PER_S * up_s
        down = self._troubles.now("interface_down", time_s)
        for device, kind, factor in (
            ("bond0", "bond", 2.0),
            ("eth0", "physical", 1.0),
            ("eth1", "physical", 1.0),
        ):
            up = kind == "bond" or down is None or down.item != device
            counted = float(math.floor(factor * member))
            packets = float(math.floor(factor * member / FRAME_BYTES))
            yield Network(
                device=device,
                kind=kind,
                receive_bytes=counted,
                transmit_bytes=counted,
                receive_packets=packets,
                transmit_packets=packets,
                receive_errors=0.0,
                transmit_errors=0.0,
                receive_drops=float(math.floor(up_s / 86_400.0)),
                transmit_drops=0.0,
                up=float(up),
                link_rate_bytes_per_second=factor * INTERFACE_BYTES_PER_S if up else None,
                carrier_changes=2.0,
            )
            yield NetworkInfo(device=device, kind=kind, master="" if kind == "bond" else "bond0")
        yield Bond(device="bond0", members=2.0, members_up=2.0 if down is None else 1.0)

    def pauses(self, time_s: float) -> Iterator[Reading]:
        """Pause frames: none are sent."""
        for device in ("eth0", "eth1"):
            for direction in ("receive", "transmit"):
                yield NetworkPause(device, direction, "3", pause_seconds=0.0, pause_frames=0.0)
