"""What attribution costs in a tick: CPU of this process, with so many jobs sharing eight GPUs.

    python -m benchmarks.attribution [--jobs 64] [--ticks 600]

Every GPU is time-sliced, each job has a process with a measured time on the SMs, a cgroup, carbon and prices.
A tick is all of `Accounting.take`; a commit is `take_batches`, each ten ticks. The design allows 5 ms a tick.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

from clusterwatt.attribution.accounting import Accounting
from clusterwatt.config.model import Config
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import GpuInfo, GpuIntegrals, GpuProcess
from clusterwatt.readings.gpu_measured import GpuActive, GpuActivity, GpuEnergy, GpuUp
from clusterwatt.readings.host import CpuTime, Memory, NodeEnergy
from clusterwatt.readings.work import (
    CarbonIntensity,
    Claim,
    ElectricityPrice,
    GpuPrice,
    Job,
    JobHostUse,
    JobMember,
    ProcessOwner,
    Scheduler,
)

GPUS = 8
NAME = "NVIDIA H100 80GB HBM3"
TICKS_PER_COMMIT = 10

Parts = dict[type[Reading], tuple[Any, ...]]


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-0000-0000-0000-000000000000"


def by_type(readings: Iterable[Reading]) -> Parts:
    parts: Parts = {}
    for reading in readings:
        parts[type(reading)] = (*parts.get(type(reading), ()), reading)
    return parts


def allocation(jobs: int) -> Parts:
    """What sources say: `jobs` pods, one on each GPU in turn."""
    said: list[Reading] = [Scheduler("kubernetes")]
    for number in range(jobs):
        job_id, pod, pid = f"k8s/{number:036}", f"pod/{number:036}", 10_000 + number
        device = uuid(number % GPUS)
        said += [
            Job(job_id, "kubernetes", "batch", account=f"team{number % 5}"),
            JobMember(pod, job_id),
            Claim(job_id, f"{device}::{number // GPUS}", "kubernetes", pod),
            ProcessOwner(pid, pod),
            GpuProcess(str(number % GPUS), device, pid, "compute", sm_ratio=0.1),
            JobHostUse(pod, 100.0, 1e9),
        ]
    return by_type(said)


def hardware(second: float) -> Parts:
    """What driver, meters and feeds say after so many seconds."""
    said: list[Reading] = [
        CarbonIntensity("table", "WORLD", "average", 473.0, None),
        ElectricityPrice("book", "", "EUR", 0.2),
        GpuPrice(NAME, "book", "EUR", 2.0),
        NodeEnergy("cpu", "counter", 300.0 * second),
        CpuTime("user", 50.0 * second),
        Memory(total_bytes=1e12, available_bytes=5e11),
    ]
    for number in range(GPUS):
        gpu, name = str(number), uuid(number)
        said += [
            GpuUp(gpu, name, 1.0),
            GpuInfo(gpu, name, NAME, "hopper", f"00000000:{number:02X}:00.0", gpu, "", "", "", "", "true"),
            GpuIntegrals(gpu, name, 0.0, second, energy_counter_joules=500.0 * second),
            GpuEnergy(gpu, name, "gpu", "counter", 500.0 * second),
            GpuActivity(gpu, name, 0.5 * second),
            GpuActive(gpu, name, tensor_active_seconds=0.2 * second),
        ]
    return by_type(said)


class Bench:
    """Attribution of a node with so many jobs."""

    def __init__(self, jobs: int) -> None:
        self._accounting = Accounting(Config(), "boot")
        self._said = allocation(jobs)
        self._second = 1.0
        self.tick()

    def tick(self) -> float:
        """CPU seconds of one tick, without the making of its readings."""
        self._second += 1.0
        parts = {**self._said, **hardware(self._second)}
        return cpu_s(
            lambda: list(
                self._accounting.take(
                    parts, {"kubernetes": True}, wall_s=1.7e9 + self._second, now_s=self._second, every_s=1.0
                )
            )
        )

    def commit(self) -> float:
        """CPU seconds of handing over what has gathered."""
        return cpu_s(lambda: self._accounting.take_batches(1.7e9 + self._second))


def cpu_s(call: Callable[[], object]) -> float:
    before = time.thread_time()
    call()
    return time.thread_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=64)
    parser.add_argument("--ticks", type=int, default=600)
    arguments = parser.parse_args()
    bench = Bench(arguments.jobs)
    ticks, commits = [], []
    for number in range(arguments.ticks):
        ticks.append(bench.tick())
        if number % TICKS_PER_COMMIT == 0:
            commits.append(bench.commit())
    for what, found in (("tick", ticks), ("commit", commits)):
        found.sort()
        print(
            f"{what}: median {statistics.median(found) * 1e3:.2f} ms, "
            f"99th percentile {found[int(len(found) * 0.99)] * 1e3:.2f} ms"
        )


if __name__ == "__main__":
    main()
