"""GPU performance monitoring."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pynvml
import pytest

from clusterwatt.simulate.cards import cards
from tests.simulate.conftest import Driver, code, field

JOB, FREE = 0, 3
SM, TENSOR, DRAM, PCIE_TX, NVLINK_RX = 2, 5, 10, 20, 60


def request(first: Any, second: Any, ids: Sequence[int]) -> Any:
    asked = pynvml.c_nvmlGpmMetricsGet_t()
    asked.version, asked.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(ids)
    asked.sample1, asked.sample2 = first, second
    for place, metric in enumerate(ids):
        asked.metrics[place].metricId = metric
    return asked


def between(made: Driver, handle: Any, seconds: float, ids: Sequence[int]) -> list[tuple[int, float]]:
    """Return code and value of each metric over the next seconds."""
    first, second = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlGpmSampleGet(handle, first)
    made.clock.advance(seconds)
    pynvml.nvmlGpmSampleGet(handle, second)
    answer = pynvml.nvmlGpmMetricsGet(request(first, second, ids))
    return [(answer.metrics[i].nvmlReturn, answer.metrics[i].value) for i in range(len(ids))]


def test_support(driver: Callable[..., Driver]) -> None:
    found = {}
    for profile in cards():
        handle = driver(profile).handle()
        found[profile] = bool(pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        sample = pynvml.nvmlGpmSampleAlloc()
        assert code(pynvml.nvmlGpmSampleGet, handle, sample) == (0 if found[profile] else 3)
    assert {profile for profile, supported in found.items() if supported} == {"h100", "h200", "b200", "gb200"}


def test_metrics_are_means_between_the_samples(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    handle, seconds = made.handle(JOB), 30.0
    links = field(handle, 139, scope=0xFFFFFFFF).value.ullVal
    sent = field(handle, 197).value.ullVal
    effort = made.library.gpu(JOB).signals.sm.integral
    start = made.clock.wall_s()
    values = between(made, handle, seconds, [SM, TENSOR, DRAM, PCIE_TX, NVLINK_RX])
    sm = 100.0 * (effort(start + seconds) - effort(start)) / seconds
    assert [number for number, _ in values] == [0] * 5
    assert values[0][1] == pytest.approx(sm)
    assert 0 < values[1][1] < sm
    assert 0 < values[2][1] < sm
    sent = (field(handle, 197).value.ullVal - sent) / seconds / 1024**2
    assert values[3][1] == pytest.approx(sent, rel=1e-6)
    links = (field(handle, 139, scope=0xFFFFFFFF).value.ullVal - links) / seconds / 1024
    assert values[4][1] == pytest.approx(links, rel=1e-6)


def test_a_free_gpu_does_nothing(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    assert between(made, made.handle(FREE), 1.0, [1, SM, TENSOR, DRAM]) == [(0, 0.0)] * 4


def test_an_unknown_metric_fails_alone(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    codes = [answer[0] for answer in between(made, made.handle(), 1.0, [SM, 999, 62, 97, 98, 100])]
    assert codes == [0, 3, 0, 0, 3, 3]


def test_running_totals_since_r595(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    assert between(made, made.handle(), 1.0, [249])[0][0] == 3
    made = driver("h100", driver_version="595.80")
    handle = made.handle(JOB)
    (_, elapsed), (_, active) = between(made, handle, 10.0, [248, 249])
    (_, elapsed_later), (_, active_later) = between(made, handle, 10.0, [248, 249])
    (_, sm), *_ = between(made, handle, 0.5, [SM])
    assert elapsed_later > elapsed
    assert active_later > active
    assert sm > 0


def test_versions_and_samples_are_checked(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    handle = made.handle()
    first, second = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    empty = request(first, second, [SM])
    assert code(pynvml.nvmlGpmMetricsGet, empty) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    pynvml.nvmlGpmSampleGet(handle, first)
    pynvml.nvmlGpmSampleGet(handle, second)
    same_time = request(first, second, [SM])
    assert code(pynvml.nvmlGpmMetricsGet, same_time) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    made.clock.advance(1.0)
    pynvml.nvmlGpmSampleGet(made.handle(1), second)
    two_gpus = request(first, second, [SM])
    assert code(pynvml.nvmlGpmMetricsGet, two_gpus) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    two_gpus.version = 2
    assert code(pynvml.nvmlGpmMetricsGet, two_gpus) == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    pynvml.nvmlGpmSampleFree(second)
    assert code(pynvml.nvmlGpmSampleGet, handle, second) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_a_test_can_see_which_threads_take_samples(driver: Callable[..., Driver]) -> None:
    made = driver("h100")
    handle, sample = made.handle(), pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlGpmSampleGet(handle, sample)
    assert made.library.gpm_threads == {threading.get_ident()}
