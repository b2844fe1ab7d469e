"""The driver's ring buffers of samples."""

from __future__ import annotations

from collections.abc import Callable

from clusterwatt.simulate.gpu import MEMORY_PER_SM, Gpu
from clusterwatt.simulate.library.calls import NOT_FOUND, NOT_SUPPORTED, Filled, Refused, needs, on_gpu
from clusterwatt.simulate.library.clocks import percent
from clusterwatt.simulate.library.power import milli
from clusterwatt.simulate.work import mean

UNSIGNED_INT = 1  # NVML_VALUE_TYPE_UNSIGNED_INT

# As `nvidia-smi -q -d UTILIZATION,POWER` shows them: some hundred samples at 6 Hz, of power at 50 Hz.
_UTILIZATION_US, _POWER_US = 166_667, 20_000
_BUFFER = 119

_Sampler = Callable[[Gpu, float, float], int]


def _busy(gpu: Gpu, from_s: float, to_s: float) -> int:
    return percent(mean(gpu.signals.busy, from_s, to_s))


def _memory(gpu: Gpu, from_s: float, to_s: float) -> int:
    return percent(MEMORY_PER_SM * mean(gpu.signals.sm, from_s, to_s))


def _power(gpu: Gpu, from_s: float, to_s: float) -> int:
    return milli(gpu.mean_power_w(to_s, to_s - from_s))


def _none(gpu: Gpu, from_s: float, to_s: float) -> int:
    return 0


def _sm_clock(gpu: Gpu, from_s: float, to_s: float) -> int:
    return gpu.clocks(to_s).sm


def _memory_clock(gpu: Gpu, from_s: float, to_s: float) -> int:
    return gpu.clocks(to_s).memory


# NVML_*_SAMPLES to period, sampler, and whether MIG mode silences it.
_BUFFERS: dict[int, tuple[int, _Sampler, bool]] = {
    0: (_POWER_US, _power, False),
    1: (_UTILIZATION_US, _busy, True),
    2: (_UTILIZATION_US, _memory, True),
    3: (_UTILIZATION_US, _none, True),
    4: (_UTILIZATION_US, _none, True),
    5: (_UTILIZATION_US, _sm_clock, False),
    6: (_UTILIZATION_US, _memory_clock, False),
    8: (_UTILIZATION_US, _none, True),
    9: (_UTILIZATION_US, _none, True),
}


@on_gpu("nvmlDeviceGetSamples")
def samples(gpu: Gpu, kind: int, after_us: int, value_type: Filled, count: Filled, array: Filled) -> None:
    """Samples newer than a time stamp; without an array, the size of the buffer."""
    if kind not in _BUFFERS:
        raise Refused(NOT_SUPPORTED)
    period_us, sampler, not_on_mig = _BUFFERS[kind]
    needs(not (not_on_mig and gpu.mig_enabled))
    value_type.value = UNSIGNED_INT
    if array is None:
        count.value = _BUFFER
        return
    newest = int(gpu.now_s() * 1e6) // period_us
    oldest = max(newest - _BUFFER + 1, after_us // period_us + 1)
    places = range(max(oldest, newest - count.value + 1), newest + 1)
    if not places:
        raise Refused(NOT_FOUND)
    for sample, place in zip(array, places, strict=False):
        to_us = place * period_us
        sample.timeStamp = to_us
        sample.sampleValue.uiVal = sampler(gpu, (to_us - period_us) / 1e6, to_us / 1e6)
    count.value = len(places)
