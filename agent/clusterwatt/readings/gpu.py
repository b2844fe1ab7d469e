"""What the driver host reads of each GPU; errors of its memory and its links stand in files of their own."""

from __future__ import annotations

from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu_health import (
    GpuEccErrors,
    GpuRecoveryAction,
    GpuRecoveryRequired,
    GpuRemappedRows,
    GpuRepair,
    GpuRetiredPages,
    GpuRetiredPagesPending,
    GpuRowBanks,
    GpuRowRemap,
    GpuSram,
)
from clusterwatt.readings.gpu_links import (
    GpuC2cErrors,
    GpuFabricInfo,
    GpuFabricState,
    GpuNvlinkCrc,
    GpuNvlinkErrors,
    GpuNvlinkLink,
    GpuNvlinkLinkErrors,
    GpuNvlinks,
    GpuNvlinkTraffic,
    GpuPcieErrors,
    GpuPcieLink,
    GpuPcieTraffic,
)


class GpuInfo(Reading, frozen=True):
    """Identity of a GPU. `gpu` is the driver's index now and may change; `uuid` is the identity.

    `gpu_instance` is the driver's number of a MIG instance, empty on a whole GPU.
    """

    gpu: str
    uuid: str
    name: str
    architecture: str
    pci_bus_id: str
    minor: str
    serial: str
    vbios: str
    parent_uuid: str
    mig_profile: str
    simulated: str
    gpu_instance: str = ""


class GpuUse(Reading, frozen=True):
    """Share of the driver's last sample period in which a kernel ran, in which memory was accessed."""

    gpu: str
    uuid: str
    utilization_ratio: float | None = None
    memory_utilization_ratio: float | None = None


class GpuIntegrals(Reading, frozen=True):
    """Sums since the driver host began to watch this GPU: seconds of use, joules of integrated power.

    `since_s` is when that was, `read_s` when they were read, both monotonic. They start again with each
    driver host; `meters.energy` makes counters of them that never fall. `energy_counter_joules` is the
    driver's own counter, which starts with the driver; its scope is gpu or, on superchips, module.
    """

    gpu: str
    uuid: str
    since_s: float
    read_s: float
    busy_seconds: float | None = None
    memory_busy_seconds: float | None = None
    power_integral_joules: float | None = None
    energy_counter_joules: float | None = None
    energy_counter_scope: str = "gpu"


class GpuGpm(Reading, frozen=True):
    """What GPM (GPU performance monitoring) has measured since the driver host began to watch this GPU.

    `since_s` is when that was, `read_s` the newest sample, both monotonic. Sums of ratio times seconds, and
    bytes; they start again with each driver host, and `meters.activity` makes counters of them. `offered` is
    False on a card without GPM, which then has nothing else. `sm_active_ratio` is the newest interval's.
    """

    gpu: str
    uuid: str
    since_s: float
    read_s: float
    offered: bool = True
    sm_active_ratio: float | None = None
    graphics_active_seconds: float | None = None
    sm_active_seconds: float | None = None
    sm_occupancy_seconds: float | None = None
    tensor_active_seconds: float | None = None
    dram_active_seconds: float | None = None
    integer_active_seconds: float | None = None
    fp64_active_seconds: float | None = None
    fp32_active_seconds: float | None = None
    fp16_active_seconds: float | None = None
    pcie_transmit_bytes: float | None = None
    pcie_receive_bytes: float | None = None
    c2c_transmit_bytes: float | None = None
    c2c_receive_bytes: float | None = None


class GpuEngines(Reading, frozen=True):
    """Use of the video engines in the driver's last sample period; `ofa` is optical flow.

    The seconds are sums since `since_s`, the monotonic time at which the driver host began to watch this GPU.
    """

    gpu: str
    uuid: str
    encoder_ratio: float | None = None
    decoder_ratio: float | None = None
    jpeg_ratio: float | None = None
    ofa_ratio: float | None = None
    since_s: float = 0.0
    encoder_busy_seconds: float | None = None
    decoder_busy_seconds: float | None = None
    jpeg_busy_seconds: float | None = None
    ofa_busy_seconds: float | None = None


class GpuMemory(Reading, frozen=True):
    """Device memory; `used` is without the driver's reserve where the driver tells them apart."""

    gpu: str
    uuid: str
    total_bytes: float | None = None
    used_bytes: float | None = None
    free_bytes: float | None = None
    reserved_bytes: float | None = None


class GpuPower(Reading, frozen=True):
    """Power as the driver states it. scope: gpu, module, memory; kind: average, instant."""

    gpu: str
    uuid: str
    scope: str
    kind: str
    power_watts: float


class GpuPowerProfile(Reading, frozen=True):
    """A workload power profile in force; `none`: the GPU has profiles, and none is."""

    gpu: str
    uuid: str
    profile: str


class GpuPowerLimit(Reading, frozen=True):
    """A power limit. limit: enforced, default, min, max."""

    gpu: str
    uuid: str
    limit: str
    limit_watts: float


