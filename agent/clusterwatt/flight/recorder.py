"""Records every snapshot, and freezes the ring to a file when something breaks or somebody asks.

A bundle is written some seconds after its cause, so that it shows what came of it; causes that come together
share one. Writing runs on a thread of its own: a full or hanging disk never delays a tick.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from clusterwatt.clock import Clock
from clusterwatt.config.model import Recorder as Settings
from clusterwatt.flight import bundle
from clusterwatt.flight.ring import Ring
from clusterwatt.readings.agent import CollectorState
from clusterwatt.readings.gpu_measured import DriverDown, GpuDown, HardwareEvent
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.worker import Outcome, Worker

log = logging.getLogger("clusterwatt.flight")

AFTERMATH_S = 10.0
SAME_CAUSE_S = 300.0  # a cause that lasts, or comes back, is not frozen again sooner
STUCK_S = 30.0
# `permission` and `unknown` tell of the agent or the driver as a whole, which people let go on purpose.
GPU_FAULTS = frozenset({"lost", "reset_required", "timeout"})
FAULT_CLASSES = frozenset({"driver", "hardware", "memory", "nvlink"})


class Recorder:
    """Gets every snapshot by `add`, causes by `freeze`; all by the thread of the ticks."""

    def __init__(self, settings: Settings, node: str, clock: Clock) -> None:
        self._settings = settings
        self._node = node
        self._clock = clock
        self._ring = Ring(settings.keep_seconds)
        self._writer = Worker("flight", clock)
        self._frozen_s: dict[str, float] = {}
        self._known: frozenset[str] | None = None
        self._causes: list[str] = []
        self._due_s = 0.0

    def add(self, snapshot: Snapshot) -> None:
        """Record a snapshot, look for causes in it, and freeze when it is time."""
        self._ring.add(snapshot)
        now = frozenset(causes(snapshot))
        for cause in sorted(now - self._known) if self._known is not None else ():
            self.freeze(cause)
        self._known = now
        if self._causes and snapshot.monotonic_s >= self._due_s:
            self._write(snapshot.wall_s)

    def freeze(self, cause: str) -> None:
        """Keep the ring, once the aftermath of this cause is in it."""
        now_s = self._clock.monotonic_s()
        if now_s - self._frozen_s.get(cause, float("-inf")) < SAME_CAUSE_S:
            return
        self._frozen_s[cause] = now_s
        if not self._causes:
            self._due_s = now_s + AFTERMATH_S
        self._causes.append(cause)

    def event(self, event: HardwareEvent) -> None:
        """Freeze at a fault of driver or hardware; an application's own and an echo say nothing new."""
        if event.xid_class in FAULT_CLASSES and not event.echo:
            self.freeze(f"{event.kind} {event.code} on {event.gpu or event.switch or event.pci}")

    def close(self) -> None:
        """End the thread that writes."""
        self._writer.stop()

    def _write(self, wall_s: float) -> None:
        manifest = bundle.Manifest(node=self._node, reason=", ".join(self._causes), frozen_s=wall_s)
        chunks, directory = self._ring.frozen(), Path(self._settings.directory)

        def write() -> Path:
            path = bundle.write(directory, manifest, chunks)
            bundle.keep_newest(directory, self._settings.max_bundles, self._settings.max_bytes, wall_s)
            return path

        if self._writer.start(write, _written):
            self._causes = []


def causes(snapshot: Snapshot) -> Iterator[str]:
    """What in a snapshot is worth keeping the last minutes for, while it lasts."""
    released = any(driver.reason == "released" for driver in snapshot.of(DriverDown))
    for down in snapshot.of(GpuDown):
        if down.reason in GPU_FAULTS and not released:
            yield f"gpu {down.gpu} {down.reason}"
    for state in snapshot.of(CollectorState):
        if state.stuck_seconds > STUCK_S:
            yield f"{state.collector} stuck"


def _written(outcome: Outcome[Path]) -> None:
    if outcome.error is None:
        log.warning("flight recorder: the last minutes are in %s", outcome.result)
    else:
        log.error("flight recorder: nothing was kept: %s", outcome.error)
