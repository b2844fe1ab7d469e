"""GPM in the driver host: one thread, sums that are exact, faults that cost GPM alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clusterwatt.config.model import Simulate
from clusterwatt.driver.frames import Frame, GpmFrame, HostSettings
from clusterwatt.driver.host import Host
from clusterwatt.nvml.session import Session
from clusterwatt.readings.gpu import GpuGpm, GpuMemory
from clusterwatt.simulate.gpu import simulated_uuid
from clusterwatt.simulate.nvml import SimulatedLibrary, install
from tests.clocks import FakeClock
from tests.makers import maker

SAMPLE, METRICS, SUPPORT = "nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmQueryDeviceSupport"
SM, DRAM = 2, 10
PATIENT_S, HASTY_S = 30.0, 1.5


class Bench:
    """A host and its simulated driver. Deadlines are of real seconds: only what hangs ever waits for one."""

    def __init__(
        self,
        profile: str = "h100",
        gpus: int = 4,
        every_s: float = 1.0,
        *,
        gpm: bool = True,
        deadline_s: float = PATIENT_S,
        **options: Any,
    ) -> None:
        self.clock = FakeClock()
        self.library = SimulatedLibrary(profile, gpus, 1, self.clock.wall_s, **options)
        self.faults = self.library.faults
        install(self.library)
        self.every_s = every_s
        settings = HostSettings(every_s, 30.0, deadline_s, 5.0, Simulate(profile="h100"), gpm=gpm)
        self.host = Host(settings, Session(simulated=True, clock=self.clock), self.clock)
        self.frame: Frame = self.host.tick()

    def tick(self, times: int = 1, seconds: float | None = None) -> GpmFrame:
        for _ in range(times):
            self.clock.advance(self.every_s if seconds is None else seconds)
            self.frame = self.host.tick()
        assert self.frame.gpm is not None
        return self.frame.gpm

    def until(self, reached: Callable[[GpmFrame], bool]) -> GpmFrame:
        """Tick until something is so: a call that was let go comes back in its own time."""
        began_s, gpm = time.monotonic(), self.tick()
        while not reached(gpm):
            assert time.monotonic() - began_s < PATIENT_S, gpm
            gpm = self.tick()
        return gpm

    def of(self, board: int) -> GpuGpm | None:
        assert self.frame.gpm is not None
        uuid = simulated_uuid(1, board)
        return next((reading for reading in self.frame.gpm.readings if reading.uuid == uuid), None)

    def sm_s(self, board: int = 0) -> float:
        reading = self.of(board)
        assert reading is not None
        assert reading.sm_active_seconds is not None
        return reading.sm_active_seconds


@pytest.fixture
def bench_of() -> Iterator[Callable[..., Bench]]:
    yield from maker(Bench)


BenchOf = Callable[..., Bench]


def reasons(gpm: GpmFrame) -> dict[str, str]:
    return {failure.item: failure.reason for failure in gpm.failures}


def whole(bench: Bench) -> bool:
    return all(
        not device.reason and any(isinstance(reading, GpuMemory) for reading in device.readings)
        for device in bench.frame.devices
    )


# --- what it says ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "every_s"), [("h100", 0.5), ("h200", 1.0), ("b200", 10.0)])
def test_sums_are_the_integral_of_what_the_gpu_did(bench_of: BenchOf, profile: str, every_s: float) -> None:
    """A tick comes late, the next early: the true length of each interval counts."""
    bench = bench_of(profile, 1, every_s)
    bench.tick()
    first, start_s = bench.sm_s(), bench.clock.wall_s()
    for number in range(150):
        bench.tick(seconds=every_s * (1.3 if number % 2 else 0.7))
    signals, end_s = bench.library.gpu(0).signals, bench.clock.wall_s()
    sm_s = signals.sm.integral(end_s) - signals.sm.integral(start_s)
    assert bench.sm_s() - first == pytest.approx(sm_s, rel=0.01)
    assert sm_s > 0.3 * 150 * every_s  # the job works: the comparison says something


def test_bytes_are_those_that_the_driver_counts(bench_of: BenchOf) -> None:
    bench = bench_of()
    bench.tick()
    counted, reading = bench.library.gpu(0).counted, bench.of(0)
    assert reading is not None
    then_s = counted("pcie", bench.clock.wall_s())
    bench.tick(120)
    later = bench.of(0)
    assert later is not None
    lane_bytes = 3.938e9 * 16
    sent = (counted("pcie", bench.clock.wall_s()) - then_s) * lane_bytes
    assert later.pcie_transmit_bytes - reading.pcie_transmit_bytes == pytest.approx(sent, rel=0.01)  # type: ignore[operator]
    assert later.pcie_receive_bytes - reading.pcie_receive_bytes == pytest.approx(sent / 2, rel=0.01)  # type: ignore[operator]


def test_a_step_of_the_wall_clock_is_no_activity(bench_of: BenchOf) -> None:
    bench = bench_of()
    bench.faults.change(METRICS, 50.0, field=SM)
    bench.tick(2)
    before = bench.sm_s()
    bench.clock.step_wall(3600.0)
    bench.tick()
    assert bench.sm_s() - before == pytest.approx(0.5)


def test_more_than_full_is_full_and_counted_once(bench_of: BenchOf) -> None:
    bench = bench_of()
    bench.faults.change(METRICS, 140.0, field=SM)
    failures = [bench.tick(), *(bench.tick() for _ in range(5))]
    assert bench.sm_s() == pytest.approx(6.0)
    counted = [
        failure for gpm in failures for failure in gpm.failures if failure.item == simulated_uuid(1, 0)
    ]
    assert [failure.reason for failure in counted] == ["over_full"]


def test_rounding_above_full_is_no_anomaly(bench_of: BenchOf) -> None:
    bench = bench_of()
    bench.faults.change(METRICS, 100.0000001, field=SM)
    assert bench.tick().failures == ()
    assert bench.sm_s() == 1.0


def test_a_metric_without_value_goes_after_three_intervals_and_comes_back(bench_of: BenchOf) -> None:
    bench = bench_of()
    bench.tick(2)
    rule = bench.faults.change(METRICS, float("nan"), field=DRAM)
    present = []
    for _ in range(5):
        bench.tick()
        reading = bench.of(0)
        assert reading is not None
        assert reading.sm_active_seconds is not None
        present.append(reading.dram_active_seconds is not None)
    assert present == [True, True, True, False, False]
    bench.faults.clear(rule)
    bench.tick()
    reading = bench.of(0)
    assert reading is not None
    assert reading.dram_active_seconds is not None


@pytest.mark.parametrize("profile", ["a100", "t4"])
def test_a_card_without_gpm_says_so_and_is_left_alone(bench_of: BenchOf, profile: str) -> None:
    bench = bench_of(profile)
    gpm = bench.tick(10)
    assert gpm.offered is False
    assert [reading.offered for reading in gpm.readings] == [False] * 4
    assert gpm.failures == ()
    assert bench.library.calls[SUPPORT] == 4
    assert bench.library.calls[SAMPLE] == 0


def test_a_driver_without_the_functions_has_no_gpm(bench_of: BenchOf) -> None:
    hidden = {SUPPORT, SAMPLE, METRICS, "nvmlGpmSampleAlloc", "nvmlGpmSampleFree"}
    bench = bench_of(hidden=hidden)
    gpm = bench.tick(3)
    assert (gpm.offered, gpm.failures) == (False, ())
    assert whole(bench)


def test_gpm_that_is_switched_off_makes_no_call(bench_of: BenchOf) -> None:
    bench = bench_of(gpm=False)
    bench.clock.advance(1.0)
    frame = bench.host.tick()
    assert frame.gpm is None
    assert not [name for name in bench.library.calls if "Gpm" in name]


# --- threads and buffers ---------------------------------------------------------------------------------


def test_one_thread_takes_all_samples_and_no_other_does(bench_of: BenchOf) -> None:
    bench = bench_of(gpus=8)
    bench.tick(20)
    (thread,) = bench.library.gpm_threads
    names = {each.ident: each.name for each in threading.enumerate()}
    assert names[thread] == "worker-gpm"


def test_buffers_are_kept_and_freed_when_the_host_lets_go(bench_of: BenchOf) -> None:
    bench = bench_of(gpus=3)
    bench.tick(20)
    calls = bench.library.calls
    assert calls["nvmlGpmSampleAlloc"] == 6
    assert calls["nvmlGpmSampleFree"] == 0
    bench.host.close()
    assert calls["nvmlGpmSampleFree"] == 6
    assert not bench.library.initialized


def test_the_driver_is_not_shut_down_beside_a_gpm_call(bench_of: BenchOf, monkeypatch: Any) -> None:
    monkeypatch.setattr("clusterwatt.driver.host.LEAVE_WITHIN_S", 0.1)
    bench = bench_of(deadline_s=HASTY_S)
    bench.faults.hang(SAMPLE)
    bench.tick()
    bench.host.close()
    assert bench.library.initialized


# --- faults ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [SAMPLE, METRICS])
def test_gpm_that_hangs_costs_gpm_and_no_gpu(bench_of: BenchOf, call: str) -> None:
    bench = bench_of(deadline_s=HASTY_S)
    bench.tick(2)
    before = bench.sm_s()
    rule = bench.faults.hang(call)
    gpm = bench.tick()
    hung_s = bench.clock.monotonic_s()
    for _ in range(10):
        gpm = bench.tick()
        assert bench.frame.driver.up
        assert whole(bench)
        assert all(device.read_s == bench.clock.monotonic_s() for device in bench.frame.devices)
    assert gpm.call_since_s == hung_s
    assert gpm.readings == ()
    assert len(bench.library.gpm_threads) == 1
    bench.faults.clear(rule)
    bench.until(lambda gpm: len(gpm.readings) == 4)
    bench.tick()
    assert bench.sm_s() >= before


def test_g06_a_gpu_that_hangs_costs_the_gpm_of_no_other(bench_of: BenchOf) -> None:
    bench = bench_of(deadline_s=HASTY_S)
    bench.tick(2)
    bench.faults.hang("*", gpu=2)
    for _ in range(5):
        gpm = bench.tick()
        assert gpm.call_since_s is None
    fresh = {reading.uuid for reading in gpm.readings if reading.read_s == bench.clock.monotonic_s()}
    assert fresh == {simulated_uuid(1, board) for board in (0, 1, 3)}


def test_gpm_that_fails_on_one_gpu_is_told_and_comes_back(bench_of: BenchOf) -> None:
    bench = bench_of()
    bench.tick(2)
    before = bench.sm_s(1)
    rule = bench.faults.fail(SAMPLE, 4, gpu=1)
    for _ in range(30):
        gpm = bench.tick()
        assert reasons(gpm) == {simulated_uuid(1, 1): "permission"}
        assert whole(bench)
    assert bench.of(1) is None
    assert {reading.uuid for reading in gpm.readings} == {simulated_uuid(1, board) for board in (0, 2, 3)}
    bench.faults.clear(rule)
    bench.until(lambda _: bench.of(1) is not None)
    reading = bench.of(1)
    assert reading is not None
    # The half minute without GPM adds nothing: the sum goes on where it was, by the last interval alone.
    assert before <= bench.sm_s(1) <= before + 1.0


@pytest.mark.parametrize("call", [SAMPLE, METRICS])
def test_what_keeps_failing_is_asked_rarely(bench_of: BenchOf, call: str) -> None:
    bench = bench_of(gpus=1)
    bench.faults.fail(call, 999)
    bench.tick(10)
    before = bench.library.calls[call]
    bench.tick(60)
    assert bench.library.calls[call] - before <= 12


def test_a_lost_gpu_costs_its_own_gpm(bench_of: BenchOf) -> None:
    bench = bench_of()
    bench.tick(2)
    rule = bench.faults.lose(3)
    gpm = bench.tick(5)
    assert {reading.uuid for reading in gpm.readings} == {simulated_uuid(1, board) for board in (0, 1, 2)}
    bench.faults.clear(rule)
    bench.until(lambda _: bench.of(3) is not None)


def test_g07_a_driver_that_was_replaced_ends_the_host(bench_of: BenchOf) -> None:
    bench = bench_of()
    bench.tick(2)
    bench.faults.fail(SAMPLE, 18)
    bench.tick()
    assert bench.frame.leaving == "version_mismatch"


def test_a_gpu_that_moves_to_another_index_keeps_its_sums(bench_of: BenchOf) -> None:
    bench = bench_of()
    bench.tick(5)
    before = bench.sm_s(1)
    bench.faults.vanished = {0}
    bench.tick(3)
    reading = bench.of(1)
    assert reading is not None
    assert reading.gpu == "0"
    assert bench.sm_s(1) > before
