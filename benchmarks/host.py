"""What one pass of the disk and host collectors costs, in CPU of this process.

    python -m benchmarks.host [--passes 300]

On a tree of 16 disks with two partitions each, 20 mounts, 128 CPUs and 2000 processes. Files of a tree are
cheaper to read than the kernel's own; the last column is this machine's real `/`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from clusterwatt.clock import SystemClock
from clusterwatt.collectors import Collector
from clusterwatt.collectors.cpu import CpuCollector
from clusterwatt.collectors.disk import DiskCollector
from clusterwatt.collectors.filesystem import FilesystemCollector
from clusterwatt.collectors.host import HostCollector
from clusterwatt.collectors.memory import MemoryCollector
from clusterwatt.collectors.pressure import PressureCollector
from clusterwatt.collectors.processes import ProcessesCollector
from clusterwatt.config.model import DiskCollector as DiskSettings
from clusterwatt.config.model import FilesystemCollector as FilesystemSettings
from clusterwatt.sysfs import Files

DISKS, MOUNTS, CPUS, PROCESSES = 16, 20, 128, 2000
PROCESS_PASSES = 20

CLOCK = SystemClock()
MAKERS: dict[str, Callable[[Path], Collector]] = {
    "disk": lambda root: DiskCollector(Files(root, CLOCK), DiskSettings()),
    "filesystem": lambda root: FilesystemCollector(
        Files(root, CLOCK),
        FilesystemSettings(),
        CLOCK,
        own_mountinfo=Path("/proc/self/mountinfo") if root == Path("/") else None,
    ),
    "cpu": lambda root: CpuCollector(Files(root, CLOCK)),
    "memory": lambda root: MemoryCollector(Files(root, CLOCK)),
    "pressure": lambda root: PressureCollector(Files(root, CLOCK)),
    "host": lambda root: HostCollector(Files(root, CLOCK), CLOCK),
    "processes": lambda root: ProcessesCollector(Files(root, CLOCK), CLOCK),
}


def put(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def grow(root: Path) -> None:
    """Write the tree."""
    numbers = (
        "12345678 1234 987654321 3456789 2345678 1234 876543210 4567890 3 2345678 8024679 0 0 0 0 1234 567"
    )
    lines = []
    for disk in range(DISKS):
        name = f"nvme{disk}n1"
        put(root, f"sys/block/{name}/device/model", "SAMSUNG MZWLJ3T8HBLS-00007\n")
        lines += [
            f"259 {3 * disk + part} {name}{suffix} {numbers}" for part, suffix in enumerate(("", "p1", "p2"))
        ]
    put(root, "proc/diskstats", "\n".join(lines))
    mounts = [f"{40 + n} 28 259:{n} / /mnt/{n} rw,relatime shared:{n} - xfs /dev/x rw" for n in range(MOUNTS)]
    mounts += [f"{90 + n} 28 0:{90 + n} / /proc/x{n} rw - proc proc rw" for n in range(20)]
    put(root, "proc/1/mountinfo", "\n".join(mounts))
    for n in range(MOUNTS):
        (root / f"mnt/{n}").mkdir(parents=True)
    times = "812345678 12345 91234567 20312345678 1234567 0 812345 0 0 0"
    cpus = [f"cpu{n} {times}" for n in range(CPUS)]
    put(root, "proc/stat", "\n".join([f"cpu  {times}", *cpus, "intr " + "0 " * 4000, "btime 1719300000"]))
    put(
        root,
        "proc/meminfo",
        "".join(f"Field{n}:  {n * 1000:>10} kB\n" for n in range(48)) + "MemTotal: 5 kB\n",
    )
    put(root, "proc/vmstat", "".join(f"nr_field_{n} {n * 1000}\n" for n in range(180)) + "oom_kill 0\n")
    put(root, "proc/loadavg", "112.41 108.02 99.87 130/9123 287126\n")
    for resource in ("cpu", "memory", "io"):
        put(root, f"proc/pressure/{resource}", "some avg10=0.0 total=5\nfull avg10=0.0 total=5\n")
    for pid in range(1, PROCESSES + 1):
        state = "D" if pid % 500 == 0 else "S"
        put(root, f"proc/{pid}/stat", f"{pid} (python3) {state} 1 1 1 0 -1 4194560 " + "1 " * 43 + "\n")
        put(root, f"proc/{pid}/status", "Name:\tpython3\n" * 40 + "voluntary_ctxt_switches:\t9\n")


def median_cpu_ms(collector: Collector, passes: int) -> float:
    """Median over passes of the CPU time that all threads of this process spend on one."""
    list(collector.collect())
    spent = []
    for _ in range(passes):
        before = time.process_time_ns()
        list(collector.collect())
        spent.append(time.process_time_ns() - before)
    return statistics.median(spent) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", type=int, default=300)
    passes = parser.parse_args().passes
    with tempfile.TemporaryDirectory() as folder:
        grow(Path(folder))
        print(f"{'collector':<12}{'tree, ms':>10}{'here, ms':>10}")
        sums = [0.0, 0.0]
        for name, make in MAKERS.items():
            number = PROCESS_PASSES if name == "processes" else passes
            costs = [median_cpu_ms(make(root), number) for root in (Path(folder), Path("/"))]
            print(f"{name:<12}{costs[0]:>10.3f}{costs[1]:>10.3f}")
            if name != "processes":
                sums = [total + cost for total, cost in zip(sums, costs, strict=True)]
        print(f"{'together':<12}{sums[0]:>10.3f}{sums[1]:>10.3f}   without processes")


if __name__ == "__main__":
    main()
