"""The flight recorder: bounded in memory and on disk, frozen when something breaks, readable afterwards."""

from __future__ import annotations

import os
import statistics
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterwatt.config.model import Recorder as Settings
from clusterwatt.flight import bundle, table
from clusterwatt.flight.recorder import Recorder
from clusterwatt.flight.replay import FlightCollector
from clusterwatt.flight.ring import Ring
from clusterwatt.readings.agent import CollectorState
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import GpuInfo, GpuPower, GpuProcess, GpuUse
from clusterwatt.readings.gpu_measured import DriverDown, GpuDown, GpuUp, HardwareEvent
from clusterwatt.readings.host import CpuCount
from clusterwatt.readings.network import RdmaPort
from clusterwatt.readings.snapshot import Snapshot
from tests.clocks import FakeClock

NOW_S = 1_700_001_000.0
GPUS = [(str(index), f"GPU-{index}") for index in range(8)]


def snapshot(clock: FakeClock, *more: Reading, watts: float = 650.0) -> Snapshot:
    readings: list[Reading] = [*more]
    for gpu, uuid in GPUS:
        readings += [
            GpuUp(gpu, uuid, 1.0),
            GpuUse(gpu, uuid, 0.97, 0.4),
            GpuPower(gpu, uuid, "gpu", "average", watts),
            RdmaPort(f"mlx5_{gpu}", "1", receive_bytes=clock.wall_s() * 1e9),
        ]
    kinds = {type(reading) for reading in readings}
    return Snapshot(
        tick=1,
        wall_s=clock.wall_s(),
        monotonic_s=clock.monotonic_s(),
        readings={kind: tuple(r for r in readings if type(r) is kind) for kind in kinds},
    )


class Bench:
    def __init__(self, directory: Path) -> None:
        self.clock = FakeClock()
        self.directory = directory
        self.recorder = Recorder(Settings(directory=str(directory)), "node-1", self.clock)

    def fly(self, seconds: int, *more: Reading) -> None:
        for _ in range(seconds):
            self.recorder.add(snapshot(self.clock, *more))
            self.clock.advance(1.0)

    def bundles(self) -> list[Path]:
        """The files, once the writer has nothing left to do."""
        self.recorder._writer.stop()
        self.recorder._writer._thread.join(10)
        return sorted(self.directory.glob("*.zip"))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "flight")
    yield bench
    bench.recorder.close()


def test_no_process_is_recorded() -> None:
    clock, ring = FakeClock(), Ring(900.0)
    for _ in range(30):
        ring.add(snapshot(clock, GpuProcess("0", "GPU-0", 31337, "compute", 1.0), GpuInfo(*["?"] * 11)))
        clock.advance(1.0)
    kinds = {type(r) for chunk in ring.frozen() for moment in bundle._moments(chunk) for r in moment.readings}
    assert GpuInfo in kinds
    assert GpuProcess not in kinds


def test_the_ring_holds_the_newest_quarter_of_an_hour_in_a_few_megabytes() -> None:
    clock, ring = FakeClock(), Ring(900.0)
    for _ in range(2_000):
        ring.add(snapshot(clock))
        clock.advance(1.0)
    moments = [moment for chunk in ring.frozen() for moment in bundle._moments(chunk)]
    assert 900 <= len(moments) <= 962
    assert moments[-1].monotonic_s == clock.monotonic_s() - 1.0
    assert sum(map(len, ring.frozen())) < 4 << 20


def test_no_tick_compresses_a_whole_minute() -> None:
    """It would hold up the page: a tick that ends a chunk costs some ten times, not sixty times, as much."""
    clock, ring = FakeClock(), Ring(900.0)
    ports = [RdmaPort(f"mlx5_{number}", "1", receive_bytes=number * 1e9) for number in range(200)]
    usual_s: list[float] = []
    ending_s: list[float] = []
    for _ in range(1_000):
        taken, chunks = snapshot(clock, *ports), len(ring._chunks)
        began_s = time.thread_time()
        ring.add(taken)
        (usual_s if len(ring._chunks) == chunks else ending_s).append(time.thread_time() - began_s)
        clock.advance(1.0)
    assert len(ending_s) > 10
    assert statistics.median(ending_s) < 25 * statistics.median(usual_s)


def test_the_ring_is_bounded_in_bytes_too() -> None:
    clock, ring = FakeClock(), Ring(86_400.0, max_bytes=20_000)
    for _ in range(1_000):
        ring.add(snapshot(clock))
        clock.advance(1.0)
    assert ring._bytes <= 20_000


