"""Fans of a GPU: those it has, what they cost, and boards without any."""

from __future__ import annotations

import msgspec
import pytest

from clusterwatt.collectors.gpu_fans import Fans
from clusterwatt.readings.gpu import GpuFan
from tests.nvml.drivers import Bench

SPEED = "nvmlDeviceGetFanSpeed_v2"
COUNT = "nvmlDeviceGetNumFans"
UNKNOWN = 999


def test_a_fan_may_run_faster_than_its_highest_speed() -> None:
    bench = Bench("rtx4080").open()
    device = bench.device()
    bench.faults.change(SPEED, 104)
    assert list(Fans(device).read()) == [GpuFan("0", device.uuid, "0", 1.04)]


def test_how_many_fans_there_are_is_asked_once() -> None:
    bench = Bench("rtx4080").open()
    gpu = bench.library.gpu(0)
    gpu.card = msgspec.structs.replace(gpu.card, fans=2)
    bench.faults.change(SPEED, 40)
    fans = Fans(bench.device())
    for _ in range(3):
        assert [(fan.fan, fan.speed_ratio) for fan in fans.read()] == [("0", 0.4), ("1", 0.4)]
    assert bench.library.calls[COUNT] == 1
    assert bench.library.calls[SPEED] == 6


def test_a_number_that_could_not_be_read_is_asked_for_again() -> None:
    bench = Bench("rtx4080").open()
    failing = bench.faults.fail(COUNT, UNKNOWN)
    fans = Fans(bench.device())
    assert list(fans.read()) == []
    bench.faults.clear(failing)
    assert len(list(fans.read())) == 1


@pytest.mark.parametrize("card", ["h100", "l40s", "t4"])
def test_a_passive_board_has_none_and_is_not_asked_twice(card: str) -> None:
    bench = Bench(card).open()
    fans = Fans(bench.device())
    assert [list(fans.read()) for _ in range(3)] == [[], [], []]
    assert bench.library.calls[COUNT] == 1
    assert bench.library.calls[SPEED] == 0
