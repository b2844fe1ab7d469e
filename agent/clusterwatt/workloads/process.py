"""To whom each process on a GPU belongs, by /proc/PID/cgroup (cgroups(7), proc_pid_stat(5)).

The driver lists processes by the numbers that the host knows them by. Where /proc does not show the host's,
the same number is another process: then no process is given to anybody. A number may also have gone from a
process that has ended to a new one since the list was made: the new one is younger than the list.

Units of systemd and sessions of users are jobs too, for machines without a scheduler. Of a process nothing is
read but its cgroup, its start and its user.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from clusterwatt.clock import Clock
from clusterwatt.failures import failure
from clusterwatt.node_pids import NodePids
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.gpu import GpuProcess
from clusterwatt.readings.work import Job, ProcessOwner
from clusterwatt.sysfs import FLAGS, NOT_OFFERED, Files
from clusterwatt.workloads.cgroup import Owner, owner_of_lines
from clusterwatt.workloads.process_start import BOOT_TIME, START_TIME, TICKS_PER_SECOND
from clusterwatt.workloads.users import Users

MOST_PROCESSES = 4096
MAX_BYTES = 1 << 16
CLOCK_GRAIN_S = 0.05  # of the kernel's two times that are compared, each cut to a hundredth of a second
KINDS = {"unit": "service", "user": "interactive"}  # owners that are jobs by themselves

Listed = Mapping[int, float]  # processes on GPUs, and the monotonic time of the newest list with each


def listed(processes: Iterable[GpuProcess]) -> Listed:
    """The processes of the driver's lists."""
    newest: dict[int, float] = {}
    for process in processes:
        newest[process.pid] = max(process.listed_s, newest.get(process.pid, 0.0))
    return newest


class Seen(NamedTuple):
    """What /proc shows of a process. `started_s`: seconds from boot to its start."""

    owner: Owner
    uid: str
    started_s: float


class ProcessCollector:
    """Looks up the processes that `on_gpus` names. It is called on the collector's thread."""

    name = "process"

    def __init__(self, files: Files, clock: Clock, on_gpus: Callable[[], Listed]) -> None:
        self._files = files
        self._clock = clock
        self._on_gpus = on_gpus
        self._pids = NodePids(files.root)
        self._users = Users(files.root)
        self._started_s: dict[str, float] = {}  # of jobs: seconds from boot to the oldest process seen
        self._hidden = False

    def collect(self) -> Iterator[Reading]:
        """The owner of each process, and the jobs that are known by their processes alone."""
        on_gpus = self._on_gpus()
        if not on_gpus:
            return
        if not self._pids.visible():
            yield self._hidden_pids()
            return
        self._hidden = False
        up_s = self._up_s()
        seen: dict[int, Seen] = {}
        refused: OSError | None = None
        for pid, listed_s in list(on_gpus.items())[:MOST_PROCESSES]:
            try:
                process = look(self._files.root, pid)
            except OSError as error:
                refused = error
                continue
            if process is None:
                continue
            age_s, since_list_s = up_s - process.started_s, self._clock.monotonic_s() - listed_s
            if age_s + CLOCK_GRAIN_S >= since_list_s:
                seen[pid] = process
        if refused is not None:  # one for all of them, without the number that stands in the path
            yield failure("processes on GPUs", OSError(refused.errno, refused.strerror))
        yield from (ProcessOwner(pid=pid, owner=process.owner.name) for pid, process in seen.items())
        yield from self._jobs(seen.values())

    def _hidden_pids(self) -> Failure:
        ongoing, self._hidden = self._hidden, True
        return Failure(
            item="host pids",
            reason="hidden",
            detail=f"{self._files.root}/proc does not show the host's processes, so those on GPUs are given "
            "to nobody. Remedy: the host's PID namespace (hostPID: true), or the host's / mounted and "
            "node.root set to it; with hidepid, processes of all users made visible to the agent",
            ongoing=ongoing,
        )

    def _up_s(self) -> float:
        text = self._files.text("/proc/uptime")
        if not text:
            raise OSError(f"{self._files.root}/proc/uptime cannot be read")
        return float(text.split()[0])

    def _jobs(self, seen: Iterable[Seen]) -> Iterator[Job]:
        oldest: dict[str, Seen] = {}
        for process in seen:
            job_id = process.owner.name
            if process.owner.kind in KINDS:
                known = oldest.get(job_id)
                if known is None or process.started_s < known.started_s:
                    oldest[job_id] = process
        self._started_s = {
            job_id: min(process.started_s, self._started_s.get(job_id, process.started_s))
            for job_id, process in oldest.items()
        }
        boot = BOOT_TIME.search(self._files.text("/proc/stat") or "")
        for job_id, process in oldest.items():
            uid = process.owner.uid or process.uid
            user = self._users.name(uid)
            yield Job(
                job_id=job_id,
                scheduler="process",
                kind=KINDS[process.owner.kind],
                name=process.owner.unit or user,
                user=user,
                uid=uid,
                started_s=None if boot is None else int(boot[1]) + self._started_s[job_id],
            )


def look(root: str, pid: int) -> Seen | None:
    """A process as it is now; None when it has ended, or when its cgroup is nobody's. Raises OSError.

    All is read below one open folder, which goes on to stand for this process when its number is given away.
    """
    try:
        folder = os.open(f"{root}/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in NOT_OFFERED:
            return None
        raise
    try:
        owner = owner_of_lines(_content(folder, "cgroup").decode("utf-8", "replace"))
        fields = _content(folder, "stat").rpartition(b")")[2].split()
        if owner is None or len(fields) <= START_TIME:
            return None
        return Seen(owner, str(os.fstat(folder).st_uid), int(fields[START_TIME]) / TICKS_PER_SECOND)
    except OSError as error:
        if error.errno in NOT_OFFERED:
            return None
        raise
    finally:
        os.close(folder)


def _content(folder: int, name: str) -> bytes:
    descriptor = os.open(name, FLAGS, dir_fd=folder)
    try:
        return os.read(descriptor, MAX_BYTES)
    finally:
        os.close(descriptor)
