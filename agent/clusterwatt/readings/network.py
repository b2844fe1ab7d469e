"""Network interfaces and RDMA ports."""

from __future__ import annotations

from clusterwatt.readings.base import Reading


class Network(Reading, frozen=True):
    """An Ethernet interface as the kernel counts it. kind: physical, bond, vlan, bridge, virtual."""

    device: str
    kind: str
    receive_bytes: float | None = None
    transmit_bytes: float | None = None
    receive_packets: float | None = None
    transmit_packets: float | None = None
    receive_errors: float | None = None
    transmit_errors: float | None = None
    receive_drops: float | None = None
    transmit_drops: float | None = None
    up: float | None = None
    link_rate_bytes_per_second: float | None = None
    carrier_changes: float | None = None


class NetworkInfo(Reading, frozen=True):
    """What an interface is, and the bond or bridge that it belongs to (empty: none)."""

    device: str
    kind: str
    master: str


class NetworkPause(Reading, frozen=True):
    """Pause frames of a driver. direction: receive, transmit; priority: 0 to 7, global."""

    device: str
    direction: str
    priority: str
    pause_seconds: float | None = None
    pause_frames: float | None = None


class Bond(Reading, frozen=True):
    """Links that a bond should have, and that are up."""

    device: str
    members: float
    members_up: float


class RdmaPort(Reading, frozen=True):
    """A port of an RDMA device (InfiniBand, RoCE, EFA); bytes, not words."""

    device: str
    port: str
    receive_bytes: float | None = None
    transmit_bytes: float | None = None
    receive_packets: float | None = None
    transmit_packets: float | None = None
    up: float | None = None
    link_rate_bytes_per_second: float | None = None
    link_downed: float | None = None


class RdmaPortExpectation(Reading, frozen=True):
    """Whether a port should be up, and the rate it should have; configured, else learnt."""

    device: str
    port: str
    expected: float
    link_rate_bytes_per_second: float | None = None


class RdmaPortInfo(Reading, frozen=True):
    """What an RDMA port is; empty where the kernel does not say."""

    device: str
    port: str
    link_layer: str
    netdev: str
    rail: str
    firmware: str


class Imex(Reading, frozen=True):
    """1: the daemons of this node's IMEX domain all run and are connected."""

    ready: float


class RdmaError(Reading, frozen=True):
    """An error counter of a port, by the contract's name for it."""

    device: str
    port: str
    error: str
    errors: float


class RdmaCongestion(Reading, frozen=True):
    """A congestion counter of a port. kind: transmit_wait, ecn_marked, cnp_sent, cnp_handled."""

    device: str
    port: str
    kind: str
    events: float
