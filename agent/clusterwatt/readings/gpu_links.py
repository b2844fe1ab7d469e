"""The ways out of a GPU: PCIe, NVLink, the link to the CPU, the fabric."""

from __future__ import annotations

from clusterwatt.readings.base import Reading


class GpuPcieTraffic(Reading, frozen=True):
    """Bytes over PCIe, as the driver counts them."""

    gpu: str
    uuid: str
    receive_bytes: float | None = None
    transmit_bytes: float | None = None


class GpuPcieLink(Reading, frozen=True):
    """The PCIe link as it has trained, the most it could be, and its replays."""

    gpu: str
    uuid: str
    generation: float | None = None
    width: float | None = None
    generation_max: float | None = None
    width_max: float | None = None
    replays: float | None = None


class GpuPcieErrors(Reading, frozen=True):
    """A PCIe error counter."""

    gpu: str
    uuid: str
    error: str
    errors: float


class GpuNvlinkTraffic(Reading, frozen=True):
    """Bytes over all NVLinks of the GPU."""

    gpu: str
    uuid: str
    receive_bytes: float | None = None
    transmit_bytes: float | None = None


class GpuNvlinks(Reading, frozen=True):
    """How many NVLinks are up, and how many should be. `up` is None while no link says."""

    gpu: str
    uuid: str
    up: float | None
    expected: float


class GpuNvlinkErrors(Reading, frozen=True):
    """Errors of all NVLinks. error: replay, recovery, crc, symbol."""

    gpu: str
    uuid: str
    error: str
    errors: float


class GpuNvlinkLink(Reading, frozen=True):
    """One NVLink: whether it is up, and its bytes."""

    gpu: str
    uuid: str
    link: str
    up: float | None = None
    receive_bytes: float | None = None
    transmit_bytes: float | None = None


class GpuNvlinkLinkErrors(Reading, frozen=True):
    """Errors of one NVLink, by the words of `GpuNvlinkErrors`."""

    gpu: str
    uuid: str
    link: str
    error: str
    errors: float


class GpuNvlinkCrc(Reading, frozen=True):
    """CRC errors of all NVLinks, of flow control and of data, on boards that tell them apart."""

    gpu: str
    uuid: str
    flow_control_errors: float | None = None
    data_errors: float | None = None


class GpuC2cErrors(Reading, frozen=True):
    """Errors of the CPU-GPU link of a superchip. error: interrupt, replay, replay_back_to_back."""

    gpu: str
    uuid: str
    error: str
    errors: float


class GpuFabricState(Reading, frozen=True):
    """1 for the state of the registration with the NVSwitch fabric, 0 for the others."""

    gpu: str
    uuid: str
    state: str
    current: float


class GpuFabricInfo(Reading, frozen=True):
    """The GPU's place: GPUs of one cluster and clique reach each other by NVLink; empty: not stated."""

    gpu: str
    uuid: str
    cluster_uuid: str
    clique: str
    chassis: str
    slot: str
    tray: str
