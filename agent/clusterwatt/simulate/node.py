"""Everything around the GPUs of a simulated node, as functions of wall time, coherent with its jobs.

The fabric carries the gradients that the jobs exchange, NFS their checkpoints and Lustre their data; CPU,
memory and power follow. One `part` stands in for each collector of the agent.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from clusterwatt.clock import Clock
from clusterwatt.readings.agent import AgentProcess, HostPids
from clusterwatt.readings.base import Reading
from clusterwatt.readings.host import (
    BlockedProcesses,
    BoardPower,
    Boot,
    ClockSync,
    CpuCount,
    CpuTime,
    EnergyZone,
    Load,
    Memory,
    MemoryErrors,
    NodeMaintenance,
    Pressure,
    Temperature,
)
from clusterwatt.readings.kernel_log import KernelLog, KernelSxid
from clusterwatt.simulate import fabric, storage
from clusterwatt.simulate.acts import GIB
from clusterwatt.simulate.claims import MEMORY_OF_GPU
from clusterwatt.simulate.cluster import Cluster, Lane
from clusterwatt.simulate.storage import FLAT_ZERO
from clusterwatt.simulate.troubles import Troubles
from clusterwatt.simulate.work import Flat, Signal, Weighted

CPUS = 192
MEMORY_BYTES = 2_048.0 * GIB
RAPL_RANGE_JOULES = 262_143.328850
SOCKETS = 2
MONTH_S = 30 * 86_400.0

Read = Callable[[float], Iterator[Reading]]


class Part(NamedTuple):
    """What stands in for a collector: its name, how often it is read, and what it says at a Unix time."""

    name: str
    every_seconds: float
    read: Read


class PartCollector:
    """A part as a collector of the agent; it fails while the troubles say so."""

    def __init__(self, part: Part, clock: Clock, troubles: Troubles) -> None:
        self.name = part.name
        self._read = part.read
        self._clock = clock
        self._troubles = troubles

    def collect(self) -> Iterator[Reading]:
        """What the part says now. Raises OSError while its source does not answer."""
        now_s = self._clock.wall_s()
        if any(t.on(now_s) and t.item == self.name for t in self._troubles.all("collector_fails")):
            raise OSError(errno.ETIMEDOUT, "the source does not answer")
        return self._read(now_s)


def boot_s(started_s: float, node: int) -> float:
    """When a node was booted: a while before the month in which the simulation was started."""
    return math.floor(started_s / MONTH_S) * MONTH_S - (3 + node * 7 % 26) * 86_400.0 + 60.0 * node


class SimulatedNode:
    """One node. `gpu_watts`: what its GPUs draw now, all together."""

    def __init__(
        self,
        cluster: Cluster,
        node: int,
        clock: Clock,
        *,
        started_s: float,
        gpu_watts: Callable[[], float],
        troubles: Troubles,
    ) -> None:
        self._node = node
        self._clock = clock
        self._troubles = troubles
        self._gpu_watts = gpu_watts
        self._started_s = started_s
        self.boot_s = boot_s(started_s, node)
        self._here: list[tuple[Lane, int]] = [
            (lane, len(boards)) for lane in cluster.on(node) for place, boards in lane.places if place == node
        ]
        self._cpus = Weighted([(1.0, Flat(1.5)), *self._rates("cpus")])
        read, written = Weighted(self._rates("read")), Weighted(self._rates("written"))
        rails = [self._rail(cluster, board) for board in range(cluster.gpus)]
        self._fabric = fabric.Fabric(rails, Weighted([(1.0, read), (1.0, written)]), self.boot_s, troubles)
        self._storage = storage.Storage(read, written, self.boot_s, troubles)

    def parts(self) -> Sequence[Part]:
        """What stands in for each collector, but for the scheduler, the feeds and the training runs."""
        return (
            Part("ethernet", 1.0, self._fabric.ethernet),
            Part("ethtool", 10.0, self._fabric.pauses),
            Part("rdma", 2.0, self._fabric.rdma),
            Part("disk", 1.0, self._storage.disks),
            Part("filesystem", 15.0, self._storage.filesystems),
            Part("nfs", 2.0, self._storage.nfs),
            Part("lustre", 2.0, self._storage.lustre),
            Part("nvme", 300.0, self._storage.health),
            Part("cpu", 1.0, self._cpu),
            Part("memory", 1.0, self._memory),
            Part("pressure", 1.0, self._pressure),
            Part("host", 1.0, self._host),
            Part("processes", 15.0, self._processes),
            Part("timesync", 15.0, self._timesync),
            Part("rapl", 1.0, self._rapl),
            Part("hwmon", 15.0, self._sensors),
            Part("ipmi", 30.0, self._bmc),
            Part("kmsg", 1.0, self._kernel_log),
            Part("maintenance", 5.0, self._maintenance),
            Part("agent", 5.0, self._agent),
        )

    def _rates(self, name: str) -> list[tuple[float, Signal]]:
        return [(float(gpus), lane.rate(name)) for lane, gpus in self._here]

    def _rail(self, cluster: Cluster, board: int) -> Signal:
        """Each GPU has a port; jobs of one node leave the fabric alone."""
        lane = cluster.lane(self._node, board)
        return FLAT_ZERO if lane is None or len(lane.places) < 2 else lane.rate("fabric")

    def _since_boot(self, signal: Signal, time_s: float) -> float:
        return signal.integral(time_s) - signal.integral(self.boot_s)

    # --- the machine ---------------------------------------------------------------------------------

    def _cpu(self, time_s: float) -> Iterator[Reading]:
        busy_s = self._since_boot(self._cpus, time_s)
        waited_s = 0.002 * (time_s - self.boot_s)
        times: Mapping[str, float] = {
            "user": 0.88 * busy_s,
            "nice": 0.0,
            "system": 0.11 * busy_s,
            "idle": CPUS * (time_s - self.boot_s) - busy_s - waited_s,
            "iowait": waited_s,
            "irq": 0.0,
            "softirq": 0.01 * busy_s,
            "steal": 0.0,
        }
        for mode, seconds in times.items():
            yield CpuTime(mode=mode, cpu_seconds=round(seconds, 2))
        yield CpuCount(cpus=float(CPUS))

    def _memory(self, time_s: float) -> Iterator[Reading]:
        held = sum(
            gpus * MEMORY_OF_GPU * lane.kind.memory
            for lane, gpus in self._here
            if lane.job(time_s) is not None
        )
        available = MEMORY_BYTES - 30 * GIB - held
        cached = min(0.6 * available, 200 * GIB + 0.1 * held)
        dirty = 0.5 * GIB + 2.0 * self._storage.written.at(time_s)
        yield Memory(
            total_bytes=MEMORY_BYTES,
            available_bytes=available,
            free_bytes=available - cached,
            cached_bytes=cached,
            dirty_bytes=dirty,
            swap_total_bytes=0.0,
            swap_free_bytes=0.0,
        )
        yield MemoryErrors(type="corrected", errors=math.floor(self._troubles.total("memory_errors", time_s)))
        yield MemoryErrors(type="uncorrected", errors=0.0)

    def _pressure(self, time_s: float) -> Iterator[Reading]:
        writing_s = self._since_boot(self._storage.written, time_s) / (4.0 * GIB)
        for resource, some in (("cpu", 0.001 * (time_s - self.boot_s)), ("memory", 0.0), ("io", writing_s)):
            yield Pressure(resource=resource, kind="some", pressure_seconds=round(0.3 * some, 6))
            yield Pressure(resource=resource, kind="full", pressure_seconds=round(0.1 * some, 6))

    def _host(self, time_s: float) -> Iterator[Reading]:
        yield Boot(boot_timestamp_seconds=self.boot_s)
        kills = sum(1.0 for trouble in self._troubles.all("oom_kill") if trouble.from_s <= time_s)
        yield Load(load1=round(self._cpus.at(time_s), 2), oom_kills=kills)

    def _processes(self, time_s: float) -> Iterator[Reading]:
        hung = [t for kind in ("mount_hangs", "blocked") for t in self._troubles.all(kind) if t.on(time_s)]
        oldest_s = max((trouble.seconds(time_s) for trouble in hung), default=0.0)
        yield BlockedProcesses(processes=3.0 * len(hung), oldest_age_seconds=oldest_s)

    def _timesync(self, time_s: float) -> Iterator[Reading]:
        adrift = self._troubles.now("clock_unsynchronized", time_s)
        wander_s = 2e-5 * math.sin(time_s / 700.0 + self._node)
        drift_s = 0.0 if adrift is None else 2e-5 * adrift.seconds(time_s)
        yield ClockSync(synchronized=float(adrift is None), offset_seconds=wander_s + drift_s)

    def _maintenance(self, time_s: float) -> Iterator[Reading]:
        yield NodeMaintenance(maintenance=float(self._troubles.now("maintenance", time_s) is not None))

    def _kernel_log(self, time_s: float) -> Iterator[Reading]:
        yield KernelLog(records=float(math.floor((time_s - self._started_s) / 60.0)))
        for number, trouble in enumerate(self._troubles.all("sxid")):
            if trouble.from_s <= time_s:
                yield KernelSxid(
                    sequence=1_000 + number,
                    switch="nvswitch0",
                    pci="0000:c1:00",
                    sxid=int(trouble.amount),
                    fatal=trouble.item != "non_fatal",
                    detail="simulated",
                    wall_s=trouble.from_s,
                    monotonic_s=self._clock.monotonic_s() - (time_s - trouble.from_s),
                )

    def _agent(self, time_s: float) -> Iterator[Reading]:
        ran_s = max(0.0, time_s - self._started_s)
        yield AgentProcess(process="agent", cpu_seconds=round(0.009 * ran_s, 2), memory_bytes=58.0 * 2**20)
        yield AgentProcess(
            process="driver_host", cpu_seconds=round(0.012 * ran_s, 2), memory_bytes=31.0 * 2**20
        )
        yield HostPids(visible=1.0)

    # --- power ---------------------------------------------------------------------------------------

    def _socket_watts(self, time_s: float) -> float:
        return 95.0 + 1.9 * self._cpus.at(time_s)

    def _rapl(self, time_s: float) -> Iterator[Reading]:
        up_s = time_s - self.boot_s
        cpu_j = 95.0 * up_s + 1.9 * self._since_boot(self._cpus, time_s)
        dram_j = 22.0 * up_s + 0.2 * self._since_boot(self._cpus, time_s)
        for socket in range(SOCKETS):
            for zone, component, joules in (
                (f"package-{socket}", "cpu", cpu_j),
                (f"package-{socket}/dram", "dram", dram_j),
            ):
                counted = joules % RAPL_RANGE_JOULES
                yield EnergyZone(zone, component, round(counted, 6), range_joules=RAPL_RANGE_JOULES)

    def _bmc(self, time_s: float) -> Iterator[Reading]:
        """The whole node: GPUs, sockets with their memory, and fans, network cards and losses."""
        parts = self._gpu_watts() + SOCKETS * (self._socket_watts(time_s) + 25.0)
        yield BoardPower(
            sensor="ipmi", scope="platform", kind="average", power_watts=round(1.11 * parts + 380.0)
        )

    def _sensors(self, time_s: float) -> Iterator[Reading]:
        warm = self._cpus.at(time_s) / CPUS
        inlet = 22.0 + 1.5 * math.sin(2 * math.pi * (time_s % 86_400.0) / 86_400.0)
        yield Temperature(sensor="bmc/inlet", temperature_celsius=round(inlet, 1))
        for socket in range(SOCKETS):
            name = f"coretemp/package{socket}"
            yield Temperature(sensor=name, temperature_celsius=round(inlet + 18.0 + 40.0 * warm, 1))
