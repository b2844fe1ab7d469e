"""Load, kills for want of memory, boot time."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.catalog import faults
from clusterwatt.collectors import host
from clusterwatt.collectors.host import BOOT_SECONDS, HostCollector
from clusterwatt.readings.base import Reading
from clusterwatt.readings.host import Boot, Load
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock
from tests.machines import capture, machine, put


def collect(files: Files) -> list[Reading]:
    return list(HostCollector(files, FakeClock()).collect())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h100-ib", [Load(load1=112.41, oom_kills=3), Boot(boot_timestamp_seconds=1_719_300_000)]),
        ("roce-bond", [Load(load1=3.07, oom_kills=0), Boot(boot_timestamp_seconds=1_722_000_123)]),
        # a kernel before 4.13 does not count kills
        ("broken-ports", [Load(load1=1.0, oom_kills=None), Boot(boot_timestamp_seconds=1_700_000_042)]),
    ],
)
def test_facts_of_a_machine(name: str, expected: list[Reading]) -> None:
    assert collect(machine(name)) == expected


def test_a_clock_that_was_set_moves_the_boot_time_within_a_minute(tmp_path: Path) -> None:
    clock = FakeClock()
    put(tmp_path, "/proc/stat", "cpu 1\nbtime 5\n")
    collector = HostCollector(Files(tmp_path, clock), clock)
    assert Boot(boot_timestamp_seconds=5) in list(collector.collect())
    put(tmp_path, "/proc/stat", "cpu 1\nbtime 1700000000\n")
    clock.advance(BOOT_SECONDS)
    assert Boot(boot_timestamp_seconds=1_700_000_000) in list(collector.collect())


def test_nothing_is_made_up(tmp_path: Path) -> None:
    assert collect(Files(tmp_path, FakeClock())) == [Load(load1=None, oom_kills=None)]


def test_captures(tmp_path: Path) -> None:
    (tmp_path / "proc").symlink_to(capture("procfs/node-exporter"))
    assert collect(Files(tmp_path, FakeClock())) == [
        Load(load1=0.21, oom_kills=0),
        Boot(boot_timestamp_seconds=1_418_183_276),
    ]


def test_names_keep_the_rules() -> None:
    assert list(faults(host.METRICS)) == []
