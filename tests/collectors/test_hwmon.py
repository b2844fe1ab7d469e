"""Sensors of the board: names that outlive a reboot, inputs without a sensor, power of what."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from clusterwatt.catalog import faults
from clusterwatt.collectors import hwmon
from clusterwatt.collectors.hwmon import HwmonCollector
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.host import BoardPower, Temperature
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock
from tests.faulty import refuse_open
from tests.machines import capture, machine, put


def collect(files: Files) -> list[Reading]:
    return list(HwmonCollector(files).collect())


def temperatures(readings: list[Reading]) -> dict[str, float]:
    found = {r.sensor: r.temperature_celsius for r in readings if isinstance(r, Temperature)}
    assert len(found) == sum(isinstance(r, Temperature) for r in readings)
    return found


def powers(readings: list[Reading]) -> dict[str, tuple[str, str, float]]:
    return {r.sensor: (r.scope, r.kind, r.power_watts) for r in readings if isinstance(r, BoardPower)}


def chip(root: Path, **attributes: str) -> Files:
    for name, text in attributes.items():
        put(root, f"/sys/class/hwmon/hwmon0/{name}", f"{text}\n")
    return Files(root, FakeClock())


def test_sensors_of_a_machine() -> None:
    """Single cores and an input without a sensor are left out."""
    readings = collect(machine("h100-ib"))
    assert temperatures(readings) == {
        "coretemp/coretemp.0/Package id 0": 55.0,
        "coretemp/coretemp.1/Package id 1": 55.001,
        "nvme/nvme0/Composite": 38.85,
    }
    assert powers(readings) == {"power_meter/ACPI000D:00/power1": ("platform", "average", 6512.0)}


@pytest.mark.parametrize(
    ("told", "scope"),
    [
        ("Module Power Socket 0", "module"),
        ("Grace Power Socket 1", "socket"),
        ("CPU Power Socket 0", "rail"),
        ("SysIO Power Socket 0", "rail"),
        ("", "platform"),
    ],
)
def test_power_meters_say_what_they_measure(tmp_path: Path, told: str, scope: str) -> None:
    """Those of a Grace superchip overlap; old drivers keep them in the folder of the device."""
    directory = "/sys/class/hwmon/hwmon1/device"
    put(tmp_path, f"{directory}/name", "power_meter\n")
    put(tmp_path, f"{directory}/power1_average", "150000000\n")
    put(tmp_path, f"{directory}/power1_oem_info", f"{told}\n")
    assert list(powers(collect(Files(tmp_path, FakeClock()))).values()) == [(scope, "average", 150.0)]


def test_other_power_sensors_are_not_taken_for_the_node(tmp_path: Path) -> None:
    files = chip(tmp_path, name="ina238", power1_input="12500000", power1_label="12V rail")
    assert powers(collect(files)) == {"ina238/hwmon0/12V rail": ("other", "instant", 12.5)}


@pytest.mark.parametrize("millidegrees", ["-273150", "-128000", "255000", "-55000", "", "N/A"])
def test_an_input_without_a_sensor_is_absent(tmp_path: Path, millidegrees: str) -> None:
    assert collect(chip(tmp_path, name="nct6779", temp1_input=millidegrees)) == []


def test_a_sensor_with_a_fault_is_absent(tmp_path: Path) -> None:
    files = chip(tmp_path, name="x", temp1_input="40000", temp1_fault="1", temp2_input="0", temp2_fault="0")
    assert temperatures(collect(files)) == {"x/hwmon0/temp2": 0.0}


@pytest.mark.parametrize(
    ("code", "reasons"),
    [(errno.EAGAIN, []), (errno.ENODATA, []), (errno.EIO, ["io_error"]), (errno.ETIMEDOUT, ["timeout"])],
)
def test_a_sensor_that_does_not_answer_costs_itself_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, reasons: list[str]
) -> None:
    files = chip(tmp_path, name="x", temp1_input="40000", temp2_input="41000", power1_input="1000000")
    refuse_open(monkeypatch, "temp1_input", code)
    readings = collect(files)
    assert temperatures(readings) == {"x/hwmon0/temp2": 41.0}
    assert len(powers(readings)) == 1
    assert [r.reason for r in readings if isinstance(r, Failure)] == reasons


def test_the_name_outlives_another_number(tmp_path: Path) -> None:
    for boot, number in (("a", "hwmon0"), ("b", "hwmon7")):
        root = tmp_path / boot
        put(root, "/sys/devices/platform/coretemp.0/uevent", "")
        put(root, f"/sys/class/hwmon/{number}/name", "coretemp\n")
        put(root, f"/sys/class/hwmon/{number}/temp1_input", "50000\n")
        (root / f"sys/class/hwmon/{number}/device").symlink_to("../../../devices/platform/coretemp.0")
        assert temperatures(collect(Files(root, FakeClock()))) == {"coretemp/coretemp.0/temp1": 50.0}


def test_a_machine_without_sensors_has_none() -> None:
    assert collect(machine("cloud-vm")) == []


def test_capture_of_node_exporter(tmp_path: Path) -> None:
    """Two labels alike on one chip; a chip without temperatures; links to devices lost."""
    (tmp_path / "sys").symlink_to(capture("sysfs/node-exporter"))
    assert temperatures(collect(Files(tmp_path, FakeClock()))) == {
        "coretemp/hwmon0/Physical id 0": 55.0,
        "coretemp/hwmon1/Physical id 0": 55.0,
        "mt7996_phy0_0/hwmon8/temp1": 55.0,
        "mt7996_phy0_1/hwmon9/temp1": 56.0,
        "mt7996_phy0_2/hwmon10/temp1": 57.0,
        "/hwmon4/foosensor (temp1)": 55.0,
        "/hwmon4/foosensor (temp2)": 54.0,
    }


def test_names_keep_the_rules() -> None:
    assert list(faults(hwmon.METRICS)) == []
