"""The cards that can be simulated: what a board of each model is, can do and answers.

Values come from `nvidia-smi -q` (text or XML) of real boards; each card says which. Where no capture under
full load was at hand, `power_loaded_w` and `temperature_loaded_c` are assumptions, and the card says so. What
a field holds as None, 0 or False is what the board answers NVML_ERROR_NOT_SUPPORTED to.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

# NVML_DEVICE_ARCH_*
TURING, AMPERE, ADA, HOPPER, BLACKWELL = 6, 7, 8, 9, 10

# NVML_BRAND_*
GEFORCE, NVIDIA = 5, 14


class Clocks(msgspec.Struct, frozen=True):
    """Clocks in MHz; the graphics clock is the SM clock on all these boards."""

    sm: int
    memory: int
    video: int


class Thresholds(msgspec.Struct, frozen=True):
    """Absolute temperature limits in degrees Celsius, as boards before Ada and GeForce boards state them."""

    shutdown: int
    slowdown: int
    gpu_max: int
    memory_max: int | None


class Margins(msgspec.Struct, frozen=True):
    """T.limit temperatures: the margin is `zero_c` minus the core's temperature, the limits are margins.

    Drivers do not state `zero_c`; it is the sum of "GPU Current Temp" and "GPU T.Limit Temp" in the capture.
    """

    zero_c: int
    shutdown: int
    slowdown: int
    gpu_max: int
    memory_max: int | None


class ModulePower(msgspec.Struct, frozen=True, kw_only=True):
    """Power of the module that the GPU sits on with a CPU and a GPU beside it, in watts."""

    limit_w: float
    limit_min_w: float
    limit_max_w: float
    idle_w: float
    loaded_w: float


class MigProfile(msgspec.Struct, frozen=True):
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


class Card(msgspec.Struct, frozen=True, kw_only=True):
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
    nvlink_version: int = 0
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


# `nvlink_version` is the generation; the library translates it to NVML_NVLINK_VERSION_*.

_A100 = Card(
    # nvidia-smi -q -x of an A100-SXM4-40GB, driver 570.148.08, idle; links from nvidia-smi nvlink -s of an
    # A100-SXM4-80GB. Assumed: loaded power and temperatures.
    name="NVIDIA A100-SXM4-40GB",
    architecture=AMPERE,
    compute_capability=(8, 0),
    device_id=0x20B010DE,
    subsystem_id=0x134F10DE,
    vbios="92.00.45.00.03",
    board_part="692-2G506-0200-003",
    inforom_image="G506.0200.00.04",
    inforom_oem="2.0",
    inforom_ecc="6.16",
    cores=6912,
    memory_bus_bits=5120,
    memory_total_mib=40960,
    memory_reserved_mib=518,
    bar1_total_mib=65536,
    power_limit_w=400.0,
    power_limit_min_w=100.0,
    power_limit_max_w=400.0,
    power_idle_w=49.68,
    power_loaded_w=370.0,
    power_average=False,
    temperature_idle_c=33,
    temperature_loaded_c=62,
    memory_temperature_idle_c=34,
    memory_temperature_loaded_c=70,
    thresholds=Thresholds(shutdown=92, slowdown=89, gpu_max=85, memory_max=95),
    clocks_idle=Clocks(sm=210, memory=1215, video=585),
    clocks_max=Clocks(sm=1410, memory=1215, video=1290),
    row_remap_banks=640,
    sram_status=True,
    repair_status=True,
    nvlinks=12,
    nvlink_mbps=25000,
    nvlink_version=3,
    pcie_generation=4,
    # NVIDIA's MIG user guide, table of A100 profiles.
    mig_profiles=(
        MigProfile("1g.5gb", 0, 1, 1, 4864, 8191, 14, 1, 0, 0, 0, 7),
        MigProfile("2g.10gb", 1, 2, 2, 9856, 16383, 28, 2, 1, 0, 0, 3),
        MigProfile("3g.20gb", 2, 3, 4, 19968, 32767, 42, 3, 2, 0, 0, 2),
        MigProfile("4g.20gb", 3, 4, 4, 19968, 32767, 56, 4, 2, 0, 0, 1),
        MigProfile("7g.40gb", 4, 7, 8, 40192, 65535, 98, 7, 5, 1, 1, 1),
    ),
)

_H100 = Card(
    # nvidia-smi -q of an H100 80GB HBM3, driver 590.48.01, idle and under gpu_burn (634 W, 64 C; memory 58 C,
    # 85.83 W); MIG memory of the same board cut into 3g.40gb, 2g.20gb, 1g.10gb. Other profiles: MIG user
    # guide.
    name="NVIDIA H100 80GB HBM3",
    architecture=HOPPER,
    compute_capability=(9, 0),
    device_id=0x233010DE,
    subsystem_id=0x16C110DE,
    vbios="96.00.A5.00.01",
    board_part="692-2G520-0200-000",
    inforom_image="G520.0200.00.05",
    inforom_oem="2.1",
    inforom_ecc="7.16",
    cores=16896,
    memory_bus_bits=5120,
    memory_total_mib=81559,
    memory_reserved_mib=479,
    bar1_total_mib=131072,
    power_limit_w=700.0,
    power_limit_min_w=200.0,
    power_limit_max_w=700.0,
    power_idle_w=69.85,
    power_loaded_w=634.0,
    power_average=True,
    memory_power_idle_w=43.19,
    memory_power_loaded_w=85.83,
    temperature_idle_c=41,
    temperature_loaded_c=64,
    memory_temperature_idle_c=48,
    memory_temperature_loaded_c=58,
    margins=Margins(zero_c=87, shutdown=-8, slowdown=-2, gpu_max=0, memory_max=0),
    clocks_idle=Clocks(sm=345, memory=2619, video=765),
    clocks_max=Clocks(sm=1980, memory=2619, video=1545),
    row_remap_banks=2560,
    sram_status=True,
    repair_status=True,
    unrepairable_flag=True,
    nvlinks=18,
    nvlink_mbps=26562,
    nvlink_version=4,
    c2c_mode=True,
    pcie_generation=5,
    gpm=True,
    fabric=True,
    mig_profiles=(
        MigProfile("1g.10gb", 0, 1, 1, 9984, 6184, 16, 1, 1, 1, 0, 7),
        MigProfile("1g.20gb", 9, 1, 2, 20096, 12369, 16, 1, 1, 1, 0, 4),
        MigProfile("2g.20gb", 1, 2, 2, 20096, 12369, 32, 2, 2, 2, 0, 3),
        MigProfile("3g.40gb", 2, 3, 4, 40448, 24739, 60, 3, 3, 3, 0, 2),
        MigProfile("4g.40gb", 3, 4, 4, 40448, 24739, 64, 4, 4, 4, 0, 1),
        MigProfile("7g.80gb", 4, 7, 8, 81024, 49479, 132, 8, 7, 7, 1, 1),
    ),
)

_B200 = Card(
    # nvidia-smi -q -x of eight B200, driver 580.105.08, idle. Assumed: loaded power and temperatures,
    # speed of a link (NVLink 5: 100 GB/s in both directions), memory of MIG instances (eighths of the
    # board).
    name="NVIDIA B200",
    architecture=BLACKWELL,
    compute_capability=(10, 0),
    device_id=0x290110DE,
    subsystem_id=0x199910DE,
    vbios="97.00.FA.00.09",
    board_part="692-2G525-0220-500",
    inforom_image="G525.0220.00.03",
    inforom_oem="2.1",
    inforom_ecc="7.16",
    cores=18944,
    memory_bus_bits=8192,
    memory_total_mib=183359,
    memory_reserved_mib=728,
    bar1_total_mib=262144,
    power_limit_w=1000.0,
    power_limit_min_w=200.0,
    power_limit_max_w=1000.0,
    power_idle_w=195.68,
    power_loaded_w=930.0,
    power_average=True,
    memory_power_idle_w=22.33,
    memory_power_loaded_w=110.0,
    temperature_idle_c=39,
    temperature_loaded_c=66,
    memory_temperature_idle_c=39,
    memory_temperature_loaded_c=64,
    margins=Margins(zero_c=88, shutdown=-5, slowdown=-3, gpu_max=0, memory_max=0),
    clocks_idle=Clocks(sm=120, memory=3996, video=600),
    clocks_max=Clocks(sm=1965, memory=3996, video=1965),
    row_remap_banks=3840,
    sram_status=True,
    repair_status=True,
    unrepairable_flag=True,
    nvlinks=18,
    nvlink_mbps=53125,
    nvlink_version=5,
    c2c_mode=True,
    pcie_generation=5,
    gpm=True,
    fabric=True,
    fabric_health=True,
    platform=True,
    mig_profiles=(
        MigProfile("1g.23gb", 0, 1, 1, 22784, 32767, 18, 1, 1, 1, 0, 7),
        MigProfile("1g.45gb", 9, 1, 2, 45568, 65535, 26, 2, 1, 1, 0, 4),
        MigProfile("2g.45gb", 1, 2, 2, 45568, 65535, 36, 2, 2, 2, 0, 3),
        MigProfile("3g.90gb", 2, 3, 4, 91136, 131071, 70, 4, 3, 3, 0, 2),
        MigProfile("4g.90gb", 3, 4, 4, 91136, 131071, 74, 4, 4, 4, 0, 1),
        MigProfile("7g.180gb", 4, 7, 8, 182528, 262143, 148, 8, 7, 7, 1, 1),
    ),
)

CARDS: Mapping[str, Card] = {
    "a100": _A100,
    "h100": _H100,
    "h200": msgspec.structs.replace(
        # nvidia-smi -q of an H200, driver 590.48.01, idle, and the same board cut into 3g.71gb, 2g.35gb,
        # 1g.18gb. Assumed: loaded power and temperatures, as on the H100.
        _H100,
        name="NVIDIA H200",
        device_id=0x233510DE,
        subsystem_id=0x18BE10DE,
        vbios="96.00.A5.00.03",
        board_part="695-2G520-0280-001",
        inforom_image="G520.0280.02.02",
        memory_bus_bits=6144,
        memory_total_mib=143771,
        memory_reserved_mib=614,
        bar1_total_mib=262144,
        power_idle_w=77.67,
        memory_power_idle_w=46.56,
        memory_power_loaded_w=95.0,
        temperature_idle_c=28,
        temperature_loaded_c=58,
        memory_temperature_idle_c=32,
        memory_temperature_loaded_c=55,
        clocks_idle=Clocks(sm=345, memory=3201, video=765),
        clocks_max=Clocks(sm=1980, memory=3201, video=1545),
        row_remap_banks=3072,
        mig_profiles=(
            MigProfile("1g.18gb", 0, 1, 1, 16384, 14809, 16, 1, 1, 1, 0, 7),
            MigProfile("1g.35gb", 9, 1, 2, 33280, 29618, 16, 1, 1, 1, 0, 4),
            MigProfile("2g.35gb", 1, 2, 2, 33280, 29618, 32, 2, 2, 2, 0, 3),
            MigProfile("3g.71gb", 2, 3, 4, 71424, 59237, 60, 3, 3, 3, 0, 2),
            MigProfile("4g.71gb", 3, 4, 4, 71424, 59237, 64, 4, 4, 4, 0, 1),
            MigProfile("7g.141gb", 4, 7, 8, 143104, 118475, 132, 8, 7, 7, 1, 1),
        ),
    ),
    "b200": _B200,
    "gb200": msgspec.structs.replace(
        # nvidia-smi -q -x of four GB200 of a rack, driver 580.173.02, idle. Assumed: loaded power and
        # temperatures, links to the CPU as a GH200 has them, memory of MIG instances (eighths of the board).
        _B200,
        name="NVIDIA GB200",
        device_id=0x294110DE,
        subsystem_id=0x204610DE,
        vbios="97.00.B9.00.69",
        board_part="900-2G548-A801-000",
        inforom_image="G548.0201.00.06",
        memory_total_mib=189471,
        memory_reserved_mib=742,
        power_limit_w=1200.0,
        power_limit_max_w=1200.0,
        power_idle_w=165.93,
        power_loaded_w=1120.0,
        module_power=ModulePower(
            limit_w=2500.0, limit_min_w=500.0, limit_max_w=2500.0, idle_w=467.17, loaded_w=2400.0
        ),
        memory_power_idle_w=30.26,
        memory_power_loaded_w=120.0,
        temperature_idle_c=27,
        temperature_loaded_c=58,
        memory_temperature_idle_c=27,
        memory_temperature_loaded_c=56,
        margins=Margins(zero_c=87, shutdown=-5, slowdown=-2, gpu_max=0, memory_max=0),
        clocks_max=Clocks(sm=2062, memory=3996, video=1890),
        row_remap_banks=3968,
        c2c_links=10,
        c2c_mbps=44712,
        mig_profiles=(
            MigProfile("1g.23gb", 0, 1, 1, 23552, 32767, 18, 1, 1, 1, 0, 7),
            MigProfile("1g.47gb", 9, 1, 2, 47104, 65535, 26, 2, 1, 1, 0, 4),
            MigProfile("2g.47gb", 1, 2, 2, 47104, 65535, 36, 2, 2, 2, 0, 3),
            MigProfile("3g.93gb", 2, 3, 4, 94208, 131071, 70, 4, 3, 3, 0, 2),
            MigProfile("4g.93gb", 3, 4, 4, 94208, 131071, 74, 4, 4, 4, 0, 1),
            MigProfile("7g.186gb", 4, 7, 8, 188416, 262143, 148, 8, 7, 7, 1, 1),
        ),
    ),
    "l40s": Card(
        # nvidia-smi -q -x of an L40S, driver 595.91.07, idle; limits, margins and throughput from nvidia-smi
        # -q of one under ffmpeg, driver 595.80. Assumed: loaded power and temperature.
        name="NVIDIA L40S",
        architecture=ADA,
        compute_capability=(8, 9),
        device_id=0x26B910DE,
        subsystem_id=0x185110DE,
        vbios="95.02.66.00.02",
        board_part="900-2G133-0080-000",
        inforom_image="G133.0242.00.03",
        inforom_oem="2.1",
        inforom_ecc="6.16",
        cores=18176,
        memory_bus_bits=384,
        memory_total_mib=46068,
        memory_reserved_mib=609,
        bar1_total_mib=65536,
        power_limit_w=350.0,
        power_limit_min_w=100.0,
        power_limit_max_w=350.0,
        power_idle_w=65.64,
        power_loaded_w=330.0,
        power_average=True,
        temperature_idle_c=29,
        temperature_loaded_c=68,
        margins=Margins(zero_c=88, shutdown=-5, slowdown=-2, gpu_max=0, memory_max=None),
        clocks_idle=Clocks(sm=2040, memory=9001, video=1725),
        clocks_max=Clocks(sm=2520, memory=9001, video=1965),
        row_remap_banks=192,
        sram_status=True,
        repair_status=True,
        pcie_generation=4,
    ),
    "t4": Card(
        # nvidia-smi -q -x of a Tesla T4, driver 595.91.07; idle power and clocks of one with driver
        # 515.105.01. Assumed: loaded power and temperature.
        name="Tesla T4",
        architecture=TURING,
        compute_capability=(7, 5),
        device_id=0x1EB810DE,
        subsystem_id=0x12A210DE,
        vbios="90.04.96.00.02",
        board_part="900-2G183-A800-001",
        inforom_image="G183.0200.00.02",
        inforom_oem="1.1",
        inforom_ecc="5.0",
        cores=2560,
        memory_bus_bits=256,
        memory_total_mib=15360,
        memory_reserved_mib=448,
        bar1_total_mib=256,
        power_limit_w=70.0,
        power_limit_min_w=60.0,
        power_limit_max_w=70.0,
        power_idle_w=26.78,
        power_loaded_w=66.0,
        power_average=False,
        temperature_idle_c=40,
        temperature_loaded_c=76,
        thresholds=Thresholds(shutdown=96, slowdown=93, gpu_max=85, memory_max=None),
        clocks_idle=Clocks(sm=585, memory=5000, video=810),
        clocks_max=Clocks(sm=1590, memory=5001, video=1470),
        retired_pages=True,
        pcie_generation=3,
    ),
    "rtx4080": Card(
        # nvidia-smi -q of a GeForce RTX 4080 SUPER, driver 595.71.05, idle and under ffmpeg. Assumed: loaded
        # power and temperature.
        name="NVIDIA GeForce RTX 4080 SUPER",
        brand=GEFORCE,
        architecture=ADA,
        compute_capability=(8, 9),
        device_id=0x270210DE,
        subsystem_id=0x51101462,
        vbios="95.03.44.00.B2",
        board_part=None,
        inforom_image="G002.0000.00.03",
        inforom_oem="2.0",
        inforom_ecc=None,
        serial=False,
        cores=10240,
        memory_bus_bits=256,
        memory_total_mib=16376,
        memory_reserved_mib=434,
        bar1_total_mib=16384,
        power_limit_w=320.0,
        power_limit_min_w=150.0,
        power_limit_max_w=400.0,
        power_idle_w=25.92,
        power_loaded_w=310.0,
        power_average=True,
        temperature_idle_c=43,
        temperature_loaded_c=68,
        thresholds=Thresholds(shutdown=101, slowdown=96, gpu_max=90, memory_max=None),
        clocks_idle=Clocks(sm=210, memory=405, video=1185),
        clocks_max=Clocks(sm=3165, memory=11501, video=2415),
        pstate_idle=8,
        pstate_busy=2,
        ecc=False,
        pcie_generation=4,
        pcie_generation_idle=1,
        fans=1,
    ),
}
