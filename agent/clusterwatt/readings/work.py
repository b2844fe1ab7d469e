"""Who holds which GPU, what work costs, and what carbon and money the meters multiply by.

Sources of allocation state what a scheduler or a container runtime says, in its own words: `Job`,
`JobMember`, `Claim`, `ProcessOwner`, `JobHostUse`. Attribution makes of these who holds which share of which
GPU. Totals of jobs are those of the ledger's last commit.
"""

from __future__ import annotations

from clusterwatt.readings.base import Reading

# --- What sources of allocation say --------------------------------------------------------------------


class Scheduler(Reading, frozen=True):
    """A scheduler rules over the node's GPUs: what it gives to no job is free.

    scheduler: slurm, kubernetes.
    """

    scheduler: str


class Job(Reading, frozen=True):
    """A job with members on this node, with the identity that is the same on every node of it.

    `job_id`: slurm/<raw id>, k8s/<uid of the topmost controller>, container/<id12>, unit/<name>, user/<uid>.
    `kind`: batch, interactive, service. `started_s`: Unix time at which its oldest member here started.
    `exempt`: rules about waste leave it out.
    """

    job_id: str
    scheduler: str
    kind: str
    name: str = ""
    user: str = ""
    uid: str = ""
    account: str = ""
    partition: str = ""
    queue: str = ""
    array_job: str = ""
    array_task: str = ""
    k8s_namespace: str = ""
    k8s_owner: str = ""
    k8s_owner_kind: str = ""
    started_s: float | None = None
    exempt: bool = False


class JobNodes(Reading, frozen=True):
    """On how many nodes a job runs, where its scheduler says so: on one, its GPUs here are all it has."""

    job_id: str
    nodes: int


class JobMember(Reading, frozen=True):
    """What a job is made of on this node, under the name that a process shows: `pod/<uid>`, `sluid/<id>`."""

    member: str
    job_id: str


class JobPod(Reading, frozen=True):
    """A container of a pod that is a member of the job. `host`: the pod's host name, where it has one set."""

    job_id: str
    k8s_namespace: str
    k8s_pod: str
    k8s_container: str
    host: str = ""


class Claim(Reading, frozen=True):
    """A source's word that a job holds a device.

    `device` is in the words of the source: a UUID or its beginning (GPU-..., MIG-...), `minor:3`
    (/dev/nvidia3), `index:3` (the driver's order), `pci:0000:1b:00.0`, `MIG-GPU-<uuid>/<gi>/<ci>`,
    `nvidia0/gi3`.
    `member`: which part of the job it is, so that two pods of one job on one GPU are two sharers; of
    Kubernetes `pod/<uid>`, with `/<container>` behind it where that is told.
    source: slurm, kubernetes, container.
    """

    job_id: str
    device: str
    source: str
    member: str = ""


class NodeLabels(Reading, frozen=True):
    """NVIDIA's labels of the Kubernetes node, as pairs of name and value."""

    labels: tuple[tuple[str, str], ...]


LAST_WORD_SECONDS = 86_400.0  # for so long what a scheduler said of the node stands while it is silent


class SchedulerNode(Reading, frozen=True):
    """What a scheduler says of the node itself.

    `maintenance`: it gives the node no more work, because somebody said so. `gpus`: how many the node should
    have; None where the scheduler does not say.
    """

    scheduler: str
    maintenance: bool
    gpus: int | None = None


class SlurmdPod(Reading, frozen=True):
    """A pod in which slurmd runs: it holds nothing itself, Slurm decides within it."""

    pod_uid: str


class ProcessOwner(Reading, frozen=True):
    """To whom a process on a GPU belongs, by its cgroup.

    `owner`: a job's id, or the name of a `JobMember`.
    """

    pid: int
    owner: str


class JobHostUse(Reading, frozen=True):
    """CPU seconds since the job's cgroup was made, and its memory now. `owner` as in `ProcessOwner`."""

    owner: str
    cpu_seconds: float | None
    memory_bytes: float | None


class SchedulerPending(Reading, frozen=True):
    """Jobs that wait in a partition or queue of the whole cluster, and the GPUs that they ask for."""

    scheduler: str
    partition: str
    jobs: float
    gpus: float


# --- What attribution makes of it ----------------------------------------------------------------------


class GpuAllocated(Reading, frozen=True):
    """The share of a GPU or MIG instance that a job holds; on an instance times its share of the board."""

    gpu: str
    uuid: str
    job_id: str
    user: str
    account: str
    kind: str
    source: str
    share: float


class SchedulerGpus(Reading, frozen=True):
    """Devices that a scheduler hands out on this node, each once."""

    scheduler: str
    gpus: float


class GpuState(Reading, frozen=True):
    """What became of a GPU's time, energy and money since the agent started. state: active, idle, free.

    `energy_joules` is None where the GPU has no power reading.
    """

    gpu: str
    uuid: str
    state: str
    state_seconds: float
    energy_joules: float | None = None


