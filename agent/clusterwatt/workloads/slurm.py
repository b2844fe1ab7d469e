"""Jobs of Slurm on this node: who they are, and which GPUs they hold. No command of Slurm is ever run.

That a job is here is told by its cgroup, which Slurm makes (cgroup.conf(5)), or by the file of our prolog.
Which GPUs it holds, by the first of these that tells (sbatch(1), srun(1), gres.conf(5)):

1. the prolog's file, by UUID;
2. cgroup v1: the devices that the job's cgroup allows, by minor number;
3. SLURM_JOB_GPUS in the environment of its processes: numbers in the order of gres.conf, which are minor
   numbers with `File=/dev/nvidia[0-7]`; where they are not, `workloads.slurm.gpu_numbers` says so;
4. UUIDs in CUDA_VISIBLE_DEVICES. Its numbers are counted anew within each job and say nothing outside.

A process's environment is believed only where its SLURM_JOB_ID is that of the cgroup. Since 26.05 cgroups
carry a job's SLUID in place of its id; then any process in it tells the id.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.config.model import Slurm as Settings
from clusterwatt.failures import failure
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.work import Claim, Job, JobHostUse, JobMember, JobNodes, Scheduler, SlurmdPod
from clusterwatt.sysfs import Files
from clusterwatt.workloads.cgroup import owner_of
from clusterwatt.workloads.cgroups import MOUNT, Cgroups, WorkCgroup
from clusterwatt.workloads.environ import Variables
from clusterwatt.workloads.job_files import JobFile, JobFiles
from clusterwatt.workloads.process_start import started_s
from clusterwatt.workloads.users import Users

METRICS = ()

VARIABLES = (
    "SLURM_JOB_ID",
    "SLURM_JOB_UID",
    "SLURM_JOB_USER",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_NAME",
    "SLURM_JOB_COMMENT",
    "SLURM_JOB_START_TIME",
    "SLURM_JOB_NUM_NODES",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
    "CUDA_VISIBLE_DEVICES",
    "SLURM_PTY_PORT",
    "ENVIRONMENT",
)
EXEMPT_WORD = re.compile(r"(?<![\w-])clusterwatt-exempt(?![\w-])")
RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,80}")
# Minor numbers of the character devices of major 195: below these a GPU each, then nvidia-modeset, nvidiactl.
ALLOWED_GPU = re.compile(r"^c 195:([0-9]+) ", re.MULTILINE)
NOT_A_GPU = 254
MAX_GPUS = 1024
ASKED_PROCESSES = 16
ASK_AGAIN_SECONDS = 10.0
ASK_EAGERLY = 10  # passes: a job's first process may come seconds after its cgroup


class Said(msgspec.Struct, frozen=True):
    """What the oldest process that names the job says of it. `uid`: whose process it is."""

    variables: dict[str, str]
    uid: str
    interactive_step: bool


class _Asking(msgspec.Struct):
    """How far asking the processes of one job has come. `oldest_s`: when the first of them was started."""

    said: Said | None = None
    oldest_s: float | None = None
    passes: int = 0
    next_s: float = 0.0
    denied: bool = False


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
        cgroups: defaultdict[str, list[WorkCgroup]] = defaultdict(list)
        for cgroup in self._cgroups.scan():
            cgroups[cgroup.owner.name].append(cgroup)
        yield from self._cgroups.take_failures()
        files: defaultdict[str, list[JobFile]] = defaultdict(list)
        for file in self._job_files.read():
            if isinstance(file, Failure):
                yield file
            else:
                files[file.job_id].append(file)
        self._asking = {owner: self._asking.get(owner) or _Asking() for owner in cgroups}
        running: set[str] = set()
        for owner, places in cgroups.items():
            job = places[0].owner.job
            asking = self._asking[owner]
            try:
                self._ask(asking, places, job)
            except OSError as error:
                yield failure(owner, error)
            job = job or (asking.said.variables["SLURM_JOB_ID"] if asking.said else "")
            yield from self._use(owner, places)
            if not job:
                if asking.passes >= ASK_EAGERLY:
                    yield Failure(owner, "unknown_job", "no process of it tells its job id")
                continue
            running.add(job)
            if not owner.startswith("slurm/"):
                yield JobMember(member=owner, job_id=f"slurm/{job}")
            yield from self._job(job, places, files[job], asking)
        files_alone = {job: found for job, found in files.items() if found and job not in running}
        for job, found in self._alive(files_alone, running).items():
            yield from self._job(job, (), found, _Asking())
        yield from self._slurmd(bool(running))

    def _job(
        self, job: str, places: Sequence[WorkCgroup], files: Sequence[JobFile], asking: _Asking
    ) -> Iterator[Reading]:
        """One job and its claims, from all that speaks of it."""
        job_id = f"slurm/{job}"
        said = asking.said
        yield self._identity(job_id, places, files, asking)
        told = {} if said is None else said.variables
        nodes = told.get("SLURM_JOB_NUM_NODES", "")
        if re.fullmatch(r"[1-9][0-9]{0,5}", nodes):
            yield JobNodes(job_id=job_id, nodes=int(nodes))
        devices = self._devices(places, files, told)
        if devices is None and asking.denied:
            remedy = "install deploy/slurm/prolog, or give the agent CAP_SYS_PTRACE"
            detail = f"the environment of its processes may not be read, so its GPUs are not known: {remedy}"
            yield Failure(item=job_id, reason="permission", detail=detail)
        for device in devices or ():
            yield Claim(job_id=job_id, device=device, source="slurm")

    def _identity(
        self, job_id: str, places: Sequence[WorkCgroup], files: Sequence[JobFile], asking: _Asking
    ) -> Job:
        said = asking.said
        told = {} if said is None else said.variables

        def first(key: str, variable: str) -> str:
            by_file = next((text for file in files if (text := getattr(file, key))), "")
            return by_file or told.get(variable, "")

        name = first("name", "SLURM_JOB_NAME")
        uid = first("uid", "SLURM_JOB_UID") or next(
            (place.owner.uid for place in places if place.owner.uid), ""
        )
        uid = uid or ("" if said is None else said.uid)
        starts = [file.started_s for file in files if file.started_s is not None]
        array_job = first("array_job", "SLURM_ARRAY_JOB_ID")
        return Job(
            job_id=job_id,
            scheduler="slurm",
            kind=kind_of(told, name, interactive_step=said is not None and said.interactive_step),
            name=name,
            user=first("user", "SLURM_JOB_USER") or self._users.name(uid),
            uid=uid,
            account=first("account", "SLURM_JOB_ACCOUNT"),
            partition=first("partition", "SLURM_JOB_PARTITION"),
            array_job=array_job,
            array_task=first("array_task", "SLURM_ARRAY_TASK_ID") if array_job else "",
            started_s=min(starts) if starts else asking.oldest_s,
            exempt=self._is_exempt(job_id, name, first("comment", "SLURM_JOB_COMMENT")),
        )

    def _is_exempt(self, job_id: str, name: str, comment: str) -> bool:
        pattern = self._exempt
        by_setting = pattern is not None and bool(pattern.fullmatch(job_id) or pattern.fullmatch(name))
        return by_setting or EXEMPT_WORD.search(comment) is not None

    def _devices(
        self, places: Sequence[WorkCgroup], files: Sequence[JobFile], told: dict[str, str]
    ) -> list[str] | None:
        """The GPUs that the job holds, in the words of who tells; None when nobody does."""
        if files:
            return list(dict.fromkeys(gpu for file in files for gpu in file.gpus))
        allowed = [found for place in places if (found := self._allowed(place)) is not None]
        if allowed:
            return list(dict.fromkeys(gpu for found in allowed for gpu in found))
        # Where a step's number disagrees with its job's, the job's is right (SLURM_JOB_GPUS in sbatch(1)).
        for variable in ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS"):
            if told.get(variable):
                return numbered(told[variable], self._settings.gpu_numbers)
        entries = told.get("CUDA_VISIBLE_DEVICES", "").split(",")
        return entries if all(map(UUID.fullmatch, entries)) else None

    def _allowed(self, place: WorkCgroup) -> list[str] | None:
        """GPUs that cgroup v1 lets a job open; None where devices are not constrained, or on v2 not told."""
        text = self._files.text(f"{MOUNT}/devices{place.path}/devices.list")
        if not text or re.search(r"^a |^c (?:\*|195):\* ", text, re.MULTILINE):
            return None
        minors = sorted({int(minor) for minor in ALLOWED_GPU.findall(text)})
        return [f"minor:{minor}" for minor in minors if minor < NOT_A_GPU]

    def _ask(self, asking: _Asking, places: Sequence[WorkCgroup], job: str) -> None:
        """Look at the job's processes until one tells of it. Raises OSError."""
        now_s = self._clock.monotonic_s()
        if asking.said is not None or now_s < asking.next_s:
            return
        asking.passes += 1
        asking.next_s = now_s if asking.passes < ASK_EAGERLY else now_s + ASK_AGAIN_SECONDS
        asking.denied = False
        pids = sorted({pid for place in places for pid in self._cgroups.pids(place)})
        interactive = any(
            name == "step_interactive" for place in places for name in self._steps(place.directory)
        )
        if asking.oldest_s is None and pids:
            asking.oldest_s = started_s(self._files, pids[0])
        for pid in pids[:ASKED_PROCESSES]:
            try:
                variables = self._variables.of(self._files.root, pid)
                uid = str(os.stat(f"{self._files.root}/proc/{pid}").st_uid)
            except PermissionError:
                asking.denied = True
                continue
            except FileNotFoundError:
                continue
            told = variables.get("SLURM_JOB_ID", "")
            if re.fullmatch(r"[0-9]{1,20}", told) and job in {"", told}:
                start = variables.get("SLURM_JOB_START_TIME", "")
                if re.fullmatch(r"[0-9]{1,12}", start):
                    asking.oldest_s = float(start)
                asking.said, asking.denied = Said(variables, uid, interactive), False
                return

    def _steps(self, directory: str) -> list[str]:
        try:
            return os.listdir(self._files.root + directory)
        except FileNotFoundError:
            return []

    def _use(self, owner: str, places: Sequence[WorkCgroup]) -> Iterator[JobHostUse | Failure]:
        try:
            cpu = [seconds for place in places if (seconds := self._cgroups.cpu_seconds(place)) is not None]
            memory = [used for place in places if (used := self._cgroups.memory_bytes(place)) is not None]
        except OSError as error:
            yield failure(owner, error)
            return
        if cpu or memory:
            yield JobHostUse(owner, sum(cpu) if cpu else None, sum(memory) if memory else None)

    def _alive(self, files: dict[str, list[JobFile]], running: set[str]) -> dict[str, list[JobFile]]:
        """Jobs known by a file alone which it is too early to take for left behind.

        Between its steps a job may have no cgroup (without PrologFlags=Contain), nor while its epilog runs.
        """
        now_s, wall_s = self._clock.monotonic_s(), self._clock.wall_s()
        for job, found in files.items():
            written_s = max(file.written_s for file in found)
            self._alive_s.setdefault(job, now_s - max(0.0, wall_s - written_s))
        self._alive_s = {job: seen_s for job, seen_s in self._alive_s.items() if job in files}
        self._alive_s.update(dict.fromkeys(running, now_s))
        limit_s = self._settings.left_over_seconds
        return {job: found for job, found in files.items() if now_s - self._alive_s[job] < limit_s}

    def _slurmd(self, runs_jobs: bool) -> Iterator[Reading]:
        paths = self._cgroups.slurmd_paths
        if paths or runs_jobs:
            yield Scheduler(scheduler="slurm")
        owners = {owner for path in paths if (owner := owner_of(path)) is not None}
        for pod in sorted({owner.pod_uid for owner in owners if owner.pod_uid}):
            yield SlurmdPod(pod_uid=pod)


def numbered(text: str, form: str) -> list[str]:
    """Devices of a list as `0,1` or `0-3` in the given form, `minor` or `index`; UUIDs stay as they are."""
    devices: list[str] = []
    for entry in text.split(","):
        if UUID.fullmatch(entry):
            devices.append(entry)
        elif (numbers := RANGE.fullmatch(entry)) is not None:
            first, last = int(numbers[1]), int(numbers[2] or numbers[1])
            devices.extend(f"{form}:{number}" for number in range(first, last + 1))
    return list(dict.fromkeys(devices))[:MAX_GPUS]


def kind_of(told: dict[str, str], name: str, *, interactive_step: bool) -> str:
    """Batch or interactive: slurmstepd sets ENVIRONMENT=BATCH for a batch script and what it starts.

    `salloc` calls its jobs `interactive` when it starts a shell on the node, which has a step of that name;
    `srun --pty` sets a port for its terminal.
    """
    if interactive_step:
        return "interactive"
    if told.get("ENVIRONMENT") == "BATCH":
        return "batch"
    return "interactive" if name == "interactive" or "SLURM_PTY_PORT" in told else "batch"
