"""Temperature and power sensors of the board, from /sys/class/hwmon.

Documentation/hwmon/sysfs-interface.rst. The number of a chip changes between boots, so a sensor is named by
chip, device and label. Attributes stand in the folder of the chip, those of old drivers in its `device`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from clusterwatt.catalog import FULL, Table
from clusterwatt.failures import failure
from clusterwatt.readings.base import Reading
from clusterwatt.readings.host import BoardPower, Temperature
from clusterwatt.sysfs import Files

HWMON = "/sys/class/hwmon"
MILLIDEGREES = 1000.0
MICROWATTS = 1e6
# Inputs to which nothing is connected show the end of their scale.
POSSIBLE_CELSIUS = (-55.0, 150.0)
INPUT = re.compile(r"(temp\d+)_input")
POWER = re.compile(r"(power\d+)_(average|input)")
POWER_KIND = {"average": "average", "input": "instant"}
CORE = re.compile(r"Core \d+")  # the hottest of them is the package's own value

# What the power meters of a Grace superchip say they measure (NVIDIA Grace Performance Tuning Guide, power
# telemetry). Other ACPI power meters, which say nothing, measure the node.
GRACE_SCOPES = (
    ("Module Power Socket", "module"),
    ("Grace Power Socket", "socket"),
    ("CPU Power Socket", "rail"),
    ("SysIO Power Socket", "rail"),
)

TEMPERATURE = Table(Temperature, labels=("sensor",))
METRICS = (
    TEMPERATURE.gauge(
        "node_temperature_celsius", "Temperature at a sensor of the machine.", "temperature_celsius", FULL
    ),
)


class Chip(msgspec.Struct, frozen=True):
    """A chip with sensors: its name with that of its device, and where its attributes are."""

    name: str
    driver: str
    directory: str
    attributes: tuple[str, ...]


class HwmonCollector:
    """Reads temperatures and powers of all chips."""

    name = "hwmon"

    def __init__(self, files: Files) -> None:
        self._files = files

    def collect(self) -> Iterator[Reading]:
        """One reading for each sensor that is connected."""
        for number in self._files.names(HWMON):
            try:
                chip = self._chip(number)
            except OSError as error:
                yield failure(number, error)
                continue
            yield from self._temperatures(chip)
            yield from self._powers(chip)

    def _chip(self, number: str) -> Chip:
        directory = f"{HWMON}/{number}"
        device = (self._files.link(f"{directory}/device") or number).rpartition("/")[2]
        attributes = self._files.names(directory)
        if not any(INPUT.fullmatch(name) or POWER.fullmatch(name) for name in attributes):
            directory = f"{directory}/device"
            attributes = self._files.names(directory)
        driver = self._files.text(f"{HWMON}/{number}/name") or self._files.text(f"{directory}/name") or ""
        return Chip(f"{driver}/{device}", driver, directory, attributes)

    def _temperatures(self, chip: Chip) -> Iterator[Reading]:
        inputs = [found[1] for name in chip.attributes if (found := INPUT.fullmatch(name))]
        labels = {place: self._label(chip, place) for place in inputs}
        often = Counter(labels.values())
        for place in inputs:
            label = labels[place]
            if CORE.fullmatch(label):
                continue
            sensor = f"{chip.name}/{label}" if often[label] == 1 else f"{chip.name}/{label} ({place})"
            try:
                celsius = self._celsius(chip, place)
            except OSError as error:
                yield failure(sensor, error)
                continue
            if celsius is not None:
                yield Temperature(sensor=sensor, temperature_celsius=celsius)

    def _celsius(self, chip: Chip, place: str) -> float | None:
        try:
            millidegrees = self._files.integer(f"{chip.directory}/{place}_input")
        except BlockingIOError:  # the chip has not measured yet
            return None
        if millidegrees is None or self._files.integer(f"{chip.directory}/{place}_fault"):
            return None
        celsius = millidegrees / MILLIDEGREES
        return celsius if POSSIBLE_CELSIUS[0] < celsius < POSSIBLE_CELSIUS[1] else None

    def _powers(self, chip: Chip) -> Iterator[Reading]:
        for attribute in chip.attributes:
            found = POWER.fullmatch(attribute)
            if found is None:
                continue
            sensor = f"{chip.name}/{self._label(chip, found[1])}"
            try:
                microwatts = self._files.integer(f"{chip.directory}/{attribute}")
                scope = self._scope(chip, found[1])
            except OSError as error:
                yield failure(sensor, error)
                continue
            if microwatts is not None:
                yield BoardPower(
                    sensor=sensor,
                    scope=scope,
                    kind=POWER_KIND[found[2]],
                    power_watts=microwatts / MICROWATTS,
                )

    def _scope(self, chip: Chip, place: str) -> str:
        if chip.driver != "power_meter":
            return "other"
        measured = self._files.text(f"{chip.directory}/{place}_oem_info") or ""
        return next((scope for text, scope in GRACE_SCOPES if measured.startswith(text)), "platform")

    def _label(self, chip: Chip, place: str) -> str:
        """What a sensor is called; the name of its attribute when it is not, or does not say."""
        try:
            return self._files.text(f"{chip.directory}/{place}_label") or place
        except OSError:
            return place
