"""Section `collectors`: what is read of the machine and its GPUs, and how often."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from clusterwatt.config.model.places import state_folder
from clusterwatt.config.model.section import Collector, NotEmpty, Pattern, Seconds, Section, Tick

RdmaPortName = Annotated[str, Meta(extra={"form": "port"})]


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

    every_seconds: Tick = 120.0


class IpmiCollector(Collector, frozen=True):
    """Power of the node from its BMC, by running `command`; for nodes without a power meter in hwmon.

    `timeout_seconds`: the program is ended when it takes longer.
    """

    enabled: bool = False
    every_seconds: Tick = 30.0
    command: NotEmpty = "ipmitool"
    timeout_seconds: Seconds = 10.0


class ImexCollector(Collector, frozen=True):
    """Whether the IMEX domain of the node is complete, by running `command`; for racks of NVLink.

    The daemons need IMEX_CMD_ENABLED=1 in /etc/nvidia-imex/config.cfg, which the agent must be able to read.
    Written after NVIDIA's guide; it has not met a real IMEX.
    `timeout_seconds`: the program is ended when it takes longer.
    """

    enabled: bool = False
    every_seconds: Tick = 60.0
    command: NotEmpty = "nvidia-imex-ctl"
    timeout_seconds: Seconds = 15.0


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
    imex: ImexCollector = ImexCollector()
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
