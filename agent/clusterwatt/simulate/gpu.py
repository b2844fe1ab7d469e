"""A simulated board: its identity, and what it draws, holds and counts at a moment."""

from __future__ import annotations

import hashlib
import random
import uuid as uuids
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from clusterwatt.simulate.cards import Card, Clocks, MigProfile
from clusterwatt.simulate.health import Health
from clusterwatt.simulate.work import Process, ProcessKind, Signals, Tenant, Then, Topped, mean

if TYPE_CHECKING:
    from clusterwatt.simulate.nvml import SimulatedLibrary

MIB = 1024 * 1024
NO_INSTANCE = 0xFFFFFFFF  # gpuInstanceId and computeInstanceId of a process outside MIG

# Temperatures follow the mean power of this time: the heat sink takes about a minute.
_HEAT_S = 45.0
# A board that heat protection slows is this much warmer than its neighbours at the same power.
_BADLY_COOLED_C = 30.0
# Share of the full SM clock that heat protection leaves.
_HOT_CLOCK = 0.6
# Clocks fall to idle when nothing has run for this long.
_CLOCKS_FALL_S = 5.0
# Share of memory bandwidth in use, and with it memory utilisation, per share of SMs at work.
MEMORY_PER_SM = 0.45


def simulated_uuid(seed: int, index: int) -> str:
    """The UUID of a board: the same for the same seed, in every process."""
    digest = hashlib.sha256(f"clusterwatt simulated GPU {seed}/{index}".encode()).digest()
    return f"GPU-{uuids.UUID(bytes=digest[:16], version=4)}"


def simulated_serial(seed: int, board: int) -> str:
    """The serial number of a board: the same for the same seed."""
    return f"165{seed % 100_000:05d}{board:05d}"


class ProcessEntry(msgspec.Struct, frozen=True):
    """A line of the driver's process list. `used_bytes` None: the driver does not know (all ones)."""

    pid: int
    used_bytes: int | None
    name: str = "/usr/bin/python3"
    kind: ProcessKind = "compute"
    sm_share: float = 1.0
    gpu_instance: int = NO_INSTANCE
    compute_instance: int = NO_INSTANCE


