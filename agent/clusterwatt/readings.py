"""Everything that the agent can know: a frozen type for each kind of fact, and the snapshot of them all.

A reading states what a source said at one time, in base units (seconds, bytes, joules, watts, hertz, celsius,
ratios from 0 to 1). `None` means that the source does not offer the quantity: no series appears for it. Zero
is a measurement. Names of fields that become labels are the names of the labels.

Types are grouped by what they describe. A further dimension (sensor, error, mode) is a type of its own, so
that no reading holds a dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec


class Reading(msgspec.Struct, frozen=True, array_like=True, tag=True, tag_field="reading"):
    """A fact. Encoded as a tagged array, because GPU readings cross a pipe once a second."""


R = TypeVar("R", bound=Reading)


class Failure(Reading, frozen=True):
    """One item (a port, a disk, a GPU) that could not be read, while its neighbours could.

    `reason` is a short word from a closed set: it becomes a label value. `detail` is for the log only.
    `ongoing`: nothing was tried this time, because it has failed so often; it does not count as one more.
    """

    item: str
    reason: str
    detail: str = ""
    ongoing: bool = False


# --- GPU: what the driver host reads -------------------------------------------------------------------


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


class GpuEccErrors(Reading, frozen=True):
    """ECC errors. type: corrected, uncorrected; window: volatile, aggregate; location: dram, sram, all."""

    gpu: str
    uuid: str
    type: str
    window: str
    location: str
    errors: float


class GpuSram(Reading, frozen=True):
    """1: uncorrected SRAM errors have passed the vendor's mark for replacement."""

    gpu: str
    uuid: str
    threshold_exceeded: float


class GpuRemappedRows(Reading, frozen=True):
    """Rows of device memory that were remapped. cause: correctable, uncorrectable."""

    gpu: str
    uuid: str
    cause: str
    rows: float


class GpuRowRemap(Reading, frozen=True):
    """1: a row waits for a reset to be remapped; a remapping has failed."""

    gpu: str
    uuid: str
    pending: float
    failed: float


class GpuRowBanks(Reading, frozen=True):
    """Memory banks by the spare rows they have left. spare: max, high, partial, low, none."""

    gpu: str
    uuid: str
    spare: str
    banks: float


class GpuRetiredPages(Reading, frozen=True):
    """Pages of device memory that were retired. cause: single_bit, double_bit."""

    gpu: str
    uuid: str
    cause: str
    pages: float


class GpuRetiredPagesPending(Reading, frozen=True):
    """1: pages wait for a reset to be retired."""

    gpu: str
    uuid: str
    pending: float


class GpuRepair(Reading, frozen=True):
    """1: a repair waits for a reset. part: channel, tpc."""

    gpu: str
    uuid: str
    part: str
    pending: float


class GpuRecoveryAction(Reading, frozen=True):
    """1 for the action that the driver asks for, 0 for the others (`none` is one of them)."""

    gpu: str
    uuid: str
    action: str
    wanted: float


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
    """How many NVLinks should be up."""

    gpu: str
    uuid: str
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
)


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


# --- GPU: what the agent makes of it -------------------------------------------------------------------


class GpuUp(Reading, frozen=True):
    """1 while the GPU answers; a GPU once seen stays here with 0."""

    gpu: str
    uuid: str
    up: float


class GpuDown(Reading, frozen=True):
    """Why a GPU does not answer: lost, reset_required, timeout, permission, unknown.

    `permission` is also that of a GPU that the operator has told the agent to leave alone.
    """

    gpu: str
    uuid: str
    reason: str


class GpuBusy(Reading, frozen=True):
    """Seconds of use since the agent started; never fall while it runs."""

    gpu: str
    uuid: str
    busy_seconds: float | None = None
    memory_busy_seconds: float | None = None


class GpuActivity(Reading, frozen=True):
    """The measure of use: seconds of the GPU's activity signal since the agent started."""

    gpu: str
    uuid: str
    activity_seconds: float


class GpuActivitySignal(Reading, frozen=True):
    """Which signal the activity is. signal: sm (GPM), utilization (a kernel ran)."""

    gpu: str
    uuid: str
    signal: str
    chosen: float = 1.0


class GpuActive(Reading, frozen=True):
    """Seconds of full use since the agent started, of what GPM measures."""

    gpu: str
    uuid: str
    graphics_active_seconds: float | None = None
    sm_active_seconds: float | None = None
    sm_occupancy_seconds: float | None = None
    tensor_active_seconds: float | None = None
    dram_active_seconds: float | None = None


