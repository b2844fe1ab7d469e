"""/node/metrics against Debian's node_exporter: on this machine, and on trees that both read.

For each family that both have, the same series and values; docs/NODE_EXPORTER.md names what may differ.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from clusterwatt.expose.node_exporter import render
from clusterwatt.readings.base import Failure, by_type
from tests.differences import Differences
from tests.e2e.page import Page
from tests.e2e.servers import Server, agent, node_exporter, until
from tests.expose.sites import snapshot
from tests.machines import ROOTS, capture
from tests.nodes import in_their_words

pytestmark = pytest.mark.e2e

TICKS = 4  # of a second: within them everything but the slow sensors has been read anew
TICK_S = 5.0
ROUNDS = 3

# The defaults of the project, where Debian has others.
LEFT_OUT = r"^/(dev|proc|run/credentials/.+|sys|var/lib/docker/.+|var/lib/containers/storage/.+)($|/)"
DEFAULTS = (
    "--collector.netdev.device-exclude=",
    r"--collector.diskstats.device-exclude=^(z?ram|loop|fd|(h|s|v|xv)d[a-z]|nvme\d+n\d+p)\d+$",
    f"--collector.filesystem.mount-points-exclude={LEFT_OUT}",
    "--collector.mountstats",
    "--log.level=error",
)
# What moves within a tick and need not come back to where it was: only its series are compared.
MOVING = re.compile(
    r"node_(procs_|filefd_|memory_|load|disk_io_now|timex_(offset|frequency|maxerror|estimated|loop)|time_seconds|nf_conntrack_entries$|"
    r"filesystem_(avail_bytes|free_bytes|files_free)|hwmon_|thermal_|sockstat_|netstat_Tcp_CurrEstab|entropy_)"
)
COUNTS = re.compile(r".*_total|node_(vmstat|netstat)_.*")
SHARED_LIVE = ("node_cpu_", "node_memory_", "node_disk_", "node_network_", "node_timex_", "node_filesystem_")

Series = Mapping[frozenset[tuple[str, str]], float]

CAPTURES = {  # procfs, folders that make up its process 1, sysfs
    "node-exporter": ("node-exporter", ("1", "10"), "node-exporter"),
    "procfs-lib": ("procfs-lib", ("26231",), "procfs-lib"),
    "h100": ("node-exporter", ("1",), "gpud-h100"),
    "nvme": ("node-exporter", ("1",), "node-exporter-nvme"),
}


def test_every_family_of_this_machine(node_exporter_program: Path, tmp_path: Path) -> None:
    settings = (
        "expose.node_exporter_names=true",
        "collectors.filesystem.every_seconds=1",
        "collectors.gpu.enabled=false",
    )
    differences = Differences()
    with (
        agent(tmp_path, *(word for setting in settings for word in ("--set", setting))) as ours,
        node_exporter(node_exporter_program, tmp_path, *DEFAULTS) as theirs,
    ):
        for _ in range(ROUNDS):
            before = theirs.page()
            wait_for_ticks(ours, TICKS)
            between, after = Page(ours.get("/node/metrics")), theirs.page()
            shared = between.names() & before.names() & after.names()
            assert all(any(name.startswith(start) for name in shared) for start in SHARED_LIVE)
            found = [
                line
                for name in sorted(shared)
                for line in compare_live(name, before, between, after, differences)
            ]
            assert found == []


def wait_for_ticks(server: Server, ticks: int) -> None:
    for _ in range(ticks):
        seen = server.page().cpu_seconds()
        until(lambda seen=seen: server.page().cpu_seconds() != seen, TICK_S, "another tick")  # type: ignore[misc]


def compare_live(
    name: str, before: Page, between: Page, after: Page, differences: Differences
) -> Iterator[str]:
    """Counters lie between two readings of theirs; what stood still for them is equal."""
    first, ours, last = (series(page, name, differences) for page in (before, between, after))
    yield from missing(name, {key: first[key] for key in first.keys() & last.keys()}, ours, differences)
    if MOVING.match(name):
        return
    for key in first.keys() & ours.keys() & last.keys():
        if COUNTS.fullmatch(name):
            good = first[key] * (1 - 1e-9) <= ours[key] <= last[key] * (1 + 1e-9)
        else:
            good = first[key] != last[key] or equal(first[key], ours[key])
        if not good and not differences.allow(name, "value"):
            yield f"{name}{dict(key)}: {ours[key]} here, {first[key]} to {last[key]} there"


@pytest.mark.parametrize("machine", [path.name for path in sorted(ROOTS.iterdir())])
def test_every_family_of_a_tree_of_ours(machine: str, node_exporter_program: Path, tmp_path: Path) -> None:
    proc = ROOTS / machine / "proc"
    compare_tree(tree(tmp_path, proc, (proc / "1",), ROOTS / machine / "sys"), node_exporter_program)


@pytest.mark.parametrize("machine", CAPTURES)
def test_every_family_of_a_captured_machine(
    machine: str, node_exporter_program: Path, tmp_path: Path
) -> None:
    procfs, processes, sysfs = CAPTURES[machine]
    proc = capture(f"procfs/{procfs}")
    first = tuple(proc / process for process in processes)
    compare_tree(tree(tmp_path, proc, first, capture(f"sysfs/{sysfs}")), node_exporter_program)


def compare_tree(root: Path, program: Path) -> None:
    differences = Differences()
    paths = (f"--path.procfs={root}/proc", f"--path.sysfs={root}/sys", f"--path.rootfs={root}")
    # By netlink it would read this machine; there is no udev in a tree.
    others = ("--no-collector.netdev.netlink", f"--path.udev.data={root}/run/udev/data")
    with node_exporter(program, root, *DEFAULTS, *paths, *others) as server:
        theirs = Page(server.get("/metrics").replace(f'"{root}/', '"/'))
    parts = by_type(reading for reading in in_their_words(root) if not isinstance(reading, Failure))
    readings = (reading for part in parts.values() for reading in part)
    ours = Page(render(snapshot(1, *readings), 100_000, openmetrics=False).body.decode())
    shared = sorted(theirs.names() & ours.names())
    assert len(shared) > 25
    found = [line for name in shared for line in compare(name, theirs, ours, differences)]
    assert found == []


def compare(name: str, theirs: Page, ours: Page, differences: Differences) -> Iterator[str]:
    there, here = series(theirs, name, differences), series(ours, name, differences)
    yield from missing(name, there, here, differences)
    if MOVING.match(name) and name.startswith("node_timex_"):  # this machine's, in a tree too
        return
    for key in there.keys() & here.keys():
        if not equal(there[key], here[key]) and not differences.allow(name, "value"):
            yield f"{name}{dict(key)}: {here[key]} here, {there[key]} there"


def missing(name: str, there: Series, here: Series, differences: Differences) -> Iterator[str]:
    for kind, keys in (("not here", there.keys() - here.keys()), ("only here", here.keys() - there.keys())):
        if keys and not differences.allow(name, kind):
            yield f"{name}: {kind}: {[dict(key) for key in keys]}"


def series(page: Page, name: str, differences: Differences) -> Series:
    """Values by labels, without those that are known to differ."""
    left_out = differences.labels(name)
    return {
        frozenset(pair for pair in labels.items() if pair[0] not in left_out): value
        for labels, value in page.series(name)
    }


def equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9)


def tree(folder: Path, proc: Path, first: tuple[Path, ...], sysfs: Path) -> Path:
    """A root in which both find what they need: process 1 is `self`, and links that captures have lost."""
    root = folder / "root"
    (root / "proc/1").mkdir(parents=True)
    for entry in proc.iterdir():
        if entry.name not in ("1", "self", "net"):
            (root / "proc" / entry.name).symlink_to(entry)
    for entry in (entry for process in first if process.exists() for entry in process.iterdir()):
        link = root / "proc/1" / entry.name
        if not link.is_symlink():
            link.symlink_to(entry)
    if (proc / "net").exists() and not (root / "proc/1/net").is_symlink():
        (root / "proc/1/net").symlink_to(proc / "net")
    (root / "proc/self").symlink_to("1")
    (root / "proc/net").symlink_to("1/net")
    shutil.copytree(sysfs, root / "sys", symlinks=True)
    complete(root / "sys")
    return root


def complete(sysfs: Path) -> None:
    """node_exporter leaves out all RDMA devices, or all memory controllers, when one lacks a file."""
    for device in (sysfs / "class/infiniband").glob("*"):
        write_if_missing(device, board_id="NONE", fw_ver="1.0")
        for port in (device / "ports").glob("*"):
            (port / "counters").mkdir(exist_ok=True)
            write_if_missing(port, state="1: DOWN", phys_state="3: Disabled", rate="10 Gb/sec (4X)")
            write_if_missing(port, link_layer="InfiniBand")
    for controller in (sysfs / "devices/system/edac/mc").glob("mc[0-9]*"):
        write_if_missing(controller, ce_count="0", ue_count="0", ce_noinfo_count="0", ue_noinfo_count="0")
        for row in controller.glob("csrow*"):
            write_if_missing(row, ce_count="0", ue_count="0")
    for chip in (sysfs / "class/hwmon").glob("*"):  # without a device, chips of one name are the same chip
        if not (chip / "device").exists():
            device = sysfs / "devices/made" / chip.name
            device.mkdir(parents=True)
            (chip / "device").symlink_to(device)


def write_if_missing(folder: Path, **files: str) -> None:
    for name, text in files.items():
        if not (folder / name).exists():
            (folder / name).write_text(f"{text}\n")
