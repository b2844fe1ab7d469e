"""The agent beside Debian's node_exporter: both read the same kernel, so they must say the same."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e import load
from tests.e2e.page import Page
from tests.e2e.servers import Server, agent, node_exporter, prometheus, query, until

pytestmark = pytest.mark.e2e

TICK_S = 5.0  # within which the agent has certainly read anew
REST_WITHIN_S = 60.0
ROUNDS = 3
WINDOW_S = 90
ON_DISK = Path(__file__).resolve().parents[2] / ".cache" / "blocks"  # /tmp may be in memory

COUNTERS = {  # ours: theirs, both by device
    "clusterwatt_network_receive_bytes_total": "node_network_receive_bytes_total",
    "clusterwatt_network_transmit_bytes_total": "node_network_transmit_bytes_total",
    "clusterwatt_disk_read_bytes_total": "node_disk_read_bytes_total",
    "clusterwatt_disk_written_bytes_total": "node_disk_written_bytes_total",
}
SPACE = {  # ours: theirs, both by mount point
    "clusterwatt_filesystem_size_bytes": "node_filesystem_size_bytes",
    "clusterwatt_filesystem_available_bytes": "node_filesystem_avail_bytes",
    "clusterwatt_filesystem_files": "node_filesystem_files",
    "clusterwatt_filesystem_readonly": "node_filesystem_readonly",
}
MEMORY = {
    "clusterwatt_memory_total_bytes": "node_memory_MemTotal_bytes",
    "clusterwatt_memory_available_bytes": "node_memory_MemAvailable_bytes",
    "clusterwatt_memory_free_bytes": "node_memory_MemFree_bytes",
    "clusterwatt_memory_swap_total_bytes": "node_memory_SwapTotal_bytes",
}


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, node_exporter_program: Path
) -> Iterator[tuple[Server, Server]]:
    """The agent, with every series and all sources read each second, and node_exporter."""
    folder = tmp_path_factory.mktemp("pair")
    settings = ("limits.profile=full", "collectors.filesystem.every_seconds=1")
    arguments = [word for setting in settings for word in ("--set", setting)]
    with (
        agent(folder, "--simulate", "h100", *arguments) as ours,
        node_exporter(node_exporter_program, folder) as theirs,
    ):
        yield ours, theirs


def read_between(ours: Server, theirs: Server) -> tuple[Page, Page, Page]:
    """Their page, then one of ours that was read after it, then theirs again."""
    before = theirs.page()
    for _ in range(2):  # the first tick that is seen to end may have begun before theirs was read
        seen = ours.page().cpu_seconds()
        until(lambda seen=seen: ours.page().cpu_seconds() != seen, TICK_S, "another tick")  # type: ignore[misc]
    return before, ours.page(), theirs.page()


def shared_devices(ours: Page, theirs: Page, name: str) -> set[str]:
    return set(ours.by("device", name)) & set(theirs.by("device", COUNTERS[name]))


def counters(pages: tuple[Page, Page, Page]) -> Iterator[tuple[str, str, float, float, float]]:
    """Name, device, their value before, ours between, theirs after."""
    before, between, after = pages
    for ours, theirs in COUNTERS.items():
        for device in shared_devices(between, before, ours):
            yield (
                ours,
                device,
                before.by("device", theirs)[device],
                between.by("device", ours)[device],
                after.by("device", theirs)[device],
            )


def test_counters_lie_between_two_readings_of_node_exporter(pair: tuple[Server, Server]) -> None:
    seen = set()
    for _ in range(ROUNDS):
        for name, device, before, value, after in counters(read_between(*pair)):
            assert before <= value <= after, f"{name}{{device={device}}}"
            seen.add(name)
    assert seen == set(COUNTERS)


def test_counters_are_equal_when_traffic_rests(pair: tuple[Server, Server]) -> None:
    rested: set[str] = set()

    def network_and_disk_rested() -> bool:
        for name, device, before, value, after in counters(read_between(*pair)):
            if before == after and before > 0:
                assert value == before, f"{name}{{device={device}}}"
                rested.add(name.split("_")[1])
        return rested == {"network", "disk"}

    until(network_and_disk_rested, REST_WITHIN_S, "a counter of network and one of disks stood still")


def test_file_systems_and_memory_agree(pair: tuple[Server, Server]) -> None:
    before, between, after = read_between(*pair)
    compared = set()
    for ours, theirs in SPACE.items():
        for mountpoint, value in between.by("mountpoint", ours).items():
            ends = [page.by("mountpoint", theirs).get(mountpoint) for page in (before, after)]
            if ends[0] is not None and ends[0] == ends[1]:
                assert value == ends[0], f"{ours}{{mountpoint={mountpoint}}}"
                compared.add(ours)
    assert "clusterwatt_filesystem_size_bytes" in compared
    for ours, theirs in MEMORY.items():
        assert between.value(ours) == pytest.approx(after.value(theirs), rel=0.02), ours
    assert between.value("clusterwatt_memory_total_bytes") == before.value("node_memory_MemTotal_bytes")


@pytest.fixture
def cable(ip_program: Path) -> Iterator[tuple[str, str]]:
    """Two network interfaces of this machine that nobody else uses."""
    with contextlib.ExitStack() as stack:
        try:
            ends = stack.enter_context(load.virtual_cable(ip_program))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"root is needed to make network interfaces: {error.stderr.decode().strip()}")
        yield ends


@pytest.mark.full
def test_rates_agree_over_a_minute_and_more(
    cable: tuple[str, str], tmp_path: Path, node_exporter_program: Path, prometheus_program: Path
) -> None:
    sender, receiver = cable
    profile = ("--set", "limits.profile=full")
    with (
        agent(tmp_path, "--simulate", "h100", *profile) as ours,
        node_exporter(node_exporter_program, tmp_path) as theirs,
    ):
        with (
            load.frames(sender),
            load.blocks(ON_DISK),
            prometheus(prometheus_program, tmp_path, {"ours": ours.url, "theirs": theirs.url}, 1) as store,
        ):
            until(
                lambda: query(store, f"min(count_over_time(up[{WINDOW_S}s])) >= {WINDOW_S - 2}"),
                WINDOW_S + 30,
                f"{WINDOW_S} s of scrapes",
            )
            assert query(store, f"min(min_over_time(up[{WINDOW_S}s]))") == {"": 1.0}, "a scrape failed"
            disk = busiest_disk(store)
            for device, name in (
                (sender, "network_transmit_bytes_total"),
                (receiver, "network_receive_bytes_total"),
                (disk, "disk_written_bytes_total"),
                (disk, "disk_read_bytes_total"),
            ):
                until(
                    partial(rates_agree, store, name, device),
                    REST_WITHIN_S,
                    f"both say the same of {name}{{device={device}}}",
                )
        until(lambda: cable_rests_and_agrees(cable, ours, theirs), REST_WITHIN_S, "the cable is at rest")


def rates_agree(store: Server, name: str, device: str) -> bool:
    """Whether both rates of a counter are alike now.

    A burst that one was scraped before and the other after is in one window only, for some seconds.
    """
    selector = f'{{__name__=~".*_{name}", device="{device}"}}'
    rates = query(store, f"rate({selector}[{WINDOW_S}s])", by="job")
    assert set(rates) == {"ours", "theirs"}, name
    assert rates["theirs"] > 100_000, f"{name}{{device={device}}}: the load was not seen"
    return rates["ours"] == pytest.approx(rates["theirs"], rel=0.02)


def cable_rests_and_agrees(cable: tuple[str, str], ours: Server, theirs: Server) -> bool:
    """Whether the counters of both ends stand still; fails when ours then differ from theirs."""
    found = [row for row in counters(read_between(ours, theirs)) if row[1] in cable]
    assert len(found) == 4, "two ends, two directions"
    if any(before != after for _, _, before, _, after in found):
        return False
    for name, device, before, value, _ in found:
        assert value == before, f"{name}{{device={device}}}"
    return True


def busiest_disk(store: Server) -> str:
    """The disk that the load goes to, by node_exporter's account."""
    (disk,) = query(store, f"topk(1, rate(node_disk_written_bytes_total[{WINDOW_S}s]))", by="device")
    return disk
