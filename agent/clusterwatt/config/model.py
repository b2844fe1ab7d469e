"""Every setting of the agent, with its default, its limits and its unit.

One frozen type for each section. `config.load` fills them from file, environment and command line; the
docstring of a section is its documentation, and `config.write` prints it. Every number has a lowest and a
highest value: what is out of range is refused, never bent.
"""

from __future__ import annotations

import ipaddress
import os
import platform
import re
import urllib.parse
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Tick = Annotated[float, Meta(ge=0.1, le=3_600)]

# Text with a form of its own: `config.values` checks what `extra` names.
NotEmpty = Annotated[str, Meta(min_length=1)]
Pattern = Annotated[str, Meta(extra={"form": "pattern"})]
RdmaPortName = Annotated[str, Meta(extra={"form": "port"})]
ListenAddress = Annotated[str, Meta(extra={"form": "listen address"})]
HttpAddress = Annotated[str, Meta(extra={"form": "http address"})]
HeaderName = Annotated[str, Meta(extra={"form": "header name"})]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group of settings; a key that it does not know is an error."""


class Node(Section, frozen=True):
    """The machine itself.

    `root`: where its file system is mounted, `/` unless the agent runs in a container.
    `gpus_expected`: how many GPUs it should show; 0 states nothing.
    `power_feed_ratios`: the share of its power that comes from each feed, as `{A: 0.5, B: 0.5}`.
    `power_feed_capacity_watts`: what each feed can carry, the same on all nodes of the feed.
    """

    root: NotEmpty = "/"
    gpus_expected: Annotated[int, Meta(ge=0, le=1_024)] = 0
    power_feed_ratios: dict[str, Annotated[float, Meta(gt=0, le=1)]] = {}
    power_feed_capacity_watts: dict[str, Annotated[float, Meta(gt=0, le=1e9)]] = {}


class Collector(Section, frozen=True):
    """`enabled`, and how often it reads: each `every_seconds`."""

    enabled: bool = True
    every_seconds: Tick = 1.0


class GpuCollector(Collector, frozen=True):
    """GPUs. Quantities that hardly change (limits, identity) are read each `slow_seconds`.

    `gpm`: activity of SMs, tensor cores and memory from GPM (Hopper and later). Switch it off where another
    profiler on the same GPUs does not bear it; use is then measured by utilization, after a restart.
    """

    slow_seconds: Tick = 30.0
    gpm: bool = True


class EthernetCollector(Collector, frozen=True):
    """Network interfaces. `include` and `exclude` are regular expressions on the whole name."""

    include: Pattern = ""
    exclude: Pattern = ""


class EthtoolCollector(Collector, frozen=True):
    """Pause frames from the drivers of Ethernet cards; each answer costs the driver work, so it is opt-in."""

    enabled: bool = False
    every_seconds: Tick = 10.0


class TimesyncCollector(Collector, frozen=True):
    """Whether the kernel's clock is disciplined."""

    every_seconds: Tick = 15.0


class RdmaCollector(Collector, frozen=True):
    """RDMA ports; firmware answers these reads, so they are rarer.

    `expected_ports`: ports that must be up, as `device/port`; empty: those that were up for an hour.
    `expected_link_gbit`: the rate that these ports must have; 0: the highest seen.
    `rails`: ports as `device/port`, that of rail 0 first; empty: in the order of their PCI addresses.
    """

    every_seconds: Tick = 2.0
    expected_ports: tuple[RdmaPortName, ...] = ()
    expected_link_gbit: Annotated[float, Meta(ge=0, le=100_000)] = 0.0
    rails: tuple[RdmaPortName, ...] = ()


class DiskCollector(Collector, frozen=True):
    """Whole physical disks. `exclude` is a regular expression on the whole name."""

    exclude: Pattern = ""


class FilesystemCollector(Collector, frozen=True):
    """Mounted file systems. Network file systems can hang for ever and are probed only when asked for.

    `network_mounts`: mount points of network file systems to probe; `*` for all.
    `exclude_mountpoints`: regular expression on the whole mount point; by default it leaves out what belongs
    to kernel, containers and pods, and keeps /dev/shm.
    `timeout_seconds`: a probe that takes longer, or three quarters of `every_seconds`, counts as hung.
    """

    every_seconds: Tick = 15.0
    network_mounts: tuple[str, ...] = ()
    exclude_mountpoints: Pattern = (
        r"/(dev(?!/shm$)|proc|sys|run/(credentials|netns|containerd|k3s/containerd|containers/storage)|"
        r"var/lib/(docker|containers/storage|kubelet/pods))(/.*)?"
    )
    timeout_seconds: Seconds = 5.0