class Gpu:
    """One board. `board` counts the boards and never changes; the NVML index may."""

    def __init__(
        self,
        driver: SimulatedLibrary,
        card: Card,
        board: int,
        *,
        seed: int,
        uuid: str,
        minor: int,
        serial: str | None,
        name: bytes,
        tenant: Tenant,
        loaded_s: float,
    ) -> None:
        self.driver = driver
        self.card, self.board = card, board
        self.uuid, self.minor, self.serial, self.name = uuid, minor, serial, name
        self.pci_domain, self.pci_bus = board // 8, 0x18 + 0x1A * (board % 8)
        self.pci_bus_id = f"{self.pci_domain:08X}:{self.pci_bus:02X}:00.0"
        self.power_limit_w = card.power_limit_w
        self.power_profiles: tuple[int, ...] | None = None  # NVML_POWER_PROFILE_*, those in force
        self.health = Health()
        self.overheats: list[tuple[float, float, float]] = []
        """Spells of heat that the work does not bring about: share of the time held back, from, until."""
        self.mig_enabled = False
        self.mig_devices: list[MigDevice] = []
        self.tenant = tenant
        self.signals = tenant.signals
        self.loaded_s = loaded_s
        self.branch = driver.branch
        self.listed: Sequence[ProcessEntry] | None = None
        chance = random.Random(f"{seed}/{board}")  # noqa: S311 - boards differ a little, no secret
        self._power_factor = chance.uniform(0.97, 1.03)
        self._warmer_c = chance.uniform(-2.0, 2.0)

    @property
    def gpu(self) -> Gpu:
        """The whole GPU: itself."""
        return self

    @property
    def gsp_firmware(self) -> str:
        """Version of the firmware on the board: the driver's own."""
        return self.driver.driver_version

    def now_s(self) -> float:
        """The time of the simulation."""
        return self.driver.wall_s()

    def index(self) -> int:
        """The NVML index now."""
        return self.driver.visible().index(self)

    # --- power and heat ------------------------------------------------------------------------------

    def power_w(self, now_s: float) -> float:
        """Power at this moment."""
        card = self.card
        drawn = card.power_idle_w + (card.power_loaded_w - card.power_idle_w) * self.signals.drawn.at(now_s)
        return drawn * self._power_factor

    def energy_j(self, now_s: float) -> float:
        """The integral of the power since the driver was loaded."""
        card, loaded_s = self.card, self.loaded_s
        if now_s <= loaded_s:
            return 0.0
        drawn = self.signals.drawn
        work = drawn.integral(now_s) - drawn.integral(loaded_s)
        joules = card.power_idle_w * (now_s - loaded_s) + (card.power_loaded_w - card.power_idle_w) * work
        return joules * self._power_factor

    def mean_power_w(self, now_s: float, window_s: float) -> float:
        """Mean power of the last `window_s` seconds, whenever the driver was loaded."""
        card = self.card
        effort = mean(self.signals.drawn, now_s - window_s, now_s)
        return (card.power_idle_w + (card.power_loaded_w - card.power_idle_w) * effort) * self._power_factor

    def module_power_w(self, now_s: float, window_s: float = 0.0) -> float | None:
        """Power of the module around the GPU, at this moment or as a mean; None where there is none."""
        module = self.card.module_power
        if module is None:
            return None
        drawn = self.signals.drawn
        effort = mean(drawn, now_s - window_s, now_s) if window_s else drawn.at(now_s)
        return (module.idle_w + (module.loaded_w - module.idle_w) * effort) * self._power_factor

    def temperature_c(self, now_s: float) -> float:
        """Core temperature: follows the power of the last minute."""
        card = self.card
        return self._warmed(card.temperature_idle_c, card.temperature_loaded_c, now_s)

    def memory_temperature_c(self, now_s: float) -> float | None:
        """Memory temperature, where the board has the sensor."""
        idle, loaded = self.card.memory_temperature_idle_c, self.card.memory_temperature_loaded_c
        return None if idle is None or loaded is None else self._warmed(idle, loaded, now_s)

    def _warmed(self, idle_c: float, loaded_c: float, now_s: float) -> float:
        effort = mean(self.signals.drawn, now_s - _HEAT_S, now_s)
        badly_cooled = _BADLY_COOLED_C * mean(self.signals.hot, now_s - _HEAT_S, now_s)
        return idle_c + (loaded_c - idle_c) * effort + self._warmer_c + badly_cooled + self.health.warmer_c

    # --- clocks --------------------------------------------------------------------------------------

    def active(self, now_s: float) -> bool:
        """Whether anything ran in the last seconds."""
        return mean(self.signals.busy, now_s - _CLOCKS_FALL_S, now_s) > 1e-6

    def clocks(self, now_s: float) -> Clocks:
        """Clocks of this moment; while the power limit holds them down the SM clock is a few steps lower."""
        if not self.active(now_s):
            return self.card.clocks_idle
        top = self.card.clocks_max
        if self.health.sm_clock_mhz is not None:
            return msgspec.structs.replace(top, sm=min(top.sm, self.health.sm_clock_mhz))
        if self.signals.hot.at(now_s) > 0:
            return msgspec.structs.replace(top, sm=int(top.sm * _HOT_CLOCK / 15) * 15)
        if self.signals.capped.at(now_s) > 0:
            return msgspec.structs.replace(top, sm=int(top.sm * 0.94 / 15) * 15)
        return top

    def counted(self, signal: str, now_s: float) -> float:
        """Seconds of a signal at its full value since the driver was loaded."""
        counts = getattr(self.signals, signal)
        return max(0.0, float(counts.integral(now_s) - counts.integral(self.loaded_s)))

    def held_back_by_heat_s(self, now_s: float) -> float:
        """Seconds for which heat has held the clocks down since the driver was loaded."""
        hot = self.signals.hot
        for share, from_s, until_s in self.overheats:
            hot = Topped(hot, share, from_s, until_s)
        return max(0.0, hot.integral(now_s) - hot.integral(self.loaded_s))

    # --- memory and processes ------------------------------------------------------------------------

    @property
    def total_bytes(self) -> int:
        """All memory of the board."""
        return self.card.memory_total_mib * MIB

    @property
    def reserved_bytes(self) -> int:
        """Memory that driver and firmware keep."""
        return self.card.memory_reserved_mib * MIB

    def used_bytes(self, now_s: float) -> int:
        """Memory that processes hold."""
        if self.mig_enabled:
            return sum(device.used_bytes(now_s) for device in self.mig_devices)
        usable = self.total_bytes - self.reserved_bytes
        return sum(int(usable * p.memory_share) for p in self.tenant.present(now_s))

    def processes(self, now_s: float) -> Sequence[ProcessEntry]:
        """The driver's process list: the tenant's, unless a test has put another in `listed`."""
        if self.listed is not None:
            return self.listed
        if self.mig_enabled:
            return [entry for device in self.mig_devices for entry in device.processes(now_s)]
        usable = self.total_bytes - self.reserved_bytes
        return [_entry(p, usable) for p in self.tenant.present(now_s)]

    # --- changes while it runs -----------------------------------------------------------------------

    def occupy(self, tenant: Tenant, now_s: float) -> None:
        """Give the GPU to another tenant from now on; no counter steps."""
        old = self.signals
        self.signals = Signals(
            **{name: Then(old.of(name), now_s, tenant.signals.of(name)) for name in Signals.__struct_fields__}
        )
        self.tenant = tenant


class GpuInstance:
    """A GPU instance; the driver has handles of their own kind for them."""

    def __init__(self, device: MigDevice) -> None:
        self.device = device


class MigDevice:
    """A MIG device: the only compute instance of a GPU instance."""

    def __init__(
        self,
        gpu: Gpu,
        profile: MigProfile,
        *,
        slot: int,
        start: int,
        instance: int,
        uuid: str,
        tenant: Tenant,
    ) -> None:
        self.gpu, self.profile, self.slot, self.start = gpu, profile, slot, start
        self.instance, self.compute_instance, self.uuid = instance, 0, uuid
        self.tenant = tenant
        self.gpu_instance = GpuInstance(self)
        self.sram_errors = 0  # uncorrected, since the instance was made

    @property
    def board(self) -> int:
        """The board that the device is part of."""
        return self.gpu.board

    @property
    def total_bytes(self) -> int:
        """Memory of the instance."""
        return self.profile.memory_mib * MIB

    def used_bytes(self, now_s: float) -> int:
        """Memory that processes hold in the instance."""
        return sum(int(self.total_bytes * p.memory_share) for p in self.tenant.present(now_s))

    def processes(self, now_s: float) -> Sequence[ProcessEntry]:
        """The processes of the instance."""
        return [
            _entry(p, self.total_bytes, self.instance, self.compute_instance)
            for p in self.tenant.present(now_s)
        ]


def _entry(
    process: Process, usable: int, instance: int = NO_INSTANCE, compute_instance: int = NO_INSTANCE
) -> ProcessEntry:
    return ProcessEntry(
        process.pid,
        int(usable * process.memory_share),
        process.name,
        process.kind,
        process.sm_share,
        instance,
        compute_instance,
    )