class GpuPipeActive(Reading, frozen=True):
    """Seconds of full use of an arithmetic pipe since the agent started. pipe: fp64, fp32, fp16, integer."""

    gpu: str
    uuid: str
    pipe: str
    active_seconds: float


class GpuC2cTraffic(Reading, frozen=True):
    """Bytes over the CPU-GPU link of a superchip since the agent started, as GPM measures them."""

    gpu: str
    uuid: str
    receive_bytes: float | None = None
    transmit_bytes: float | None = None


class GpuUtilizationSuspect(Reading, frozen=True):
    """1: utilisation has stood at its maximum for ten minutes while the GPU did nothing."""

    gpu: str
    uuid: str
    suspect: float


class GpuPeak(Reading, frozen=True):
    """Dense peak of a model. precision: bf16, fp16, tf32, fp8, fp4, fp32, fp64_tensor."""

    gpu: str
    uuid: str
    precision: str
    flops: float


class GpuEnergyDeviation(Reading, frozen=True):
    """Energy by the driver's counter over energy by its power readings, in the last ten minutes."""

    gpu: str
    uuid: str
    deviation_ratio: float


class GpuEnergy(Reading, frozen=True):
    """Joules since the agent started. method: counter (the driver's), integrated (power over time)."""

    gpu: str
    uuid: str
    scope: str
    method: str
    energy_joules: float


class DriverUp(Reading, frozen=True):
    """1 while the driver answers, and how many GPUs it shows against how many there should be."""

    up: float
    gpus_visible: float
    gpus_expected: float


class DriverDown(Reading, frozen=True):
    """Why the driver does not answer: not_found, not_loaded, version_mismatch, hung, released, ..."""

    reason: str


class DriverInfo(Reading, frozen=True):
    """Versions of the driver. simulated: true, false."""

    driver: str
    nvml: str
    cuda: str
    simulated: str


class GpuXids(Reading, frozen=True):
    """XIDs of a GPU since the agent started, of all codes."""

    gpu: str
    uuid: str
    events: float


class GpuXid(Reading, frozen=True):
    """One XID code of a GPU: how often since the agent started, and when last, also before that."""

    gpu: str
    uuid: str
    xid: str
    xid_class: str
    severity: str
    events: float
    last_timestamp_seconds: float


class SwitchSxid(Reading, frozen=True):
    """One SXid code of an NVSwitch, as `GpuXid`. fatality: non_fatal, fatal, always_fatal."""

    switch: str
    sxid: str
    fatality: str
    events: float
    last_timestamp_seconds: float


class HardwareEvent(msgspec.Struct, frozen=True):
    """An XID of a GPU or an SXid of an NVSwitch with what the catalogue says of it; told once, not kept.

    kind: xid, sxid. `uuid` and `gpu` are empty for a switch and for a GPU that the driver does not show.
    `instance`: GPU instance and compute instance of MIG as `9` or `9/0`, empty for the whole GPU.
    `detail` is the kernel's text, empty when the driver was heard first. `echo`: it followed another one.
    """

    kind: str
    code: int
    name: str
    xid_class: str
    severity: str
    action: str
    text: str
    gpu: str
    uuid: str
    pci: str
    instance: str
    switch: str
    fatality: str
    detail: str
    echo: bool
    wall_s: float
    monotonic_s: float


# --- Kernel log ----------------------------------------------------------------------------------------


class KernelLog(Reading, frozen=True):
    """The kernel log can be read: so many records since the agent opened it."""

    records: float


class KernelXid(Reading, frozen=True):
    """A line about an XID. `sequence` is the kernel's number of the record: a line may be told again.

    `pci` is as in the line, without function. `history`: the record was there when the log was opened.
    """

    sequence: int
    pci: str
    xid: int
    detail: str
    wall_s: float
    monotonic_s: float
    history: bool = False
    gpu_instance: int | None = None
    compute_instance: int | None = None


class KernelSxid(Reading, frozen=True):
    """A line about an SXid, as `KernelXid`. `fatal`: the driver's word in the line."""

    sequence: int
    switch: str
    pci: str
    sxid: int
    fatal: bool
    detail: str
    wall_s: float
    monotonic_s: float
    history: bool = False


# --- Network -------------------------------------------------------------------------------------------


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
    """Links of a bond that are configured, and that are up."""

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


