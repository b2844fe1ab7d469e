"""What one pass of the network and RDMA collectors costs, in CPU of this process.

    python -m benchmarks.net [--passes 500]

On a tree of 8 InfiniBand ports with the files of mlx5 and 10 interfaces, two of them in a bond. Files of a
tree are cheaper to read than those of a driver, which firmware answers. `listing` is the pass that finds out
anew what is there, each ten seconds.
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
from clusterwatt.collectors.ethernet import EthernetCollector
from clusterwatt.collectors.rdma import RdmaCollector
from clusterwatt.collectors.rdma_ports import CONGESTION, ERRORS
from clusterwatt.config.model import EthernetCollector as EthernetSettings
from clusterwatt.config.model import RdmaCollector as RdmaSettings
from clusterwatt.sysfs import LISTING_SECONDS, Files

PORTS, INTERFACES = 8, 10
BUDGET_MS = 2.0

HW_COUNTERS = (
    "packet_seq_err",
    "local_ack_timeout_err",
    "out_of_sequence",
    "rnr_nak_retry_err",
    "rx_icrc_encapsulated",
    "np_ecn_marked_roce_packets",
    "np_cnp_sent",
    "rp_cnp_handled",
)
TRAFFIC = ("port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets", "unicast_rcv_packets")
NEVER_READ = (
    "VL15_dropped",
    "port_rcv_constraint_errors",
    "multicast_rcv_packets",
    "req_cqe_error",
    "lifespan",
)


class SteppedClock(SystemClock):
    """The machine's clock, which can be set forward to let a listing grow old."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


def put(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def grow(root: Path) -> None:
    """Write the tree."""
    linked = {names[0] for names in (*ERRORS.values(), *CONGESTION.values())} - set(HW_COUNTERS)
    for number in range(PORTS):
        device = f"sys/class/infiniband/mlx5_{number}"
        put(root, f"{device}/fw_ver", "28.41.1000")
        for name, text in (
            ("state", "4: ACTIVE"),
            ("rate", "400 Gb/sec (4X NDR)"),
            ("link_layer", "InfiniBand"),
        ):
            put(root, f"{device}/ports/1/{name}", text)
        for name in (*TRAFFIC, *linked, "link_downed"):
            put(root, f"{device}/ports/1/counters/{name}", "205128687774249")
        for name in (*HW_COUNTERS, *NEVER_READ):
            put(root, f"{device}/ports/1/hw_counters/{name}", "4294967")
    lines = ["Inter-|   Receive", " face |bytes"]
    for number in range(INTERFACES):
        base = f"sys/class/net/eth{number}"
        for name, text in (("type", "1"), ("operstate", "up"), ("carrier_changes", "3"), ("speed", "100000")):
            put(root, f"{base}/{name}", text)
        put(root, f"{base}/device/vendor", "0x15b3")
        put(root, f"{base}/bonding_slave/mii_status", "up")
        for way in ("rx", "tx"):
            for what in ("bytes", "packets", "errors", "dropped"):
                put(root, f"{base}/statistics/{way}_{what}", "1234567890123")
        lines.append(
            f"  eth{number}: 1234567890123 1234567890 0 12 0 0 0 99 1234567890123 1234567890 0 3 0 0 0 0"
        )
    put(root, "sys/class/net/eth0/bonding/slaves", "eth1 eth2")
    put(root, "proc/1/net/dev", "\n".join(lines))


def cost_ms(call: Callable[[], object], passes: int) -> tuple[float, float]:
    """Median of the wall clock and mean CPU of one pass, in milliseconds."""
    taken = []
    cpu_s = time.process_time()
    for _ in range(passes):
        started_s = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started_s)
    return statistics.median(taken) * 1e3, (time.process_time() - cpu_s) / passes * 1e3


def measure(name: str, collector: Collector, clock: SteppedClock, passes: int) -> float:
    """Print one line; returns the median of a usual pass."""
    readings = list(collector.collect())
    usual, cpu = cost_ms(lambda: list(collector.collect()), passes)

    def listing() -> None:
        clock.ahead_s += 2 * LISTING_SECONDS
        list(collector.collect())

    anew, _ = cost_ms(listing, max(1, passes // 10))
    print(f"{name:<28}{usual:9.3f}{cpu:9.3f}{anew:9.3f}{len(readings):10d}")
    return usual


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--passes", type=int, default=500)
    passes = parser.parse_args().passes
    print(f"{'':<28}{'median':>9}{'cpu':>9}{'listing':>9}{'readings':>10}   (ms)")
    clock = SteppedClock()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        grow(root)
        rdma = RdmaCollector(Files(root, clock), RdmaSettings(), clock)
        ethernet = EthernetCollector(Files(root, clock), EthernetSettings(), clock)
        together = measure(f"rdma, {PORTS} ports", rdma, clock, passes)
        together += measure(f"ethernet, {INTERFACES} interfaces", ethernet, clock, passes)
        (root / "proc/1/net/dev").unlink()
        by_file = EthernetCollector(Files(root, clock), EthernetSettings(), clock)
        measure("  the same by single files", by_file, clock, passes)
    real = EthernetCollector(Files("/", clock), EthernetSettings(), clock)
    measure("ethernet, this machine", real, clock, passes)
    print(f"{'together':<28}{together:9.3f}   budget {BUDGET_MS}")


if __name__ == "__main__":
    main()
