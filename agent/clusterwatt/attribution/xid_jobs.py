"""How many different jobs a GPU has failed by an XID of class `application`.

One job that fails again and again has a bug. Different jobs that fail on the same GPU say that it is the GPU:
NVIDIA's catalogue lets both have the same codes. Job ids stay here, so that no event has one as a label.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator

from clusterwatt.attribution.holders import Holding
from clusterwatt.catalog import STANDARD, Table
from clusterwatt.clock import Clock
from clusterwatt.learnt import Learnt
from clusterwatt.readings.gpu_measured import HardwareEvent
from clusterwatt.readings.work import GpuXidJobs

JOBS = Table(GpuXidJobs, labels=("gpu", "uuid", "xid_class", "window"))
METRICS = (
    JOBS.gauge(
        "gpu_xid_jobs_affected",
        "Different jobs that held the GPU when an XID of the class came, within the window.",
        "jobs",
        STANDARD,
    ),
)

XID_CLASS = "application"
WINDOW, WINDOW_S = "1d", 86_400.0
KIND = "application_xids"  # of what is remembered: GPU and job, and the Unix time
MOST_JOBS = 1_000  # of a GPU; beyond, the oldest are forgotten and the number stands
# A job that an XID has ended is gone when the event is heard, so who held what is kept for a while.
MOST_CHANGES = 16
NOBODY: frozenset[str] = frozenset()

Held = tuple[float, frozenset[str]]  # since when, monotonic, and by which jobs


class XidJobs:
    """Remembers which jobs were hit on which GPU, also those that an earlier agent saw."""

    def __init__(self, clock: Clock, learnt: Learnt) -> None:
        self._clock = clock
        self._learnt = learnt
        self._held: dict[str, deque[Held]] = {}
        self._hit: dict[str, OrderedDict[str, float]] = {}  # by board: jobs and when each was hit last
        wall_s, now_s = clock.wall_s(), clock.monotonic_s()
        for item, hit_s in sorted(learnt.of(KIND).items(), key=lambda known: known[1]):
            uuid, _, job_id = item.partition(" ")
            self._hit.setdefault(uuid, OrderedDict())[job_id] = now_s - max(0.0, wall_s - hit_s)

    def take(
        self, events: Iterable[HardwareEvent], holding: Holding, *, now_s: float
    ) -> Iterator[GpuXidJobs]:
        """Take the events of a tick and who holds what in it; yield the counts that are not 0.

        An event that followed another cause is left out: the code is then not the application's.
        """
        self._keep(holding, now_s)
        for event in events:
            if event.kind == "xid" and event.xid_class == XID_CLASS and event.uuid and not event.echo:
                hit = self._hit.setdefault(event.uuid, OrderedDict())
                for job_id in self._jobs_at(units_of(event, holding), event.monotonic_s):
                    hit[job_id] = event.monotonic_s
                    self._learnt.most(KIND, f"{event.uuid} {job_id}", event.wall_s)
                    hit.move_to_end(job_id)
                    if len(hit) > MOST_JOBS:
                        hit.popitem(last=False)
        self._forget(now_s)
        for uuid, hit in self._hit.items():
            board = holding.devices.boards.get(uuid)
            if board is not None:
                yield GpuXidJobs(
                    gpu=board.gpu, uuid=uuid, xid_class=XID_CLASS, window=WINDOW, jobs=float(len(hit))
                )

    def _keep(self, holding: Holding, now_s: float) -> None:
        known = holding.devices.units
        self._held = {uuid: held for uuid, held in self._held.items() if uuid in known}
        for uuid in known:
            jobs = frozenset(held.job_id for held in holding.held.get(uuid, ()))
            changes = self._held.setdefault(uuid, deque(maxlen=MOST_CHANGES))
            if not changes or changes[-1][1] != jobs:
                changes.append((now_s, jobs))

    def _jobs_at(self, units: Collection[str], at_s: float) -> frozenset[str]:
        return NOBODY.union(*(_held_at(self._held.get(unit, ()), at_s) for unit in units))

    def _forget(self, now_s: float) -> None:
        for uuid, hit in list(self._hit.items()):
            for job_id in [job_id for job_id, hit_s in hit.items() if now_s - hit_s >= WINDOW_S]:
                del hit[job_id]
            if not hit:
                del self._hit[uuid]


def units_of(event: HardwareEvent, holding: Holding) -> tuple[str, ...]:
    """UUIDs of what an event has hit: the instance that it names, else all of the board."""
    board = holding.devices.boards.get(event.uuid)
    if board is None:
        return ()
    units = tuple(unit.uuid for unit in board.units)
    if board.partitioned and event.instance:
        gpu_instance = event.instance.partition("/")[0]
        instance = holding.devices.resolve(f"MIG-{event.uuid}/{gpu_instance}/0")
        return units if instance is None else (instance,)
    return units


def _held_at(changes: Iterable[Held], at_s: float) -> frozenset[str]:
    """The jobs at a time; before the first change is known, those of then."""
    found: frozenset[str] | None = None
    for since_s, jobs in changes:
        if found is None or since_s <= at_s:
            found = jobs
    return found or NOBODY
