"""The cgroups of jobs, pods and containers on the node, and what they use: /sys/fs/cgroup below its root.

Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/{cpuacct,memory}.rst. cgroup v2, v1, and both beside each
other (hybrid). The tree is walked every few seconds, so it is done cheaply: a directory there has two links
more than it has children (kernfs_refresh_inode in fs/kernfs/inode.c), which tells a leaf, and a change,
without a listing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.failures import failure
from clusterwatt.readings.base import Failure
from clusterwatt.sysfs import NOT_OFFERED, Files
from clusterwatt.workloads.cgroup import Owner, owner_of

MOUNT = "/sys/fs/cgroup"
# Where to look on a host with cgroup v1. Slurm may use the freezer's hierarchy alone; containers are in all.
V1_SCANNED = ("freezer", "memory", "devices", "unified")
V1_CPU = ("cpuacct", "cpu,cpuacct", "cpuacct,cpu")
KINDS = frozenset({"slurm", "pod", "container"})
LISTING_SECONDS = 10.0
MEMORY_SECONDS = 10.0  # memory.stat makes the kernel add up the counts of all CPUs
MAX_DEPTH = 24
MAX_LISTINGS = 4096
MAX_PIDS = 4096
CPU_USAGE = re.compile(rb"^usage_usec (\d+)", re.MULTILINE)
INACTIVE_FILE = re.compile(rb"^(?:total_)?inactive_file (\d+)", re.MULTILINE)


# What shows that slurmd runs, in the same place as the cgroups of its jobs or as a unit.
SLURMD = re.compile(r"(?:.+_)?slurmstepd\.scope|slurmd(?:@.+)?\.service")
SLURMD_V1 = re.compile(r"slurm(?:_.+)?")


class WorkCgroup(msgspec.Struct, frozen=True):
    """The cgroup of a job, pod or container. `path`: within its hierarchy; `directory`: below the root."""

    owner: Owner
    path: str
    directory: str


class _Listing(msgspec.Struct, frozen=True):
    """The cgroups in a directory. `holds_work`: they come and go too quickly to rely on their number."""

    links: int
    listed_s: float
    names: tuple[str, ...]
    holds_work: bool


class Cgroups:
    """Finds the cgroups of work, and reads what they use. Belongs to one collector and its thread.

    `kinds`: which are looked for, of slurm, pod, container. `slurmd_paths`: where the last scan saw that
    slurmd runs, with or without jobs.
    """

    def __init__(self, files: Files, clock: Clock, kinds: Collection[str] = KINDS) -> None:
        self._files = files
        self._clock = clock
        self._kinds = frozenset(kinds)
        self._listings: dict[str, _Listing] = {}
        self._memory: dict[str, tuple[float, float | None]] = {}
        self._known: frozenset[WorkCgroup] = frozenset()
        self._failures: list[Failure] = []
        self._listed = 0
        self.slurmd_paths: set[str] = set()

    def scan(self) -> list[WorkCgroup]:
        """One cgroup for each job, pod and container, each once whatever the number of hierarchies.

        The cgroup of a pod has an owner without a container; those of its containers come beside it, with the
        pod's uid in theirs. Below a job nothing is looked for.
        """
        self._listed = 0
        self.slurmd_paths.clear()
        seen: set[str] = set()
        found: dict[tuple[str, str, str], WorkCgroup] = {}
        for top in self._hierarchies():
            for cgroup in self._walk(top, "", 0, seen):
                found.setdefault(_identity(cgroup), cgroup)
        # A place that cannot be listed just now says nothing about what was there.
        silent = tuple(f"{failure.item}/" for failure in self._failures)
        for cgroup in self._known:
            if silent and cgroup.directory.startswith(silent) and self._files.exists(cgroup.directory):
                found.setdefault(_identity(cgroup), cgroup)
        if self._listed >= MAX_LISTINGS:
            detail = f"more than {MAX_LISTINGS} cgroups with others below them: the rest is not looked at"
            self._failures.append(Failure(item=MOUNT, reason="too_many", detail=detail))
        else:
            self._listings = {path: self._listings[path] for path in seen if path in self._listings}
        self._forget(frozenset(found.values()))
        return list(found.values())

    def take_failures(self) -> list[Failure]:
        """What could not be read since the last call."""
        failures, self._failures = self._failures, []
        return failures

    def pids(self, cgroup: WorkCgroup, *, limit: int = MAX_PIDS) -> list[int]:
        """Processes in a cgroup and those below it, as the reader's PID namespace numbers them.

        One of another namespace is 0 to the reader (pid_namespaces(7)), and left out.
        """
        pids: list[int] = []
        for directory, _, files in os.walk(self._files.root + cgroup.directory):
            if "cgroup.procs" in files:
                pids.extend(_pids(f"{directory}/cgroup.procs"))
            if len(pids) >= limit:
                break
        return pids[:limit]

    def cpu_seconds(self, cgroup: WorkCgroup) -> float | None:
        """CPU seconds since the cgroup was made; None where no controller counts them for it."""
        content = self._files.raw(f"{cgroup.directory}/cpu.stat")
        usage = CPU_USAGE.search(content) if content is not None else None
        if usage is not None:
            return int(usage[1]) / 1e6
        for controller in V1_CPU:
            nanoseconds = self._files.integer(f"{MOUNT}/{controller}{cgroup.path}/cpuacct.usage")
            if nanoseconds is not None:
                return nanoseconds / 1e9
        return None

    def memory_bytes(self, cgroup: WorkCgroup) -> float | None:
        """The working set, up to ten seconds old: memory without file cache that waits to be dropped.

        This is what the kubelet and Docker show as a container's memory.
        """
        now_s = self._clock.monotonic_s()
        kept = self._memory.get(cgroup.directory)
        if kept is not None and now_s - kept[0] < MEMORY_SECONDS:
            return kept[1]
        directory, used = cgroup.directory, self._files.integer(f"{cgroup.directory}/memory.current")
        if used is None:
            directory = f"{MOUNT}/memory{cgroup.path}"
            used = self._files.integer(f"{directory}/memory.usage_in_bytes")
        content = self._files.raw(f"{directory}/memory.stat") if used is not None else None
        working_set = None
        if used is not None and content is not None:
            inactive = INACTIVE_FILE.findall(content)
            # On v1 the line without `total_` leaves out the cgroups below; the one with it comes last.
            working_set = float(max(0, used - int(inactive[-1]))) if inactive else float(used)
        self._memory[cgroup.directory] = now_s, working_set
        return working_set

    def _hierarchies(self) -> list[str]:
        if self._files.exists(f"{MOUNT}/cgroup.controllers"):
            return [MOUNT]
        return [f"{MOUNT}/{name}" for name in V1_SCANNED if self._files.exists(f"{MOUNT}/{name}")]

    def _walk(self, top: str, path: str, depth: int, seen: set[str]) -> Iterator[WorkCgroup]:
        directory = top + path
        for name in self._children(directory, path, seen):
            below = f"{path}/{name}"
            if SLURMD.fullmatch(name) or (top != MOUNT and SLURMD_V1.fullmatch(name)):
                self.slurmd_paths.add(below)
            owner = owner_of(below)
            if owner is not None and owner.kind in self._kinds and owner != owner_of(path):
                yield WorkCgroup(owner, below, directory + "/" + name)
            if owner is not None and owner.kind == "slurm":
                continue
            if depth < MAX_DEPTH and self._may_hold_work(name):
                yield from self._walk(top, below, depth + 1, seen)

    def _may_hold_work(self, name: str) -> bool:
        # Only rootless containers are in sessions of users, and those are many on a login node.
        return name != "user.slice" or "container" in self._kinds

    def _children(self, directory: str, path: str, seen: set[str]) -> tuple[str, ...]:
        """Names of the cgroups in a directory; none when it is gone."""
        kept = self._listings.get(directory)
        now_s = self._clock.monotonic_s()
        try:
            links = os.stat(self._files.root + directory).st_nlink
            if links == 2:
                return ()
            seen.add(directory)
            unchanged = kept is not None and kept.links == links and not kept.holds_work
            if kept is not None and unchanged and now_s - kept.listed_s < LISTING_SECONDS:
                return kept.names
            if self._listed >= MAX_LISTINGS:
                return ()
            self._listed += 1
            with os.scandir(self._files.root + directory) as entries:
                names = tuple(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError as error:
            if error.errno not in NOT_OFFERED:
                self._failures.append(failure(directory, error))
            return ()
        own = owner_of(path)
        owners = (owner_of(f"{path}/{name}") for name in names)
        holds_work = any(owner is not None and owner.kind in KINDS and owner != own for owner in owners)
        self._listings[directory] = _Listing(links, now_s, names, holds_work)
        return names

    def _forget(self, found: frozenset[WorkCgroup]) -> None:
        """Close the files of cgroups that are gone: a descriptor that stays open keeps them in memory."""
        for gone in self._known - found:
            self._memory.pop(gone.directory, None)
            self._files.forget(gone.directory + "/")
            for controller in (*V1_CPU, "memory", "devices"):
                self._files.forget(f"{MOUNT}/{controller}{gone.path}/")
        self._known = found


def _identity(cgroup: WorkCgroup) -> tuple[str, str, str]:
    """What is one over all hierarchies. Two slurmd on one host have a cgroup each for a job of both."""
    owner = cgroup.owner
    return owner.name, owner.container_id, cgroup.path if owner.kind == "slurm" else ""


def _pids(path: str) -> list[int]:
    """Numbers in a file of them; none when its cgroup is gone, or is a threaded one that does not tell."""
    try:
        with open(path, "rb") as file:
            return [int(line) for line in file.read(1 << 20).split() if line.isdigit() and line != b"0"]
    except OSError as error:
        if error.errno not in NOT_OFFERED:
            raise
        return []