class ProcessesCollector(Collector, frozen=True):
    """Blocked processes; scans every process, so it is rarer."""

    every_seconds: Tick = 15.0


class NfsCollector(Collector, frozen=True):
    """NFS mounts, from the client's own counters: no server is asked.

    `exclude_mountpoints`: regular expression on the whole mount point; by default mounts of single pods,
    whose paths are new with each pod.
    """

    every_seconds: Tick = 2.0
    exclude_mountpoints: Pattern = r"/var/lib/kubelet/pods/.*"


class LustreCollector(Collector, frozen=True):
    """Lustre mounts, from the client's own counters; newer clients show them in debugfs, to root only."""

    every_seconds: Tick = 2.0


class RaplCollector(Collector, frozen=True):
    """Energy counters of CPU and memory (RAPL); since Linux 5.10 only root may read them."""


class HwmonCollector(Collector, frozen=True):
    """Temperature and power sensors of the board; some answer slowly."""

    every_seconds: Tick = 15.0


class NvmeCollector(Collector, frozen=True):
    """Health logs of NVMe disks; only root may ask for them."""

    every_seconds: Tick = 300.0


class IpmiCollector(Collector, frozen=True):
    """Power of the node from its BMC, by running `command`; for nodes without a power meter in hwmon.

    `timeout_seconds`: the program is ended when it takes longer.
    """

    enabled: bool = False
    every_seconds: Tick = 30.0
    command: NotEmpty = "ipmitool"
    timeout_seconds: Seconds = 10.0


class TextfileCollector(Collector, frozen=True):
    """Metrics of other tools, from the files `*.prom` in a folder. They go out unchanged on our page.

    Labels `job` and `instance` in them pass: Prometheus renames them to `exported_job` and
    `exported_instance`, unless the scrape has `honor_labels`.

    `directory`: the folder; empty: none. `max_file_bytes`: a larger file is refused.
    `max_series`: of all files together; the file that exceeds it is refused.
    `max_age_seconds`: a file that was not written for so long is refused.
    """

    every_seconds: Tick = 15.0
    directory: str = ""
    max_file_bytes: Annotated[int, Meta(ge=1, le=1 << 26)] = 1 << 20
    max_series: Annotated[int, Meta(ge=1, le=100_000)] = 2_000
    max_age_seconds: Annotated[float, Meta(gt=0, le=31_536_000)] = 172_800.0


def node_name() -> str:
    """What the node is called. A pod's host name is its own: there NODE_NAME says it, from spec.nodeName."""
    return os.environ.get("NODE_NAME") or platform.node()


SYSTEM_STATE_FOLDER = Path("/var/lib/clusterwatt")


def state_folder() -> Path:
    """Where the agent keeps what must last: the system's state folder for root, the user's own for others."""
    if os.geteuid() == 0:
        return SYSTEM_STATE_FOLDER
    home = os.path.expanduser("~")
    state = os.environ.get("XDG_STATE_HOME") or str(Path(home, ".local", "state"))
    # A container that runs under a number has no home and no entry in passwd: "~" comes back as it is.
    return Path(state, "clusterwatt") if state.startswith("/") else SYSTEM_STATE_FOLDER


class MaintenanceCollector(Collector, frozen=True):
    """Whether people work on the node.

    `file`: the flag that `clusterwatt maintenance` sets and removes; it outlives a reboot.
    """

    every_seconds: Tick = 5.0
    file: NotEmpty = msgspec.field(default_factory=lambda: str(state_folder() / "maintenance"))


class Collectors(Section, frozen=True):
    """One section for each collector."""

    gpu: GpuCollector = GpuCollector()
    cpu: Collector = Collector()
    memory: Collector = Collector()
    pressure: Collector = Collector()
    host: Collector = Collector()
    processes: ProcessesCollector = ProcessesCollector()
    ethernet: EthernetCollector = EthernetCollector()
    ethtool: EthtoolCollector = EthtoolCollector()
    rdma: RdmaCollector = RdmaCollector()
    disk: DiskCollector = DiskCollector()
    filesystem: FilesystemCollector = FilesystemCollector()
    timesync: TimesyncCollector = TimesyncCollector()
    nfs: NfsCollector = NfsCollector()
    lustre: LustreCollector = LustreCollector()
    rapl: RaplCollector = RaplCollector()
    hwmon: HwmonCollector = HwmonCollector()
    nvme: NvmeCollector = NvmeCollector()
    ipmi: IpmiCollector = IpmiCollector()
    kmsg: Collector = Collector()
    textfile: TextfileCollector = TextfileCollector()
    maintenance: MaintenanceCollector = msgspec.field(default_factory=MaintenanceCollector)


