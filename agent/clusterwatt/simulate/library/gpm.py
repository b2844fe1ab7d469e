"""GPU performance monitoring: samples of running sums, and metrics from the difference of two of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from clusterwatt.simulate.gpu import MEMORY_PER_SM, Gpu
from clusterwatt.simulate.library.alter import alter_entries
from clusterwatt.simulate.library.calls import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    VERSION_MISMATCH,
    Filled,
    Refused,
    needs,
    on_gpu,
    on_system,
)
from clusterwatt.simulate.library.pcie import RECEIVED, link_bytes_per_s
from clusterwatt.simulate.work import NOTHING, Signals, mean

if TYPE_CHECKING:
    from clusterwatt.simulate.nvml import SimulatedLibrary

_MIB = 1024 * 1024

# Per cent of its cycles that a pipe is active, per share of SMs at work: a large dense model in bf16.
_OF_SM = {
    2: 100.0,  # SM
    3: 32.0,  # occupancy
    4: 9.0,  # integer
    5: 52.0,  # any tensor
    6: 0.0,  # DFMA tensor
    7: 51.0,  # HMMA tensor
    8: 0.0,  # DMMA tensor
    9: 0.0,  # IMMA tensor
    10: 100.0 * MEMORY_PER_SM,  # DRAM
    11: 0.0,  # FP64
    12: 11.0,  # FP32
    13: 6.0,  # FP16
}
_VIDEO = (*range(30, 38), *range(40, 48), 50, 51)
_PCIE_TX, _PCIE_RX = 20, 21
_NVLINK, _FIRST_LINK = range(60, 98), 62  # receive and transmit of all links, then of each
_C2C, _FIRST_C2C_LINK = (
    range(100, 160),
    104,
)  # of all links, then of each: all sent, received; data sent, received
_NAMES = {
    1: b"Graphics Utilization",
    2: b"SM Utilization",
    3: b"SM Occupancy",
    5: b"Tensor Utilization",
    10: b"DRAM Bandwidth Utilization",
    20: b"PCIe TX",
    21: b"PCIe RX",
}


class GpmSample:
    """A sample buffer; empty until the first reading."""

    def __init__(self) -> None:
        self.gpu: Gpu | None = None
        self.instance: int | None = None
        self.signals = NOTHING
        self.time_s = 0.0


def _sample(library: SimulatedLibrary, handle: Filled) -> GpmSample:
    sample = library.target(handle)
    if not isinstance(sample, GpmSample):
        raise Refused(INVALID_ARGUMENT)
    return sample


@on_gpu("nvmlGpmQueryDeviceSupport", since=520)
def query_support(gpu: Gpu, support: Filled) -> None:
    if support.version != 1:
        raise Refused(VERSION_MISMATCH)
    support.isSupportedDevice = int(gpu.card.gpm)


@on_system("nvmlGpmSampleAlloc", since=520)
def sample_alloc(library: SimulatedLibrary, handle: Filled) -> None:
    library.point(handle, GpmSample())


@on_system("nvmlGpmSampleFree", since=520)
def sample_free(library: SimulatedLibrary, handle: Filled) -> None:
    library.drop(_sample(library, handle))


def _take(gpu: Gpu, handle: Filled, signals: Signals, instance: int | None) -> None:
    # Two threads in GPM calls have brought down processes, and once a node: a test can look who was here.
    gpu.driver.gpm_threads.add(threading.get_ident())
    sample = _sample(gpu.driver, handle)
    sample.gpu, sample.instance, sample.signals = gpu, instance, signals
    sample.time_s = gpu.now_s()


@on_gpu("nvmlGpmSampleGet", since=520)
def sample_get(gpu: Gpu, handle: Filled) -> None:
    needs(gpu.card.gpm)
    _take(gpu, handle, gpu.signals, None)


@on_gpu("nvmlGpmMigSampleGet", since=520)
def mig_sample_get(gpu: Gpu, instance: int, handle: Filled) -> None:
    needs(gpu.card.gpm and gpu.mig_enabled)
    for device in gpu.mig_devices:
        if device.instance == instance:
            _take(gpu, handle, device.tenant.signals, instance)
            return
    raise Refused(NOT_FOUND)


@on_system("nvmlGpmMetricsGet", since=520)
def metrics_get(library: SimulatedLibrary, request: Filled) -> None:
    if request.version != 1:
        raise Refused(VERSION_MISMATCH)
    first, second = _sample(library, request.sample1), _sample(library, request.sample2)
    gpu = second.gpu
    if gpu is None or first.gpu is not gpu or first.instance != second.instance:
        raise Refused(INVALID_ARGUMENT)
    changes = library.meet("nvmlGpmMetricsGet", gpu.board, narrowed=True)
    if second.time_s <= first.time_s:
        raise Refused(INVALID_ARGUMENT)
    means = _Means(first, second)
    for metric in request.metrics[: request.numMetrics]:
        try:
            metric.value = _value(metric.metricId, gpu, second, means)
            metric.nvmlReturn = 0
        except Refused as refused:
            metric.nvmlReturn = refused.code
        metric.metricInfo.shortName = _NAMES.get(metric.metricId)
    for rule in changes:
        alter_entries([request], rule)


class _Means:
    """Means of the signals between two samples, all of them taken once."""

    def __init__(self, first: GpmSample, second: GpmSample) -> None:
        signals, from_s, to_s = second.signals, first.time_s, second.time_s
        self.busy = mean(signals.busy, from_s, to_s)
        self.sm = mean(signals.sm, from_s, to_s)
        self.pcie = mean(signals.pcie, from_s, to_s)
        self.nvlink = mean(signals.nvlink, from_s, to_s)


def _value(metric: int, gpu: Gpu, second: GpmSample, means: _Means) -> float:
    value = 0.0
    if metric == 1:
        value = 100.0 * means.busy
    elif metric in _OF_SM:
        value = _OF_SM[metric] * means.sm
    elif metric in {_PCIE_TX, _PCIE_RX}:
        share = 1.0 if metric == _PCIE_TX else RECEIVED
        value = link_bytes_per_s(gpu) * share * means.pcie / _MIB
    elif metric in _NVLINK:
        value = _links_of(metric, gpu, second.instance) * means.nvlink
        value *= gpu.card.nvlink_mbps * 1e6 / _MIB
    elif metric in _C2C:
        value = _c2c_links_of(metric, gpu, second.instance) * means.pcie
        value *= gpu.card.c2c_mbps * 1e6 / _MIB
    elif metric in _TOTALS and gpu.branch >= 595:
        value = _TOTALS[metric](gpu, second.signals, second.time_s)
    elif metric not in _VIDEO:
        raise Refused(NOT_SUPPORTED)
    return value


def _links_of(metric: int, gpu: Gpu, instance: int | None) -> int:
    """How many links a metric counts: all for the totals, else one; none at all in MIG mode."""
    link = (metric - _FIRST_LINK) // 2
    if instance is not None or gpu.mig_enabled or link >= gpu.card.nvlinks or not gpu.card.nvlinks:
        raise Refused(NOT_SUPPORTED)
    return gpu.card.nvlinks if metric < _FIRST_LINK else 1


def _c2c_links_of(metric: int, gpu: Gpu, instance: int | None) -> int:
    """As `_links_of`, for the link to the CPU; known to drivers since r575."""
    link = (metric - _FIRST_C2C_LINK) // 4
    if instance is not None or link >= gpu.card.c2c_links or not gpu.card.c2c_links or gpu.branch < 575:
        raise Refused(NOT_SUPPORTED)
    return gpu.card.c2c_links if metric < _FIRST_C2C_LINK else 1


# --- running totals, since r595 ----------------------------------------------------------------------


def _sm_cycles(percent: float | None) -> Callable[[Gpu, Signals, float], float]:
    """Cycles of all SMs since the driver was loaded: elapsed, or those in which a pipe was active."""

    def read(gpu: Gpu, signals: Signals, to_s: float) -> float:
        hertz = gpu.card.clocks_max.sm * 1e6
        if percent is None:
            return hertz * (to_s - gpu.loaded_s)
        return hertz * percent / 100.0 * (signals.sm.integral(to_s) - signals.sm.integral(gpu.loaded_s))

    return read


def _pcie_total(share: float) -> Callable[[Gpu, Signals, float], float]:
    def read(gpu: Gpu, signals: Signals, to_s: float) -> float:
        sent = signals.pcie.integral(to_s) - signals.pcie.integral(gpu.loaded_s)
        return link_bytes_per_s(gpu) * share * sent

    return read


_TOTALS: dict[int, Callable[[Gpu, Signals, float], float]] = {
    248: _sm_cycles(None),
    249: _sm_cycles(_OF_SM[2]),
    250: _sm_cycles(_OF_SM[5]),
    251: _sm_cycles(_OF_SM[8]),
    252: _sm_cycles(_OF_SM[7]),
    253: _sm_cycles(_OF_SM[9]),
    254: _sm_cycles(_OF_SM[6]),
    255: _pcie_total(1.0),
    256: _pcie_total(RECEIVED),
    257: _sm_cycles(_OF_SM[4]),
    258: _sm_cycles(_OF_SM[11]),
    259: _sm_cycles(_OF_SM[12]),
    260: _sm_cycles(_OF_SM[13]),
}


# --- streaming ---------------------------------------------------------------------------------------


@on_gpu("nvmlGpmQueryIfStreamingEnabled", since=545)
def streaming(gpu: Gpu, state: Filled) -> None:
    needs(gpu.card.gpm)
    state.value = 0
