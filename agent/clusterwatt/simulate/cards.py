"""The cards that can be simulated: data/simulated-cards.yaml, where their sources stand.

What a field holds as None, 0 or False is what the board answers NVML_ERROR_NOT_SUPPORTED to.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from clusterwatt.tables import table

TABLE = "simulated-cards"
AMPERE, BLACKWELL = 7, 10  # NVML_DEVICE_ARCH_*
NVIDIA = 14  # NVML_BRAND_*

Table = Mapping[str, object]


class Clocks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Clocks in MHz; the graphics clock is the SM clock on all these boards."""

    sm: int
    memory: int
    video: int


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Absolute temperature limits in degrees Celsius, as boards before Ada and GeForce boards state them."""

    shutdown: int
    slowdown: int
    gpu_max: int
    memory_max: int | None


class Margins(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """T.limit temperatures: the margin is `zero_c` minus the core's temperature, the limits are margins.

    Drivers do not state `zero_c`; it is the sum of "GPU Current Temp" and "GPU T.Limit Temp" in the capture.
    """

    zero_c: int
    shutdown: int
    slowdown: int
    gpu_max: int
    memory_max: int | None


class ModulePower(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Power of the module that the GPU sits on with a CPU and a GPU beside it, in watts."""

    limit_w: float
    limit_min_w: float
    limit_max_w: float
    idle_w: float
    loaded_w: float


class MigProfile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A GPU instance profile: `constant` is NVML_GPU_INSTANCE_PROFILE_*, `memory_slices` are eighths."""

    name: str
    constant: int
    slices: int
    memory_slices: int
    memory_mib: int
    bar1_mib: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    jpegs: int
    ofas: int
    most: int

    @property
    def id(self) -> int:
        """The profile id of `nvidia-smi mig -lgip`."""
        return {0: 19, 1: 14, 2: 9, 3: 5, 4: 0, 9: 15}[self.constant]


class Card(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of board."""

    name: str
    brand: int = NVIDIA
    architecture: int
    compute_capability: tuple[int, int]
    device_id: int
    subsystem_id: int
    vbios: str
    board_part: str | None
    inforom_image: str
    inforom_oem: str
    inforom_ecc: str | None
    serial: bool = True
    cores: int
    memory_bus_bits: int
    memory_total_mib: int
    memory_reserved_mib: int
    bar1_total_mib: int
    power_limit_w: float
    power_limit_min_w: float
    power_limit_max_w: float
    power_idle_w: float
    power_loaded_w: float
    power_average: bool
    module_power: ModulePower | None = None
    memory_power_idle_w: float | None = None
    memory_power_loaded_w: float | None = None
    temperature_idle_c: float
    temperature_loaded_c: float
    memory_temperature_idle_c: float | None = None
    memory_temperature_loaded_c: float | None = None
    thresholds: Thresholds | None = None
    margins: Margins | None = None
    clocks_idle: Clocks
    clocks_max: Clocks
    pstate_idle: int = 0
    pstate_busy: int = 0
    ecc: bool = True
    retired_pages: bool = False
    row_remap_banks: int | None = None
    sram_status: bool = False
    repair_status: bool = False
    unrepairable_flag: bool = False
    nvlinks: int = 0
    nvlink_mbps: int = 0
    nvlink_version: int = 0  # the generation; the library translates it to NVML_NVLINK_VERSION_*
    c2c_mode: bool = False
    c2c_links: int = 0
    c2c_mbps: int = 0
    pcie_generation: int
    pcie_generation_idle: int | None = None
    pcie_width: int = 16
    fans: int = 0
    gpm: bool = False
    fabric: bool = False
    fabric_health: bool = False
    platform: bool = False
    mig_profiles: tuple[MigProfile, ...] = ()

    @property
    def nvlink5(self) -> bool:
        """NVLink 5 counts packets and bytes of each link and has none of the older error counters."""
        return self.nvlink_version >= 5


@functools.cache
def cards() -> Mapping[str, Card]:
    """Every card by its name, read once."""
    return cards_of(table(TABLE))


def cards_of(tables: Mapping[str, Table]) -> dict[str, Card]:
    """The cards that tables describe. Raises ValueError, which names card and key."""
    return {name: _card(name, tables) for name in tables}


def _card(name: str, tables: Mapping[str, Table]) -> Card:
    try:
        return msgspec.convert(_whole(name, tables), Card)
    except msgspec.ValidationError as error:
        raise ValueError(f"data/{TABLE}.yaml: {name}: {error}") from None


def _whole(name: str, tables: Mapping[str, Table]) -> Table:
    """A card's keys, with those of the card that it is like."""
    own = dict(tables[name])
    like = own.pop("like", None)
    return {**_whole(str(like), tables), **own} if like is not None else own
