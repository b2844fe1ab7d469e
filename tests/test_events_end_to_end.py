"""An XID from driver and kernel to the page: the agent wired together, with a real driver host."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterwatt.app import Agent
from clusterwatt.clock import SystemClock
from clusterwatt.config.model import Config, Limits, Node, Simulate
from clusterwatt.readings.agent import CollectorState
from clusterwatt.readings.gpu import GpuInfo
from clusterwatt.readings.gpu_measured import GpuUp, GpuXid, GpuXids, HardwareEvent, SwitchSxid
from clusterwatt.readings.kernel_log import KernelLog
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.simulate.gpu import simulated_uuid
from tests.machines import put

DEADLINE_S = 30.0


class Machine:
    """A node with two simulated GPUs, a file of faults and a kernel log, and its agent."""

    def __init__(self, root: Path) -> None:
        put(root, "/proc/stat", "cpu 0 0 0 0 0 0 0 0 0 0\n")
        self.log = put(root, "/dev/kmsg", "")
        self.faults = root / "faults.json"
        self.number = 0
        self.events: list[HardwareEvent] = []
        self.snapshot: Any = None

    def start(self) -> Agent:
        config = Config(
            node=Node(root=str(self.log.parents[1])),
            simulate=Simulate(profile="h100", gpus=2, faults_file=str(self.faults)),
            limits=Limits(profile="full"),
        )
        self.agent = Agent(config, SystemClock())
        self.agent.pipeline.on_event(self.events.append)
        self.agent.site.on_publish(self._keep)
        return self.agent

    def _keep(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def until(self, reached: Callable[[], object]) -> None:
        """Tick until something is so."""

        async def run() -> None:
            began_s = time.monotonic()
            while True:
                await self.agent.pipeline.tick()
                if reached():
                    return
                assert time.monotonic() - began_s < DEADLINE_S, (self.events, self.snapshot.of(GpuXid))
                await asyncio.sleep(0.2)

        asyncio.run(run())

    def watching(self) -> bool:
        driver = self.agent.driver
        return driver is not None and len(driver.xids_watched) == 2 and KernelLog in self.snapshot.readings

    def inject(self, *xids: tuple[int, int]) -> None:
        new = self.faults.with_suffix(".new")
        new.write_text(
            json.dumps({"xids": [{"gpu": gpu, "xid": xid} for gpu, xid in xids]}), encoding="utf-8"
        )
        new.replace(self.faults)

    def kernel(self, text: str) -> None:
        """Write a line and have it read: of a file, one read gives all lines, of the device only one."""
        self.number += 1
        with self.log.open("a") as file:
            file.write(f"3,{self.number},{int(time.monotonic() * 1e6)},-;{text}\n")
        read = self.records()
        self.until(lambda: self.records() > read)

    def records(self) -> Any:
        return sum(log.records for log in self.snapshot.of(KernelLog))

    def xid_line(self, board: int, xid: int) -> str:
        uuid = simulated_uuid(1, board)
        bus_id = next(info.pci_bus_id for info in self.snapshot.of(GpuInfo) if info.uuid == uuid)
        return f"NVRM: Xid (PCI:{bus_id[4:-2].lower()}): {xid}, pid=1, name=python3, text of the kernel"

    def counts(self) -> dict[tuple[str, str], float]:
        return {(xid.gpu, xid.xid): xid.events for xid in self.snapshot.of(GpuXid)}

    def totals(self) -> list[float]:
        return [xids.events for xids in self.snapshot.of(GpuXids)]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.agent.stop()


def test_events_are_counted_and_told_once_over_both_sources_and_a_restart_of_the_host(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.start()
    machine.until(machine.watching)
    assert machine.totals() == [0.0, 0.0]

    machine.inject((1, 48))
    machine.kernel(machine.xid_line(1, 48))  # both sources
    machine.kernel(machine.xid_line(0, 119))  # the kernel alone
    machine.kernel("nvidia-nvswitch1: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
    machine.until(lambda: len(machine.events) == 3)
    began_s = time.monotonic()
    machine.until(lambda: time.monotonic() - began_s > 2.0)  # what comes late must not count again
    assert machine.counts() == {("0", "119"): 1.0, ("1", "48"): 1.0}
    assert machine.totals() == [1.0, 1.0]
    assert [(s.switch, s.sxid, s.fatality, s.events) for s in machine.snapshot.of(SwitchSxid)] == [
        ("1", "20034", "fatal", 1.0)
    ]
    assert sorted((event.code, event.severity) for event in machine.events) == [
        (48, "critical"),
        (119, "critical"),
        (20034, "critical"),
    ]
    lines = [record for record in caplog.records if record.name == "clusterwatt.events"]
    assert len(lines) == 3

    machine.faults.unlink()
    driver = machine.agent.driver
    assert driver is not None
    first = driver.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    machine.until(lambda: driver.pid not in (None, first))
    assert machine.totals() == [1.0, 1.0]  # the counters are the agent's
    machine.kernel(machine.xid_line(0, 79))  # while no host watches
    machine.until(lambda: all(up.up for up in machine.snapshot.of(GpuUp)) and len(machine.events) == 4)
    assert machine.totals() == [2.0, 1.0]


def test_a_second_agent_shows_when_the_last_xid_was_and_begins_at_zero(machine: Machine) -> None:
    machine.start()
    machine.until(machine.watching)
    machine.kernel(machine.xid_line(0, 79))
    machine.until(lambda: machine.events)
    (before,) = machine.snapshot.of(GpuXid)
    machine.agent.stop()
    machine.start()
    machine.until(machine.watching)
    machine.until(lambda: machine.snapshot.of(GpuXid))
    (after,) = machine.snapshot.of(GpuXid)
    assert (after.xid, after.events) == ("79", 0.0)
    assert abs(after.last_timestamp_seconds - before.last_timestamp_seconds) < 5.0
    assert machine.totals() == [0.0, 0.0]
    assert len(machine.events) == 1


def test_a_taker_that_fails_keeps_the_event_from_nobody(machine: Machine) -> None:
    machine.start()

    def fail(_: HardwareEvent) -> None:
        raise RuntimeError("a bug")

    machine.agent.pipeline._event_takers.insert(0, fail)
    machine.until(machine.watching)
    machine.kernel(machine.xid_line(0, 31))
    machine.until(lambda: machine.events)
    assert machine.totals() == [1.0, 0.0]


def test_the_collector_is_up_where_the_log_can_be_read_and_absent_elsewhere(machine: Machine) -> None:
    machine.start()
    machine.until(machine.watching)
    assert [s.up for s in machine.snapshot.of(CollectorState) if s.collector == "kmsg"] == [1.0]
    machine.agent.stop()
    machine.log.unlink()
    machine.start()
    machine.until(lambda: machine.snapshot.of(GpuXids))
    assert [s for s in machine.snapshot.of(CollectorState) if s.collector == "kmsg"] == []
