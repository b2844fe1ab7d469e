"""Energy counters of CPU packages and memory (RAPL), from /sys/class/powercap.

Documentation/power/powercap/powercap.rst. The zones of Intel and of AMD bear the same names. They overlap: a
package contains its `core` and `uncore`, `psys` the package and more; `dram` stands beside. What is
yielded does not overlap, so it may be added up. Counters are passed as they stand: they wrap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusterwatt.failures import failure
from clusterwatt.readings.base import Reading
from clusterwatt.readings.host import EnergyZone
from clusterwatt.sysfs import Files

MICROJOULES = 1e6
POWERCAP = "/sys/class/powercap"
# intel-rapl-mmio:0 is the first package once more, read another way.
ZONE = re.compile(r"intel-rapl:[0-9a-f]+")
PACKAGE = re.compile(r"package-([0-9a-f]+)(?:-die-([0-9a-f]+))?")


class RaplCollector:
    """Reads the counter of each package and of its memory; `psys` only where there is no package."""

    name = "rapl"

    def __init__(self, files: Files) -> None:
        self._files = files
        self._mirrors: dict[str, bool] = {}

    def collect(self) -> Iterator[Reading]:
        """One reading for each zone that counts. A counter that cannot be read yields none."""
        zones = [name for name in self._files.names(POWERCAP) if ZONE.fullmatch(name)]
        names = {zone: self._files.text(f"{POWERCAP}/{zone}/name") or "" for zone in zones}
        packages = {zone: name for zone, name in names.items() if PACKAGE.fullmatch(name)}
        for zone, name in (packages or names).items():
            if not self._is_mirror(zone, packages):
                yield from self._read(zone, name, "cpu")
        for zone, name in packages.items():
            yield from self._memory(zone, name)

    def _memory(self, package: str, package_name: str) -> Iterator[Reading]:
        for part in self._files.names(POWERCAP):
            if part.startswith(f"{package}:") and self._files.text(f"{POWERCAP}/{part}/name") == "dram":
                yield from self._read(part, f"{package_name}/dram", "dram")

    def _read(self, zone: str, name: str, component: str) -> Iterator[Reading]:
        try:
            counted = self._files.integer(f"{POWERCAP}/{zone}/energy_uj")
            highest = self._files.integer(f"{POWERCAP}/{zone}/max_energy_range_uj")
        except OSError as error:
            yield failure(name, error)
            return
        if counted is not None:
            yield EnergyZone(
                zone=name,
                component=component,
                energy_joules=counted / MICROJOULES,
                range_joules=highest / MICROJOULES if highest else None,
            )

    def _is_mirror(self, zone: str, packages: dict[str, str]) -> bool:
        """Whether a die's counter is that of an earlier die of the same package, or may be.

        AMD's dies all show the counter of their socket, which then would count once for each
        (mlco2/codecarbon#1274); Intel's have their own. Told once, from the first values.
        """
        known = self._mirrors.get(zone)
        if known is not None:
            return known
        same = [self._show_the_same(earlier, zone) for earlier in dies_before(zone, packages)]
        if True not in same and None in same:
            return True
        self._mirrors[zone] = True in same
        return self._mirrors[zone]

    def _show_the_same(self, one: str, other: str) -> bool | None:
        """A counter read between two reads of another lies between them if both are the same.

        None when one of them cannot be read now.
        """
        try:
            before, between, after = (
                self._files.integer(f"{POWERCAP}/{zone}/energy_uj") for zone in (one, other, one)
            )
        except OSError:
            return None
        if before is None or between is None or after is None:
            return None
        return before <= between <= after


def dies_before(zone: str, packages: dict[str, str]) -> Iterator[str]:
    """Zones of the earlier dies of the same package."""
    own = PACKAGE.fullmatch(packages.get(zone, ""))
    if own is None or own[2] is None:
        return
    for earlier, name in packages.items():
        if earlier == zone:
            return
        die = PACKAGE.fullmatch(name)
        if die is not None and die[1] == own[1]:
            yield earlier
