from __future__ import annotations

import time

import pytest

from clusterwatt.expose.history import GAP_S, POINTS, STEP_S, History
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import GpuMemory, GpuPower, GpuTemperature, GpuUse
from clusterwatt.readings.host import CpuCount, CpuTime, Memory, Pressure
from clusterwatt.readings.network import Network, RdmaPort
from clusterwatt.readings.storage import Disk
from tests.expose.sites import snapshot


class Ticks:
    """Feeds a history at times that the test states."""

    def __init__(self, history: History | None = None) -> None:
        self.history = history or History()
        self._tick = 0

    def at(self, seconds: float, *readings: Reading) -> None:
        self._tick += 1
        self.history.append(snapshot(self._tick, *readings, monotonic_s=seconds - self._tick))

    def curve(self, kind: str, item: str, quantity: str) -> tuple[float | None, ...] | None:
        return self.history.curves().of(kind, item).get(quantity)


def network(receive_bytes: float | None, device: str = "eth0", kind: str = "physical") -> Network:
    return Network(device, kind, receive_bytes=receive_bytes)


def disk(read_bytes: float, busy_seconds: float = 0.0) -> Disk:
    return Disk("nvme0n1", read_bytes, 0.0, 0.0, 0.0, 0.0, 0.0, busy_seconds, 0.0, 0.0)


def test_one_point_each_two_seconds_from_ticks_of_one() -> None:
    ticks = Ticks()
    for second in range(10):
        ticks.at(second + 0.01 * (second % 3), GpuUse("0", "A", second / 10))
    assert ticks.curve("gpu", "A", "utilization_ratio") == (0.0, 0.2, 0.4, 0.6, 0.8)
    assert ticks.history.curves().seconds_ago == (8.0, 6.0, 4.0, 2.0, 0.0)


def test_values_of_a_gpu() -> None:
    ticks = Ticks()
    ticks.at(
        0,
        GpuUse("0", "A", 0.5),
        GpuPower("0", "A", "gpu", "average", 300.0),
        GpuPower("0", "A", "gpu", "instant", 321.0),
        GpuPower("0", "A", "module", "average", 500.0),
        GpuPower("1", "B", "gpu", "instant", 111.0),
        GpuMemory("0", "A", total_bytes=80e9, used_bytes=20e9),
        GpuTemperature("0", "A", "memory", 90.0),
        GpuTemperature("0", "A", "core", 61.0),
    )
    assert ticks.history.curves().of("gpu", "A") == {
        "utilization_ratio": (0.5,),
        "power_watts": (300.0,),
        "memory_used_ratio": (0.25,),
        "temperature_celsius": (61.0,),
    }
    assert ticks.history.curves().of("gpu", "B") == {"power_watts": (111.0,)}


def test_rates_are_over_the_time_that_passed() -> None:
    ticks = Ticks()
    ticks.at(0, network(1000), disk(0, 0), RdmaPort("mlx5_0", "1", transmit_bytes=0))
    ticks.at(2, network(3000), disk(512, 1), RdmaPort("mlx5_0", "1", transmit_bytes=5e9))
    ticks.at(6, network(7000), disk(512, 1), RdmaPort("mlx5_0", "1", transmit_bytes=5e9))
    assert ticks.curve("network", "eth0", "receive_bytes_per_second") == (None, 1000.0, 1000.0)
    assert ticks.curve("disk", "nvme0n1", "read_bytes_per_second") == (None, 256.0, 0.0)
    assert ticks.curve("disk", "nvme0n1", "busy_ratio") == (None, 0.5, 0.0)
    assert ticks.curve("rdma", "mlx5_0/1", "transmit_bytes_per_second") == (None, 2.5e9, 0.0)
    assert ticks.curve("rdma", "mlx5_0/1", "receive_bytes_per_second") is None


def test_rates_of_the_host() -> None:
    ticks = Ticks()
    for second, busy, idle, waited in ((0, 100, 1000, 5.0), (2, 102, 1006, 5.5)):
        ticks.at(
            second,
            CpuCount(cpus=4.0),
            CpuTime("user", busy - 1.0),
            CpuTime("system", 1.0),
            CpuTime("idle", idle - 10.0),
            CpuTime("iowait", 10.0),
            Pressure("io", "some", waited),
            Pressure("io", "full", waited),
            Memory(total_bytes=100.0, available_bytes=75.0),
        )
    assert ticks.history.curves().of("host", "") == {
        "cpu_busy_ratio": (None, 0.25),
        "io_pressure_ratio": (None, 0.25),
        "memory_used_ratio": (0.25, 0.25),
    }


