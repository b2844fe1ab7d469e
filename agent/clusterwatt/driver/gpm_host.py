"""GPM in the driver host: all GPUs one after another, on one thread of their own.

A GPM call that hangs costs this thread and no GPU's own. It runs once the GPUs were read and is given those
that have answered, so that a GPU that hangs does not cost the GPM of the others.
"""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Sequence

from clusterwatt.clock import GAP_INTERVALS, Clock
from clusterwatt.collectors.gpu_gpm import GpmReader
from clusterwatt.driver.frames import GpmFrame
from clusterwatt.nvml.errors import GenerationOver
from clusterwatt.nvml.gpm import Target
from clusterwatt.nvml.session import Session
from clusterwatt.readings.base import Failure
from clusterwatt.readings.gpu import GpuGpm
from clusterwatt.worker import MakeWorker, Outcome, Worker

log = logging.getLogger("clusterwatt.driver.host")

FORGET_S = 600.0  # a MIG instance that has gone never comes back under its UUID

GpmPass = tuple[list[GpuGpm], list[Failure]]


class GpmPart:
    """Samples GPM once each tick. Everything that a pass leaves behind is replaced whole."""

    def __init__(
        self, session: Session, clock: Clock, every_seconds: float, make_worker: MakeWorker = Worker
    ) -> None:
        self._session = session
        self._clock = clock
        self._every_s = every_seconds
        self._longest_s = GAP_INTERVALS * every_seconds
        self._worker = make_worker("gpm", clock)
        # By UUID and making: the driver gives the number of an instance to another one at once.
        self._readers: dict[tuple[str, int], GpmReader] = {}
        self._wanted_s: dict[tuple[str, int], float] = {}
        self._newest: tuple[GpuGpm, ...] = ()
        self._offered: bool | None = None  # by any GPU that has said so, or has not said
        self._failures: collections.deque[Failure] = collections.deque(maxlen=1000)
        self.over = ""  # why the generation is over, when a call said so

    def sample(self, targets: Sequence[Target], deadline_s: float) -> None:
        """Sample these, and wait for it until the deadline. Does nothing while an earlier pass is out."""
        ended = threading.Event()

        def done(outcome: Outcome[GpmPass]) -> None:
            self._take(outcome)
            ended.set()

        if self._worker.start(lambda: self._pass(targets), done):
            ended.wait(max(0.0, deadline_s - self._clock.monotonic_s()))

    def frame(self) -> GpmFrame:
        """What goes out now: sums that are not stale, and the failures since the last time."""
        now_s = self._clock.monotonic_s()
        newest = self._newest
        return GpmFrame(
            offered=self._offered,
            read_s=max((reading.read_s for reading in newest if reading.offered), default=None),
            call_since_s=self._worker.busy_since_s,
            readings=tuple(r for r in newest if not r.offered or now_s - r.read_s <= self._longest_s),
            failures=tuple(self._failures.popleft() for _ in range(len(self._failures))),
        )

    def close(self, timeout_s: float) -> bool:
        """Free all sample buffers; False when a call is outstanding and NVML may not be shut down."""
        ended = threading.Event()
        return self._worker.start(self._free, lambda _: ended.set()) and ended.wait(timeout_s)

    def _pass(self, targets: Sequence[Target]) -> GpmPass:
        now_s = self._clock.monotonic_s()
        readings: list[GpuGpm] = []
        failures: list[Failure] = []
        for target in targets:
            key = (target.uuid, target.making)
            reader = self._readers.get(key)
            if reader is None:
                reader = self._readers[key] = GpmReader(
                    self._session, self._clock, self._every_s, whole_gpu=target.instance is None
                )
            self._wanted_s[key] = now_s
            for said in reader.read(target):
                if isinstance(said, Failure):
                    failures.append(said)
                else:
                    readings.append(said)
        for key in [key for key, wanted_s in self._wanted_s.items() if now_s - wanted_s > FORGET_S]:
            del self._wanted_s[key]
            self._readers.pop(key).close()
        return readings, failures

    def _take(self, outcome: Outcome[GpmPass]) -> None:
        """Keep how a pass ended; runs on the GPM thread."""
        if outcome.result is not None:
            readings, failures = outcome.result
            self._newest = tuple(readings)
            if self._readers:
                self._offered = any(reader.offered is not False for reader in self._readers.values())
            self._failures.extend(failures)
        elif isinstance(outcome.error, GenerationOver):
            self.over = outcome.error.reason
        else:
            self._failures.append(Failure(item="gpm", reason="bug", detail=str(outcome.error)))
            log.error("GPM: a bug of the agent, please report it", exc_info=outcome.error)

    def _free(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
