"""The PCIe link: generation, width, traffic, errors."""

from __future__ import annotations

from clusterwatt.simulate.gpu import Gpu
from clusterwatt.simulate.library.calls import INVALID_ARGUMENT, Filled, Refused, on_gpu
from clusterwatt.simulate.library.fields import UNSIGNED_INT, UNSIGNED_LONG_LONG, Reader, on_field
from clusterwatt.simulate.work import mean

# Bytes per second that a lane carries, by generation.
_LANE_BYTES = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9}
# The job's signal says what the GPU sends; it receives this share of it.
RECEIVED = 0.5

_THROUGHPUT_S = 0.02  # the driver's own measuring time (nvml.h)
# L0 to recovery; correctable, NAK received, receiver, bad TLP, NAK sent, bad DLLP, non-fatal, fatal,
# unsupported request, LCRC, lane.
_ERROR_FIELDS = (169, *range(173, 184))


def width(gpu: Gpu) -> int:
    """Lanes in use."""
    return gpu.health.pcie_width or gpu.card.pcie_width


def link_bytes_per_s(gpu: Gpu) -> float:
    """What the link carries in one direction; of the full width, so that the counters never step."""
    return _LANE_BYTES[gpu.card.pcie_generation] * gpu.card.pcie_width


@on_gpu("nvmlDeviceGetCurrPcieLinkGeneration")
def current_generation(gpu: Gpu, generation: Filled) -> None:
    idle = gpu.card.pcie_generation_idle
    resting = idle is not None and not gpu.active(gpu.now_s())
    generation.value = idle if resting else gpu.card.pcie_generation


@on_gpu("nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetGpuMaxPcieLinkGeneration")
def max_generation(gpu: Gpu, generation: Filled) -> None:
    generation.value = gpu.card.pcie_generation


@on_gpu("nvmlDeviceGetCurrPcieLinkWidth")
def current_width(gpu: Gpu, lanes: Filled) -> None:
    lanes.value = width(gpu)


@on_gpu("nvmlDeviceGetMaxPcieLinkWidth")
def max_width(gpu: Gpu, lanes: Filled) -> None:
    lanes.value = gpu.card.pcie_width


@on_gpu("nvmlDeviceGetPcieThroughput")
def throughput(gpu: Gpu, counter: int, kilobytes_per_s: Filled) -> None:
    """NVML_PCIE_UTIL_TX_BYTES, _RX_BYTES; the real driver takes 20 ms for it, this one does not."""
    if counter > 1:
        raise Refused(INVALID_ARGUMENT)
    now_s = gpu.now_s()
    sent = link_bytes_per_s(gpu) * mean(gpu.signals.pcie, now_s - _THROUGHPUT_S, now_s)
    kilobytes_per_s.value = int((sent, sent * RECEIVED)[counter] / 1000)


@on_gpu("nvmlDeviceGetPcieReplayCounter")
def replay_counter(gpu: Gpu, count: Filled) -> None:
    count.value = gpu.health.pcie_replays


@on_field(UNSIGNED_INT, 94)
def replays(gpu: Gpu, scope: int, now_s: float) -> int:
    return gpu.health.pcie_replays


@on_field(UNSIGNED_INT, 95)
def replay_rollovers(gpu: Gpu, scope: int, now_s: float) -> int:
    return 0


@on_field(UNSIGNED_LONG_LONG, 197, since=550)
def sent_bytes(gpu: Gpu, scope: int, now_s: float) -> int:
    return int(link_bytes_per_s(gpu) * gpu.counted("pcie", now_s))


@on_field(UNSIGNED_LONG_LONG, 198, since=550)
def received_bytes(gpu: Gpu, scope: int, now_s: float) -> int:
    return int(link_bytes_per_s(gpu) * RECEIVED * gpu.counted("pcie", now_s))


def _error_count(field: int) -> Reader:
    return lambda gpu, _scope, _now_s: gpu.health.pcie_errors.get(field, 0)


for _id in _ERROR_FIELDS:
    on_field(UNSIGNED_INT, _id, since=525)(_error_count(_id))