@pytest.mark.parametrize("reset", [0.0, 999.0])
def test_a_counter_that_falls_gives_no_point(reset: float) -> None:
    ticks = Ticks()
    for second, value in ((0, 1000), (2, 2000), (4, reset), (6, reset + 200)):
        ticks.at(second, network(value))
    assert ticks.curve("network", "eth0", "receive_bytes_per_second") == (None, 500.0, None, 100.0)


def test_what_was_absent_gives_no_point_and_no_rate_over_the_hole() -> None:
    ticks = Ticks()
    ticks.at(0, network(1000), GpuUse("0", "A", 0.5))
    ticks.at(2, network(2000), GpuUse("0", "A", None))
    ticks.at(4, network(None))
    ticks.at(6, network(9000), GpuUse("0", "A", 0.0))
    ticks.at(8, network(9000), GpuUse("0", "A", 0.1))
    assert ticks.curve("network", "eth0", "receive_bytes_per_second") == (None, 500.0, None, None, 0.0)
    assert ticks.curve("gpu", "A", "utilization_ratio") == (0.5, None, None, 0.0, 0.1)


def test_a_pause_leaves_a_hole() -> None:
    ticks = Ticks()
    ticks.at(0, network(0), GpuUse("0", "A", 0.5))
    ticks.at(2, network(2), GpuUse("0", "A", 0.5))
    ticks.at(2 + GAP_S + 4, network(1000), GpuUse("0", "A", 0.7))
    ticks.at(4 + GAP_S + 4, network(1020), GpuUse("0", "A", 0.7))
    assert ticks.curve("network", "eth0", "receive_bytes_per_second") == (None, 1.0, None, None, 10.0)
    assert ticks.curve("gpu", "A", "utilization_ratio") == (0.5, 0.5, None, 0.7, 0.7)


def test_the_wall_clock_plays_no_part() -> None:
    history = History()
    first, second = snapshot(1, network(0), monotonic_s=0), snapshot(3, network(2000), monotonic_s=0)
    history.append(first)
    history.append(type(second)(3, first.wall_s - 3600, second.monotonic_s, second.readings))
    assert history.curves().of("network", "eth0")["receive_bytes_per_second"] == (None, 1000.0)


def test_the_ring_keeps_five_minutes_and_forgets_what_has_gone() -> None:
    ticks = Ticks()
    for point in range(3 * POINTS):
        second = point * STEP_S
        ticks.at(second, GpuUse("0", "A", 0.5), GpuUse("1", "GONE" if point < 10 else "B", 0.5))
        curves = ticks.history.curves()
        assert len(curves.things) <= 3
        assert len(curves.seconds_ago) <= POINTS
    assert set(curves.things) == {("gpu", "A"), ("gpu", "B")}
    assert all(len(curve) == POINTS for curves_of in curves.things.values() for curve in curves_of.values())
    assert curves.seconds_ago[0] == (POINTS - 1) * STEP_S


def test_interfaces_of_pods_have_no_curve() -> None:
    ticks = Ticks()
    for second in (0, 2):
        ticks.at(
            second,
            *(network(second, f"veth{n}", "virtual") for n in range(300)),
            network(1.0, "bond0", "bond"),
        )
    assert list(ticks.history.curves().things) == [("network", "bond0")]


def test_a_copy_does_not_change() -> None:
    ticks = Ticks()
    ticks.at(0, GpuUse("0", "A", 0.5))
    copy = ticks.history.curves()
    ticks.at(2, GpuUse("0", "A", 0.6))
    assert copy.of("gpu", "A")["utilization_ratio"] == (0.5,)


def test_appending_is_cheap() -> None:
    """A guard against a slip of an order of magnitude: 0.3 ms is meant for a node of eight GPUs."""
    history = History()
    readings: list[Reading] = []
    for gpu in range(8):
        readings += [
            GpuUse(str(gpu), f"GPU-{gpu}", 0.5),
            GpuPower(str(gpu), f"GPU-{gpu}", "gpu", "average", 651.0),
            GpuMemory(str(gpu), f"GPU-{gpu}", total_bytes=80e9, used_bytes=1e9 * gpu),
            GpuTemperature(str(gpu), f"GPU-{gpu}", "core", 61.0),
        ]
    readings += [RdmaPort(f"mlx5_{n}", "1", 1e9, 1e9) for n in range(10)]
    readings += [network(1e9, f"eth{n}") for n in range(4)]
    readings += [Disk(f"nvme{n}n1", *[1e9] * 9) for n in range(9)]
    took_s = []
    for tick in range(2 * POINTS):
        made = snapshot(tick, *readings, monotonic_s=tick)
        started_s = time.process_time()
        history.append(made)
        took_s.append(time.process_time() - started_s)
    assert sorted(took_s)[POINTS] < 0.003
