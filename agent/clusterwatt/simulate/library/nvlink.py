"""NVLink, the NVSwitch fabric, C2C and peer access.

The counters of a link go on while it is down, so that sums over links never step back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from clusterwatt.simulate.gpu import Gpu
from clusterwatt.simulate.library.calls import (
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    Filled,
    Refused,
    check_version,
    needs,
    on_gpu,
    on_system,
)
from clusterwatt.simulate.library.fields import UNSIGNED_INT, UNSIGNED_LONG_LONG, on_field

if TYPE_CHECKING:
    from clusterwatt.simulate.nvml import SimulatedLibrary

ALL_LINKS = 0xFFFFFFFF  # scope of a field: the sum over the links
FABRIC_V2, FABRIC_V3 = 0x02000024, 0x03000028
PLATFORM_V1, PLATFORM_V2 = 0x0100002C, 0x0200002C

# Raw traffic over payload: headers and flow control.
_OVERHEAD = 1.12
_PACKET_BYTES = 4096
_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH
_VERSIONS = {3: 4, 4: 6, 5: 7}  # NVLink generation to NVML_NVLINK_VERSION_*
_BER_NONE = 15 << 8 | 255  # 15e-255: as good as none; mantissa in bits 8 to 11, exponent in bits 0 to 7


def _links(gpu: Gpu) -> int:
    """Links of the board; in MIG mode the driver answers no NVLink query (nvidia-smi nvlink, H100 in MIG)."""
    needs(gpu.card.nvlinks > 0 and not gpu.mig_enabled)
    return gpu.card.nvlinks


def _one(gpu: Gpu, link: int) -> int:
    if link >= _links(gpu):
        raise Refused(INVALID_ARGUMENT)
    return link


def link_bytes(gpu: Gpu, now_s: float) -> float:
    """Payload that each link has carried in each direction."""
    return gpu.card.nvlink_mbps * 1e6 * gpu.counted("nvlink", now_s)


def _summed(gpu: Gpu, scope: int, of_one_link: float) -> int:
    if scope == ALL_LINKS:
        return int(of_one_link) * _links(gpu)
    _one(gpu, scope)
    return int(of_one_link)


def _errors(gpu: Gpu, kind: str, scope: int) -> int:
    counts = gpu.health.nvlink_errors
    if scope == ALL_LINKS:
        return sum(counts.get((kind, link), 0) for link in range(_links(gpu)))
    return counts.get((kind, _one(gpu, scope)), 0)


@on_gpu("nvmlDeviceGetNvLinkState")
def state(gpu: Gpu, link: int, active: Filled) -> None:
    active.value = int(_one(gpu, link) not in gpu.health.nvlink_down)


@on_gpu("nvmlDeviceGetNvLinkVersion")
def version(gpu: Gpu, link: int, number: Filled) -> None:
    _one(gpu, link)
    number.value = _VERSIONS[gpu.card.nvlink_version]


@on_gpu("nvmlDeviceGetNvLinkRemoteDeviceType", since=470)
def remote_device_type(gpu: Gpu, link: int, kind: Filled) -> None:
    _one(gpu, link)
    kind.value = _SWITCH


@on_gpu("nvmlDeviceGetNvLinkErrorCounter")
def error_counter(gpu: Gpu, link: int, counter: int, count: Filled) -> None:
    """NVML_NVLINK_ERROR_DL_*: replay, recovery, flit CRC, data CRC, ECC; NVLink 5 has other counters."""
    needs(not gpu.card.nvlink5)
    kinds = ("replay", "recovery", "flit", "crc", "ecc")
    if counter >= len(kinds):
        raise Refused(INVALID_ARGUMENT)
    count.value = _errors(gpu, kinds[counter], _one(gpu, link))


# --- fields ------------------------------------------------------------------------------------------


@on_field(UNSIGNED_INT, 91)
def link_count(gpu: Gpu, scope: int, now_s: float) -> int:
    return _links(gpu)


@on_field(UNSIGNED_INT, 90)
def common_speed(gpu: Gpu, scope: int, now_s: float) -> int:
    _links(gpu)
    return gpu.card.nvlink_mbps


@on_field(UNSIGNED_INT, 164, since=525)
@on_field(UNSIGNED_INT, 296, since=595)
def speed(gpu: Gpu, scope: int, now_s: float) -> int:
    return 0 if _one(gpu, scope) in gpu.health.nvlink_down else gpu.card.nvlink_mbps


@on_field(UNSIGNED_INT, 165, since=525)
def state_field(gpu: Gpu, scope: int, now_s: float) -> int:
    return int(_one(gpu, scope) not in gpu.health.nvlink_down)


@on_field(UNSIGNED_INT, 166, since=525)
def version_field(gpu: Gpu, scope: int, now_s: float) -> int:
    _one(gpu, scope)
    return _VERSIONS[gpu.card.nvlink_version]


def _before_nvlink5(gpu: Gpu) -> None:
    needs(not gpu.card.nvlink5)


def _since_nvlink5(gpu: Gpu) -> None:
    needs(gpu.card.nvlink5)


@on_field(UNSIGNED_LONG_LONG, 138, 139, since=450)
def payload_kib(gpu: Gpu, scope: int, now_s: float) -> int:
    """Sent, received; both the same here."""
    _before_nvlink5(gpu)
    return _summed(gpu, scope, link_bytes(gpu, now_s) / 1024)


@on_field(UNSIGNED_LONG_LONG, 140, 141, since=450)
def raw_kib(gpu: Gpu, scope: int, now_s: float) -> int:
    _before_nvlink5(gpu)
    return _summed(gpu, scope, link_bytes(gpu, now_s) * _OVERHEAD / 1024)


@on_field(UNSIGNED_LONG_LONG, 201, 203, since=560)
def packets(gpu: Gpu, scope: int, now_s: float) -> int:
    _since_nvlink5(gpu)
    return _summed(gpu, scope, link_bytes(gpu, now_s) / _PACKET_BYTES)


@on_field(UNSIGNED_LONG_LONG, 202, 204, since=560)
def payload_bytes(gpu: Gpu, scope: int, now_s: float) -> int:
    _since_nvlink5(gpu)
    return _summed(gpu, scope, link_bytes(gpu, now_s))


def _error_field(field: int, kind: str, applies: Callable[[Gpu], None], *, total: bool, since: int) -> None:
    def read(gpu: Gpu, scope: int, now_s: float) -> int:
        applies(gpu)
        return _errors(gpu, kind, ALL_LINKS if total else scope)

    on_field(UNSIGNED_LONG_LONG, field, since=since)(read)


def _a100(gpu: Gpu) -> None:
    """CRC totals come back as "not supported" from an H100 (NVIDIA/DCGM#173)."""
    needs(gpu.card.nvlink_version == 3)


for _id, _kind in ((38, "flit"), (45, "crc")):
    _error_field(_id, _kind, _a100, total=True, since=0)
for _id, _kind in ((52, "replay"), (59, "recovery"), (160, "ecc")):
    _error_field(_id, _kind, _before_nvlink5, total=True, since=0)
for _id, _kind in ((161, "replay"), (162, "recovery"), (163, "crc")):
    _error_field(_id, _kind, _before_nvlink5, total=False, since=525)
for _id, _kind in (
    (206, "malformed"),
    (207, "overrun"),
    (208, "receive"),
    (209, "remote"),
    (210, "general"),
    (211, "integrity"),
    (212, "discard"),
    (213, "recovery_ok"),
    (214, "recovery_failed"),
    (215, "recovery"),
    (219, "effective"),
    (221, "symbol"),
):
    _error_field(_id, _kind, _since_nvlink5, total=False, since=560)
for _number in range(16):
    _error_field(235 + _number, f"fec_{_number}", _since_nvlink5, total=False, since=570)
for _id, _kind in ((289, "raw_0"), (290, "raw_1"), (294, "plr"), (295, "plr_retry")):
    _error_field(_id, _kind, _since_nvlink5, total=False, since=590)


@on_field(UNSIGNED_LONG_LONG, 220, 222, since=560)
@on_field(UNSIGNED_LONG_LONG, 291, 292, 293, since=590)
def bit_error_rate(gpu: Gpu, scope: int, now_s: float) -> int:
    _since_nvlink5(gpu)
    _one(gpu, scope)
    return _BER_NONE


# --- fabric ------------------------------------------------------------------------------------------

COMPLETED = 3  # NVML_GPU_FABRIC_STATE_COMPLETED
# "Access Timeout Recovery: False" and nothing else is what a B200 with driver 580.105.08 states.
_ACCESS_TIMEOUT_FALSE = 2 << 6


def _fill_fabric(gpu: Gpu, info: Filled) -> None:
    """An H100 with driver 590.48.01: completed, clique 0, a cluster of zeros, no health."""
    needs(gpu.card.fabric)
    info.status, info.cliqueId = 0, 0
    info.state = COMPLETED if gpu.health.fabric_state is None else gpu.health.fabric_state


@on_gpu("nvmlDeviceGetGpuFabricInfo", since=525)
def fabric_info(gpu: Gpu, info: Filled) -> None:
    _fill_fabric(gpu, info)


@on_gpu("nvmlDeviceGetGpuFabricInfoV", since=550)
def fabric_info_v(gpu: Gpu, info: Filled) -> None:
    check_version(info, FABRIC_V2, FABRIC_V3)
    _fill_fabric(gpu, info)
    health, stated = gpu.health, gpu.card.fabric_health
    mask = health.fabric_health_mask
    info.healthMask = (_ACCESS_TIMEOUT_FALSE if stated else 0) if mask is None else mask
    if info.version == FABRIC_V3:
        summary = health.fabric_health_summary
        info.healthSummary = int(stated) if summary is None else summary


@on_gpu("nvmlDeviceGetPlatformInfo", since=570)
def platform_info(gpu: Gpu, info: Filled) -> None:
    needs(gpu.card.platform)
    check_version(info, PLATFORM_V1, PLATFORM_V2)
    info.ibGuid = (0x2 + gpu.board).to_bytes(8, "big")
    info.peerType, info.moduleId = b"\x01", bytes([gpu.board + 1])
    if info.version == PLATFORM_V2:
        info.hostId, info.slotNumber, info.trayIndex = b"\x01", b"\x00", b"\x00"


# --- C2C and peers -----------------------------------------------------------------------------------


@on_gpu("nvmlDeviceGetC2cModeInfoV", since=535)
def c2c_mode(gpu: Gpu, info: Filled) -> None:
    """Stated as disabled by Hopper and Blackwell boards without an NVIDIA CPU."""
    needs(gpu.card.c2c_mode)
    info.isC2cEnabled = int(gpu.card.c2c_links > 0)


@on_field(UNSIGNED_INT, 170, since=535)
def c2c_count(gpu: Gpu, scope: int, now_s: float) -> int:
    needs(gpu.card.c2c_links > 0)
    return gpu.card.c2c_links


def _c2c_link(gpu: Gpu, link: int) -> int:
    if link >= c2c_count(gpu, 0, 0.0):
        raise Refused(INVALID_ARGUMENT)
    return link


@on_field(UNSIGNED_INT, 171, since=535)
def c2c_state(gpu: Gpu, scope: int, now_s: float) -> int:
    _c2c_link(gpu, scope)
    return 1


@on_field(UNSIGNED_INT, 172, since=535)
def c2c_speed(gpu: Gpu, scope: int, now_s: float) -> int:
    _c2c_link(gpu, scope)
    return gpu.card.c2c_mbps


def _c2c_errors(field: int, kind: str) -> None:
    def read(gpu: Gpu, scope: int, now_s: float) -> int:
        return gpu.health.c2c_errors.get((kind, _c2c_link(gpu, scope)), 0)

    on_field(UNSIGNED_LONG_LONG, field, since=570)(read)


for _id, _kind in ((231, "interrupt"), (232, "replay"), (233, "replay_back_to_back")):
    _c2c_errors(_id, _kind)


@on_system("nvmlDeviceGetP2PStatus")
def p2p_status(library: SimulatedLibrary, first: Filled, second: Filled, index: int, status: Filled) -> None:
    """0: peer access works; 1: the chipset does not support it (NVML_P2P_STATUS_*)."""
    gpus = [library.target(first), library.target(second)]
    if not all(isinstance(gpu, Gpu) for gpu in gpus):
        raise Refused(NOT_SUPPORTED)
    linked = all(isinstance(gpu, Gpu) and gpu.card.nvlinks and not gpu.health.nvlink_down for gpu in gpus)
    status.value = 0 if linked else 1