SYSTEM_RELEASE_FILE = "/run/clusterwatt/driver-release"


def default_release_file() -> str:
    """Where the operator asks for the driver: in the run folder of the system for root, else of the user."""
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.geteuid() == 0 or not folder.startswith("/"):
        return SYSTEM_RELEASE_FILE
    return str(Path(folder, "clusterwatt", "driver-release"))


class Driver(Section, frozen=True):
    """How the process that talks to the NVIDIA driver is looked after.

    `deadline_seconds`: a call that takes longer is taken to hang; its GPU is left alone until it returns.
    `silent_seconds`: a driver host that sends nothing for so long is replaced: no further calls, SIGTERM,
    then `grace_seconds` to end. SIGKILL follows only with `kill_hung: true`, because killing a process inside
    a driver call has frozen GPUs.
    `max_replacements_per_hour`: after so many the GPU part stays off until the hour is over.
    `retry_seconds`: the longest pause between two attempts to reach a driver that is not there.
    `release_file`: while this file exists the agent lets go of the driver, so that it can be unloaded;
    `clusterwatt driver release` and `resume` make and remove it. Empty: there is no such file.
    `library_roots`: file systems in which libnvidia-ml.so.1 is looked for before it is taken from where the
    system has its libraries; for containers, where it is the host's or that of NVIDIA's GPU operator.
    """

    deadline_seconds: Seconds = 0.8
    silent_seconds: Seconds = 15.0
    grace_seconds: Seconds = 10.0
    kill_hung: bool = False
    max_replacements_per_hour: Annotated[int, Meta(ge=0, le=60)] = 3
    retry_seconds: Annotated[float, Meta(gt=0, le=60)] = 5.0
    release_file: str = msgspec.field(default_factory=default_release_file)
    library_roots: tuple[NotEmpty, ...] = ()


