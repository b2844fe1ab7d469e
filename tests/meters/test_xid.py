"""XIDs as counters: each event once whoever tells it, zeros before the first, nothing that falls."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from clusterwatt.meters.xid import SAME_WITHIN_S, XidMeter, address
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import DriverXid, GpuInfo
from clusterwatt.readings.gpu_measured import GpuXid, GpuXids, HardwareEvent, SwitchSxid
from clusterwatt.readings.kernel_log import KernelSxid, KernelXid
from tests.clocks import FakeClock

A, B = "GPU-aaaa", "GPU-bbbb"
PLACES = {A: "00000000:9B:00.0", B: "00000001:9B:00.0"}


def info(uuid: str, gpu: str, *, parent: str = "", pci: str | None = None) -> GpuInfo:
    return GpuInfo(
        gpu=gpu,
        uuid=uuid,
        name="",
        architecture="",
        pci_bus_id=PLACES.get(uuid, "") if pci is None else pci,
        minor="",
        serial="",
        vbios="",
        parent_uuid=parent,
        mig_profile="",
        simulated="true",
    )


class Node:
    """A meter and the two sources that tell it of XIDs."""

    def __init__(self, *, kernel: bool = True, watched: Sequence[str] = (A, B)) -> None:
        self.clock = FakeClock(wall_s=0.0)
        self.meter = XidMeter()
        self.kernel_readable = kernel
        self.watched = watched
        self.gpus = [info(A, "0"), info(B, "1")]
        self.events: list[HardwareEvent] = []
        self._kernel: list[KernelXid | KernelSxid] = []
        self._driver: list[DriverXid] = []
        self._numbers = count(1)

    def by_driver(self, uuid: str, xid: int, **instances: int) -> None:
        now = self.clock.wall_s(), self.clock.monotonic_s()
        self._driver.append(DriverXid(uuid, xid, *now, **instances))

    def by_kernel(self, pci: str, xid: int, *, history: bool = False, wall_s: float | None = None) -> None:
        wall_s = self.clock.wall_s() if wall_s is None else wall_s
        at = wall_s, self.clock.monotonic_s()
        self._kernel.append(
            KernelXid(next(self._numbers), pci, xid, "the kernel's text", *at, history=history)
        )

    def by_switch(self, switch: str, sxid: int, *, fatal: bool, history: bool = False) -> None:
        now = self.clock.wall_s(), self.clock.monotonic_s()
        number = next(self._numbers)
        self._kernel.append(
            KernelSxid(number, switch, "0000:c1:00.0", sxid, fatal, "link 14", *now, history=history)
        )

    def tick(self, seconds: float = 1.0) -> list[Reading]:
        driver, self._driver = self._driver, []
        # The collector tells the kernel's events again and again: the meter knows them by their number.
        kernel = self._kernel if self.kernel_readable else None
        readings = list(self.meter.measure(self.gpus, driver, self.watched, kernel))
        self.events.extend(self.meter.take_events())
        self.clock.advance(seconds)
        return readings

    def total(self, uuid: str) -> float | None:
        return next((r.events for r in self.tick() if isinstance(r, GpuXids) and r.uuid == uuid), None)

    def codes(self, uuid: str) -> dict[str, tuple[float, float]]:
        return {
            r.xid: (r.events, r.last_timestamp_seconds)
            for r in self.tick()
            if isinstance(r, GpuXid) and r.uuid == uuid
        }


def of(kind: type[Reading], readings: Iterable[Reading]) -> list[Any]:
    return [reading for reading in readings if isinstance(reading, kind)]


def test_every_gpu_has_a_zero_before_its_first_xid() -> None:
    readings = Node().tick()
    assert of(GpuXids, readings) == [GpuXids("0", A, 0.0), GpuXids("1", B, 0.0)]
    assert of(GpuXid, readings) == []


@pytest.mark.parametrize(
    ("kernel", "watched", "there"),
    [
        (False, (), set()),
        (False, (A,), {A}),
        (True, (), {A, B}),
    ],
)
def test_a_gpu_that_nobody_watches_has_no_zero(kernel: bool, watched: Sequence[str], there: set[str]) -> None:
    node = Node(kernel=kernel, watched=watched)
    assert {reading.uuid for reading in of(GpuXids, node.tick())} == there


def test_a_total_stays_while_its_sources_are_away() -> None:
    node = Node()
    node.by_driver(A, 31)
    node.tick()
    node.watched, node.kernel_readable, node.gpus = (), False, []
    assert [node.total(A), node.total(B)] == [1.0, 0.0]


def test_an_xid_has_class_severity_and_time() -> None:
    node = Node()
    node.clock.advance(60.0)
    node.by_driver(B, 79)
    assert of(GpuXid, node.tick()) == [GpuXid("1", B, "79", "hardware", "critical", 1.0, 60.0)]
    assert (node.total(A), node.total(B)) == (0.0, 1.0)


@pytest.mark.parametrize("kernel_first", [True, False])
def test_what_both_sources_tell_counts_once(kernel_first: bool) -> None:
    node = Node()
    tell: list[Callable[[], None]] = [lambda: node.by_kernel("0000:9b:00", 48), lambda: node.by_driver(A, 48)]
    for one in tell if kernel_first else reversed(tell):
        one()
        node.tick(2.0)
    assert node.codes(A)["48"][0] == 1.0
    assert len(node.events) == 1


def test_a_burst_that_both_sources_tell_counts_as_often_as_it_was() -> None:
    node = Node()
    for _ in range(100):
        node.by_driver(A, 45)
    node.tick()
    for _ in range(120):  # twenty that the driver has missed
        node.by_kernel("0000:9b:00", 45)
    assert node.codes(A)["45"][0] == 120.0
    assert len(node.events) == 120


def test_the_same_code_again_after_the_window_is_another_event() -> None:
    node = Node()
    node.by_driver(A, 31)
    node.tick(SAME_WITHIN_S + 1.0)
    node.by_kernel("0000:9b:00", 31)
    assert node.total(A) == 2.0


def test_other_code_or_other_gpu_is_another_event() -> None:
    node = Node()
    node.by_driver(A, 48)
    node.by_kernel("0000:9b:00", 63)
    node.by_kernel("0001:9b:00", 48)
    assert (node.total(A), node.total(B)) == (2.0, 1.0)


def test_a_line_that_is_told_again_is_the_same_line() -> None:
    node = Node()
    node.by_kernel("0000:9b:00", 119)
    for _ in range(10):
        node.tick()
    assert node.total(A) == 1.0
    assert len(node.events) == 1


def test_an_xid_of_before_the_start_is_shown_with_its_time_and_not_counted_or_told() -> None:
    node = Node()
    node.clock.advance(3_600.0)
    node.by_kernel("0000:9b:00", 79, history=True, wall_s=600.0)
    assert node.codes(A) == {"79": (0.0, 600.0)}
    assert node.total(A) == 0.0
    assert node.events == []
    node.by_kernel("0000:9b:00", 79)
    assert node.codes(A)["79"][0] == 1.0


def test_a_history_that_is_read_before_the_gpus_are_known_waits_for_them() -> None:
    node = Node()
    node.gpus = []
    node.by_kernel("0000:9b:00", 79, history=True, wall_s=-5.0)
    node.by_kernel("0000:9b:00", 31)
    node.tick()
    assert [(event.code, event.uuid, event.pci) for event in node.events] == [(31, "", "0000:9b:00")]
    node.gpus = [info(A, "0")]
    assert {xid: events for xid, (events, _) in node.codes(A).items()} == {"79": 0.0, "31": 1.0}
    assert len(node.events) == 1  # told at once, not again


@pytest.mark.parametrize("source", ["kernel", "driver"])
def test_an_xid_of_a_gpu_that_the_driver_does_not_show_any_more_is_counted_where_it_was(source: str) -> None:
    node = Node()
    node.tick()
    node.gpus = [info(B, "1")]
    if source == "kernel":
        node.by_kernel("0000:9b:00", 79)
    else:
        node.by_driver(A, 79)
    assert node.codes(A)["79"][0] == 1.0
    assert [(event.gpu, event.uuid) for event in node.events] == [("0", A)]
    assert node.total(A) == 1.0


def test_an_index_that_moves_keeps_the_count() -> None:
    node = Node()
    node.by_driver(B, 31)
    node.tick()
    node.gpus = [info(B, "0")]
    assert GpuXids("0", B, 1.0) in node.tick()


def test_an_unknown_code_is_shown_with_its_number() -> None:
    node = Node()
    node.by_driver(A, 4711)
    (reading,) = of(GpuXid, node.tick())
    assert (reading.xid, reading.xid_class, reading.severity) == ("4711", "hardware", "warning")
    assert node.events[0].action == "none"


def test_an_xid_of_a_mig_instance_counts_for_the_board_and_names_the_instance() -> None:
    node = Node()
    node.gpus.append(info("MIG-cccc", "0:1", parent=A, pci=PLACES[A]))
    node.by_driver(A, 94, gpu_instance=9, compute_instance=0)
    readings = node.tick()
    assert of(GpuXids, readings) == [GpuXids("0", A, 1.0), GpuXids("1", B, 0.0)]
    assert (node.events[0].uuid, node.events[0].instance) == (A, "9/0")


def test_an_event_says_what_to_do() -> None:
    node = Node()
    node.by_kernel("0001:9b:00", 119)
    node.tick()
    (event,) = node.events
    assert (event.kind, event.gpu, event.uuid, event.xid_class) == ("xid", "1", B, "driver")
    assert (event.severity, event.action, event.detail) == ("critical", "reset_gpu", "the kernel's text")
    assert "system processor" in event.text


def test_an_echo_is_counted_and_marked() -> None:
    node = Node()
    node.by_driver(A, 13)
    node.by_driver(A, 43)
    node.tick(31.0)
    node.by_driver(A, 45)
    node.tick()
    assert [(event.code, event.echo) for event in node.events] == [(13, False), (43, True), (45, False)]
    assert node.total(A) == 3.0


def test_codes_of_a_switch_count_by_the_harm_they_did() -> None:
    node = Node()
    node.by_switch("2", 12020, fatal=True)
    node.by_switch("2", 20001, fatal=False)
    node.by_switch("2", 20001, fatal=False)
    node.by_switch("3", 20034, fatal=True, history=True)
    readings = node.tick()
    assert of(SwitchSxid, readings) == [
        SwitchSxid("2", "12020", "always_fatal", 1.0, 0.0),
        SwitchSxid("2", "20001", "non_fatal", 2.0, 0.0),
        SwitchSxid("3", "20034", "fatal", 0.0, 0.0),
    ]
    assert [(event.kind, event.switch, event.severity) for event in node.events] == [
        ("sxid", "2", "critical"),
        ("sxid", "2", "info"),
        ("sxid", "2", "info"),
    ]


@pytest.mark.parametrize(
    ("pci", "place"),
    [
        ("0000:9b:00", (0, 0x9B, 0)),
        ("00000000:9B:00.0", (0, 0x9B, 0)),
        ("0001:9b:1f.7", (1, 0x9B, 0x1F)),
        ("9b:00", None),
        ("", None),
        ("0000:zz:00", None),
    ],
)
def test_addresses_are_compared_without_function(pci: str, place: tuple[int, int, int] | None) -> None:
    assert address(pci) == place


def minutes_of_g14() -> tuple[list[float], list[float | None]]:
    """The total of A and the time of its XID 31 at each minute of an hour."""
    node = Node()
    totals, times = [], []
    for minute in range(66):
        if minute in (2, 31):
            node.by_driver(A, 31)
        readings = node.tick(60.0)
        totals.append(next(r.events for r in of(GpuXids, readings) if r.uuid == A))
        times.append(next((r.last_timestamp_seconds for r in of(GpuXid, readings) if r.uuid == A), None))
    return totals, times


def test_g14_the_counter_is_1_from_minute_2_and_2_from_minute_31_with_a_zero_before() -> None:
    totals, times = minutes_of_g14()
    assert totals[:2] == [0.0, 0.0]
    assert totals[2:31] == [1.0] * 29
    assert totals[31:] == [2.0] * 35
    assert times[:2] == [None, None]
    assert times[2:31] == [120.0] * 29
    assert times[31:] == [1860.0] * 35


@pytest.mark.parametrize(
    "expression",
    ["increase(total[5m]) > 0", "time() - last < 600"],
)
def test_g14_rules_fire_at_both_xids_and_fall_silent(expression: str, tmp_path: Path, promtool: Path) -> None:
    totals, times = minutes_of_g14()
    rules = {"groups": [{"name": "g14", "rules": [{"alert": "Xid", "expr": expression}]}]}
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": "total", "values": " ".join(f"{value:g}" for value in totals)},
                    {"series": "last", "values": " ".join("_" if t is None else f"{t:g}" for t in times)},
                ],
                "alert_rule_test": [
                    {"eval_time": f"{minute}m", "alertname": "Xid", "exp_alerts": [{}] if fires else []}
                    for minute, fires in ((1, False), (5, True), (20, False), (32, True), (60, False))
                ],
            }
        ],
    }
    (tmp_path / "rules.yaml").write_text(json.dumps(rules), encoding="utf-8")
    (tmp_path / "tests.yaml").write_text(json.dumps(tests), encoding="utf-8")
    ended = subprocess.run(
        [promtool, "test", "rules", "tests.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
