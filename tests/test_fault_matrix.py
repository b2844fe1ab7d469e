"""Every fault of driver and card against what the page shows, as docs/FAULTS.md promises it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from clusterwatt.collectors.cpu import CpuCollector
from clusterwatt.config.model import Driver, Simulate
from clusterwatt.driver.client import DriverClient
from clusterwatt.driver.frames import Frame, HostSettings
from clusterwatt.driver.host import Host
from clusterwatt.nvml.session import Session
from clusterwatt.pipeline import Pipeline
from clusterwatt.readings.agent import CollectorErrors, CollectorState
from clusterwatt.readings.gpu import GpuMemory, GpuPower, GpuTemperature
from clusterwatt.readings.gpu_measured import DriverDown, DriverUp, GpuDown, GpuEnergy, GpuUp
from clusterwatt.readings.host import CpuTime
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.simulate.faults import Faults
from clusterwatt.simulate.gpu import simulated_uuid
from clusterwatt.simulate.nvml import SimulatedLibrary, install, uninstall
from clusterwatt.source import Account, Source
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock

TABLE = Path(__file__).parents[1] / "docs/FAULTS.md"
FAULTY = simulated_uuid(1, 3)
SETTINGS = HostSettings(1.0, 30.0, 0.8, 1.0, Simulate(profile="h100"))
POWER_FIELDS, ENERGY_FIELDS = (185, 186), (83, 191)  # NVML_FI_DEV_POWER_*, *_ENERGY*
ENERGY_CALL = "nvmlDeviceGetTotalEnergyConsumption"
SECONDS = 12  # long enough for values to be stale, and for the tests to be quick
DEADLINE_S = 20.0


def rows() -> dict[str, list[str]]:
    """The table, by fault."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in TABLE.read_text().splitlines()
        if line.startswith("| ")
    ]
    return {first: rest for first, *rest in cells[1:]}


class InProcess:
    """A driver host in this process, in place of a child; its frames go through their encoding."""

    def __init__(self, node: Node) -> None:
        self.pid = 1
        self.exit_status: int | None = None
        self._node = node
        self._host = Host(SETTINGS, Session(simulated=True, clock=node.clock), node.clock)

    def tick(self) -> None:
        if self.exit_status is not None:
            return
        if self._node.killing:
            self.exit_status = -9
            return
        encoded = msgspec.msgpack.encode(self._host.tick())
        frame = msgspec.msgpack.decode(encoded, type=Frame)
        self._node.client._heard(self, frame)
        if frame.leaving:
            self._host.close()
            self.exit_status = 0

    def listen(self) -> None:
        return

    def ask_to_leave(self) -> None:
        self.exit_status = 0

    def kill(self) -> None:
        self.exit_status = -9

    def wait(self, _: float) -> bool:
        return True


def no_frame(arrived: Callable[[], None]) -> bool:
    """No frame is to be waited for."""
    return False


