"""Driver hosts inside this process: each with its own library, speaking when they are told to."""

from __future__ import annotations

from clusterwatt.config.model import Driver, Simulate
from clusterwatt.driver.client import DriverClient, Heard
from clusterwatt.driver.frames import HostSettings
from clusterwatt.driver.inside import HostInside
from clusterwatt.readings.gpu import GpuInfo
from clusterwatt.readings.gpu_measured import DriverDown, DriverUp, GpuDown
from clusterwatt.simulate.nvml import SimulatedLibrary, another_binding, install
from tests.clocks import FakeClock


class Inside:
    """A client whose host is in this process."""

    def __init__(self, clock: FakeClock, profile: str, seed: int) -> None:
        self.clock = clock
        self.hosts: list[HostInside] = []
        self.library = SimulatedLibrary(profile, 2, seed, clock.wall_s)
        self.binding = another_binding()
        install(self.library, self.binding)
        settings = HostSettings(1.0, 30.0, 0.8, 5.0, Simulate(profile="h100", gpus=2))
        self.client = DriverClient(settings, Driver(release_file=""), clock, make_host=self._make)

    def _make(self, settings: HostSettings, heard: Heard) -> HostInside:
        self.hosts.append(HostInside(settings, heard, self.clock, self.binding, pid=77))
        return self.hosts[-1]

    def tick(self) -> None:
        self.client.supervise()
        if self.hosts:
            self.hosts[-1].tick()
        self.clock.advance(1.0)

    def reasons(self) -> list[GpuDown]:
        return list(self.client.parts().get(GpuDown, ()))

    def names(self) -> list[str]:
        return [info.name for info in self.client.parts()[GpuInfo]]


def test_two_drivers_live_in_one_process() -> None:
    clock = FakeClock()
    first, second = Inside(clock, "h100", 1), Inside(clock, "a100", 2)
    first.tick()
    second.tick()
    assert [name.split()[1][:4] for name in first.names()] == ["H100"] * 2
    assert [name.split()[1][:4] for name in second.names()] == ["A100"] * 2


def test_an_xid_is_heard_at_the_next_tick() -> None:
    inside = Inside(FakeClock(), "h100", 1)
    inside.tick()
    inside.library.faults.xid(1, 79)
    inside.tick()
    assert [(xid.uuid, xid.xid) for xid in inside.client.take_xids()] == [(inside.library.gpus[1].uuid, 79)]


def test_the_xid_of_a_gpu_that_falls_off_the_bus_in_the_same_tick_says_whose_it_is() -> None:
    inside = Inside(FakeClock(), "h100", 1)
    inside.tick()
    lost = inside.library.gpus[1].uuid
    inside.clock.advance(10.0)  # the host looks closely for GPUs now, and does not find it
    inside.library.faults.lose(1)
    inside.library.faults.xid(1, 79)
    inside.tick()
    assert [down.uuid for down in inside.reasons()] == [lost]
    assert [(xid.uuid, xid.xid) for xid in inside.client.take_xids()] == [(lost, 79)]


def test_a_driver_that_goes_is_followed_by_a_fresh_host() -> None:
    inside = Inside(FakeClock(), "h100", 1)
    inside.tick()
    rule = inside.library.faults.fail("*", 9)  # NVML_ERROR_DRIVER_NOT_LOADED
    for _ in range(6):
        inside.tick()
    assert [down.reason for down in inside.client.parts()[DriverDown]] == ["not_loaded"]
    inside.library.faults.clear(rule)
    for _ in range(8):
        inside.tick()
    assert [up.gpus_visible for up in inside.client.parts()[DriverUp]] == [2.0]
    assert len(inside.hosts) > 1


def test_a_gpu_that_a_fresh_host_does_not_find_is_lost() -> None:
    inside = Inside(FakeClock(), "h100", 1)
    inside.tick()
    inside.hosts[0].kill()
    inside.library.faults.vanished.add(1)
    for _ in range(8):
        inside.tick()
    assert len(inside.hosts) == 2
    assert inside.reasons() == [GpuDown("1", inside.library.gpus[1].uuid, "lost")]


def test_it_ends_when_it_is_asked_to() -> None:
    inside = Inside(FakeClock(), "h100", 1)
    inside.tick()
    inside.client.stop(1.0)
    assert inside.hosts[0].exit_status == 0
    assert not inside.library.initialized