class Simulate(Section, frozen=True):
    """Another driver in place of the real one, for demonstrations and tests: simulated, or recorded.

    `profile`: a100, h100, h200, b200, l40s, t4, rtx4080; empty: the real driver. `gpus`: how many of them.
    `seed`: the same number makes the same devices and the same work.
    `faults_file`: a JSON file of faults to play, read again when it changes.
    `replay_file`: a bundle of `clusterwatt capture`, whose answers are given again.
    `jobs`: whether simulated jobs hold the simulated GPUs, in place of those that run on this machine.
    """

    profile: Literal["", "a100", "h100", "h200", "b200", "l40s", "t4", "rtx4080"] = ""
    gpus: Annotated[int, Meta(ge=0, le=64)] = 8
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)] = 1
    faults_file: str = ""
    replay_file: str = ""
    jobs: bool = True

    @property
    def label(self) -> Literal["true", "false", "replay"]:
        """Value of the label `simulated`: whether the driver is simulated, or what it answers is recorded."""
        if self.replay_file:
            return "replay"
        return "true" if self.profile else "false"


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[::1]:port` or `:port`; an empty host stands for every address.

    Raises ValueError, which says what is wrong.
    """
    if "://" in text:
        raise ValueError("leave out http:// and what follows the port")
    host, colon, digits = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", digits) or int(digits) > 65_535:
        raise ValueError("there is no port from 0 to 65535 behind the last colon")
    if host.startswith("[") and host.endswith("]"):
        return str(ipaddress.IPv6Address(host[1:-1])), int(digits)
    if ":" in host:
        raise ValueError("an IPv6 address stands in brackets, as in [::1]:10777")
    if re.fullmatch(r"[0-9.]+", host):
        return str(ipaddress.IPv4Address(host)), int(digits)
    if host and not re.fullmatch(r"(?!-)[A-Za-z0-9_.-]{1,253}", host):
        raise ValueError("the host is neither an address nor a name")
    return host, int(digits)


def http_address(text: str) -> str:
    """Check an http or https address; empty is right too. Raises ValueError, which says what is wrong."""
    if not text:
        return text
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("it begins with http:// or https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("no user or password in it: they would be seen; a header from a file can hold them")
    if re.search(r"[^!-~]", text):
        raise ValueError("spaces and letters beyond ASCII are written with %")
    parts.port  # noqa: B018 - raises ValueError when it is none
    return text


class Http(Section, frozen=True):
    """The page.

    `listen`: address and port, as `127.0.0.1:10777`, `[::1]:10777`, or `:10777` for every address of the
    machine; on the loopback unless told otherwise. Port 0 takes any that is free.
    `header_timeout_seconds`: a client that has not sent its request by then, TLS handshake included, is cut
    off. `max_connections`: a further one takes the place of the one that has been silent for longest, and is
    closed at once where none is. `max_connections_per_client`: the same for one address, or one /64 of IPv6;
    the loopback is not held to it, a proxy there speaks for many.
    `web_config_file`: TLS, users, headers and a rate limit, in the format of Prometheus' exporters
    (docs/SECURITY.md); read again when it, a certificate or a key changes. Empty: none of these.
    """

    listen: ListenAddress = "127.0.0.1:10777"
    header_timeout_seconds: Seconds = 10.0
    max_connections: Annotated[int, Meta(ge=1, le=100_000)] = 512
    max_connections_per_client: Annotated[int, Meta(ge=1, le=100_000)] = 64
    web_config_file: str = ""


class DcgmPage(Section, frozen=True):
    """The page /dcgm/metrics, with names, labels and units of dcgm-exporter; made only for who asks for it.

    `counters_file`: which counters, as a csv file in dcgm-exporter's format; empty: its default list.
    `skip_unknown`: leave out counters that are not known here, with a warning, where otherwise the file is
    refused.
    `interval_seconds`: what rates and counted events refer to; dcgm-exporter's collect interval.
    `hostname_lower_case`: the label `hostname`, as in dcgm-exporter 4.8.3 and later, in place of `Hostname`.
    """

    enabled: bool = True
    counters_file: str = ""
    skip_unknown: bool = False
    interval_seconds: Annotated[float, Meta(ge=1, le=3_600)] = 30.0
    hostname_lower_case: bool = False


class Expose(Section, frozen=True):
    """Pages in the words of other programs.

    `node_exporter_names`: the page /node/metrics, with names and labels of node_exporter; what it needs
    beyond our own readings is read only while it is on.
    """

    dcgm: DcgmPage = DcgmPage()
    node_exporter_names: bool = False


class Limits(Section, frozen=True):
    """What goes on the page.

    `profile`: minimal, standard or full. `families`: single families on or off, by name.
    `max_series`: the last wall; series beyond it are dropped and counted.
    """

    profile: Literal["minimal", "standard", "full"] = "standard"
    families: dict[str, bool] = {}
    max_series: Annotated[int, Meta(ge=1, le=1_000_000)] = 20_000


class Ledger(Section, frozen=True):
    """Where energy and cost of jobs are kept.

    `path`: the file; under the user's own state folder when the agent does not run as root.
    `commit_seconds`: how often what has gathered is written; a crash loses no more than that.
    `retention_days`: hours and finished jobs older than this are removed; totals of accounts stay.
    `max_bytes`: the oldest are removed earlier when the ledger holds more.
    `linger_seconds`: how long a job stays on the page after its end.
    `receipts`: leave a text file for each job that has ended, with what it used on this node, in
    `receipts_directory` (empty: the folder `receipts` beside the ledger); the newest 10 000 are kept.
    """

    path: NotEmpty = msgspec.field(default_factory=lambda: str(state_folder() / "ledger.db"))
    commit_seconds: Annotated[float, Meta(ge=0.1, le=600)] = 10.0
    retention_days: Annotated[int, Meta(ge=1, le=36_500)] = 400
    max_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 40)] = 1 << 30
    linger_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 300.0
    receipts: bool = True
    receipts_directory: str = ""


class Recorder(Section, frozen=True):
    """The flight recorder: the last `keep_seconds` of every GPU and port at full rate, in memory.

    It is frozen to a file in `directory` when a GPU is lost or hangs, at a fault of driver or hardware (XID),
    and by `clusterwatt flight freeze`. The oldest files go when there are more than `max_bundles` or they
    hold more than `max_bytes`.
    """

    enabled: bool = True
    keep_seconds: Annotated[float, Meta(ge=60, le=86_400)] = 900.0
    directory: NotEmpty = msgspec.field(default_factory=lambda: str(state_folder() / "flight"))
    max_bundles: Annotated[int, Meta(ge=1, le=1_000)] = 10
    max_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 40)] = 64 << 20


Quantity = Literal[
    "train_loss",
    "eval_loss",
    "train_accuracy",
    "eval_accuracy",
    "learning_rate",
    "gradient_norm",
    "step",
    "step_duration_seconds",
    "tokens_total",
    "tokens_per_second",
    "tokens_per_second_per_gpu",
    "samples_per_second",
    "loss_scale",
]


class TrainingApi(Section, frozen=True):
    """Reports of training processes, `POST /api/v1/training` (docs/TRAINING.md); taken nowhere by default.

    `enabled`: take them at the address of the page, from processes of this machine. Any of its users can then
    report for any job. `socket`: path of a Unix socket that takes nothing else; empty: none. There the kernel
    says whose a process is, and none reports for another's job. Containers mount the folder it is in.
    `socket_mode`: who may use it.
    """

    enabled: bool = False
    socket: str = ""
    socket_mode: Literal["0600", "0660", "0666"] = "0666"


class TrainingModel(Section, frozen=True):
    """What a model costs to train: FLOP per token, and the precision whose peak it is measured against.

    `flops_per_token` as it is; or 6 for each of `parameters` (of a mixture of experts, those that are active
    for a token), and 12 x `layers` x `hidden_size` x `sequence_length` for attention where these are given.
    """

    runs: Annotated[str, Meta(min_length=1, extra={"form": "pattern"})] = ".*"
    parameters: Annotated[float, Meta(ge=0, le=1e15)] = 0.0
    layers: Annotated[int, Meta(ge=0, le=100_000)] = 0
    hidden_size: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    sequence_length: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    flops_per_token: Annotated[float, Meta(ge=0, le=1e18)] = 0.0
    precision: Literal["", "bf16", "fp16", "tf32", "fp8", "fp4", "fp32", "fp64_tensor"] = ""
    gpus: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class Training(Collector, frozen=True):
    """Training runs, from the TensorBoard files that they write and from what they report.

    `directories`: folders to look into, also those that appear later; each folder below with event files is a
    run. `read_from`: where to begin in a file that is found: its `tail`, of `tail_bytes`, or its `start`.
    `live_seconds`: a file that was not written for so long is not followed, nor is its run exported.
    `max_runs`: further runs are left out, the ones written last stand.
    `hosts`: names of this node besides its own, as regular expressions on the whole name: a run is exported
    by the node whose name is in the file's name. `any_host`: export runs of every name, and those whose files
    carry none; only for folders that no other node sees.
    `tags`: quantity by tag, beyond what is known of the common frameworks. `scalars`: further tags to export
    under their own name, as regular expressions on the whole tag.
    `job_from_path`: a regular expression, with a group `job`, that finds the Slurm job in the path of a run
    whose process does not tell.
    `models`: by any name, what the models of the runs cost, for model FLOP utilisation; the first whose
    `runs`, a regular expression on the whole name, fits is that of a run. Each has `flops_per_token`; or
    `parameters` (of a mixture of experts, the active ones) and, for attention, `layers`, `hidden_size` and
    `sequence_length`; its `precision`; and `gpus`, how many the whole run has, where no scheduler tells.
    """

    every_seconds: Tick = 2.0
    directories: tuple[NotEmpty, ...] = ()
    read_from: Literal["tail", "start"] = "tail"
    tail_bytes: Annotated[int, Meta(ge=1 << 12, le=1 << 30)] = 1 << 20
    live_seconds: Annotated[float, Meta(ge=60, le=31_536_000)] = 21_600.0
    max_runs: Annotated[int, Meta(ge=1, le=4_096)] = 256
    hosts: tuple[Pattern, ...] = ()
    any_host: bool = False
    tags: dict[str, Quantity] = {}
    scalars: tuple[Pattern, ...] = ()
    job_from_path: Pattern = ""
    models: dict[str, TrainingModel] = {}
    api: TrainingApi = TrainingApi()


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


class Container(Collector, frozen=True):
    """Containers of Docker, Podman and containerd outside Kubernetes."""

    every_seconds: Tick = 5.0


class Process(Collector, frozen=True):
    """Processes on GPUs: to whom each belongs, by its cgroup."""

    every_seconds: Tick = 5.0


class Workloads(Section, frozen=True):
    """Who holds which GPU.

    `user_label`: how users appear: by name, by uid, or not at all.
    """

    user_label: Literal["name", "uid", "none"] = "name"
    slurm: Slurm = Slurm()
    kubernetes: Kubernetes = Kubernetes()
    container: Container = Container()
    process: Process = Process()


class GridService(Section, frozen=True):
    """An HTTP service that states the carbon intensity now, as JSON.

    `url`: where it is asked, http or https; empty: nowhere. Redirects are not followed, the proxy of the
    environment is used. `header`: name of a header that holds a key, as `auth-token` or `Authorization`, and
    `header_file` the file with its value, read at each request. `ca_file`: certificates to trust instead of
    the system's.
    `value_path`: where the number stands in the answer, as `carbonIntensity` or `data.0.intensity.actual`;
    `time_path`: where the time stands for which it is stated; empty: it is taken to be that of the answer.
    `unit`: of the number. `basis`: average of all plants, or marginal, of the plant that would follow.
    `every_seconds`: how often it is asked; while it fails, once a minute at most.
    `max_age_seconds`: an older value is not used. `timeout_seconds`: a longer answer is given up.
    """

    url: HttpAddress = ""
    header: HeaderName = ""
    header_file: str = ""
    ca_file: str = ""
    value_path: str = ""
    time_path: str = ""
    unit: Literal["grams_per_kwh", "pounds_per_mwh"] = "grams_per_kwh"
    basis: Literal["average", "marginal"] = "average"
    every_seconds: Annotated[float, Meta(ge=300, le=86_400)] = 300.0
    max_age_seconds: Annotated[float, Meta(ge=300, le=604_800)] = 7_200.0
    timeout_seconds: Annotated[float, Meta(gt=0, le=60)] = 10.0


class Grid(Collector, frozen=True):
    """Carbon intensity of the grid. Without a zone, a constant or a service there is none, and no carbon.

    `zone`: of the table that is shipped, as `FR`, `US-TX` or `WORLD`; beside a constant or a service also any
    other name, which is a label then.
    `grams_per_kwh`: the site's own yearly average, in place of the table; 0: none.
    A service that is silent is replaced by these after its `max_age_seconds`; one of marginal intensity by
    nothing, since they are averages.
    """

    every_seconds: Tick = 60.0
    zone: str = ""
    grams_per_kwh: Annotated[float, Meta(ge=0, le=5_000)] = 0.0
    service: GridService = GridService()


class Price(Collector, frozen=True):
    """Prices of energy and of GPUs. Without a book there are none, and no cost.

    `book`: the price book, a YAML file that is read again when it changes (docs/COST.md); empty: none.
    """

    every_seconds: Tick = 1.0
    book: str = ""


class Feeds(Section, frozen=True):
    """Carbon intensity and prices."""

    grid: Grid = Grid()
    price: Price = Price()


class Meters(Section, frozen=True):
    """What energy is multiplied by, and which GPU counts as idle.

    `pue`: energy of the site over energy of its computers; 1 leaves the site out of carbon and money.
    `idle_below_ratio`: a GPU that a job holds counts as idle when its activity over the last
    `idle_window_seconds` is under this share.
    `other_ratio`: energy of fans, network cards, disks and losses, as a share of that of GPU, CPU and memory;
    where the node has a power meter, that is used instead. 0: not estimated.
    """

    pue: Annotated[float, Meta(ge=1, le=10)] = 1.0
    idle_below_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.01
    idle_window_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 60.0
    other_ratio: Annotated[float, Meta(ge=0, le=2)] = 0.0


class Log(Section, frozen=True):
    """What the agent says on standard error: from which `level` on, in which `format`."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["logfmt", "json"] = "logfmt"


class Config(Section, frozen=True):
    """All sections."""

    node: Node = Node()
    collectors: Collectors = Collectors()
    driver: Driver = Driver()
    simulate: Simulate = Simulate()
    http: Http = Http()
    expose: Expose = Expose()
    limits: Limits = Limits()
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    recorder: Recorder = msgspec.field(default_factory=Recorder)
    training: Training = Training()
    workloads: Workloads = Workloads()
    feeds: Feeds = Feeds()
    meters: Meters = Meters()
    log: Log = Log()
