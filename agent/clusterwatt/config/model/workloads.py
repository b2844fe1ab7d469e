"""Section `workloads`: Slurm, Kubernetes, containers and processes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from clusterwatt.config.model.addresses import HttpAddress
from clusterwatt.config.model.section import Collector, NotEmpty, Pattern, Seconds, Section, Tick


class Slurm(Collector, frozen=True):
    """Jobs of Slurm, from their cgroups and from the files of our prolog; no command of Slurm is run.

    `job_files`: the folder in which the prolog says who holds which GPU. `left_over_seconds`: a file whose
    job has had no cgroup for so long was left behind; the job is over.
    `gpu_numbers`: what SLURM_JOB_GPUS counts where there is no such file: the minor number, N of
    /dev/nvidiaN, with `File=` in gres.conf, or the driver's index.
    `exempt`: a regular expression on the whole id (`slurm/4711`) or name of jobs that rules about waste leave
    out; so does the word `clusterwatt-exempt` in a job's comment.
    """

    every_seconds: Tick = 2.0
    job_files: NotEmpty = "/run/clusterwatt/jobs"
    left_over_seconds: Seconds = 300.0
    gpu_numbers: Literal["minor", "index"] = "minor"
    exempt: Pattern = ""


class Kubernetes(Collector, frozen=True):
    """Pods, from the kubelet's list of device assignments and, where the agent may ask it, the API.

    `socket`: of the kubelet's PodResources service, asked each `kubelet_seconds`, and sooner when a pod comes
    or goes; each `every_seconds` the cgroups of pods are looked at. `pod_logs`: the kubelet's folder of logs,
    whose names tell the uids of pods where the API does not.
    `resources`: patterns of the resources that are GPUs; site-defined names are added here.
    `node_name`: empty: the environment variable NODE_NAME. `api_url`, `token_file`, `ca_file`: empty:
    those of the cluster in which the agent runs, from its service account. The API is asked each
    `api_seconds`, and when the set of pods changes. `deadline_seconds`: for one answer of either.
    `user_labels`, `account_labels`, `queue_labels`: labels or annotations of the job's controller or its pods
    that name its user, account (else it is the namespace) and queue; the first that is there counts.
    `service_kinds`, `interactive_kinds`: kinds of controllers whose work is not batch; without a controller,
    pods with one of `interactive_labels` are interactive.
    `cordon_is_maintenance`: a cordoned node counts as in maintenance, so that alert rules leave it out.
    """

    every_seconds: Tick = 2.0
    socket: NotEmpty = "/var/lib/kubelet/pod-resources/kubelet.sock"
    kubelet_seconds: Annotated[float, Meta(ge=1, le=600)] = 10.0
    pod_logs: str = "/var/log/pods"
    resources: tuple[str, ...] = ("nvidia.com/gpu", "nvidia.com/gpu.*", "nvidia.com/mig-*")
    node_name: str = ""
    api_url: HttpAddress = ""
    token_file: str = ""
    ca_file: str = ""
    api_seconds: Annotated[float, Meta(ge=5, le=3_600)] = 30.0
    deadline_seconds: Annotated[float, Meta(gt=0, le=60)] = 5.0
    user_labels: tuple[str, ...] = ("clusterwatt.io/user", "hub.jupyter.org/username")
    account_labels: tuple[str, ...] = ("clusterwatt.io/account",)
    queue_labels: tuple[str, ...] = (
        "kueue.x-k8s.io/queue-name",
        "kueue.x-k8s.io/local-queue-name",
        "volcano.sh/queue-name",
        "scheduling.volcano.sh/queue-name",
        "kai.scheduler/queue",
        "runai/queue",
    )
    service_kinds: tuple[str, ...] = (
        "Deployment",
        "StatefulSet",
        "DaemonSet",
        "ReplicaSet",
        "ReplicationController",
        "LeaderWorkerSet",
        "RayService",
        "InferenceService",
        "Service",
    )
    interactive_kinds: tuple[str, ...] = ("Notebook", "InteractiveWorkload")
    interactive_labels: tuple[str, ...] = ("hub.jupyter.org/username",)
    cordon_is_maintenance: bool = True


class Container(Collector, frozen=True):
    """Containers of Docker, Podman and containerd outside Kubernetes."""

    every_seconds: Tick = 5.0


class Process(Collector, frozen=True):
    """Processes on GPUs: to whom each belongs, by its cgroup."""

    every_seconds: Tick = 5.0


class SlurmQueue(Collector, frozen=True):
    """Jobs that wait in Slurm and the GPUs that they ask for, by `squeue` (docs/SLURM.md).

    For one agent of a cluster, where Slurm's commands work; it loads slurmctld as a user's squeue does.
    `on_node`: name of the node whose agent asks, where many share a configuration; empty: this one.
    `commands`: the folder of squeue and scontrol; empty: where PATH has them.
    `timeout_seconds`: a command that takes longer is ended.
    """

    enabled: bool = False
    every_seconds: Annotated[float, Meta(ge=10, le=3_600)] = 60.0
    on_node: str = ""
    commands: str = ""
    timeout_seconds: Annotated[float, Meta(gt=0, le=300)] = 20.0


class SlurmNode(Collector, frozen=True):
    """What Slurm says of this node: whether it is drained, and its number of GPUs (docs/SLURM.md).

    For nodes where Slurm's commands work. Every agent asks, by `sinfo` for its own node: each pass is two
    short questions to slurmctld.
    `node_name`: what Slurm calls the node; empty: its host name up to the first dot.
    `drain_is_maintenance`: a drained node counts as in maintenance, so that alert rules leave it out.
    `commands`: the folder of sinfo; empty: where PATH has it.
    `timeout_seconds`: a command that takes longer is ended.
    """

    enabled: bool = False
    every_seconds: Annotated[float, Meta(ge=10, le=3_600)] = 60.0
    node_name: str = ""
    drain_is_maintenance: bool = True
    commands: str = ""
    timeout_seconds: Annotated[float, Meta(gt=0, le=300)] = 20.0


class KubernetesQueue(Collector, frozen=True):
    """Pods that ask for GPUs and have no node yet, from the API (docs/KUBERNETES.md).

    For one agent of a cluster: it lists such pods of all namespaces. Where the API is, which resources are
    GPUs and which labels name a queue is said in workloads.kubernetes.
    `on_node`: name of the node whose agent asks, where many share a configuration; empty: this one.
    `timeout_seconds`: an answer that takes longer is given up.
    """

    enabled: bool = False
    every_seconds: Annotated[float, Meta(ge=10, le=3_600)] = 60.0
    on_node: str = ""
    timeout_seconds: Annotated[float, Meta(gt=0, le=300)] = 20.0


class Workloads(Section, frozen=True):
    """Who holds which GPU.

    `user_label`: how users appear: by name, by uid, or not at all.
    """

    user_label: Literal["name", "uid", "none"] = "name"
    slurm: Slurm = Slurm()
    kubernetes: Kubernetes = Kubernetes()
    container: Container = Container()
    process: Process = Process()
    slurm_node: SlurmNode = SlurmNode()
    slurm_queue: SlurmQueue = SlurmQueue()
    kubernetes_queue: KubernetesQueue = KubernetesQueue()
