"""The driver host in this process, over the real binding and a simulated driver that fails in every way."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator

import pytest

from clusterwatt.config.model import Simulate
from clusterwatt.driver.frames import DeviceFrame, Frame, FrameReader, HostSettings
from clusterwatt.driver.host import Host, serve
from clusterwatt.nvml.session import Session
from clusterwatt.readings.gpu import GpuInfo, GpuMemory, GpuUse
from clusterwatt.simulate.faults import Faults
from clusterwatt.simulate.gpu import simulated_uuid
from clusterwatt.simulate.nvml import SimulatedLibrary, install, uninstall
from tests.clocks import FakeClock

SETTINGS = HostSettings(1.0, 30.0, 0.3, 5.0, Simulate(profile="h100"))
LOST, NOT_LOADED, MISMATCH = 15, 9, 18
UTILIZATION = "nvmlDeviceGetUtilizationRates"
DEADLINE_S = 10.0


class Bench:
    """A host, its simulated driver and its clock."""

    def __init__(self, gpus: int = 8) -> None:
        self.clock = FakeClock()
        self.faults = Faults()
        self.library = SimulatedLibrary("h100", gpus, 1, self.clock.wall_s, self.faults)
        install(self.library)
        self.host = Host(SETTINGS, Session(simulated=True, clock=self.clock), self.clock)

    def tick(self, times: int = 1) -> Frame:
        for _ in range(times):
            frame = self.host.tick()
            self.clock.advance(1.0)
        return frame

    def until_up(self) -> Frame:
        """Tick until the driver is up: a call that was let go comes back in its own time."""
        began_s, frame = time.monotonic(), self.tick()
        while not frame.driver.up:
            assert time.monotonic() - began_s < DEADLINE_S
            frame = self.tick()
        return frame

    def device(self, frame: Frame, board: int) -> DeviceFrame:
        return next(d for d in frame.devices if d.uuid == simulated_uuid(1, board))


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.faults.clear()
    uninstall()


def complete(device: DeviceFrame) -> bool:
    kinds = {type(reading) for reading in device.readings}
    return not device.reason and {GpuInfo, GpuMemory, GpuUse} <= kinds


def test_the_first_frame_has_every_gpu_whole(bench: Bench) -> None:
    frame = bench.tick()
    assert frame.driver.up
    assert frame.gpus_visible == 8
    assert [complete(device) for device in frame.devices] == [True] * 8


def test_g05_one_lost_gpu_hides_no_other_and_comes_back(bench: Bench) -> None:
    bench.tick(2)
    rule = bench.faults.fail("*", LOST, gpu=3)
    for _ in range(3):
        frame = bench.tick()
        assert bench.device(frame, 3).reason == "lost"
        assert bench.device(frame, 3).readings == ()
        assert sum(complete(device) for device in frame.devices) == 7
    bench.faults.clear(rule)
    frame = bench.tick()
    assert [complete(device) for device in frame.devices] == [True] * 8


def test_g06_a_hanging_call_costs_its_own_gpu_and_one_thread(bench: Bench) -> None:
    bench.tick()
    threads = threading.active_count()
    rule = bench.faults.hang("*", gpu=2)
    for _ in range(20):
        frame = bench.tick()
        assert frame.driver.up
        assert (
            sum(
                complete(device) and device.read_s == bench.clock.monotonic_s() - 1.0
                for device in frame.devices
            )
            == 7
        )
    hanging = bench.device(frame, 2)
    assert hanging.call_since_s is not None
    assert bench.clock.monotonic_s() - hanging.call_since_s >= 19.0
    # The GPU's own thread hangs, and at most the one that looks for GPUs beside it.
    assert threading.active_count() <= threads
    bench.faults.clear(rule)
    began_s = time.monotonic()
    while bench.device(frame, 2).call_since_s is not None:
        assert time.monotonic() - began_s < DEADLINE_S
        frame = bench.tick()
    assert complete(bench.device(frame, 2))


def test_a_search_that_hangs_keeps_no_gpu_from_being_read_and_is_seen(bench: Bench) -> None:
    bench.tick()
    bench.faults.hang("nvmlDeviceGetCount*")
    for _ in range(5):
        frame = bench.tick()
        assert frame.search_since_s is not None
        assert frame.driver.up
        assert all(device.read_s == bench.clock.monotonic_s() - 1.0 for device in frame.devices)


def test_a_search_that_fails_is_a_failure_and_no_flood_of_lines(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.tick()
    bench.faults.fail("nvmlDeviceGetCount*", 999)
    for _ in range(5):
        frame = bench.tick()
        assert [(failure.item, failure.reason) for failure in frame.failures] == [("driver", "unknown")]
    assert not caplog.records


def test_a_driver_in_which_everything_hangs_is_down_and_frames_go_on(bench: Bench) -> None:
    bench.tick()
    bench.faults.hang("*")
    frame = bench.tick(3)
    assert not frame.driver.up
    assert frame.driver.reason == "hung"


def test_an_init_that_hangs_is_said(bench: Bench) -> None:
    rule = bench.faults.hang("nvmlInit*")
    frame = bench.tick(3)
    assert (frame.driver.up, frame.driver.reason) == (False, "hung")
    bench.faults.clear(rule)
    assert all(complete(device) for device in bench.until_up().devices)


def test_g17_gpus_appear_within_two_polls_of_the_count_changing(bench: Bench) -> None:
    bench.faults.gpus = 0
    frame = bench.tick(180)
    assert frame.driver.up
    assert (frame.gpus_visible, frame.devices) == (0, ())
    bench.faults.gpus = None
    assert len(bench.tick(2).devices) == 8


def test_g17_a_driver_that_is_loaded_later_is_found(bench: Bench) -> None:
    rule = bench.faults.fail("nvmlInit*", NOT_LOADED)
    frame = bench.tick(180)
    assert (frame.driver.up, frame.driver.reason, frame.leaving) == (False, "not_loaded", "")
    bench.faults.clear(rule)
    assert any(bench.tick().driver.up for _ in range(6))  # the pause between two attempts is 5 s


def test_g07_a_version_mismatch_ends_the_host_so_that_a_fresh_one_loads_the_fresh_library(
    bench: Bench,
) -> None:
    bench.faults.fail("nvmlInit*", MISMATCH)
    frame = bench.tick()
    assert frame.leaving == "version_mismatch"
    assert not frame.driver.up


def test_g07_a_mismatch_in_mid_run_ends_the_host_too(bench: Bench) -> None:
    bench.tick(3)
    bench.faults.fail("nvmlDevice*", MISMATCH)
    frame = bench.tick(2)
    assert frame.leaving == "version_mismatch"


def test_a_gpu_that_vanishes_from_the_count_is_lost_and_found_again(bench: Bench) -> None:
    bench.tick()
    bench.faults.vanished = {6}
    frame = bench.tick(2)
    assert frame.gpus_visible == 7
    assert bench.device(frame, 6).reason == "lost"
    assert bench.device(frame, 7).gpu == "6"  # the index has moved, the identity has not
    bench.faults.vanished = set()
    frame = bench.tick(2)
    assert complete(bench.device(frame, 6))
    assert bench.device(frame, 7).gpu == "7"


def test_a_failing_quantity_is_reported_once_a_pass_and_costs_itself_only(bench: Bench) -> None:
    bench.tick()
    bench.faults.fail(UTILIZATION, 999, gpu=1)
    frame = bench.tick()
    device = bench.device(frame, 1)
    assert device.reason == ""
    assert {type(reading) for reading in device.readings} >= {GpuMemory, GpuInfo}
    assert [failure.reason for failure in device.failures] == ["unknown"]
    assert bench.device(frame, 0).failures == ()


def test_frames_are_written_until_told_to_leave(bench: Bench) -> None:
    leave, out = threading.Event(), io.BytesIO()

    original, frames = bench.host.tick, []

    def tick() -> Frame:
        frame = original()
        frames.append(frame)
        if len(frames) == 3:
            leave.set()
        bench.clock.advance(0.999)
        return frame

    bench.host.tick = tick  # type: ignore[method-assign]  # counts the ticks
    serve(bench.host, SETTINGS, out, leave, bench.clock)
    out.seek(0)
    reader = FrameReader(out)
    assert [reader.read() for _ in range(3)] == frames
    assert reader.read() is None


def test_the_driver_is_let_go_when_nothing_hangs(bench: Bench) -> None:
    bench.tick()
    assert bench.library.initialized
    bench.host.close()
    assert not bench.library.initialized
