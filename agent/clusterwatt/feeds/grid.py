"""Carbon intensity in use: of a service while its word is young, else the site's constant, else the table.

A failure is no value: what a service said last stands until it is too old. Means and marginal values are
never exchanged for each other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timezone

import msgspec

from clusterwatt import intensity_table
from clusterwatt.catalog import STANDARD, Table
from clusterwatt.clock import EARLY, Clock
from clusterwatt.config.model import Grid as Settings
from clusterwatt.feeds import service
from clusterwatt.feeds.fetch import SilentError
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.work import CarbonIntensity

log = logging.getLogger("clusterwatt.feeds.grid")

RETRY_SECONDS = 60.0

INTENSITY = Table(CarbonIntensity, labels=("source", "zone", "basis"))
METRICS = (
    INTENSITY.gauge(
        "carbon_intensity_grams_per_kwh",
        "Carbon per energy from the grid, in use now.",
        "grams_per_kwh",
        level=STANDARD,
    ),
    INTENSITY.gauge(
        "carbon_intensity_timestamp_seconds",
        "Unix time for which the carbon intensity in use was stated.",
        "stated_timestamp_seconds",
        level=STANDARD,
    ),
)


class _Kept(msgspec.Struct, frozen=True):
    """A value of the service, and the monotonic time until which it may be used."""

    intensity: CarbonIntensity
    until_s: float


class GridCollector:
    """Yields the one intensity in use; a `Failure` of the whole while a configured service is silent.

    `example`: whether GPUs are simulated now; then, without any setting, the world's mean is used, marked so.
    """

    name = "grid"

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        *,
        example: Callable[[], bool] = bool,
        ask: service.Ask = service.ask,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._ask = ask
        self._example = example
        self._kept: _Kept | None = None
        self._why = ""
        self._next_s = clock.monotonic_s()
        self._cautioned = False

    def collect(self) -> Iterator[Reading]:
        """The intensity in use, if there is one."""
        substitute = self._substitute()
        if not self._settings.service.url:
            if substitute is not None:
                yield substitute
            return
        asked = self._refresh()
        kept = self._kept if self._kept and self._clock.monotonic_s() < self._kept.until_s else None
        if self._settings.service.basis != "average":
            substitute = None
        in_use = substitute if kept is None else kept.intensity
        if in_use is not None:
            yield in_use
        if self._why:
            reason, consequence = _standing(in_use, substitute)
            host = service.host(self._settings.service)
            yield Failure("", reason, f"{host}: {self._why}; {consequence}", ongoing=not asked)

    def _refresh(self) -> bool:
        """Ask the service when that is due; whether it was asked."""
        settings, now_s = self._settings.service, self._clock.monotonic_s()
        # A pass that comes a little early is still this one.
        if now_s < self._next_s - EARLY * self._settings.every_seconds:
            return False
        try:
            self._keep(self._ask(settings, self._clock))
        except SilentError as error:
            self._why = str(error)
            self._next_s = now_s + RETRY_SECONDS
        else:
            self._why = ""
            self._next_s = now_s + settings.every_seconds
        return True

    def _keep(self, stated: service.Stated) -> None:
        settings, wall_s = self._settings.service, self._clock.wall_s()
        age_s = 0.0 if stated.stated_s is None else wall_s - stated.stated_s
        if abs(age_s) > settings.max_age_seconds:
            raise SilentError(f"its value is stated for {age_s / 3600:.3g} h ago: check time_path and clocks")
        intensity = CarbonIntensity(
            source=service.host(settings),
            zone=self._settings.zone,
            basis=settings.basis,
            grams_per_kwh=stated.grams_per_kwh,
            stated_timestamp_seconds=wall_s - age_s,
        )
        self._kept = _Kept(intensity, self._clock.monotonic_s() + settings.max_age_seconds - max(0.0, age_s))

    def _substitute(self) -> CarbonIntensity | None:
        """What holds without a service: the constant, else the table's row."""
        settings = self._settings
        if settings.grams_per_kwh:
            return CarbonIntensity("configured", settings.zone, "average", settings.grams_per_kwh, None)
        example = not settings.zone and not settings.service.url and self._example()
        zone = intensity_table.WORLD if example else settings.zone
        row = intensity_table.rows().get(zone) if zone else None
        if row is None:
            return None
        if not self._cautioned and not example:
            self._cautioned = True
            for caution in intensity_table.cautions(row, _utc(self._clock.wall_s()).year):
                log.warning("%s", caution)
        source = "example" if example else row.source
        return CarbonIntensity(source, row.zone, "average", row.grams_per_kwh, _start_of(row.year))


def _standing(in_use: CarbonIntensity | None, substitute: CarbonIntensity | None) -> tuple[str, str]:
    """The state that a silent service has left us in: a short word, and what it means."""
    if in_use is None:
        return "no_value", "energy has no carbon until it answers"
    if in_use is substitute:
        return "fallback", f"{in_use.grams_per_kwh:g} g/kWh ({in_use.source}) is used instead"
    return (
        "silent",
        f"its {in_use.grams_per_kwh:g} g/kWh of {_when(in_use.stated_timestamp_seconds or 0)} stand",
    )


def _start_of(year: int) -> float:
    return datetime(year, 1, 1, tzinfo=timezone.utc).timestamp()


def _utc(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, timezone.utc)


def _when(unix_s: float) -> str:
    return _utc(unix_s).strftime("%Y-%m-%d %H:%M UTC")
