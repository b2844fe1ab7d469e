"""The GPUs of a node and what the agent makes of them, without processes, other sources and a page.

Host, client and pipeline as in the agent, in one process and under one clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from clusterwatt.config.model import Driver, Simulate
from clusterwatt.driver.client import DriverClient
from clusterwatt.driver.frames import HostSettings
from clusterwatt.driver.host import Host
from clusterwatt.nvml.session import Session
from clusterwatt.pipeline import Pipeline
from clusterwatt.readings.base import Reading
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.simulate.gpu import simulated_uuid
from clusterwatt.simulate.nvml import SimulatedLibrary, install
from tests.clocks import FakeClock

PATIENT_S = 60.0  # real seconds: only what hangs ever waits for a deadline

N = TypeVar("N", bound="Node")


class Node:
    """`cut`: boards that are cut into instances, and into which; `options`: of the simulated library."""

    def __init__(
        self,
        card: str = "h100",
        gpus: int = 3,
        *,
        deadline_s: float = PATIENT_S,
        gpus_expected: int = 0,
        cut: Mapping[int, Sequence[str]] | None = None,
        **options: Any,
    ) -> None:
        self.clock = FakeClock()
        self.library = SimulatedLibrary(card, gpus, 1, self.clock.wall_s, **options)
        self.faults = self.library.faults
        install(self.library)
        for board, instances in (cut or {}).items():
            self.library.configure_mig(board, instances)
        self.settings = HostSettings(1.0, 30.0, deadline_s, 5.0, Simulate(profile="h100"))
        self.host = self.new_host()
        self.client = DriverClient(self.settings, Driver(), self.clock, gpus_expected=lambda: gpus_expected)
        self.client.supervise = lambda: None  # type: ignore[method-assign]  # the host is in this process
        self.snapshot = Snapshot(0, 0.0, 0.0, {})
        self.pipeline = Pipeline([], self.client, self.clock, self._publish)

    def new_host(self) -> Host:
        """Another driver host, which knows nothing of the one before."""
        return Host(self.settings, Session(simulated=True, clock=self.clock), self.clock)

    def _publish(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def tick(self: N, times: int = 1) -> N:
        for _ in range(times):
            self.clock.advance(1.0)
            self.client._heard(None, self.host.tick())  # type: ignore[arg-type]  # no process is the one it has
            asyncio.run(self.pipeline.tick())
        return self

    def every(self, kind: type[Reading], device: int | str) -> list[Any]:
        """The readings of a type of a board, by its number, or of a device, by its UUID."""
        uuid = simulated_uuid(1, device) if isinstance(device, int) else device
        return [reading for reading in self.snapshot.of(kind) if reading.uuid == uuid]  # type: ignore[attr-defined]  # of GPUs

    def of(self, kind: type[Reading], device: int | str = 0) -> Any:
        """The only reading of a type; None when there is none."""
        found = self.every(kind, device)
        assert len(found) <= 1
        return found[0] if found else None