def test_a_lost_gpu_freezes_the_minutes_before_and_the_seconds_after(bench: Bench) -> None:
    bench.fly(100)
    bench.fly(20, GpuDown("3", "GPU-3", "lost"))
    (path,) = bench.bundles()
    assert path.name.endswith("-gpu-3-lost.flight.zip")
    assert path.stat().st_mode & 0o777 == 0o600
    manifest, moments = bundle.read(path)
    assert (manifest.node, manifest.reason) == ("node-1", "gpu 3 lost")
    assert len(moments) == 111
    assert [any(isinstance(r, GpuDown) for r in m.readings) for m in moments].count(True) == 11
    assert sum(isinstance(r, GpuPower) for r in moments[0].readings) == 8
    assert sum(isinstance(r, RdmaPort) for r in moments[0].readings) == 8


def test_what_is_not_of_gpus_or_ports_is_not_recorded(bench: Bench) -> None:
    bench.fly(5, CpuCount(2.0))
    bench.recorder.freeze("by command")
    bench.fly(15)
    _, moments = bundle.read(bench.bundles()[0])
    assert not [r for m in moments for r in m.readings if isinstance(r, CpuCount)]


def test_causes_that_come_together_share_a_bundle_and_one_that_lasts_makes_no_second(bench: Bench) -> None:
    bench.fly(10)
    bench.fly(3, GpuDown("3", "GPU-3", "lost"))
    bench.fly(200, GpuDown("3", "GPU-3", "lost"), GpuDown("4", "GPU-4", "lost"))
    bench.fly(2)
    bench.fly(50, GpuDown("3", "GPU-3", "lost"))  # it flaps
    (path,) = bench.bundles()
    assert bundle.read(path)[0].reason == "gpu 3 lost, gpu 4 lost"


@pytest.mark.parametrize("reason", ["permission", "unknown"])
def test_what_tells_of_no_fault_of_the_gpu_is_no_cause(bench: Bench, reason: str) -> None:
    bench.fly(20)
    bench.fly(20, *(GpuDown(gpu, uuid, reason) for gpu, uuid in GPUS))
    assert bench.bundles() == []


def test_a_driver_that_was_let_go_on_purpose_deletes_no_bundle_of_a_fault(bench: Bench) -> None:
    """A GPU of a driver that is taken up again may be late; only what breaks afterwards is a fault."""
    bench.fly(20)
    bench.fly(20, DriverDown("released"), *(GpuDown(gpu, uuid, "timeout") for gpu, uuid in GPUS))
    bench.fly(20)
    bench.fly(20, GpuDown("3", "GPU-3", "lost"))
    (path,) = bench.bundles()
    assert bundle.read(path)[0].reason == "gpu 3 lost"


def test_what_was_down_when_the_agent_started_is_no_news(bench: Bench) -> None:
    bench.fly(60, GpuDown("3", "GPU-3", "lost"))
    assert bench.bundles() == []


@pytest.mark.parametrize(
    ("xid_class", "echo", "kept"),
    [("hardware", False, 1), ("driver", False, 1), ("application", False, 0), ("hardware", True, 0)],
)
def test_an_xid_of_driver_or_hardware_is_a_cause(bench: Bench, xid_class: str, echo: bool, kept: int) -> None:
    event = HardwareEvent(
        kind="xid",
        code=79,
        name="fell-off-the-bus",
        xid_class=xid_class,
        severity="critical",
        action="reset_gpu",
        text="",
        gpu="3",
        uuid="GPU-3",
        pci="0000:18:00",
        instance="",
        switch="",
        fatality="",
        detail="",
        echo=echo,
        wall_s=bench.clock.wall_s(),
        monotonic_s=bench.clock.monotonic_s(),
    )
    bench.fly(10)
    bench.recorder.event(event)
    bench.fly(20)
    assert [bundle.read(path)[0].reason for path in bench.bundles()] == ["xid 79 on 3"] * kept


def test_a_hang_is_a_cause(bench: Bench) -> None:
    bench.fly(10)
    bench.fly(20, CollectorState("gpu", 0.0, 40.0, 31.0))
    assert [bundle.read(path)[0].reason for path in bench.bundles()] == ["gpu stuck"]


