"""Pressure: kernels that lack it, have it switched off, or write a line that means nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from clusterwatt.catalog import faults
from clusterwatt.collectors import pressure
from clusterwatt.collectors.pressure import PressureCollector
from clusterwatt.readings.base import Failure
from clusterwatt.readings.host import Pressure
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock
from tests.faulty import refuse_open
from tests.machines import capture, machine


def pressures(files: Files) -> dict[tuple[str, str], float]:
    readings = list(PressureCollector(files).collect())
    assert not [reading for reading in readings if isinstance(reading, Failure)]
    return {(r.resource, r.kind): r.pressure_seconds for r in readings if isinstance(r, Pressure)}


def test_totals_are_in_seconds_and_the_idle_cpu_line_is_left_out() -> None:
    assert pressures(machine("cloud-vm")) == {
        ("cpu", "some"): 81.234567,
        ("memory", "some"): 0,
        ("memory", "full"): 0,
        ("io", "some"): 1.234567,
        ("io", "full"): 1.034567,
        ("irq", "full"): 0.008494,
    }


def test_a_kernel_without_irq_pressure() -> None:
    assert {resource for resource, _ in pressures(machine("h100-ib"))} == {"cpu", "memory", "io"}


def test_a_kernel_without_pressure() -> None:
    assert pressures(machine("roce-bond")) == {}


def test_pressure_that_is_switched_off_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(*_: object) -> bytes:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "pread", off)
    assert pressures(machine("cloud-vm")) == {}


def test_one_unreadable_resource_costs_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_open(monkeypatch, "pressure/memory")
    readings = list(PressureCollector(machine("cloud-vm")).collect())
    assert [(r.item, r.reason) for r in readings if isinstance(r, Failure)] == [("memory", "permission")]
    assert {r.resource for r in readings if isinstance(r, Pressure)} == {"cpu", "io", "irq"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "node-exporter",
            {
                ("cpu", "some"): 14.036781,
                ("io", "some"): 159.886802,
                ("io", "full"): 159.229614,
                ("memory", "some"): 0,
                ("memory", "full"): 0,
                ("irq", "full"): 0.008494,
            },
        ),
        (
            "procfs-lib",
            {
                ("cpu", "some"): 15e-6,
                ("io", "some"): 15e-6,
                ("io", "full"): 25e-6,
                ("memory", "some"): 15e-6,
                ("memory", "full"): 25e-6,
            },
        ),
    ],
)
def test_captures(tmp_path: Path, name: str, expected: dict[tuple[str, str], float]) -> None:
    (tmp_path / "proc").symlink_to(capture(f"procfs/{name}"))
    assert pressures(Files(tmp_path, FakeClock())) == pytest.approx(expected)


def test_names_keep_the_rules() -> None:
    assert list(faults(pressure.METRICS)) == []