class GpuStateCost(Reading, frozen=True):
    """Money of a GPU by the state it was in, since the agent started."""

    gpu: str
    uuid: str
    state: str
    currency: str
    cost: float


class NodeGpuState(Reading, frozen=True):
    """The same of all GPUs of the node, those that are gone among them.

    `energy_joules` is None where no GPU ever had a power reading.
    """

    state: str
    state_seconds: float
    energy_joules: float | None = None


class NodeGpuStateCost(Reading, frozen=True):
    """Money of all GPUs of the node by the state they were in, since the agent started."""

    state: str
    currency: str
    cost: float


class GpuJobMemory(Reading, frozen=True):
    """Memory that a job's processes hold on a GPU; `job_id` is empty for processes of nobody known."""

    gpu: str
    uuid: str
    job_id: str
    used_bytes: float


class GpuXidJobs(Reading, frozen=True):
    """How many different jobs a class of XIDs has hit on a GPU within a window (`1d`)."""

    gpu: str
    uuid: str
    xid_class: str
    window: str
    jobs: float


class JobInfo(Reading, frozen=True):
    """The identity of a job as it is exported: `Job` after the settings for labels."""

    job_id: str
    scheduler: str
    name: str
    user: str
    account: str
    partition: str
    queue: str
    array_job: str
    array_task: str
    k8s_namespace: str
    k8s_owner: str
    k8s_owner_kind: str


class JobTimes(Reading, frozen=True):
    """Start and end of a job on this node, Unix time; the end is None while it runs."""

    job_id: str
    start_timestamp_seconds: float | None
    end_timestamp_seconds: float | None


class JobExempt(Reading, frozen=True):
    """The job is left out by rules about waste and training."""

    job_id: str
    exempt: float = 1.0


# --- Totals of the ledger's last commit ----------------------------------------------------------------


class JobGpuTime(Reading, frozen=True):
    """Seconds that a job held whole GPUs, times the share held, and what became of them."""

    job_id: str
    gpu_seconds: float
    activity_gpu_seconds: float | None
    idle_gpu_seconds: float
    tensor_gpu_seconds: float | None


class JobEnergy(Reading, frozen=True):
    """Energy of a job. component: gpu, cpu, dram, other. method: counter, integrated, estimated."""

    job_id: str
    component: str
    method: str
    energy_joules: float


class JobCarbon(Reading, frozen=True):
    """Operational carbon of a job, PUE included."""

    job_id: str
    carbon_grams: float


class JobCost(Reading, frozen=True):
    """Money of a job. kind: energy, gpu; they add up."""

    job_id: str
    currency: str
    kind: str
    cost: float


class JobIdleCost(Reading, frozen=True):
    """The part of a job's money that went into GPUs which it held and did not use."""

    job_id: str
    currency: str
    idle_cost: float


class UnattributedEnergy(Reading, frozen=True):
    """Energy that no job is charged with."""

    component: str
    energy_joules: float


class UnattributedCarbon(Reading, frozen=True):
    """Carbon that no job is charged with."""

    carbon_grams: float


class UnattributedCost(Reading, frozen=True):
    """Money that no job is charged with."""

    currency: str
    kind: str
    cost: float


class AccountEnergy(Reading, frozen=True):
    """Energy of an account's jobs, also of those that are over; `` is the rest."""

    account: str
    energy_joules: float


class AccountCarbon(Reading, frozen=True):
    """Carbon of an account's jobs."""

    account: str
    carbon_grams: float


class AccountCost(Reading, frozen=True):
    """Money of an account's jobs."""

    account: str
    currency: str
    kind: str
    cost: float


class AccountMonth(Reading, frozen=True):
    """Money of an account in this calendar month on this node, and what it may spend; one may be None."""

    account: str
    currency: str
    cost: float | None
    budget: float | None


class LedgerState(Reading, frozen=True):
    """When the ledger was written last, and what its books are off by; None before the first commit."""

    commit_timestamp_seconds: float | None
    residual_joules: float | None
    errors: float


class Unobserved(Reading, frozen=True):
    """Seconds in which nobody measured: gaps of the agent, reboots, a driver that did not answer."""

    unobserved_seconds: float


# --- What the meters multiply by -----------------------------------------------------------------------


class CarbonIntensity(Reading, frozen=True):
    """Carbon per energy from the grid, in use now. basis: average, marginal.

    `stated_timestamp_seconds`: the time for which the source stated it.
    """

    source: str
    zone: str
    basis: str
    grams_per_kwh: float
    stated_timestamp_seconds: float | None


class ElectricityPrice(Reading, frozen=True):
    """Price of energy, in use now."""

    source: str
    zone: str
    currency: str
    price_per_kwh: float


class GpuPrice(Reading, frozen=True):
    """Price of an hour of one GPU of this model (as in `gpu_info`), in use now.

    `includes_power`: energy is in the price, so that none is added.
    """

    name: str
    source: str
    currency: str
    price_per_hour: float
    includes_power: bool = False


class PowerUsageEffectiveness(Reading, frozen=True):
    """Energy of the site over energy of its computers; at least 1."""

    effectiveness: float
