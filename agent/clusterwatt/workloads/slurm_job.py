"""One job of Slurm from all that speaks of it: who it is, and which GPUs it holds. Pure.

Which GPUs, by the first of these that tells (sbatch(1), srun(1), gres.conf(5)):

1. the prolog's file, by UUID;
2. cgroup v1: the devices that the job's cgroup allows, by minor number;
3. SLURM_JOB_GPUS in the environment of its processes: numbers in the order of gres.conf, which are minor
   numbers with `File=/dev/nvidia[0-7]`; where they are not, `workloads.slurm.gpu_numbers` says so. slurmd
   sets it for the batch script and the shell of salloc only, and srun hands it on to every node: only where
   one of these runs does it tell of this node;
4. SLURM_STEP_GPUS, which slurmd sets for the tasks of a step, on each node its own;
5. UUIDs in CUDA_VISIBLE_DEVICES. Its numbers are counted anew within each job and say nothing outside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from clusterwatt.readings.work import Job
from clusterwatt.workloads.job_files import JobFile

# In tasks of a heterogeneous job SLURM_JOB_ID is that of its first component, whatever component they are of;
# these name all (heterogeneous_jobs.html). There are no more components than 128 (MAX_HET_JOB_COMPS).
COMPONENTS = tuple(f"SLURM_JOB_ID_HET_GROUP_{number}" for number in range(128))
# What is read of a process's environment, and nothing else.
VARIABLES = (
    *COMPONENTS,
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
JOB_ID = re.compile(r"[0-9]{1,20}")
UNIX_TIME = re.compile(r"[0-9]{1,12}")
NODES = re.compile(r"[1-9][0-9]{0,5}")
RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,80}")
# Lines of devices.list. Character devices of major number 195 are a GPU each below 254, which is
# nvidia-modeset; 255 is nvidiactl.
ALLOWS_ANY = re.compile(r"^a |^c (?:\*|195):\* ", re.MULTILINE)
ALLOWS_GPU = re.compile(r"^c 195:([0-9]+) ", re.MULTILINE)
NOT_A_GPU = 254
MAX_GPUS = 1024


class Told(msgspec.Struct, frozen=True):
    """All that speaks of a job.

    `files`: of the prolog, one for each slurmd. `variables`: of its oldest process that names the job.
    `uid`: of the user, by cgroup or process. `oldest_s`: Unix time at which its oldest process was started.
    `script`: its batch script or the shell of salloc runs on this node.
    """

    files: Sequence[JobFile] = ()
    variables: Mapping[str, str] = {}
    uid: str = ""
    oldest_s: float | None = None
    interactive_step: bool = False
    script: bool = False

    def first(self, key: str, variable: str) -> str:
        """What a file says under a key, else what the environment says."""
        by_file = next((text for file in self.files if (text := getattr(file, key))), "")
        return by_file or self.variables.get(variable, "")


def named(variables: Mapping[str, str]) -> Collection[str]:
    """Ids of the jobs to which a process may belong, by its environment."""
    said = (variables.get(name, "") for name in ("SLURM_JOB_ID", *COMPONENTS))
    return [job for job in said if JOB_ID.fullmatch(job)]


def identity(job_id: str, told: Told, name_of: Callable[[str], str]) -> Job:
    """Who a job is; `name_of`: a user's name by uid, where Slurm tells none."""
    uid = told.first("uid", "SLURM_JOB_UID") or told.uid
    array_job = told.first("array_job", "SLURM_ARRAY_JOB_ID")
    return Job(
        job_id=job_id,
        scheduler="slurm",
        kind=kind(told),
        name=told.first("name", "SLURM_JOB_NAME"),
        user=told.first("user", "SLURM_JOB_USER") or name_of(uid),
        uid=uid,
        account=told.first("account", "SLURM_JOB_ACCOUNT"),
        partition=told.first("partition", "SLURM_JOB_PARTITION"),
        array_job=array_job,
        array_task=told.first("array_task", "SLURM_ARRAY_TASK_ID") if array_job else "",
        started_s=started(told),
        exempt=EXEMPT_WORD.search(told.first("comment", "SLURM_JOB_COMMENT")) is not None,
    )


def kind(told: Told) -> str:
    """Batch or interactive: slurmstepd sets ENVIRONMENT=BATCH for a batch script and what it starts.

    `salloc` calls its jobs `interactive` when it starts a shell on the node, which has a step of that name;
    `srun --pty` sets a port for its terminal.
    """
    if told.interactive_step:
        return "interactive"
    if told.variables.get("ENVIRONMENT") == "BATCH":
        return "batch"
    named_so = told.first("name", "SLURM_JOB_NAME") == "interactive"
    return "interactive" if named_so or "SLURM_PTY_PORT" in told.variables else "batch"


def started(told: Told) -> float | None:
    """Unix time of its start: by the prolog, by Slurm, or by its oldest process."""
    by_file = [file.started_s for file in told.files if file.started_s is not None]
    if by_file:
        return min(by_file)
    by_slurm = told.variables.get("SLURM_JOB_START_TIME", "")
    return float(by_slurm) if UNIX_TIME.fullmatch(by_slurm) else told.oldest_s


def nodes(told: Told) -> int | None:
    """On how many nodes it runs."""
    number = told.first("nodes", "SLURM_JOB_NUM_NODES")
    return int(number) if NODES.fullmatch(number) else None


def devices(told: Told, device_lists: Sequence[str], form: str) -> list[str] | None:
    """The GPUs that it holds, in the words of who tells; None when nobody does.

    `device_lists`: what cgroup v1 lets it open. `form`: minor or index, which Slurm's numbers are.
    """
    if told.files:
        return list(dict.fromkeys(gpu for file in told.files for gpu in file.gpus))
    constrained = [text for text in device_lists if not ALLOWS_ANY.search(text)]
    if constrained:
        minors = {int(minor) for text in constrained for minor in ALLOWS_GPU.findall(text)}
        return [f"minor:{minor}" for minor in sorted(minors) if minor < NOT_A_GPU]
    # Where a step's numbers disagree with its job's, and these are of this node, the job's are right.
    for variable in ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS") if told.script else ("SLURM_STEP_GPUS",):
        if told.variables.get(variable):
            return numbered(told.variables[variable], form)
    entries = told.variables.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return entries if all(map(UUID.fullmatch, entries)) else None


def numbered(text: str, form: str) -> list[str]:
    """Devices of a list as `0,1` or `0-3` in the given form; UUIDs stay as they are."""
    found: list[str] = []
    for entry in text.split(","):
        if UUID.fullmatch(entry):
            found.append(entry)
        elif (numbers := RANGE.fullmatch(entry)) is not None:
            first, last = int(numbers[1]), int(numbers[2] or numbers[1])
            found.extend(f"{form}:{number}" for number in range(first, last + 1))
    return list(dict.fromkeys(found))[:MAX_GPUS]
