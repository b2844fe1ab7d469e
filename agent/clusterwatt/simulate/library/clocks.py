"""Clocks, performance state, clock event reasons and utilisation."""

from __future__ import annotations

from clusterwatt.simulate.cards import Clocks
from clusterwatt.simulate.gpu import MEMORY_PER_SM, Gpu
from clusterwatt.simulate.library.calls import INVALID_ARGUMENT, NOT_SUPPORTED, Filled, Refused, needs, on_gpu
from clusterwatt.simulate.work import mean

# The driver's sample period is between 1/6 s and 1 s (nvml.h).
SAMPLE_S = 1 / 6

IDLE, SW_POWER_CAP = 0x1, 0x4
HW_SLOWDOWN, HW_THERMAL = 0x8, 0x40
# clocks_event_reasons.supported of H100, H200, L40S, RTX 4080 SUPER, drivers 590 and 595.
SUPPORTED_REASONS = 0x1FF


def _clock(clocks: Clocks, domain: int) -> int:
    """NVML_CLOCK_GRAPHICS, _SM, _MEM, _VIDEO."""
    if domain > 3:
        raise Refused(INVALID_ARGUMENT)
    return (clocks.sm, clocks.sm, clocks.memory, clocks.video)[domain]


@on_gpu("nvmlDeviceGetClockInfo")
def clock(gpu: Gpu, domain: int, megahertz: Filled) -> None:
    megahertz.value = _clock(gpu.clocks(gpu.now_s()), domain)


@on_gpu("nvmlDeviceGetMaxClockInfo")
def max_clock(gpu: Gpu, domain: int, megahertz: Filled) -> None:
    megahertz.value = _clock(gpu.card.clocks_max, domain)


@on_gpu("nvmlDeviceGetPerformanceState", "nvmlDeviceGetPowerState")
def performance_state(gpu: Gpu, state: Filled) -> None:
    state.value = gpu.card.pstate_busy if gpu.active(gpu.now_s()) else gpu.card.pstate_idle


def reasons(gpu: Gpu, now_s: float) -> int:
    """The bit mask of this moment."""
    if gpu.health.event_reasons is not None:
        return gpu.health.event_reasons
    if gpu.signals.hot.at(now_s) > 0:
        return HW_SLOWDOWN | HW_THERMAL
    if gpu.signals.capped.at(now_s) > 0:
        return SW_POWER_CAP
    return 0 if gpu.active(now_s) else IDLE


@on_gpu("nvmlDeviceGetCurrentClocksEventReasons", since=535)
@on_gpu("nvmlDeviceGetCurrentClocksThrottleReasons")
def event_reasons(gpu: Gpu, mask: Filled) -> None:
    mask.value = reasons(gpu, gpu.now_s())


@on_gpu("nvmlDeviceGetSupportedClocksEventReasons", since=535)
@on_gpu("nvmlDeviceGetSupportedClocksThrottleReasons")
def supported_event_reasons(gpu: Gpu, mask: Filled) -> None:
    mask.value = SUPPORTED_REASONS


# NVML_PERF_POLICY_* to what it counts.
_POLICIES = {0: "sw_power_cap", 1: "sw_thermal", 2: "sync_boost", 3: "board", 4: "low_use", 5: "reliability"}


def held_down_ns(gpu: Gpu, reason: str, now_s: float) -> int:
    """Nanoseconds for which a reason has held the clocks down."""
    if reason == "sw_power_cap":
        return int(gpu.counted("capped", now_s) * 1e9) + gpu.health.held_down_ns.get(reason, 0)
    if reason == "hw_thermal":
        return int(gpu.held_back_by_heat_s(now_s) * 1e9) + gpu.health.held_down_ns.get(reason, 0)
    return gpu.health.held_down_ns.get(reason, 0)


@on_gpu("nvmlDeviceGetViolationStatus")
def violation_status(gpu: Gpu, policy: int, time: Filled) -> None:
    if policy not in _POLICIES:
        raise Refused(NOT_SUPPORTED)
    now_s = gpu.now_s()
    time.referenceTime = int(now_s * 1e6)
    time.violationTime = held_down_ns(gpu, _POLICIES[policy], now_s)


# --- utilisation -------------------------------------------------------------------------------------


def percent(ratio: float) -> int:
    """A ratio as whole percent."""
    return round(100.0 * ratio)


@on_gpu("nvmlDeviceGetUtilizationRates")
def utilization(gpu: Gpu, rates: Filled) -> None:
    needs(not gpu.mig_enabled)
    now_s = gpu.now_s()
    rates.gpu = percent(mean(gpu.signals.busy, now_s - SAMPLE_S, now_s))
    rates.memory = percent(MEMORY_PER_SM * mean(gpu.signals.sm, now_s - SAMPLE_S, now_s))


def _engine(gpu: Gpu, share: Filled, period: Filled) -> None:
    """A video engine: nothing here encodes or decodes."""
    needs(not gpu.mig_enabled)
    share.value, period.value = 0, int(SAMPLE_S * 1e6)


on_gpu("nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization")(_engine)
on_gpu("nvmlDeviceGetJpgUtilization", "nvmlDeviceGetOfaUtilization", since=525)(_engine)
