"""Space of mounted file systems: the mounts from /proc/1/mountinfo, their space from statvfs(3).

`statvfs` on a mount whose server is dead does not return, and a thread inside it cannot be ended. So no
mount is asked again while its last call is out, and a mount that hangs costs one thread and nobody else.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from clusterwatt.catalog import FULL, STANDARD, Table
from clusterwatt.clock import Clock
from clusterwatt.collectors.mounts import Mount, mounts_of_host, on_top, parse
from clusterwatt.config.model import FilesystemCollector as Settings
from clusterwatt.failures import failure
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.storage import Filesystem, FilesystemProbe
from clusterwatt.sysfs import NOT_OFFERED, Files
from clusterwatt.worker import Outcome, Worker

# They hold no data of their own, or (overlay, squashfs) are images and layers that are always full.
EXCLUDED_TYPES = re.compile(
    r"autofs|binfmt_misc|bpf|cgroup2?|configfs|debugfs|devpts|devtmpfs|erofs|fusectl|hugetlbfs|iso9660|mqueue|"
    r"nsfs|overlay|procfs|proc|pstore|rpc_pipefs|securityfs|selinuxfs|squashfs|sysfs|tracefs"
)
NETWORK_TYPES = re.compile(
    r"nfs\d?|cifs|smb3|smbfs|lustre|gpfs|wekafs|beegfs|ceph|afs|9p|glusterfs|panfs|fuse|fuse\..+"
)
PATIENCE_SECONDS = 0.05  # a mount that is well answers in microseconds
MAX_WORKERS = 32

SPACE = Table(Filesystem, labels=("mountpoint", "fstype"))
PROBE = Table(FilesystemProbe, labels=("mountpoint", "fstype"))
METRICS = (
    SPACE.gauge("filesystem_size_bytes", "Size of the file system.", "size_bytes"),
    SPACE.gauge(
        "filesystem_available_bytes", "Space that an unprivileged user can still fill.", "available_bytes"
    ),
    SPACE.gauge(
        "filesystem_readonly", "1: mounted read-only, also by the kernel after an error.", "readonly"
    ),
    SPACE.gauge("filesystem_files", "File entries (inodes) of the file system.", "files", level=STANDARD),
    SPACE.gauge("filesystem_files_free", "File entries that are free.", "files_free", level=STANDARD),
    SPACE.gauge(
        "filesystem_free_bytes", "Free space, with what is reserved for root.", "free_bytes", level=FULL
    ),
    PROBE.gauge(
        "filesystem_last_probe_timestamp_seconds",
        "When the mount answered last (until its first answer: when it was first asked); stands still while "
        "it hangs.",
        "last_probe_timestamp_seconds",
    ),
    PROBE.gauge(
        "filesystem_probe_duration_seconds",
        "Time of the mount's last answer, or of the call that it has not answered so far.",
        "probe_duration_seconds",
        level=STANDARD,
    ),
)


class Probe:
    """What a mount answered last, and the call that is out."""

    def __init__(self, mount: Mount, now_wall_s: float) -> None:
        self.mount = mount
        self.answered_wall_s = now_wall_s
        self.asked_s = 0.0
        self.outcome: Outcome[os.statvfs_result] | None = None
        self.returned = threading.Event()
        self.returned.set()


class FilesystemCollector:
    """Asks every wanted mount in turn; those that do not answer at once are given until the deadline.

    One thread serves all mounts that answer. A further one is started when a call has not come back; it is
    used again once that call returns.
    """

    name = "filesystem"

    def __init__(
        self,
        files: Files,
        settings: Settings,
        clock: Clock,
        statvfs: Callable[[str], os.statvfs_result] = os.statvfs,
        own_mountinfo: Path | None = Path("/proc/self/mountinfo"),
    ) -> None:
        """`own_mountinfo`: the mounts that this process can reach; None: take all as reachable."""
        self._files = files
        self._clock = clock
        self._statvfs = statvfs
        self._own_mountinfo = own_mountinfo
        self._network_mounts = frozenset(settings.network_mounts)
        self._excluded = re.compile(settings.exclude_mountpoints) if settings.exclude_mountpoints else None
        # Must leave the pass time to end before the next is due.
        self._timeout_s = min(settings.timeout_seconds, 0.75 * settings.every_seconds)
        self._probes: dict[tuple[str, str, str], Probe] = {}
        self._workers: list[Worker] = []

    def collect(self) -> Iterator[Reading]:
        """Space of each mount that answers; time of the last answer also of those that do not."""
        wanted, unreachable = self._wanted()
        yield from unreachable
        self._probes = {mount.identity: self._probe_of(mount) for mount in wanted}
        probes = list(self._probes.values())
        refused = [probe for probe in probes if probe.returned.is_set() and not self._ask(probe)]
        for probe in probes:
            if probe in refused:
                detail = f"all {MAX_WORKERS} threads for calls on mounts are stuck"
                yield Failure(item=probe.mount.label, reason="workers_stuck", detail=detail)
                yield probe_reading(probe, None)
                continue
            probe.returned.wait(max(0.0, probe.asked_s + self._timeout_s - self._clock.monotonic_s()))
            yield from self._answer(probe)

    def close(self) -> None:
        """End the threads; one that is stuck in a call ends when that comes back."""
        for worker in self._workers:
            worker.stop()

    def _probe_of(self, mount: Mount) -> Probe:
        probe = self._probes.get(mount.identity)
        if probe is None:
            return Probe(mount, self._clock.wall_s())
        probe.mount = mount  # its options may have changed
        return probe

    def _wanted(self) -> tuple[list[Mount], list[Failure]]:
        wanted: list[Mount] = []
        failures: list[Failure] = []
        seen: set[tuple[str, str]] = set()
        reachable = self._reachable()
        for mount in mounts_of_host(self._files):
            if EXCLUDED_TYPES.fullmatch(mount.fstype) or (
                self._excluded is not None and self._excluded.fullmatch(mount.mountpoint)
            ):
                continue
            if NETWORK_TYPES.fullmatch(mount.fstype) and not self._network_mounts & {"*", mount.mountpoint}:
                continue
            # The same part of the same device again is a bind mount.
            if (mount.device, mount.root) in seen:
                continue
            seen.add((mount.device, mount.root))
            if reachable is None or reachable.get(self._path(mount)) == mount.device:
                wanted.append(mount)
            else:
                # Its path leads to another file system (a container without `rslave` propagation,
                # systemd's ProtectHome): numbers from there would carry the wrong name.
                detail = f"{self._path(mount)} does not lead to this mount from inside the agent"
                failures.append(Failure(item=mount.label, reason="not_visible", detail=detail))
        return wanted, failures

    def _reachable(self) -> dict[str, str] | None:
        """Device by mount point, in this process's own view; None when that is not known."""
        if self._own_mountinfo is None:
            return None
        try:
            own = parse(self._own_mountinfo.read_bytes())
        except OSError:
            return None
        return {path: mount.device for path, mount in on_top(own).items()}

    def _path(self, mount: Mount) -> str:
        return (self._files.root + mount.mountpoint).rstrip("/") or "/"

    def _ask(self, probe: Probe) -> bool:
        """Start a call; False when every worker that may exist is stuck in one."""
        worker = next((worker for worker in self._workers if worker.busy_since_s is None), None)
        if worker is None:
            if len(self._workers) == MAX_WORKERS:
                return False
            worker = Worker("statvfs", self._clock)
            self._workers.append(worker)
        probe.returned.clear()
        probe.outcome = None
        probe.asked_s = self._clock.monotonic_s()

        def done(outcome: Outcome[os.statvfs_result]) -> None:
            if outcome.error is None:
                probe.answered_wall_s = self._clock.wall_s()
            probe.outcome = outcome
            probe.returned.set()

        path = self._path(probe.mount)
        worker.start(lambda: self._statvfs(path), done)
        probe.returned.wait(PATIENCE_SECONDS)
        return True

    def _answer(self, probe: Probe) -> Iterator[Reading]:
        outcome = probe.outcome
        label = probe.mount.label
        if outcome is None:
            waiting_s = self._clock.monotonic_s() - probe.asked_s
            yield Failure(item=label, reason="timeout", detail=f"no answer for {waiting_s:.0f} s")
            yield probe_reading(probe, waiting_s)
            return
        error = outcome.error
        if error is not None:
            if not isinstance(error, OSError):
                raise error
            if error.errno in NOT_OFFERED:  # unmounted since the table was read
                return
            yield failure(label, error)
            if isinstance(error, PermissionError):  # says nothing on whether the mount answers
                return
        yield probe_reading(probe, outcome.ended_s - outcome.started_s)
        if outcome.result is not None:
            yield space(probe.mount, outcome.result)


def probe_reading(probe: Probe, duration_s: float | None) -> FilesystemProbe:
    """When a mount answered last."""
    return FilesystemProbe(
        mountpoint=probe.mount.label,
        fstype=probe.mount.fstype,
        last_probe_timestamp_seconds=probe.answered_wall_s,
        probe_duration_seconds=duration_s,
    )


def space(mount: Mount, answer: os.statvfs_result) -> Filesystem:
    """The reading of one answer. No blocks or no file entries mean that there is no such limit."""
    block_bytes = answer.f_frsize or answer.f_bsize
    sized = answer.f_blocks > 0
    counted = answer.f_files > 0
    return Filesystem(
        mountpoint=mount.label,
        fstype=mount.fstype,
        size_bytes=float(answer.f_blocks * block_bytes) if sized else None,
        available_bytes=float(answer.f_bavail * block_bytes) if sized else None,
        free_bytes=float(answer.f_bfree * block_bytes) if sized else None,
        files=float(answer.f_files) if counted else None,
        files_free=float(answer.f_ffree) if counted else None,
        readonly=float(mount.readonly),
    )