# --- Storage -------------------------------------------------------------------------------------------


class Disk(Reading, frozen=True):
    """A whole physical disk, from the kernel's block layer; flushes are counted since Linux 5.5."""

    device: str
    read_bytes: float
    written_bytes: float
    reads_completed: float
    writes_completed: float
    read_seconds: float
    write_seconds: float
    busy_seconds: float
    queue_seconds: float
    in_flight: float
    flushes_completed: float | None = None
    flush_seconds: float | None = None


class DiskInfo(Reading, frozen=True):
    """Model and transport (nvme, sata, virtio, ...) of a disk; empty where the kernel does not say."""

    device: str
    model: str
    transport: str


class DiskHealth(Reading, frozen=True):
    """What a drive says of its own health."""

    device: str
    wear_ratio: float | None = None
    spare_ratio: float | None = None
    media_errors: float | None = None
    temperature_celsius: float | None = None


class MdArray(Reading, frozen=True):
    """A software RAID array: members that are missing, 0 = whole."""

    array: str
    degraded: float


class Filesystem(Reading, frozen=True):
    """Space of one mount, in bytes and files. `available` is what an unprivileged user can have."""

    mountpoint: str
    fstype: str
    size_bytes: float | None = None
    available_bytes: float | None = None
    free_bytes: float | None = None
    files: float | None = None
    files_free: float | None = None
    readonly: float | None = None


class FilesystemProbe(Reading, frozen=True):
    """When a mount answered last: the time stays while it hangs. Until its first answer: when first asked.

    The duration is that of its last answer, or of the call that it has not answered so far.
    """

    mountpoint: str
    fstype: str
    last_probe_timestamp_seconds: float | None = None
    probe_duration_seconds: float | None = None


class NfsMount(Reading, frozen=True):
    """Traffic of an NFS mount with its server, as the client counts it, and what the network cost it."""

    mountpoint: str
    read_bytes: float
    write_bytes: float
    queue_seconds: float
    retransmissions: float
    timeouts: float


class NfsOperation(Reading, frozen=True):
    """Requests of an NFS mount and the time they took together. operation: read, write, metadata."""

    mountpoint: str
    operation: str
    operations: float
    operation_seconds: float


class LustreMount(Reading, frozen=True):
    """Bytes that programs read and wrote on a Lustre mount."""

    mountpoint: str
    read_bytes: float
    write_bytes: float


class LustreOperation(Reading, frozen=True):
    """Calls on a Lustre mount; old clients do not measure their time. operation: see NfsOperation."""

    mountpoint: str
    operation: str
    operations: float
    operation_seconds: float | None = None


# --- Host ----------------------------------------------------------------------------------------------


class CpuTime(Reading, frozen=True):
    """Seconds that all CPUs spent in a mode; guest time is left out of user."""

    mode: str
    cpu_seconds: float


class CpuCount(Reading, frozen=True):
    """CPUs that are online."""

    cpus: float


class Memory(Reading, frozen=True):
    """Main memory, from /proc/meminfo."""

    total_bytes: float | None = None
    available_bytes: float | None = None
    free_bytes: float | None = None
    cached_bytes: float | None = None
    dirty_bytes: float | None = None
    swap_total_bytes: float | None = None
    swap_free_bytes: float | None = None


class MemoryErrors(Reading, frozen=True):
    """Errors that the memory controllers report (EDAC). type: corrected, uncorrected."""

    type: str
    errors: float


class Load(Reading, frozen=True):
    """The one-minute load average, and processes that the kernel killed for want of memory."""

    load1: float | None = None
    oom_kills: float | None = None


class Pressure(Reading, frozen=True):
    """Seconds in which work stood still for want of a resource. kind: some, full."""

    resource: str
    kind: str
    pressure_seconds: float


class BlockedProcesses(Reading, frozen=True):
    """Processes in uninterruptible sleep, and how long the oldest has been seen so (0 = none)."""

    processes: float
    oldest_age_seconds: float


class Boot(Reading, frozen=True):
    """When the machine was started (Unix time)."""

    boot_timestamp_seconds: float


class ClockSync(Reading, frozen=True):
    """The kernel's word on its clock: 1 = disciplined; offset signed."""

    synchronized: float
    offset_seconds: float


class Temperature(Reading, frozen=True):
    """A sensor of the machine: chip, device and place, as `nvme/nvme0/Composite`."""

    sensor: str
    temperature_celsius: float


