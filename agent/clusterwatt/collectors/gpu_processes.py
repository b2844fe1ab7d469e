"""Processes on a GPU, by the driver's lists (nvml.h, nvmlDeviceGetComputeRunningProcesses and the like).

They are counted; which processes they are is told to attribution and to nobody else. The lists are not taken
at their word. Drivers of the branch 535 wrote entries of another size than they had said, so that process ids
and sizes changed places (XuehaiPan/nvitop#75, wookayin/gpustat#157). An entry without a process is dropped
and counted as a failure; a process that ends just then may be among them.

Where processes share a GPU, the driver is asked for what each used (nvmlDeviceGetProcessUtilization).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from clusterwatt.catalog import FULL, STANDARD, LevelBy, Table
from clusterwatt.clock import Clock
from clusterwatt.node_pids import NodePids
from clusterwatt.nvml.constants import MEMORY_V2
from clusterwatt.nvml.device import Device
from clusterwatt.nvml.values import Process
from clusterwatt.readings.base import Failure
from clusterwatt.readings.gpu import GpuProcess, GpuProcesses

PROCESSES = Table(GpuProcesses, labels=("gpu", "uuid", "type"))
METRICS = (
    PROCESSES.gauge(
        "gpu_processes",
        "Processes that hold the GPU; on a board in MIG mode those of each instance only.",
        "processes",
        by=LevelBy("type", {"compute": STANDARD, "graphics": FULL, "mps": FULL}),
    ),
)

KINDS: Mapping[str, str] = {"compute": "Compute", "graphics": "Graphics", "mps": "MPSCompute"}
OFTENEST = "compute"  # the kind that is read most often, and first: its reading looks at the mode
WHOLE_PERCENT = 100


class ProcessLists:
    """The process lists of one GPU or MIG instance.

    `pids`: the processes of the node; None where the driver's are not among them, as with a simulated one.
    """

    def __init__(self, device: Device, pids: NodePids | None, clock: Clock, *, whole: bool = True) -> None:
        self._device = device
        self._clock = clock
        self._pids = pids
        self._whole = whole
        self._total_bytes: int | None = None
        self._in_mig_mode: bool | None = None
        self._on_it: dict[str, frozenset[int]] = {}  # by kind, as listed last
        self._uses = {kind: SmUse(device) for kind in KINDS}

    def read(self, kind: str) -> Iterator[GpuProcesses | GpuProcess]:
        """The processes of a kind (compute, graphics, mps): how many there are, and which.

        A board in MIG mode has none of its own, and lists those of its instances to the privileged only.
        """
        device = self._device
        if self._whole and (self._in_mig_mode is None or kind == OFTENEST):
            self._in_mig_mode = _in_mig_mode(device)
        if self._in_mig_mode:
            self._on_it.clear()
            return
        listed_s = self._clock.monotonic_s()
        listed = self.listed(kind)
        if listed is None:
            return
        yield GpuProcesses(gpu=device.gpu, uuid=device.uuid, type=kind, processes=float(len(listed)))
        self._on_it[kind] = frozenset(entry.pid for entry in listed)
        shared = self._whole and len(frozenset().union(*self._on_it.values())) > 1
        ratios = self._uses[kind].ratios() if listed and shared else None
        for entry in listed:
            yield GpuProcess(
                gpu=device.gpu,
                uuid=device.uuid,
                pid=entry.pid,
                type=kind,
                used_bytes=None if entry.used_bytes is None else float(entry.used_bytes),
                sm_ratio=None if ratios is None else ratios.get(entry.pid, 0.0),
                listed_s=listed_s,
            )

    def listed(self, kind: str) -> list[Process] | None:
        """The processes of a kind that can be; None when the driver does not tell.

        Without the host's PID namespace an empty list says nothing: the driver leaves out what the agent may
        not see (NVIDIA/nvidia-docker#179).
        """
        entries = self._device.processes(KINDS[kind])
        if entries is None:
            return None
        host_pids = self._pids if self._pids is not None and self._pids.visible() else None
        if not entries and self._pids is not None and host_pids is None:
            return None
        return list(self._plausible(entries, host_pids))

    def _plausible(self, entries: Iterable[Process], host_pids: NodePids | None) -> Iterator[Process]:
        for entry in entries:
            if entry.pid == 0:
                self._fail("an entry has no process id")
            elif host_pids is not None and not host_pids.exists(entry.pid):
                self._fail("an entry is of a process that does not exist")
            elif entry.used_bytes is not None and entry.used_bytes > self._most_bytes():
                self._fail("a process holds more memory than there is")
                yield entry._replace(used_bytes=None)
            else:
                yield entry

    def _fail(self, what: str) -> None:
        self._device.failures.append(
            Failure(item=self._device.uuid, reason="inconsistent_list", detail=f"process list: {what}")
        )

    def _most_bytes(self) -> float:
        """Memory of the device; without end while it is not known."""
        if self._total_bytes is None:
            memory = self._device.ask_first(
                ("nvmlDeviceGetMemoryInfo", MEMORY_V2), ("nvmlDeviceGetMemoryInfo",)
            )
            self._total_bytes = None if memory is None else int(memory.total)
        return float("inf") if self._total_bytes is None else float(self._total_bytes)


class SmUse:
    """What processes used of a GPU's SMs, each time since the last."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._newest_us = 0

    def ratios(self) -> dict[int, float] | None:
        """Mean share of the SMs' time by process; None when the driver has no samples.

        A process has samples of the periods only in which it used something (nvml.h), so its mean is over
        as many as the busiest one has, and a process without any used nothing.
        """
        samples = self._device.process_samples(self._newest_us)
        if samples is None:
            return None
        self._newest_us = max(sample.stamp_us for sample in samples)
        used: Counter[int] = Counter()
        counts: Counter[int] = Counter()
        for sample in samples:
            if sample.pid and sample.sm_percent <= WHOLE_PERCENT:  # as the lists, not taken at its word
                used[sample.pid] += sample.sm_percent
                counts[sample.pid] += 1
        if not counts:
            return None
        periods = max(counts.values())
        return {pid: percent / WHOLE_PERCENT / periods for pid, percent in used.items()}


def _in_mig_mode(device: Device) -> bool:
    mode = device.ask("nvmlDeviceGetMigMode")
    return bool(mode and mode[0])
