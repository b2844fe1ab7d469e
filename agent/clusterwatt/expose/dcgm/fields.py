"""What each DCGM field is made of: our readings, in DCGM's units.

Fields are those of the three counter files of dcgm-exporter; docs/DCGM.md has them as a table. A field whose
reading is not there has no series. Whole numbers are integers, as DCGM states them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from typing import Any, NamedTuple

import msgspec

from clusterwatt.expose.dcgm.counters import Known
from clusterwatt.expose.dcgm.recent import ago
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import (
    GpuBoard,
    GpuClock,
    GpuEngines,
    GpuGpm,
    GpuInfo,
    GpuIntegrals,
    GpuMemory,
    GpuPower,
    GpuTemperature,
    GpuThrottle,
    GpuUse,
    GpuVgpuLicense,
)
from clusterwatt.readings.gpu_health import (
    GpuEccErrors,
    GpuRemappedRows,
    GpuRetiredPages,
    GpuRetiredPagesPending,
    GpuRowRemap,
)
from clusterwatt.readings.gpu_links import (
    GpuNvlinkCrc,
    GpuNvlinkErrors,
    GpuNvlinkLink,
    GpuNvlinkTraffic,
    GpuPcieLink,
    GpuPcieTraffic,
)
from clusterwatt.readings.gpu_measured import DriverInfo, GpuXid, GpuXids
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.xids import catalogue

MIB = 1 << 20
NVLINK_UNIT = 1024 * 1000  # DCGM divides KiB by 1000
WINDOW_S = 300.0  # dcgm-exporter's default for what it counts itself


class Row(NamedTuple):
    """A value of one GPU or MIG instance, with labels beyond those that name it."""

    uuid: str
    value: float
    labels: Mapping[str, str] = {}


class Moment(NamedTuple):
    """A snapshot, the readings of one interval before it, and those of the last minutes, oldest first."""

    snapshot: Snapshot
    before: Snapshot | None
    window: tuple[Snapshot, ...]


class Field(msgspec.Struct, frozen=True):
    """Makes the rows of a field; which types it needs of an interval ago, and of the whole window."""

    rows: Callable[[Moment], Iterator[Row]]
    before: tuple[type[Reading], ...] = ()
    window: tuple[type[Reading], ...] = ()


Convert = Callable[[float], float]


def _whole(value: float) -> int:
    return round(value)


def _percent(ratio: float) -> int:
    return round(ratio * 100)


def _megahertz(hertz: float) -> int:
    return round(hertz / 1e6)


def _mebibytes(size: float) -> int:
    return int(size // MIB)


def _millijoules(joules: float) -> int:
    return round(joules * 1e3)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _bytes(size: float) -> int:
    return int(size)


def _nvlink_units(size: float) -> int:
    return int(size / NVLINK_UNIT)


def _ratio(ratio: float) -> float:
    return min(ratio, 1.0)  # above 1 on MIG instances now and then (NVIDIA/DCGM#152)


def _picked(snapshot: Snapshot, reading: type[Reading], where: Mapping[str, str]) -> Iterator[Any]:
    for found in snapshot.of(reading):
        if all(getattr(found, name) == value for name, value in where.items()):
            yield found


def _now(reading: type[Reading], name: str, convert: Convert, **where: str) -> Field:
    """A field that is what a reading says now."""

    def rows(moment: Moment) -> Iterator[Row]:
        for found in _picked(moment.snapshot, reading, where):
            value = getattr(found, name)
            if value is not None and isfinite(value):
                yield Row(found.uuid, convert(value))

    return Field(rows)


def _rate(reading: type[Reading], names: tuple[str, ...], convert: Convert, **where: str) -> Field:
    """A field that says how fast counters have grown, all of them together, over the last interval."""
    kinds = (reading,) if reading is GpuGpm else (reading, GpuIntegrals)

    def rows(moment: Moment) -> Iterator[Row]:
        if moment.before is None:
            return
        old_s, new_s = _read_s(moment.before, kinds[-1]), _read_s(moment.snapshot, kinds[-1])
        old = {found.uuid: _sum(found, names) for found in _picked(moment.before, reading, where)}
        for found in _picked(moment.snapshot, reading, where):
            uuid, last = found.uuid, old.get(found.uuid)
            grown = None if last is None else _difference(_sum(found, names), last)
            took_s = new_s.get(uuid, 0.0) - old_s.get(uuid, 0.0)
            if grown is not None and uuid in old_s and took_s > 0:
                yield Row(uuid, convert(grown / took_s))

    return Field(rows, before=kinds)


def _read_s(snapshot: Snapshot, reading: type[Reading]) -> dict[str, float]:
    """When the counters of each GPU were read."""
    return {found.uuid: found.read_s for found in _picked(snapshot, reading, {})}


def _sum(reading: Any, names: Iterable[str]) -> float | None:
    values = [getattr(reading, name) for name in names]
    return None if None in values else sum(values)


def _difference(new: float | None, old: float) -> float | None:
    """None also where a counter has begun again."""
    return None if new is None or not isfinite(new) or new < old else new - old


def _first(*fields: Field) -> Field:
    """For each GPU the first of these fields that has a value."""

    def rows(moment: Moment) -> Iterator[Row]:
        seen: set[str] = set()
        for field in fields:
            for row in field.rows(moment):
                if row.uuid not in seen:
                    seen.add(row.uuid)
                    yield row

    return Field(rows, before=tuple(kind for field in fields for kind in field.before))


def _ecc(kind: str, window: str) -> Field:
    """The sum over all places; none while one of them is missing, for it must not fall."""

    def rows(moment: Moment) -> Iterator[Row]:
        places: dict[str, dict[str, float]] = {}
        for found in _picked(moment.snapshot, GpuEccErrors, {"type": kind, "window": window}):
            places.setdefault(found.uuid, {})[found.location] = found.errors
        for uuid, errors in places.items():
            if errors.keys() in ({"all"}, {"dram", "sram"}):
                yield Row(uuid, _whole(sum(errors.values())))

    return Field(rows)


CLOCK_EVENTS = {
    "idle": "gpu_idle",
    "app_clocks": "clocks_setting",
    "sw_power_cap": "power_cap",
    "hw_slowdown": "hw_slowdown",
    "sync_boost": "sync_boost",
    "sw_thermal": "sw_thermal",
    "hw_thermal": "hw_thermal",
    "hw_power_brake": "hw_power_brake",
    "display": "display_clocks",
}
WINDOW_LABEL = {"window_size_in_ms": str(int(WINDOW_S * 1000))}


def _clock_events(moment: Moment) -> Iterator[Row]:
    """In how many looks of the window each reason was there, one look an interval."""
    now_s = moment.snapshot.monotonic_s
    counts: dict[tuple[str, str], int] = {}
    for found in moment.snapshot.of(GpuThrottle):
        if found.active is not None and found.reason in CLOCK_EVENTS:
            counts[found.uuid, found.reason] = 0
    for past in moment.window:
        if now_s - past.monotonic_s <= WINDOW_S:
            for found in past.of(GpuThrottle):
                if found.active and (found.uuid, found.reason) in counts:
                    counts[found.uuid, found.reason] += 1
    for (uuid, reason), count in counts.items():
        yield Row(uuid, count, {**WINDOW_LABEL, "clock_event": CLOCK_EVENTS[reason]})


def _last_xid(moment: Moment) -> Iterator[Row]:
    """The code of the newest XID, for ever; 0 before the first. It says neither when nor how often."""
    newest: dict[str, GpuXid] = {}
    for found in moment.snapshot.of(GpuXid):
        last = newest.get(found.uuid)
        if found.events and (last is None or last.last_timestamp_seconds < found.last_timestamp_seconds):
            newest[found.uuid] = found
    for watched in moment.snapshot.of(GpuXids):
        last = newest.get(watched.uuid)
        code = 0 if last is None else int(last.xid)
        text = catalogue().xid(code).name if code else "No Error"
        yield Row(watched.uuid, code, {"err_code": str(code), "err_msg": text})


def _xids_counted(moment: Moment) -> Iterator[Row]:
    """XIDs of the window by code; one 0 without a code for a GPU that had none."""
    past = ago(moment.window, moment.snapshot.monotonic_s, WINDOW_S)
    old = {} if past is None else {(found.uuid, found.xid): found.events for found in past.of(GpuXid)}
    counts: dict[str, dict[str, int]] = {watched.uuid: {} for watched in moment.snapshot.of(GpuXids)}
    for found in moment.snapshot.of(GpuXid):
        count = int(found.events - old.get((found.uuid, found.xid), 0.0))
        if count > 0:
            counts.setdefault(found.uuid, {})[found.xid] = count
    for uuid, by_code in counts.items():
        for code, count in by_code.items():
            yield Row(uuid, count, {**WINDOW_LABEL, "xid": code})
        if not by_code:
            yield Row(uuid, 0, WINDOW_LABEL)


FIELDS: Mapping[str, Field] = {
    "DCGM_FI_DEV_SM_CLOCK": _now(GpuClock, "clock_hertz", _megahertz, domain="sm"),
    "DCGM_FI_DEV_MEM_CLOCK": _now(GpuClock, "clock_hertz", _megahertz, domain="memory"),
    "DCGM_FI_DEV_MEMORY_TEMP": _now(GpuTemperature, "temperature_celsius", _whole, sensor="memory"),
    "DCGM_FI_DEV_GPU_TEMP": _now(GpuTemperature, "temperature_celsius", _whole, sensor="core"),
    "DCGM_FI_DEV_POWER_USAGE": _first(
        _now(GpuPower, "power_watts", float, scope="gpu", kind="average"),
        _now(GpuPower, "power_watts", float, scope="gpu", kind="instant"),
    ),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _now(GpuIntegrals, "energy_counter_joules", _millijoules),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": _now(GpuPcieLink, "replays", _whole),
    "DCGM_FI_PROF_PCIE_TX_BYTES": _first(
        _rate(GpuGpm, ("pcie_transmit_bytes",), _bytes), _rate(GpuPcieTraffic, ("transmit_bytes",), _bytes)
    ),
    "DCGM_FI_PROF_PCIE_RX_BYTES": _first(
        _rate(GpuGpm, ("pcie_receive_bytes",), _bytes), _rate(GpuPcieTraffic, ("receive_bytes",), _bytes)
    ),
    "DCGM_FI_DEV_GPU_UTIL": _now(GpuUse, "utilization_ratio", _percent),
    "DCGM_FI_DEV_MEM_COPY_UTIL": _now(GpuUse, "memory_utilization_ratio", _percent),
    "DCGM_FI_DEV_ENC_UTIL": _now(GpuEngines, "encoder_ratio", _percent),
    "DCGM_FI_DEV_DEC_UTIL": _now(GpuEngines, "decoder_ratio", _percent),
    "DCGM_FI_DEV_XID_ERRORS": Field(_last_xid),
    "DCGM_FI_DEV_POWER_VIOLATION": _now(GpuThrottle, "throttle_seconds", _nanoseconds, reason="sw_power_cap"),
    "DCGM_FI_DEV_THERMAL_VIOLATION": _now(GpuThrottle, "throttle_seconds", _nanoseconds, reason="sw_thermal"),
    "DCGM_FI_DEV_SYNC_BOOST_VIOLATION": _now(
        GpuThrottle, "throttle_seconds", _nanoseconds, reason="sync_boost"
    ),
    "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION": _now(
        GpuThrottle, "throttle_seconds", _nanoseconds, reason="board_limit"
    ),
    "DCGM_FI_DEV_LOW_UTIL_VIOLATION": _now(
        GpuThrottle, "throttle_seconds", _nanoseconds, reason="low_utilization"
    ),
    "DCGM_FI_DEV_RELIABILITY_VIOLATION": _now(
        GpuThrottle, "throttle_seconds", _nanoseconds, reason="reliability"
    ),
    "DCGM_EXP_CLOCK_EVENTS_COUNT": Field(_clock_events, window=(GpuThrottle,)),
    "DCGM_EXP_XID_ERRORS_COUNT": Field(_xids_counted, window=(GpuXid,)),
    "DCGM_FI_DEV_FB_FREE": _now(GpuMemory, "free_bytes", _mebibytes),
    "DCGM_FI_DEV_FB_USED": _now(GpuMemory, "used_bytes", _mebibytes),
    "DCGM_FI_DEV_FB_RESERVED": _now(GpuMemory, "reserved_bytes", _mebibytes),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": _ecc("corrected", "volatile"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _ecc("uncorrected", "volatile"),
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": _ecc("corrected", "aggregate"),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": _ecc("uncorrected", "aggregate"),
    "DCGM_FI_DEV_RETIRED_SBE": _now(GpuRetiredPages, "pages", _whole, cause="single_bit"),
    "DCGM_FI_DEV_RETIRED_DBE": _now(GpuRetiredPages, "pages", _whole, cause="double_bit"),
    "DCGM_FI_DEV_RETIRED_PENDING": _now(GpuRetiredPagesPending, "pending", _whole),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": _now(GpuRemappedRows, "rows", _whole, cause="uncorrectable"),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": _now(GpuRemappedRows, "rows", _whole, cause="correctable"),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": _now(GpuRowRemap, "failed", _whole),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": _rate(
        GpuNvlinkTraffic, ("receive_bytes", "transmit_bytes"), _nvlink_units
    ),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0": _rate(
        GpuNvlinkLink, ("receive_bytes", "transmit_bytes"), _nvlink_units, link="0"
    ),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": _now(GpuNvlinkCrc, "flow_control_errors", _whole),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": _first(
        _now(GpuNvlinkCrc, "data_errors", _whole),
        _now(GpuNvlinkErrors, "errors", _whole, error="crc"),
    ),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": _now(GpuNvlinkErrors, "errors", _whole, error="replay"),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": _now(
        GpuNvlinkErrors, "errors", _whole, error="recovery"
    ),
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": _now(GpuVgpuLicense, "licensed", _whole),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _rate(GpuGpm, ("graphics_active_seconds",), _ratio),
    "DCGM_FI_PROF_SM_ACTIVE": _rate(GpuGpm, ("sm_active_seconds",), _ratio),
    "DCGM_FI_PROF_SM_OCCUPANCY": _rate(GpuGpm, ("sm_occupancy_seconds",), _ratio),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _rate(GpuGpm, ("tensor_active_seconds",), _ratio),
    "DCGM_FI_PROF_DRAM_ACTIVE": _rate(GpuGpm, ("dram_active_seconds",), _ratio),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": _rate(GpuGpm, ("fp64_active_seconds",), _ratio),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": _rate(GpuGpm, ("fp32_active_seconds",), _ratio),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": _rate(GpuGpm, ("fp16_active_seconds",), _ratio),
}

# Labels of all series of a GPU, out of what is known of its board.
LABELS: Mapping[str, Callable[[GpuInfo, GpuBoard | None, DriverInfo | None], str]] = {
    "DCGM_FI_DRIVER_VERSION": lambda _, __, driver: driver.driver if driver else "",
    "DCGM_FI_NVML_VERSION": lambda _, __, driver: driver.nvml if driver else "",
    "DCGM_FI_DEV_BRAND": lambda _, board, __: board.brand if board else "",
    "DCGM_FI_DEV_SERIAL": lambda info, *_: info.serial,
    "DCGM_FI_DEV_OEM_INFOROM_VER": lambda _, board, __: board.inforom_oem if board else "",
    "DCGM_FI_DEV_ECC_INFOROM_VER": lambda _, board, __: board.inforom_ecc if board else "",
    "DCGM_FI_DEV_POWER_INFOROM_VER": lambda _, board, __: board.inforom_power if board else "",
    "DCGM_FI_DEV_INFOROM_IMAGE_VER": lambda _, board, __: board.inforom_image if board else "",
    "DCGM_FI_DEV_VBIOS_VERSION": lambda info, *_: info.vbios,
}

UNAVAILABLE: Mapping[str, str] = {
    "DCGM_EXP_GPU_HEALTH_STATUS": "DCGM's own health watches, which NVML does not have",
    "DCGM_EXP_P2P_STATUS": "to ask for pairs of GPUs would have one wait for another that hangs",
}

# Names of dcgm-exporter 1.x, from its compatibility file; what they stand for has DCGM's values of today.
OLD_NAMES: Mapping[str, str] = {
    "dcgm_sm_clock": "DCGM_FI_DEV_SM_CLOCK",
    "dcgm_memory_clock": "DCGM_FI_DEV_MEM_CLOCK",
    "dcgm_memory_temp": "DCGM_FI_DEV_MEMORY_TEMP",
    "dcgm_gpu_temp": "DCGM_FI_DEV_GPU_TEMP",
    "dcgm_power_usage": "DCGM_FI_DEV_POWER_USAGE",
    "dcgm_total_energy_consumption": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "dcgm_pcie_replay_counter": "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "dcgm_gpu_utilization": "DCGM_FI_DEV_GPU_UTIL",
    "dcgm_mem_copy_utilization": "DCGM_FI_DEV_MEM_COPY_UTIL",
    "dcgm_enc_utilization": "DCGM_FI_DEV_ENC_UTIL",
    "dcgm_dec_utilization": "DCGM_FI_DEV_DEC_UTIL",
    "dcgm_xid_errors": "DCGM_FI_DEV_XID_ERRORS",
    "dcgm_power_violation": "DCGM_FI_DEV_POWER_VIOLATION",
    "dcgm_thermal_violation": "DCGM_FI_DEV_THERMAL_VIOLATION",
    "dcgm_sync_boost_violation": "DCGM_FI_DEV_SYNC_BOOST_VIOLATION",
    "dcgm_board_limit_violation": "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION",
    "dcgm_low_util_violation": "DCGM_FI_DEV_LOW_UTIL_VIOLATION",
    "dcgm_reliability_violation": "DCGM_FI_DEV_RELIABILITY_VIOLATION",
    "dcgm_fb_free": "DCGM_FI_DEV_FB_FREE",
    "dcgm_fb_used": "DCGM_FI_DEV_FB_USED",
    "dcgm_ecc_sbe_volatile_total": "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "dcgm_ecc_dbe_volatile_total": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "dcgm_ecc_sbe_aggregate_total": "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
    "dcgm_ecc_dbe_aggregate_total": "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
    "dcgm_retired_pages_sbe": "DCGM_FI_DEV_RETIRED_SBE",
    "dcgm_retired_pages_dbe": "DCGM_FI_DEV_RETIRED_DBE",
    "dcgm_retired_pages_pending": "DCGM_FI_DEV_RETIRED_PENDING",
    "dcgm_nvlink_flit_crc_error_count_total": "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "dcgm_nvlink_data_crc_error_count_total": "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "dcgm_nvlink_replay_error_count_total": "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "dcgm_nvlink_recovery_error_count_total": "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "dcgm_nvlink_bandwidth_total": "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "dcgm_fi_prof_gr_engine_active": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "dcgm_fi_prof_sm_active": "DCGM_FI_PROF_SM_ACTIVE",
    "dcgm_fi_prof_sm_occupancy": "DCGM_FI_PROF_SM_OCCUPANCY",
    "dcgm_fi_prof_pipe_tensor_active": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "dcgm_fi_prof_dram_active": "DCGM_FI_PROF_DRAM_ACTIVE",
    "dcgm_fi_prof_pcie_tx_bytes": "DCGM_FI_PROF_PCIE_TX_BYTES",
    "dcgm_fi_prof_pcie_rx_bytes": "DCGM_FI_PROF_PCIE_RX_BYTES",
}


def field_of(name: str) -> str:
    """The field that a name stands for: itself, unless it is a name of dcgm-exporter 1.x."""
    return OLD_NAMES.get(name, name)


KNOWN = Known(
    values=frozenset(name for name in (*FIELDS, *OLD_NAMES) if field_of(name) in FIELDS),
    labels=frozenset(LABELS),
    unavailable=lambda name: UNAVAILABLE.get(field_of(name), ""),
)