def test_the_number_of_bundles_and_their_size_are_bounded(tmp_path: Path) -> None:
    for number in range(6):
        manifest = bundle.Manifest(node="n", reason="test", frozen_s=1_700_000_000.0 + 60 * number)
        bundle.write(tmp_path, manifest, [b"x" * 1000])
        bundle.keep_newest(tmp_path, 3, 1 << 20, NOW_S)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == [f"20231114T22{minute:02}20Z-test.flight.zip" for minute in (16, 17, 18)]
    bundle.keep_newest(tmp_path, 3, 1, NOW_S)
    assert [path.name for path in tmp_path.iterdir()] == [kept[-1]]


def test_drafts_of_agents_that_were_killed_do_not_pile_up(tmp_path: Path) -> None:
    (tmp_path / ".20231114T221320Z-test.flight.zip.x1y2.draft").touch()
    os.utime(tmp_path / ".20231114T221320Z-test.flight.zip.x1y2.draft", (0, 0))
    bundle.keep_newest(tmp_path, 3, 1 << 20, NOW_S)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_cannot_be_written_costs_the_bundle_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "flight").write_text("a file where the folder should be")
    bench = Bench(tmp_path / "flight")
    bench.recorder.freeze("by command")
    bench.fly(30)
    assert bench.bundles() == []
    assert "nothing was kept" in caplog.text


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "foreign", "newer", "flipped"])
def test_a_damaged_or_foreign_file_is_one_clear_line(tmp_path: Path, damage: str) -> None:
    ring = Ring(900.0)
    ring.add(snapshot(FakeClock()))
    good = bundle.write(tmp_path, bundle.Manifest(node="n", reason="r", frozen_s=0.0), ring.frozen())
    content, path = good.read_bytes(), tmp_path / "bad.zip"
    if damage in ("foreign", "newer"):
        with zipfile.ZipFile(path, "w") as file:
            manifest = (
                '{"format": "x"}'
                if damage == "foreign"
                else ('{"node":"n","reason":"r","frozen_s":0,"format":"clusterwatt-flight","version":99}')
            )
            file.writestr("manifest.json", manifest)
    else:
        at = content.index(b"0001.flight") + 40
        path.write_bytes(
            {
                "empty": b"",
                "text": b"no zip at all",
                "cut": content[: len(content) // 2],
                "flipped": content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :],
            }[damage]
        )
    with pytest.raises(bundle.BundleError) as caught:
        bundle.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_readings_of_another_version_are_left_out_and_the_rest_is_read() -> None:
    rows: list[list[object]] = [["GpuUp", "0", "GPU-0", 1.0], ["FromTheFuture", 1], ["GpuUp", "too few"], []]
    assert [bundle._reading(row) for row in rows] == [GpuUp("0", "GPU-0", 1.0), None, None, None]


def test_the_table_has_a_line_for_each_gpu_and_moment(bench: Bench) -> None:
    moment = bundle.Moment(
        1_700_000_000.25, 1.0, tuple(r for rs in snapshot(bench.clock).readings.values() for r in rs)
    )
    lines = list(table.table([moment]))
    assert len(lines) == 9
    assert lines[1].split() == ["22:13:20.250", "0", "up", "97", "650", "-", "-", "-", "-"]
    assert len(list(table.table([moment], gpu="5"))) == 2


def test_a_bundle_is_played_at_the_pace_at_which_it_happened_and_marked(bench: Bench) -> None:
    info = GpuInfo("0", "GPU-0", "H100", "hopper", "0000:18:00.0", "0", "", "", "", "", "false")
    bench.fly(30, info)
    bench.fly(20, info, GpuDown("3", "GPU-3", "lost"))
    (path,) = bench.bundles()
    clock = FakeClock()
    flight = FlightCollector(path, clock)

    def kinds(after_s: float) -> set[type[Reading]]:
        clock.advance(after_s)
        return {type(reading) for reading in flight.collect()}

    assert GpuDown not in kinds(0.0)
    assert GpuDown not in kinds(29.0)
    assert GpuDown in kinds(1.0)
    assert GpuDown in kinds(1_000.0)  # at the end it stands still
    assert RdmaPort not in kinds(0.0)  # the machine's own ports are live
    assert {info.simulated for info in flight.collect() if isinstance(info, GpuInfo)} == {"replay"}


def test_csv_holds_every_value(bench: Bench) -> None:
    moment = bundle.Moment(1_700_000_000.25, 1.0, (GpuPower("0", "GPU-0", "gpu", "average", 650.5),))
    assert list(table.as_csv([moment])) == [
        "unix_seconds,reading,of,quantity,value",
        "1700000000.250,GpuPower,0 GPU-0 gpu average,power_watts,650.5",
    ]
