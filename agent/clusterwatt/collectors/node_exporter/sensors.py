"""Sensors of the board, energy counters, memory errors: below /sys/class and /sys/devices/system/edac.

Documentation/hwmon/sysfs-interface.rst, Documentation/power/powercap/powercap.rst,
Documentation/ABI/testing/sysfs-devices-edac. Names and units are node_exporter's, odd ones too.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator

from clusterwatt.collectors.attempts import Attempts
from clusterwatt.collectors.hwmon import HWMON, MICROWATTS
from clusterwatt.collectors.node_exporter.families import COUNTER, GAUGE, Found, Row, table
from clusterwatt.collectors.rapl import MICROJOULES, POWERCAP
from clusterwatt.sysfs import Files

SENSOR_FILE = re.compile(r"([^0-9]+?)(\d*)(?:_(.+))?")
PLAIN = ("beep_enable", "update_interval")  # no sensor of a number; the underscore belongs to the name
TYPES = ("vrm", "in", "cpu", "fan", "pwm", "temp", "curr", "power", "energy", "humidity", "intrusion", "freq")
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
NOT_IN_NAMES = re.compile(r"[^a-z0-9:_]")
THOUSANDTH = 0.001
# Unit that a name ends in, and what one of the file is worth, by type of sensor.
UNITS = {
    "in": ("_volts", THOUSANDTH),
    "cpu": ("_volts", THOUSANDTH),
    "temp": ("_celsius", THOUSANDTH),
    "curr": ("_amps", THOUSANDTH),
    "energy": ("_joule_total", 1 / MICROWATTS),
    "power": ("_watt", 1 / MICROWATTS),
    "humidity": ("", 1 / MICROWATTS),
}
INTERVALS = ("average_interval", "average_interval_min", "average_interval_max")
POWER = {"accuracy": ("", 1 / MICROWATTS)} | dict.fromkeys(INTERVALS, ("_seconds", THOUSANDTH))
ROTATIONS = ("input", "min", "max", "target")

EDAC = "/sys/devices/system/edac/mc"
EDAC_KINDS = ("correctable", "uncorrectable")
THERMAL = "/sys/class/thermal"

Sample = tuple[str, str, float]


class Hwmon:
    """Everything that the chips' drivers offer, under the names that node_exporter makes of the files."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._attempts = Attempts()

    def families(self) -> Found:
        """One sample for each file with a number in it."""
        rows: dict[str, list[Row]] = {}
        names: list[Row] = []
        labels: list[Row] = []
        for folder, chip in self._chips():
            name = _clean(self._text(f"{folder}/name", chip) or "")
            if name:
                names.append(((chip, name), (1.0,)))
            for sensor, elements in self._sensors(folder, chip).items():
                if "label" in elements:
                    labels.append(((chip, sensor, elements["label"]), (1.0,)))
                for family, place, value in _samples(sensor, elements):
                    rows.setdefault(family, []).append(((chip, place), (value,)))
        yield from table(HWMON, ("chip", "chip_name"), (("node_hwmon_chip_names", GAUGE),), names)
        yield from table(HWMON, ("chip", "sensor", "label"), (("node_hwmon_sensor_label", GAUGE),), labels)
        for family, samples in rows.items():
            kind = COUNTER if family.endswith("_total") else GAUGE
            yield from table(HWMON, ("chip", "sensor"), ((family, kind),), samples)
        yield from self._attempts.take()

    def _chips(self) -> Iterator[tuple[str, str]]:
        """Folder and label of each chip; chips of one device are told apart by their names."""
        folders = [f"{HWMON}/{number}" for number in self._files.names(HWMON)]
        labels = {folder: self._label(folder) for folder in folders}
        texts = {folder: self._text(f"{folder}/name", folder) or "" for folder in folders}
        often = Counter(labels.values())
        pairs = Counter((labels[folder], texts[folder]) for folder in folders)
        for folder, label in labels.items():
            if often[label] == 1:
                yield folder, label
                continue
            own = _clean(texts[folder])
            if not own or pairs[label, texts[folder]] > 1:
                own = _clean(folder.rpartition("/")[2])
            yield folder, f"{label}_{own}"

    def _label(self, folder: str) -> str:
        """Kind of bus and device, else the chip's name, else its number."""
        if self._files.exists(f"{folder}/device"):
            path = os.path.realpath(f"{self._files.root}{folder}/device").split("/")
            label = "_".join(filter(None, map(_clean, path[-2:])))
            if label:
                return label
        return _clean(self._text(f"{folder}/name", folder) or "") or _clean(folder.rpartition("/")[2])

    def _sensors(self, folder: str, chip: str) -> dict[str, dict[str, str]]:
        """Texts by sensor and element; old drivers have their files in `device`."""
        sensors: dict[str, dict[str, str]] = {}
        for place in (folder, f"{folder}/device"):
            for file in self._attempts.get(self._files.names, place, chip) or ():
                found = SENSOR_FILE.fullmatch(file)
                if file in PLAIN:
                    sensor, element = f"{file}0", ""
                elif found is not None and found[1] in TYPES:
                    sensor, element = f"{found[1]}{int(found[2] or 0)}", found[3] or ""
                else:
                    continue
                text = self._text(f"{place}/{file}", chip)
                if text is not None:
                    sensors.setdefault(sensor, {})[element] = text
        return sensors

    def _text(self, path: str, item: str) -> str | None:
        def read(path: str) -> str | None:
            try:
                return self._files.text(path)
            except BlockingIOError:  # the chip has not measured yet
                return None

        return self._attempts.get(read, path, item)


