"""Use of a GPU and of its memory: utilisation rates, their ring buffers, memory information (nvml.h).

Utilisation is the share of the driver's last sample period (1/6 s to 1 s) in which a kernel ran: read once a
second it misses most of them. The driver keeps the last hundred in a ring buffer, so that the seconds of use
are exact where the card fills it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum

from clusterwatt.catalog import FULL, STANDARD, Table
from clusterwatt.clock import GAP_INTERVALS, Clock
from clusterwatt.collectors.gpu_integrals import Integral
from clusterwatt.nvml.constants import MEMORY_V2, SAMPLES_GPU_UTILIZATION, SAMPLES_MEMORY_UTILIZATION
from clusterwatt.nvml.device import Device
from clusterwatt.readings.gpu import GpuMemory, GpuUse
from clusterwatt.readings.gpu_measured import GpuBusy

USE = Table(GpuUse, labels=("gpu", "uuid"))
BUSY = Table(GpuBusy, labels=("gpu", "uuid"))
MEMORY = Table(GpuMemory, labels=("gpu", "uuid"))
METRICS = (
    USE.gauge(
        "gpu_utilization_ratio",
        "Share of the driver's last sample period in which a kernel ran.",
        "utilization_ratio",
        STANDARD,
    ),
    BUSY.counter(
        "gpu_busy_seconds_total", "Seconds in which a kernel ran, since the agent started.", "busy_seconds"
    ),
    USE.gauge(
        "gpu_memory_utilization_ratio",
        "Share of the driver's last sample period in which device memory was read or written.",
        "memory_utilization_ratio",
        FULL,
    ),
    BUSY.counter(
        "gpu_memory_busy_seconds_total",
        "Seconds in which device memory was read or written, since the agent started.",
        "memory_busy_seconds",
        FULL,
    ),
    MEMORY.gauge(
        "gpu_memory_used_bytes",
        "Device memory in use, without the driver's reserve where the driver tells them apart.",
        "used_bytes",
    ),
    MEMORY.gauge("gpu_memory_total_bytes", "Device memory installed.", "total_bytes"),
    MEMORY.gauge("gpu_memory_free_bytes", "Device memory that can be allocated.", "free_bytes", STANDARD),
    MEMORY.gauge(
        "gpu_memory_reserved_bytes",
        "Device memory kept by driver and firmware.",
        "reserved_bytes",
        STANDARD,
    ),
)

RING_SILENT_INTERVALS = 2  # then the gauge takes over, early enough to lose nothing
SELDOM_S = 5.0  # the ring buffer of a hundred samples holds 16 s and more
DUE_EARLY = 0.5  # of an interval: a tick that comes a little early is the one that was meant
MOST_BYTES = 1 << 62  # a size with the upper bits set is a sentinel


class Busy:
    """Seconds of one kind of use: from the driver's ring buffer where it fills, else from the gauge.

    `interval_s`: how often the ring buffer is read; the gauge stands for the time in between where it must.
    """

    def __init__(self, device: Device, kind: int, interval_s: float) -> None:
        self._device = device
        self._kind = kind
        self._every_s = interval_s
        self._due_s = 0.0
        self._integral = Integral(interval_s)
        self._silent_after_s = RING_SILENT_INTERVALS * interval_s
        self._stale_after_s = GAP_INTERVALS * interval_s
        self._read_s = self._stated_s = float("-inf")
        self._newest_us = 0
        self._fed_s: float | None = None

    @property
    def seconds(self) -> float | None:
        """Seconds of use so far; None while no use is stated, as on a board in MIG mode."""
        return self._integral.total if self._read_s - self._stated_s <= self._stale_after_s else None

    def read(self, gauge: float | None, now_s: float) -> None:
        """Count the time since the last reading by what the driver says of it.

        The mean of the new samples stands for that time. Their own times are not used for it: they follow
        the wall clock, which may step. The first samples are history and only say where to go on.
        """
        self._read_s = now_s
        samples = None
        if now_s >= self._due_s - DUE_EARLY * self._every_s:
            self._due_s = now_s + self._every_s
            samples = self._device.samples(self._kind, self._newest_us)
        if gauge is not None or samples is not None:
            self._stated_s = now_s
        if samples is not None:
            history = self._newest_us == 0
            self._newest_us, self._fed_s = samples.newest_us, now_s
            ratios = [ratio for value in samples.values if (ratio := _ratio(value)) is not None]
            if ratios and not history:
                self._integral.add(fsum(ratios) / len(ratios), now_s, averaged=True)
                return
        elif self._fed_s is not None and now_s - self._fed_s <= self._silent_after_s:
            return  # the next sample will stand for this time too
        if gauge is not None:
            self._integral.add(gauge, now_s, averaged=True)


class Use:
    """Utilisation of one GPU, now and in seconds."""

    def __init__(self, device: Device, clock: Clock, interval_s: float) -> None:
        self._device = device
        self._clock = clock
        self.busy = Busy(device, SAMPLES_GPU_UTILIZATION, interval_s)
        self.memory_busy = Busy(device, SAMPLES_MEMORY_UTILIZATION, max(SELDOM_S, interval_s))

    def read(self) -> Iterator[GpuUse]:
        """The driver's word for its last period; the seconds move on."""
        device = self._device
        rates = device.ask("nvmlDeviceGetUtilizationRates")
        now_s = self._clock.monotonic_s()
        core = None if rates is None else _ratio(rates.gpu)
        memory = None if rates is None else _ratio(rates.memory)
        self.busy.read(core, now_s)
        self.memory_busy.read(memory, now_s)
        if core is not None or memory is not None:
            yield GpuUse(
                gpu=device.gpu, uuid=device.uuid, utilization_ratio=core, memory_utilization_ratio=memory
            )


def memory(device: Device) -> Iterator[GpuMemory]:
    """Device memory. Version 1 of the call, for drivers before R510, counts the reserve as used."""
    answer = device.ask("nvmlDeviceGetMemoryInfo", MEMORY_V2)
    reserved = None if answer is None else _size(answer.reserved)
    if answer is None and device.lacks("nvmlDeviceGetMemoryInfo", MEMORY_V2):
        answer = device.ask("nvmlDeviceGetMemoryInfo")
    if answer is not None:
        yield GpuMemory(
            gpu=device.gpu,
            uuid=device.uuid,
            total_bytes=_size(answer.total),
            used_bytes=_size(answer.used),
            free_bytes=_size(answer.free),
            reserved_bytes=reserved,
        )


def _ratio(percent: float) -> float | None:
    return percent / 100 if 0 <= percent <= 100 else None


def _size(stated: int) -> float | None:
    return float(stated) if stated < MOST_BYTES else None
