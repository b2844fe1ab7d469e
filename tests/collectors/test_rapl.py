"""Energy counters of CPU and memory: what may be added up, what shows the same twice, what cannot be read."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from clusterwatt.collectors.rapl import RaplCollector
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.host import EnergyZone
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock
from tests.faulty import refuse_open
from tests.machines import capture, machine, put

RANGE = 262_143_328_850


def zone(root: Path, zone: str, name: str, counted: int, highest: int | None = RANGE) -> None:
    put(root, f"/sys/class/powercap/{zone}/name", f"{name}\n")
    put(root, f"/sys/class/powercap/{zone}/energy_uj", f"{counted}\n")
    if highest is not None:
        put(root, f"/sys/class/powercap/{zone}/max_energy_range_uj", f"{highest}\n")


def zones(readings: list[Reading]) -> dict[str, tuple[str, float]]:
    return {r.zone: (r.component, r.energy_joules) for r in readings if isinstance(r, EnergyZone)}


def collect(files: Files) -> list[Reading]:
    return list(RaplCollector(files).collect())


def test_packages_and_their_memory_and_nothing_that_they_contain() -> None:
    """No core, no psys, and the first package not once more over MMIO."""
    assert zones(collect(machine("h100-ib"))) == {
        "package-0": ("cpu", 240_422.366267),
        "package-1": ("cpu", 123_456.789012),
        "package-0/dram": ("dram", 40_118.215337),
        "package-1/dram": ("dram", 39_000.000001),
    }


def test_g13_the_counter_and_its_range_are_passed_to_the_microjoule(tmp_path: Path) -> None:
    files = Files(tmp_path, FakeClock())
    collector = RaplCollector(files)
    passed = []
    for counted in (262_143_000_000, 671_150):
        zone(tmp_path, "intel-rapl:0", "package-0", counted)
        passed += [reading for reading in collector.collect() if isinstance(reading, EnergyZone)]
    before, after = passed
    assert before.range_joules is not None
    gained_microjoules = (after.energy_joules + before.range_joules - before.energy_joules) * 1e6
    assert gained_microjoules == pytest.approx(1_000_000, abs=1)


def test_a_range_that_is_not_told_is_not_made_up(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 5, highest=None)
    (reading,) = collect(Files(tmp_path, FakeClock()))
    assert reading == EnergyZone(zone="package-0", component="cpu", energy_joules=5e-6, range_joules=None)


def test_psys_counts_where_it_is_alone(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "psys", 7_000_000)
    assert zones(collect(Files(tmp_path, FakeClock()))) == {"psys": ("cpu", 7.0)}


def test_dies_that_show_the_counter_of_their_socket_count_once() -> None:
    assert zones(collect(machine("roce-bond"))) == {"package-0-die-0": ("cpu", 65_000.0)}


def test_dies_with_counters_of_their_own_all_count(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0-die-0", 65_000_000_000)
    zone(tmp_path, "intel-rapl:1", "package-0-die-1", 64_000_000_000)
    zone(tmp_path, "intel-rapl:2", "package-1-die-0", 65_000_000_000)
    files = Files(tmp_path, FakeClock())
    collector = RaplCollector(files)
    assert set(zones(list(collector.collect()))) == {"package-0-die-0", "package-0-die-1", "package-1-die-0"}
    zone(tmp_path, "intel-rapl:1", "package-0-die-1", 65_000_000_000)  # they meet: still their own
    assert set(zones(list(collector.collect()))) == {"package-0-die-0", "package-0-die-1", "package-1-die-0"}


def test_a_mirror_stays_one_while_its_counter_runs(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0-die-0", 1_000)
    zone(tmp_path, "intel-rapl:1", "package-0-die-1", 1_000)
    collector = RaplCollector(Files(tmp_path, FakeClock()))
    assert set(zones(list(collector.collect()))) == {"package-0-die-0"}
    zone(tmp_path, "intel-rapl:1", "package-0-die-1", 9_000)  # read a moment later
    assert set(zones(list(collector.collect()))) == {"package-0-die-0"}


def test_counters_for_root_only_are_failures_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_open(monkeypatch, "energy_uj")
    for name in ("h100-ib", "roce-bond"):
        readings = collect(machine(name))
        assert zones(readings) == {}
        assert {r.reason for r in readings if isinstance(r, Failure)} == {"permission"}


def test_one_counter_that_fails_costs_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_open(monkeypatch, "intel-rapl:0:1/energy_uj", errno.EIO)
    readings = collect(machine("h100-ib"))
    assert set(zones(readings)) == {"package-0", "package-1", "package-1/dram"}
    assert [(r.item, r.reason) for r in readings if isinstance(r, Failure)] == [
        ("package-0/dram", "io_error")
    ]


def test_a_machine_without_counters_has_none() -> None:
    assert collect(machine("cloud-vm")) == []


def test_capture_of_procfs_lib(tmp_path: Path) -> None:
    """Zone numbers may be hexadecimal."""
    (tmp_path / "sys").symlink_to(capture("sysfs/procfs-lib"))
    assert zones(collect(Files(tmp_path, FakeClock()))) == {
        "package-0": ("cpu", 240_422.366267),
        "package-10": ("cpu", 240_422.366267),
    }