class GpuTemperature(Reading, frozen=True):
    """Temperature of a sensor: core, memory."""

    gpu: str
    uuid: str
    sensor: str
    temperature_celsius: float


class GpuTemperatureLimit(Reading, frozen=True):
    """An absolute limit that the card states. limit: slowdown, shutdown, max."""

    gpu: str
    uuid: str
    sensor: str
    limit: str
    limit_celsius: float


class GpuTemperatureMargin(Reading, frozen=True):
    """Degrees left to the hardware's own slowdown."""

    gpu: str
    uuid: str
    margin_celsius: float


class GpuClock(Reading, frozen=True):
    """A clock now. domain: sm, memory, graphics, video."""

    gpu: str
    uuid: str
    domain: str
    clock_hertz: float


class GpuClockMax(Reading, frozen=True):
    """The highest setting of a clock."""

    gpu: str
    uuid: str
    domain: str
    max_hertz: float


class GpuFan(Reading, frozen=True):
    """Speed of a fan as a share of its highest; the driver may state more than 1."""

    gpu: str
    uuid: str
    fan: str
    speed_ratio: float


class GpuPerformanceState(Reading, frozen=True):
    """The P-state: 0 is the fastest, 15 the slowest."""

    gpu: str
    uuid: str
    performance_state: float


class GpuThrottle(Reading, frozen=True):
    """Seconds for which a reason has held the clocks down since `since_s`, and whether it does now.

    `since_s` is the monotonic time at which the driver host began to watch this GPU.
    """

    gpu: str
    uuid: str
    reason: str
    since_s: float
    throttle_seconds: float | None = None
    active: float | None = None


class GpuMode(Reading, frozen=True):
    """1: a mode is on. mode: persistence, mig, ecc."""

    gpu: str
    uuid: str
    mode: str
    enabled: float


class GpuBar1(Reading, frozen=True):
    """The window through which others reach device memory."""

    gpu: str
    uuid: str
    total_bytes: float
    used_bytes: float


class GpuBoard(Reading, frozen=True):
    """Brand of a GPU and versions of its InfoROM; empty: not stated."""

    gpu: str
    uuid: str
    brand: str
    inforom_image: str
    inforom_oem: str
    inforom_ecc: str
    inforom_power: str


class GpuVgpuLicense(Reading, frozen=True):
    """1: a guest's vGPU has a licence in force; 0: it has none, or needs none because it is no vGPU."""

    gpu: str
    uuid: str
    licensed: float


class GpuProcesses(Reading, frozen=True):
    """Processes that hold the GPU. type: compute, graphics, mps."""

    gpu: str
    uuid: str
    type: str
    processes: float


class GpuProcess(Reading, frozen=True):
    """A process on a GPU or MIG instance, for attribution alone: it is exported, logged and recorded nowhere.

    type: compute, mps, graphics; a process of several types comes once for each, with the same memory.
    `sm_ratio`: its share of the SMs' time since it was asked for last, known only where processes share a
    GPU. `listed_s`: monotonic time of the list; a process that began later has only got the number.
    """

    gpu: str
    uuid: str
    pid: int
    type: str
    used_bytes: float | None = None
    sm_ratio: float | None = None
    listed_s: float = 0.0


HostReading = (
    GpuInfo
    | GpuUse
    | GpuIntegrals
    | GpuGpm
    | GpuEngines
    | GpuMemory
    | GpuPower
    | GpuPowerProfile
    | GpuPowerLimit
    | GpuTemperature
    | GpuTemperatureLimit
    | GpuTemperatureMargin
    | GpuClock
    | GpuClockMax
    | GpuFan
    | GpuPerformanceState
    | GpuThrottle
    | GpuEccErrors
    | GpuSram
    | GpuRemappedRows
    | GpuRowRemap
    | GpuRowBanks
    | GpuRetiredPages
    | GpuRetiredPagesPending
    | GpuRepair
    | GpuRecoveryAction
    | GpuRecoveryRequired
    | GpuMode
    | GpuBar1
    | GpuPcieTraffic
    | GpuPcieLink
    | GpuPcieErrors
    | GpuNvlinkTraffic
    | GpuNvlinks
    | GpuNvlinkErrors
    | GpuNvlinkLink
    | GpuNvlinkLinkErrors
    | GpuNvlinkCrc
    | GpuC2cErrors
    | GpuFabricState
    | GpuFabricInfo
    | GpuBoard
    | GpuVgpuLicense
    | GpuProcesses
    | GpuProcess
)
Group = tuple[HostReading, ...]  # of one type; never empty


class DriverXid(Reading, frozen=True):
    """An XID event as the driver told it; told once. Instances of MIG are None when it is the whole GPU's.

    `uuid` is the board's, empty when the driver could not name it.
    """

    uuid: str
    xid: int
    wall_s: float
    monotonic_s: float
    gpu_instance: int | None = None
    compute_instance: int | None = None
