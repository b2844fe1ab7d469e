"""The page in node_exporter's words: what it takes from our own readings, its limits, when it is there."""

from __future__ import annotations

import asyncio

from clusterwatt.expose.node_exporter import render
from clusterwatt.readings.agent import TextFamily, TextFile
from clusterwatt.readings.base import Reading
from clusterwatt.readings.node_exporter import MountSource, NodeFamily
from clusterwatt.readings.storage import Filesystem, FilesystemProbe
from tests.e2e.page import Page
from tests.expose.sites import OPENMETRICS, TEXT, running, snapshot

LOAD = NodeFamily("node_load1", "gauge", "From /proc/loadavg.", (), (((), 1.5),))
DISKS = NodeFamily(
    "node_disk_io_now", "gauge", "From /proc/diskstats.", ("device",), ((("sda",), 1.0), (('s"b',), 2.0))
)
MANY = 100


def page(*readings: Reading, max_series: int = MANY) -> Page:
    return Page(render(snapshot(1, *readings), max_series, openmetrics=False).body.decode())


def test_a_family_with_its_labels() -> None:
    found = page(LOAD, DISKS)
    assert found.value("node_load1") == 1.5
    assert found.by("device", "node_disk_io_now") == {"sda": 1.0, 's"b': 2.0}


def test_file_systems_come_with_their_device_and_those_that_hang_with_an_error() -> None:
    found = page(
        MountSource("/", "ext4", "/dev/sda1"),
        MountSource("/data", "nfs4", "nas:/data"),
        Filesystem("/", "ext4", size_bytes=10.0, available_bytes=5.0, free_bytes=6.0, readonly=0.0),
        FilesystemProbe("/", "ext4", 1.0, 0.1),
        FilesystemProbe("/data", "nfs4", 1.0, 9.0),
    )
    key = {"device": "/dev/sda1", "fstype": "ext4", "mountpoint": "/"}
    assert found.value("node_filesystem_avail_bytes", **key) == 5.0
    assert found.by("mountpoint", "node_filesystem_size_bytes") == {"/": 10.0}
    assert found.by("mountpoint", "node_filesystem_device_error") == {"/": 0.0, "/data": 1.0}
    assert "node_filesystem_files" not in found


def test_text_files_of_other_tools_pass_and_one_that_is_refused_shows() -> None:
    found = page(
        TextFamily("nccl_bytes_total", "counter", "Bytes.", ('nccl_bytes_total{rank="0"} 5',)),
        TextFile("a.prom", 1_700_000_000.0, errors=0.0),
        TextFile("b.prom", 1_700_000_001.0, errors=3.0, refused=1.0),
    )
    assert found.value("nccl_bytes_total", rank="0") == 5
    assert found.by("file", "node_textfile_mtime_seconds")["b.prom"] == 1_700_000_001
    assert found.value("node_textfile_scrape_error") == 1


def test_a_text_file_cannot_say_a_second_time_what_the_page_says() -> None:
    found = page(LOAD, TextFamily("node_load1", "gauge", "Mine.", ("node_load1 99",)))
    assert found.value("node_load1") == 1.5


def test_the_page_has_a_wall() -> None:
    rendered = render(snapshot(1, LOAD, DISKS), 2, openmetrics=False)
    assert rendered.series == 2  # the load and the time of the page
    assert rendered.dropped == {"node_family": 2}


def test_what_is_not_finite_has_no_series() -> None:
    assert "node_load1" not in page(NodeFamily("node_load1", "gauge", "x", (), (((), float("nan")),)))


def test_the_page_is_there_only_while_it_is_on_and_made_once_for_each_snapshot() -> None:
    async def ask() -> None:
        async with running() as site:
            site.site.publish(snapshot(1, LOAD))
            assert (await site.ask("/node/metrics")).status == 404
            site.site.use_node_exporter_names(MANY)
            answers = [await site.ask("/node/metrics") for _ in range(2)]
            assert [answer.status for answer in answers] == [200, 200]
            assert answers[0].body == answers[1].body
            assert b"node_load1 1.5\n" in answers[0].body
            assert answers[0].headers["Content-Type"] == TEXT
            accept = {"Accept": "application/openmetrics-text;version=1.0.0"}
            answer = await site.ask("/node/metrics", accept)
            assert answer.headers["Content-Type"] == OPENMETRICS
            assert answer.body.endswith(b"# EOF\n")
            site.site.use_node_exporter_names(None)
            assert (await site.ask("/node/metrics")).status == 404

    asyncio.run(ask())


def test_old_values_do_not_look_like_new_ones() -> None:
    async def ask() -> None:
        async with running() as site:
            site.site.use_node_exporter_names(MANY)
            assert (await site.ask("/node/metrics")).status == 503
            site.site.publish(snapshot(1, LOAD))
            site.told.alive = False
            assert (await site.ask("/node/metrics")).status == 503

    asyncio.run(ask())
