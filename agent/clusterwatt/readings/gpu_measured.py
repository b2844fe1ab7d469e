"""What the agent makes of the driver's readings: counters, states and events of each GPU."""

from __future__ import annotations

import msgspec

from clusterwatt.readings.base import Reading


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