class EnergyZone(Reading, frozen=True):
    """The energy counter of a part of a CPU (RAPL), as it stands. component: cpu, dram.

    It starts again from zero behind `range_joules`; None: the range is not known. Zones do not overlap.
    """

    zone: str
    component: str
    energy_joules: float
    range_joules: float | None = None


class BoardPower(Reading, frozen=True):
    """A power sensor on the board. kind: average, instant.

    scope: platform (the whole node), module (a superchip, with its GPU), socket (a Grace CPU with its
    memory), rail (part of a socket), other. A scope contains those named after it: they are not to be added
    up.
    """

    sensor: str
    scope: str
    kind: str
    power_watts: float


class NodeEnergy(Reading, frozen=True):
    """Joules of a component of the node since the agent started.

    component: gpu, cpu, dram, platform (the whole, apart from the parts), other; method: counter, integrated,
    estimated.
    """

    component: str
    method: str
    energy_joules: float


class NodePower(Reading, frozen=True):
    """Watts of a component of the node, by the words of `NodeEnergy`."""

    component: str
    method: str
    power_watts: float


# --- The agent about itself ----------------------------------------------------------------------------


class BuildInfo(Reading, frozen=True):
    """Version of the agent; present = the agent is alive."""

    version: str
    revision: str
    python: str


class CollectorState(Reading, frozen=True):
    """Whether a collector is good, and how old its newest good reading is."""

    collector: str
    up: float
    age_seconds: float
    stuck_seconds: float


class CollectorDuration(Reading, frozen=True):
    """Passes of a collector and the time that they took together."""

    collector: str
    duration_sum_seconds: float
    passes: float


class CollectorErrors(Reading, frozen=True):
    """Failures of a collector or of one of its items, by reason."""

    collector: str
    reason: str
    errors: float


class DriverHost(Reading, frozen=True):
    """How often the driver host was started anew."""

    restarts: float


class DriverCallDuration(Reading, frozen=True):
    """Driver calls of one function and the time they took, since the agent started.

    `counts`: how many took at most so long, for each of `nvml.call_times.BUCKETS`, and last how many at all.
    """

    call: str
    counts: tuple[float, ...]
    sum_seconds: float


class AgentProcess(Reading, frozen=True):
    """Cost of the agent's own processes. process: agent, driver_host."""

    process: str
    cpu_seconds: float
    memory_bytes: float


class HostPids(Reading, frozen=True):
    """1: the agent sees the node's own process ids, which are those that the driver knows."""

    visible: float


class SeriesCount(Reading, frozen=True):
    """Series on the page that was rendered last."""

    series: float


class SeriesDropped(Reading, frozen=True):
    """Rows that a table's limit, or the limit of the page, kept off it."""

    table: str
    dropped: float


class ConnectionsRefused(Reading, frozen=True):
    """Connections to the page that were closed without an answer, by what they ran into."""

    reason: str
    connections: float


class ConfigReload(Reading, frozen=True):
    """1: the newest configuration is in force; 0: the last reload was refused and the old one stands."""

    success: float


class TextFile(Reading, frozen=True):
    """A text file of another tool: when it was written, how often it was refused. refused: 1 = also now."""

    file: str
    last_modified_timestamp_seconds: float
    errors: float
    refused: float = 0.0


class TextFamily(Reading, frozen=True):
    """A family out of text files. kind: as in `# TYPE`, or untyped. samples: whole lines for the page."""

    name: str
    kind: str
    help: str
    samples: tuple[str, ...]


# --- Under node_exporter's names, for its own page only ------------------------------------------------


class NodeFamily(Reading, frozen=True):
    """A family as node_exporter has it. kind: counter, gauge, untyped. A sample: label values and value."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    samples: tuple[tuple[tuple[str, ...], float], ...]


class MountSource(Reading, frozen=True):
    """The device, export or name that is mounted at a mount point."""

    mountpoint: str
    fstype: str
    device: str


# --- The snapshot --------------------------------------------------------------------------------------


class Snapshot(msgspec.Struct, frozen=True):
    """Everything published in one tick. Immutable: readers share it and never cause work."""

    tick: int
    wall_s: float
    monotonic_s: float
    readings: Mapping[type[Reading], tuple[Any, ...]]

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """All readings of one type, in the order in which their source gave them; empty when none."""
        return self.readings.get(kind, ())


EMPTY = Snapshot(tick=0, wall_s=0.0, monotonic_s=0.0, readings={})
