"""Jobs of Slurm on this node: who they are, and which GPUs they hold. No command of Slurm is ever run.

That a job is here is told by its cgroup, which Slurm makes (cgroup.conf(5)), or by the file of our prolog.
A process's environment is believed only where its SLURM_JOB_ID is that of the cgroup. Since 26.05 cgroups
carry a job's SLUID in place of its id; then any process in it tells the id.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.config.model import Slurm as Settings
from clusterwatt.failures import failure
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.work import Claim, JobHostUse, JobMember, JobNodes, Scheduler, SlurmdPod
from clusterwatt.sysfs import Files
from clusterwatt.workloads import slurm_job
from clusterwatt.workloads.cgroup import owner_of
from clusterwatt.workloads.cgroups import MOUNT, Cgroups, WorkCgroup
from clusterwatt.workloads.environ import Variables
from clusterwatt.workloads.job_files import JobFile, JobFiles
from clusterwatt.workloads.process_start import started_s
from clusterwatt.workloads.slurm_job import VARIABLES, Told
from clusterwatt.workloads.users import Users

METRICS = ()

ASKED_PROCESSES = 16
ASK_AGAIN_SECONDS = 10.0
ASK_EAGERLY = 10  # passes: a job's first process may come seconds after its cgroup
REMEDY = "install deploy/slurm/prolog, or give the agent CAP_SYS_PTRACE"
INTERACTIVE = ("step_interactive", "step_4294967290")
BATCH = ("step_batch", "step_4294967291")


class _Asking(msgspec.Struct):
    """What the processes of one job have told so far, and when they are asked next."""

    variables: Mapping[str, str] = {}
    uid: str = ""
    oldest_s: float | None = None
    interactive_step: bool = False
    batch_step: bool = False
    denied: bool = False
    passes: int = 0
    next_s: float = 0.0


class SlurmCollector:
    """Looks at the cgroups of jobs, the prolog's files, and once at the processes of each job."""

    name = "slurm"

    def __init__(self, files: Files, settings: Settings, clock: Clock) -> None:
        self._files = files
        self._settings = settings
        self._clock = clock
        self._exempt = re.compile(settings.exempt) if settings.exempt else None
        self._cgroups = Cgroups(files, clock, {"slurm"})
        self._job_files = JobFiles(files.root + settings.job_files)
        self._variables = Variables(VARIABLES)
        self._users = Users(files.root)
        self._asking: dict[str, _Asking] = {}
        self._alive_s: dict[str, float] = {}

    def collect(self) -> Iterator[Reading]:
        """The jobs here, what they hold and use, and that Slurm rules over this node."""
        by_owner: defaultdict[str, list[WorkCgroup]] = defaultdict(list)
        for cgroup in self._cgroups.scan():
            by_owner[cgroup.owner.name].append(cgroup)
        yield from self._cgroups.take_failures()
        files: defaultdict[str, list[JobFile]] = defaultdict(list)
        for file in self._job_files.read():
            if isinstance(file, Failure):
                yield file
            else:
                files[file.job_id].append(file)
        self._asking = {owner: self._asking.get(owner) or _Asking() for owner in by_owner}
        running: set[str] = set()
        for owner, places in by_owner.items():
            asking = self._asking[owner]
            try:
                self._ask(asking, places)
            except OSError as error:
                yield failure(owner, error)
            yield from self._use(owner, places)
            job = places[0].owner.job or asking.variables.get("SLURM_JOB_ID", "")
            if job:
                running.add(job)
                yield from self._running(owner, job, places, files.get(job, ()))
            elif asking.passes >= ASK_EAGERLY:
                yield Failure(owner, "unknown_job", "no process of it tells its job id")
        for job, found in self._known_by_file(files, running).items():
            yield from self._job(job, Told(files=found), ())
        yield from self._slurmd(bool(running))

    def _running(
        self, owner: str, job: str, places: Sequence[WorkCgroup], files: Sequence[JobFile]
    ) -> Iterator[Reading]:
        """A job that has cgroups."""
        asking = self._asking[owner]
        if owner != f"slurm/{job}":
            yield JobMember(member=owner, job_id=f"slurm/{job}")
        by_cgroup = next((place.owner.uid for place in places if place.owner.uid), "")
        told = Told(
            files,
            asking.variables,
            by_cgroup or asking.uid,
            asking.oldest_s,
            asking.interactive_step,
            script=asking.interactive_step or asking.batch_step,
        )
        paths = [f"{MOUNT}/devices{place.path}/devices.list" for place in places]
        try:
            device_lists = [text for path in paths if (text := self._files.text(path))]
        except OSError as error:
            yield failure(owner, error)
            device_lists = []
        yield from self._job(job, told, device_lists)
        if not files and not device_lists and not asking.variables:
            yield from self._untold(job, asking)

    def _untold(self, job: str, asking: _Asking) -> Iterator[Failure]:
        """A job of which nobody says whether it holds GPUs: those would pass for free."""
        if asking.denied:
            detail = f"the environment of its processes may not be read, so its GPUs are not known: {REMEDY}"
            yield Failure(item=f"slurm/{job}", reason="permission", detail=detail)
        elif asking.passes >= ASK_EAGERLY:
            detail = "no process of it tells which GPUs it holds, if any: install deploy/slurm/prolog"
            yield Failure(item=f"slurm/{job}", reason="unknown_device", detail=detail)

    def _job(self, job: str, told: Told, device_lists: Sequence[str]) -> Iterator[Reading]:
        """One job and its claims."""
        job_id = f"slurm/{job}"
        who = slurm_job.identity(job_id, told, self._users.name)
        by_setting = self._exempt is not None and (
            self._exempt.fullmatch(job_id) or self._exempt.fullmatch(who.name)
        )
        yield msgspec.structs.replace(who, exempt=True) if by_setting else who
        nodes = slurm_job.nodes(told)
        if nodes is not None:
            yield JobNodes(job_id=job_id, nodes=nodes)
        for device in slurm_job.devices(told, device_lists, self._settings.gpu_numbers) or ():
            yield Claim(job_id=job_id, device=device, source="slurm")

    def _ask(self, asking: _Asking, places: Sequence[WorkCgroup]) -> None:
        """Look at the job's processes until one tells of it. Raises OSError."""
        now_s = self._clock.monotonic_s()
        if asking.variables or now_s < asking.next_s:
            return
        asking.passes += 1
        asking.next_s = now_s if asking.passes < ASK_EAGERLY else now_s + ASK_AGAIN_SECONDS
        asking.denied = False
        pids = sorted({pid for place in places for pid in self._cgroups.pids(place)})
        asking.interactive_step = self._has_step(places, INTERACTIVE)
        asking.batch_step = self._has_step(places, BATCH)
        if asking.oldest_s is None and pids:
            asking.oldest_s = started_s(self._files, pids[0])
        expected = places[0].owner.job
        for pid in pids[:ASKED_PROCESSES]:
            try:
                variables = self._variables.of(self._files.root, pid)
                uid = str(os.stat(f"{self._files.root}/proc/{pid}").st_uid)
            except PermissionError:
                asking.denied = True
                continue
            except FileNotFoundError:
                continue
            named = slurm_job.named(variables)
            if expected in named if expected else named:
                asking.variables, asking.uid, asking.denied = variables, uid, False
                return

    def _has_step(self, places: Sequence[WorkCgroup], names: Sequence[str]) -> bool:
        return any(self._files.exists(f"{place.directory}/{name}") for place in places for name in names)

    def _use(self, owner: str, places: Sequence[WorkCgroup]) -> Iterator[JobHostUse | Failure]:
        try:
            cpu = [seconds for place in places if (seconds := self._cgroups.cpu_seconds(place)) is not None]
            memory = [used for place in places if (used := self._cgroups.memory_bytes(place)) is not None]
        except OSError as error:
            yield failure(owner, error)
            return
        if cpu or memory:
            yield JobHostUse(owner, sum(cpu) if cpu else None, sum(memory) if memory else None)

    def _known_by_file(
        self, files: Mapping[str, Sequence[JobFile]], running: set[str]
    ) -> dict[str, Sequence[JobFile]]:
        """Jobs without a cgroup which it is too early to take for left behind by their epilog.

        A job may have none between its steps (without PrologFlags=Contain), and while its epilog runs.
        """
        now_s, wall_s = self._clock.monotonic_s(), self._clock.wall_s()
        alone = {job: found for job, found in files.items() if job not in running}
        for job, found in alone.items():
            written_s = max(file.written_s for file in found)
            self._alive_s.setdefault(job, now_s - max(0.0, wall_s - written_s))
        self._alive_s = {job: seen_s for job, seen_s in self._alive_s.items() if job in alone}
        self._alive_s.update(dict.fromkeys(running, now_s))
        limit_s = self._settings.left_over_seconds
        return {job: found for job, found in alone.items() if now_s - self._alive_s[job] < limit_s}

    def _slurmd(self, runs_jobs: bool) -> Iterator[Reading]:
        paths = self._cgroups.slurmd_paths
        if paths or runs_jobs:
            yield Scheduler(scheduler="slurm")
        owners = {owner for path in paths if (owner := owner_of(path)) is not None}
        for pod in sorted({owner.pod_uid for owner in owners if owner.pod_uid}):
            yield SlurmdPod(pod_uid=pod)
