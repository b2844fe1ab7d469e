"""Time to render a page of 1 900 and of 3 000 series: ours, and prometheus_client's encoders.

    python -m benchmarks.render [pages]

Every page is of a new snapshot whose values all changed, as in the worst tick.
"""

from __future__ import annotations

import random
import statistics
import sys
import time

from tests.expose.reference import ReferenceRenderer

from clusterwatt.catalog import STANDARD, Metric, Table
from clusterwatt.expose.render import Renderer
from clusterwatt.readings.gpu import GpuInfo, GpuMemory
from clusterwatt.readings.network import Network, RdmaError
from clusterwatt.readings.snapshot import Snapshot

GPU_LABELS = ("gpu", "uuid")
LIMIT = 100_000

MEMORY = Table(GpuMemory, GPU_LABELS)
INFO = Table(GpuInfo, (*GPU_LABELS, "name", "architecture", "pci_bus_id", "minor", "serial", "vbios"))
ERRORS = Table(RdmaError, ("device", "port", "error"))
NETWORK = Table(Network, ("device",))


def catalog(families: int) -> tuple[Metric, ...]:
    """Families of the shape that a GPU node has: most of them by GPU, the rest by port and interface."""
    gpu = [
        MEMORY.gauge(f"gpu_quantity_{number}_bytes", "Memory in use.", field, STANDARD)
        for number in range(families)
        for field in ("total_bytes", "used_bytes", "free_bytes", "reserved_bytes")[
            number % 4 : number % 4 + 1
        ]
    ]
    network = [
        NETWORK.counter(f"network_{field}_{number}_total", "Counted by the kernel.", field)
        for number in range(families // 20)
        for field in ("receive_bytes", "transmit_bytes", "receive_packets", "transmit_packets")
    ]
    return (
        INFO.info("gpu_info", "Identity of a GPU."),
        *gpu,
        ERRORS.counter("rdma_errors_total", "Errors of a port.", "errors"),
        *network,
    )


def snapshot(tick: int, rng: random.Random) -> Snapshot:
    """Eight GPUs, ten ports, four interfaces, with values of all lengths."""
    uuids = [f"GPU-{number:08x}-1111-2222-3333-444444444444" for number in range(8)]
    sizes = [rng.choice([rng.random(), rng.random() * 1e12, float(rng.randrange(10**10))]) for _ in range(64)]
    return Snapshot(
        tick,
        0.0,
        0.0,
        {
            GpuInfo: tuple(
                GpuInfo(
                    str(n),
                    uuid,
                    "NVIDIA H100 80GB HBM3",
                    "hopper",
                    f"0000:{n}:00.0",
                    str(n),
                    "16",
                    "96",
                    "",
                    "",
                    "false",
                )
                for n, uuid in enumerate(uuids)
            ),
            GpuMemory: tuple(
                GpuMemory(str(n), uuid, *sizes[4 * n : 4 * n + 4]) for n, uuid in enumerate(uuids)
            ),
            RdmaError: tuple(
                RdmaError(f"mlx5_{port}", "1", error, float(rng.randrange(1000)))
                for port in range(10)
                for error in (
                    "symbol",
                    "local_link_integrity",
                    "buffer_overrun",
                    "transmit_discard",
                    "timeout",
                )
            ),
            Network: tuple(
                Network(f"eth{n}", "physical", *(float(rng.randrange(10**13)) for _ in range(4)))
                for n in range(4)
            ),
        },
    )


def measure(name: str, renderer: Renderer | ReferenceRenderer, pages: int) -> float:
    """Print median and 99th percentile; return the median of CPU time, which busy neighbours leave alone."""
    rng = random.Random(1)
    clock_ms, cpu_ms = [], []
    for tick in range(pages):
        page = snapshot(tick, rng)
        started, cpu_started = time.perf_counter(), time.process_time()
        renderer.render(page, openmetrics=False)
        clock_ms.append((time.perf_counter() - started) * 1e3)
        cpu_ms.append((time.process_time() - cpu_started) * 1e3)
    text = f"  {name:18}"
    for kind, ms in (("", sorted(clock_ms)), ("CPU ", sorted(cpu_ms))):
        text += f"  {kind}median {statistics.median(ms):5.2f} ms, p99 {ms[int(pages * 0.99)]:5.2f} ms"
    print(text)
    return statistics.median(cpu_ms)


def main() -> None:
    """Measure both renderers with both sizes."""
    pages = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    for families in (208, 335):
        metrics = catalog(families)
        ours, reference = Renderer(metrics, "full", {}, LIMIT), ReferenceRenderer(metrics, "full", {})
        page = ours.render(snapshot(0, random.Random(1)), openmetrics=False)
        print(f"{page.series} series, {len(page.body)} bytes, {pages} pages")
        theirs_ms = measure("prometheus_client", reference, pages)
        print(f"  {theirs_ms / measure('clusterwatt', ours, pages):.1f} times as fast")


if __name__ == "__main__":
    main()