class Node:
    """Eight simulated GPUs, the driver host, the client, the pipeline: all but the processes."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.faults = Faults()
        self.killing = False
        self.library = SimulatedLibrary("h100", 8, 1, self.clock.wall_s, self.faults)
        install(self.library)
        self.client = DriverClient(SETTINGS, Driver(), self.clock)
        self.host: InProcess | None = None
        self.client._start = self._start  # type: ignore[method-assign]  # no child process
        self.client.expect_frame = no_frame  # type: ignore[method-assign]  # it has come already
        files = Files("/", self.clock)
        host = Source(CpuCollector(files), 1.0, self.clock, Account("cpu", self.clock))
        self.snapshots: list[Snapshot] = []
        self.pipeline = Pipeline([host], self.client, self.clock, self.snapshots.append)

    def _start(self, now_s: float) -> None:
        self.client._supervision.started(now_s)
        self.host = InProcess(self)
        self.client._process = self.host

    def tick(self, seconds: int = 1) -> Snapshot:
        for _ in range(seconds):
            self.client.supervise()
            if self.host is not None and self.client.pid is not None:
                self.host.tick()
            asyncio.run(self.pipeline.tick())
            self.clock.advance(1.0)
        return self.snapshots[-1]

    def energies(self) -> dict[str, float]:
        """Totals of the GPU by method; they add up."""
        found = self.snapshots[-1].of(GpuEnergy)
        return {energy.method: energy.energy_joules for energy in found if energy.uuid == FAULTY}

    def joules(self) -> float | None:
        return sum(self.energies().values()) if self.energies() else None


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    node.tick(5)
    yield node
    node.faults.clear()
    uninstall()


def nothing(_: Node) -> None:
    return


def failing(call: str, code: int, gpu: int | None = None) -> Callable[[Node], None]:
    def fail(node: Node) -> None:
        node.faults.fail(call, code, gpu=gpu)

    return fail


def hanging(call: str, gpu: int | None = None) -> Callable[[Node], None]:
    def hang(node: Node) -> None:
        node.faults.hang(call, gpu=gpu)

    return hang


def refusing(fields: tuple[int, ...], *calls: str) -> Callable[[Node], None]:
    """A quantity that is refused however it is asked for."""

    def refuse(node: Node) -> None:
        for call in calls:
            node.faults.fail(call, 999, gpu=3)
        for field in fields:
            node.faults.fail("nvmlDeviceGetFieldValues", 999, gpu=3, field=field)

    return refuse


def vanishing(node: Node) -> None:
    node.faults.vanished = {3}


def beginning_anew(node: Node) -> None:
    node.library.gpu(3).loaded_s = node.clock.wall_s() - 1.0


def killing(node: Node) -> None:
    node.killing = True


BREAK: dict[str, Callable[[Node], None]] = {
    "none": nothing,
    "GPU is lost (fell off the bus)": failing("*", 15, gpu=3),
    "GPU needs a reset": failing("*", 16, gpu=3),
    "GPU may not be read": failing("*", 4, gpu=3),
    "GPU vanishes from the driver's list": vanishing,
    "a call on the GPU hangs": hanging("nvmlDeviceGetMemoryInfo*", gpu=3),
    "power is refused with an unknown error": refusing(POWER_FIELDS, "nvmlDeviceGetPowerUsage"),
    "the energy counter is refused": refusing(ENERGY_FIELDS, ENERGY_CALL),
    "the energy counter and power are refused": refusing(
        (*ENERGY_FIELDS, *POWER_FIELDS), ENERGY_CALL, "nvmlDeviceGetPowerUsage"
    ),
    "the energy counter begins anew": beginning_anew,
    "every driver call hangs": hanging("*"),
    "the driver is unloaded": failing("*", 9),
    "library and kernel module differ": failing("*", 18),
    "the driver host is killed, again and again": killing,
}


def reason(down: tuple[GpuDown, ...] | tuple[DriverDown, ...]) -> str:
    return f"down ({down[0].reason})" if down else "up"


def values(snapshot: Snapshot, uuid: str) -> str:
    there = {
        name: uuid in {reading.uuid for reading in found}
        for name, found in (
            ("power", snapshot.of(GpuPower)),
            ("memory", snapshot.of(GpuMemory)),
            ("temperature", snapshot.of(GpuTemperature)),
        )
    }
    if all(there.values()):
        return "live"
    missing = [name for name, present in there.items() if not present]
    return "absent" if len(missing) == len(there) else f"{', '.join(missing)} absent"


def seen(node: Node) -> list[str]:
    """The cells of a row, all but the last, from two pages a second apart."""
    node.tick()
    before = node.energies()
    snapshot = node.tick()
    after = node.energies()
    faulty = tuple(down for down in snapshot.of(GpuDown) if down.uuid == FAULTY)
    (driver,) = snapshot.of(DriverUp)
    assert [up.up for up in snapshot.of(GpuUp) if up.uuid == FAULTY] == [0.0 if faulty else 1.0]
    assert snapshot.of(CpuTime), "a host series is missing"
    others = {values(snapshot, simulated_uuid(1, board)) for board in range(8) if board != 3}
    assert len(others) == 1
    moving = [method for method in before.keys() & after.keys() if after[method] > before[method]]
    energy = {"": "stands", "counter": "moves"}.get("".join(moving), f"moves ({', '.join(moving)})")
    energy = energy if before and after else "absent"
    (state,) = (state for state in snapshot.of(CollectorState) if state.collector == "gpu")
    assert state.up == float(not snapshot.of(DriverDown))
    return [
        reason(snapshot.of(DriverDown)),
        reason(faulty),
        values(snapshot, FAULTY),
        energy,
        others.pop(),
        f"{driver.gpus_visible:.0f}",
    ]


def mend(node: Node) -> None:
    """Take every fault back, and tick until all GPUs are back: what hung returns in its own time."""
    node.faults.clear()
    node.faults.vanished = set()
    node.killing = False
    began_s = time.monotonic()
    while node.tick().of(DriverUp)[0].gpus_visible < 8 or node.joules() is None:
        assert time.monotonic() - began_s < DEADLINE_S


@pytest.mark.parametrize("fault", rows())
def test_the_page_is_what_the_table_promises(node: Node, fault: str) -> None:
    *during, afterwards = rows()[fault]
    joules, began_s = node.joules(), node.clock.wall_s()
    assert joules is not None
    BREAK[fault](node)
    node.tick(SECONDS)
    assert seen(node) == during
    mend(node)
    node.tick(2)
    gained = (node.joules() or 0.0) - joules
    assert afterwards == "goes on"
    # A GPU at work draws more than 400 W here: what the driver counted during the fault is in it.
    assert gained / (node.clock.wall_s() - began_s) > 400.0


def test_a_hang_is_counted_and_said_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.faults.hang("nvmlDeviceGetMemoryInfo*", gpu=3)
    snapshot = node.tick(SECONDS)
    assert [e.errors > 0 for e in snapshot.of(CollectorErrors) if e.reason == "timeout"] == [True]
    assert len([r for r in caplog.records if FAULTY in r.getMessage()]) == 1


def test_the_gpu_part_is_not_up_when_no_gpu_answers(node: Node) -> None:
    node.faults.fail("*", 15)
    snapshot = node.tick(SECONDS)
    (state,) = (state for state in snapshot.of(CollectorState) if state.collector == "gpu")
    assert (state.up, state.age_seconds > 3.0) == (0.0, True)


def test_the_table_and_the_faults_are_the_same() -> None:
    assert list(rows()) == list(BREAK)
