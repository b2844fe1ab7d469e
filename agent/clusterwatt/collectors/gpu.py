"""One GPU through the NVIDIA driver: what is read at every tick, what now and then, and its identity.

Runs in the driver host, on the GPU's own thread. The quantities are in the `gpu_*` modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from clusterwatt.catalog import Table
from clusterwatt.clock import STALE_INTERVALS, Clock
from clusterwatt.collectors import (
    gpu_board,
    gpu_clocks,
    gpu_engines,
    gpu_fabric,
    gpu_fans,
    gpu_health,
    gpu_nvlink,
    gpu_pcie,
    gpu_power,
    gpu_power_profile,
    gpu_processes,
    gpu_temperature,
    gpu_throttle,
    gpu_use,
)
from clusterwatt.node_pids import NodePids
from clusterwatt.nvml.constants import ARCHITECTURES
from clusterwatt.nvml.device import Device
from clusterwatt.nvml.errors import DeviceTrouble, device_reason
from clusterwatt.readings.base import Failure, by_type
from clusterwatt.readings.gpu import GpuInfo, GpuIntegrals, Group, HostReading
from clusterwatt.readings.gpu_measured import DriverDown, DriverInfo, DriverUp, GpuDown, GpuUp

INFO = Table(
    GpuInfo,
    labels=(
        "gpu",
        "uuid",
        "name",
        "architecture",
        "pci_bus_id",
        "minor",
        "serial",
        "vbios",
        "parent_uuid",
        "mig_profile",
        "simulated",
    ),
)
UP = Table(GpuUp, labels=("gpu", "uuid"))
DOWN = Table(GpuDown, labels=("gpu", "uuid", "reason"))
DRIVER_UP = Table(DriverUp)
DRIVER_DOWN = Table(DriverDown, labels=("reason",))
DRIVER_INFO = Table(DriverInfo, labels=("driver", "nvml", "cuda", "simulated"))
METRICS = (
    INFO.info("gpu_info", "What the GPU is; parent_uuid and mig_profile are empty on a whole GPU."),
    UP.gauge("gpu_up", "1 while the GPU answers; a GPU once seen stays, with 0.", "up"),
    DOWN.info(
        "gpu_down_info",
        "Why the GPU does not answer; there only while it does not. permission: it may not be asked, by the "
        "agent's rights or because it was released on purpose (clusterwatt driver status).",
    ),
    DRIVER_UP.gauge("driver_up", "1 while the driver answers.", "up"),
    DRIVER_DOWN.info("driver_down_info", "Why the driver does not answer; there only while it does not."),
    DRIVER_INFO.info(
        "driver_info", "Versions of the driver, of NVML, and of CUDA as the driver supports it."
    ),
    DRIVER_UP.gauge("gpus_visible", "GPUs that answer.", "gpus_visible"),
    DRIVER_UP.gauge(
        "gpus_expected",
        "GPUs that should be there: configured, else by Slurm, else on the PCI bus; 0: none known.",
        "gpus_expected",
    ),
    *gpu_use.METRICS,
    *gpu_engines.METRICS,
    *gpu_power.METRICS,
    *gpu_power_profile.METRICS,
    *gpu_temperature.METRICS,
    *gpu_fans.METRICS,
    *gpu_clocks.METRICS,
    *gpu_throttle.METRICS,
    *gpu_health.METRICS,
    *gpu_pcie.METRICS,
    *gpu_nvlink.METRICS,
    *gpu_fabric.METRICS,
    *gpu_processes.METRICS,
)

# The two families are not asked for in one call: on GB200 ECC fields have come back empty beside counters of
# NVLink (NVIDIA/DCGM#265).
STATE_FIELDS = (*gpu_power.FIELDS, *gpu_temperature.FIELDS)
TRAFFIC_FIELDS = (*gpu_pcie.TRAFFIC_FIELDS, *gpu_nvlink.TRAFFIC_FIELDS)
OFTEN_S = 5.0
HEALTH_S = 10.0
SELDOM = 2  # times the cadence of what hardly ever changes
NO_TEXT = frozenset({"N/A", "[N/A]"})


class Part:
    """Readings that are taken less often than each tick, and kept in between."""

    def __init__(
        self,
        every_s: float,
        read: Callable[[], Iterable[HostReading]],
        *,
        phase: float = 1.0,
    ) -> None:
        """Read at once, then when `phase` of an interval has gone by, then at each interval.

        At once, because a page on which something is still missing says that it is not offered here. The
        phases keep what was read together at first from falling on one tick ever after.
        """
        self._every_s = every_s
        self._read = read
        self._next_s = phase * every_s
        self._due_s = float("-inf")
        self._read_s = float("-inf")
        self._kept: tuple[Group, ...] = ()

    def groups(self, now_s: float, tick_s: float) -> tuple[Group, ...]:
        """Those of the last time, taken anew when it is time; none once they are three intervals old."""
        if now_s >= self._due_s - tick_s / 2:  # the tick nearest to the time
            self._due_s = now_s + self._next_s
            self._next_s = self._every_s
            fresh = tuple(by_type(self._read()).values())
            if fresh:
                self._kept, self._read_s = fresh, now_s
        return self._kept if now_s - self._read_s <= STALE_INTERVALS * self._every_s else ()

    def forget(self) -> None:
        """Drop what is kept and take it anew at the next tick."""
        self._due_s = self._read_s = float("-inf")


class GpuReader:
    """Reads one GPU, once each tick. `slow_seconds` is the cadence of what hardly ever changes.

    `pids`: as in `gpu_processes.ProcessLists`.
    """

    def __init__(
        self,
        device: Device,
        clock: Clock,
        *,
        every_seconds: float,
        slow_seconds: float,
        pids: NodePids | None = None,
    ) -> None:
        self._device = device
        self._clock = clock
        self._every_s = every_seconds
        self._since_s = clock.monotonic_s()
        self._gpu = device.gpu
        self._use = gpu_use.Use(device, clock, every_seconds)
        self._power = gpu_power.Power(device, clock, every_seconds)
        self._temperatures = gpu_temperature.Temperatures(device)
        self._throttle = gpu_throttle.Throttle(device, clock, every_seconds)
        self._pcie = gpu_pcie.PcieTraffic(device)
        self._processes = gpu_processes.ProcessLists(device, pids, clock)
        self._state_fields = (*STATE_FIELDS, *self._throttle.fields)
        self._parts = self._slow_parts(every_seconds, slow_seconds)

    def _slow_parts(self, every_s: float, slow_s: float) -> tuple[Part, ...]:
        device, nvlinks = self._device, gpu_nvlink.Nvlinks(self._device)
        often_s, health_s = max(every_s, OFTEN_S), max(every_s, HEALTH_S)
        at_once = (  # limit and margin before the temperature that stands in for them
            Part(SELDOM * slow_s, partial(identity, device), phase=0.9),
            Part(slow_s, partial(gpu_power.limits, device)),
            Part(slow_s, self._temperatures.limits),
            Part(SELDOM * slow_s, partial(gpu_clocks.max_clocks, device), phase=0.8),
            Part(health_s, self._temperatures.margin),
            Part(often_s, self._temperatures.core),
            Part(often_s, partial(gpu_clocks.sm_clock, device)),
            Part(slow_s, partial(gpu_clocks.other_clocks, device), phase=0.5),
            Part(health_s, partial(gpu_clocks.performance_state, device)),
            Part(often_s, partial(gpu_use.memory, device)),
        )
        spread: tuple[tuple[float, Callable[[], Iterable[HostReading]]], ...] = (
            (health_s, partial(gpu_health.pages_and_action, device)),
            (health_s, partial(gpu_health.remapped_rows, device)),
            (slow_s, partial(gpu_health.ecc_errors, device)),
            (health_s, nvlinks.read),
            (slow_s, partial(gpu_pcie.bar1, device)),
            (slow_s, partial(gpu_fabric.fabric, device)),
            (slow_s, partial(gpu_pcie.link_and_errors, device)),
            (slow_s, partial(gpu_health.sram, device)),
            (SELDOM * slow_s, partial(gpu_health.row_banks, device)),
            (SELDOM * slow_s, partial(gpu_health.repairs, device)),
            (SELDOM * slow_s, partial(gpu_health.modes, device)),
            (SELDOM * slow_s, partial(gpu_nvlink.c2c_errors, device)),
            (health_s, gpu_engines.Engines(device, self._clock, health_s).read),
            (SELDOM * slow_s, partial(gpu_nvlink.crc_errors, device)),
            (SELDOM * slow_s, partial(gpu_board.board, device)),
            (SELDOM * slow_s, partial(gpu_board.vgpu_license, device)),
            (health_s, partial(self._processes.read, "compute")),
            (SELDOM * slow_s, partial(self._processes.read, "graphics")),
            (slow_s, partial(self._processes.read, "mps")),
            (SELDOM * slow_s, gpu_fans.Fans(device).read),
            (SELDOM * slow_s, partial(gpu_power_profile.power_profile, device)),
        )
        return (
            *at_once,
            *(
                Part(each_s, read, phase=(place + 1) / len(spread))
                for place, (each_s, read) in enumerate(spread)
            ),
        )

    def read(self) -> tuple[tuple[Group, ...], list[Failure]]:
        """Everything known of the GPU now, and the quantities that could not be read.

        Raises DeviceTrouble when the GPU does not answer, GenerationOver when the driver does not.
        """
        device, now_s = self._device, self._clock.monotonic_s()
        answers = device.answers
        if device.gpu != self._gpu:  # the driver counts its GPUs in another order than before
            self._gpu = device.gpu
            self.read_anew()
        groups: list[Group] = []
        for part in self._parts:
            groups.extend(part.groups(now_s, self._every_s))
        groups.extend(by_type(self._at_each_tick()).values())
        failures = device.take_failures()
        if device.answers == answers:
            device.lose_no_time()
            # A dead GPU may refuse everything with a code that a single broken sensor has too.
            raise DeviceTrouble(
                device_reason(device.last_refusal), "the GPU answers nothing that it is asked"
            )
        return tuple(groups), failures

    def read_anew(self) -> None:
        """Take everything anew at the next reading: the GPU is not what it was."""
        for part in self._parts:
            part.forget()

    def read_slow_parts(self) -> None:
        """Take each part once that is not read at each tick, due or not. Raises as `read`."""
        now_s = self._clock.monotonic_s()
        for part in self._parts:
            part.forget()
            part.groups(now_s, self._every_s)

    def _at_each_tick(self) -> Iterator[HostReading]:
        device = self._device
        values = device.fields(self._state_fields)
        yield from self._power.read(values)
        yield from self._temperatures.memory(values)
        yield from self._use.read()
        yield from self._throttle.read(values)
        carried = device.fields(TRAFFIC_FIELDS)
        yield from self._pcie.read(carried)
        yield from gpu_nvlink.traffic(device, carried)
        yield GpuIntegrals(
            gpu=device.gpu,
            uuid=device.uuid,
            since_s=self._since_s,
            read_s=self._clock.monotonic_s(),
            busy_seconds=self._use.busy.seconds,
            memory_busy_seconds=self._use.memory_busy.seconds,
            power_integral_joules=self._power.integral_joules,
            energy_counter_joules=self._power.counter_joules,
            energy_counter_scope=self._power.counter_scope,
        )


def identity(device: Device) -> Iterator[GpuInfo]:
    """What the GPU is; a text that the driver does not state is empty."""
    architecture = device.ask("nvmlDeviceGetArchitecture")
    pci = device.ask("nvmlDeviceGetPciInfo")
    minor = device.ask("nvmlDeviceGetMinorNumber")
    yield GpuInfo(
        gpu=device.gpu,
        uuid=device.uuid,
        name=_text(device, "nvmlDeviceGetName") or "unknown",
        architecture=ARCHITECTURES.get(architecture, ""),
        # As nvidia-smi writes it. A GPU is always function 0.
        pci_bus_id="" if pci is None else f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.0",
        minor="" if minor is None else str(minor),
        serial=_text(device, "nvmlDeviceGetSerial"),
        vbios=_text(device, "nvmlDeviceGetVbiosVersion"),
        parent_uuid="",
        mig_profile="",
        simulated=device.simulated_label,
    )


def _text(device: Device, function: str) -> str:
    text = device.text(function) or ""
    return "" if text in NO_TEXT else text