def _samples(sensor: str, elements: dict[str, str]) -> Iterator[Sample]:
    """Name, label and value of each element of a sensor."""
    kind = sensor.rstrip("0123456789")
    own = elements.get("", "")
    if kind in ("beep_enable", "vrm", "update_interval"):
        if kind == "beep_enable":
            yield "node_hwmon_beep_enabled", sensor, float(own == "1")
        elif NUMBER.fullmatch(own):
            name = {"vrm": "voltage_regulator_version", "update_interval": "update_interval_seconds"}[kind]
            yield f"node_hwmon_{name}", sensor, float(own) * (THOUSANDTH if kind == "update_interval" else 1)
        return
    for element, text in elements.items():
        if element == "label" or not NUMBER.fullmatch(text):
            continue
        name = f"node_hwmon_{kind}"
        if element == "input":
            name += "_input" if "" in elements else ""
        elif element:
            name += f"_{_clean(element)}"
        value = float(text)
        unit, worth = _unit(kind, element)
        if kind == "freq" and element == "input":
            if "label" in elements:
                yield f"{name}_freq_mhz", _clean(elements["label"]), value / MICROWATTS
            continue
        yield name + unit, sensor, value * worth


def _unit(kind: str, element: str) -> tuple[str, float]:
    """What a name ends in, and what one is worth."""
    if element in ("fault", "alarm") or (kind, element) == ("temp", "type"):
        return "", 1
    if element == "beep":
        return "_enabled", 1
    if kind == "fan":
        return ("_rpm", 1) if element in ROTATIONS else ("", 1)
    if kind == "power" and element in POWER:
        return POWER[element]
    return UNITS.get(kind, ("", 1))


def _clean(name: str) -> str:
    return NOT_IN_NAMES.sub("_", name.lower()).strip("_")


def thermal_zones(files: Files) -> Found:
    """Temperatures of the thermal zones."""
    rows: list[Row] = []
    for name in files.names(THERMAL):
        if name.startswith("thermal_zone"):
            zone = name.removeprefix("thermal_zone")
            kind = files.text(f"{THERMAL}/{name}/type") or ""
            millidegrees = files.integer(f"{THERMAL}/{name}/temp")
            rows.append(((kind, zone), (None if millidegrees is None else millidegrees * THOUSANDTH,)))
    yield from table(THERMAL, ("type", "zone"), (("node_thermal_zone_temp", GAUGE),), rows)


class Rapl:
    """Each zone under a name of its own; zones overlap, so they must not be added up."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._attempts = Attempts()

    def families(self) -> Found:
        """Counters as they stand."""
        rows: dict[str, list[Row]] = {}
        often: Counter[str] = Counter()
        for zone in self._files.names(POWERCAP):
            path = f"{POWERCAP}/{zone}"
            name = self._attempts.get(self._files.text, f"{path}/name", zone)
            if name is None:
                continue
            numbered = re.fullmatch(r"([^-]+)-(\d+)", name)
            name, index = (numbered[1], int(numbered[2])) if numbered else (name, often[name])
            often[name] = index + 1
            microjoules = self._attempts.get(self._files.integer, f"{path}/energy_uj", zone)
            if microjoules is not None:
                row = ((str(index), path), (microjoules / MICROJOULES,))
                rows.setdefault(re.sub(r"[^a-zA-Z0-9_]", "_", name), []).append(row)
        for name, samples in rows.items():
            columns = ((f"node_rapl_{name}_joules_total", COUNTER),)
            yield from table(POWERCAP, ("index", "path"), columns, samples)
        yield from self._attempts.take()


def memory_errors(files: Files) -> Found:
    """Errors by controller, and by row of chips; `unknown` for those that the controller cannot place."""
    controllers: list[Row] = []
    rows: list[Row] = []
    for name in files.names(EDAC):
        number = name.removeprefix("mc")
        if not (name.startswith("mc") and number.isdigit()):
            continue
        folder = f"{EDAC}/{name}"
        controllers.append(((number,), _counts(files, folder, "")))
        rows.append(((number, "unknown"), _counts(files, folder, "noinfo_")))
        rows.extend(
            ((number, row.removeprefix("csrow")), _counts(files, f"{folder}/{row}", ""))
            for row in files.names(folder)
            if row.startswith("csrow")
        )
    columns = tuple((f"node_edac_{kind}_errors_total", COUNTER) for kind in EDAC_KINDS)
    yield from table(EDAC, ("controller",), columns, controllers)
    columns = tuple((f"node_edac_csrow_{kind}_errors_total", COUNTER) for kind in EDAC_KINDS)
    yield from table(EDAC, ("controller", "csrow"), columns, rows)


def _counts(files: Files, folder: str, which: str) -> tuple[int | None, int | None]:
    return files.integer(f"{folder}/ce_{which}count"), files.integer(f"{folder}/ue_{which}count")
