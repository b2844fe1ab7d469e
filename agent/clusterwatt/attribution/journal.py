"""What has been booked since the last commit, by full hour, and what was measured in the same time."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from clusterwatt.attribution.entries import Amounts, Baseline, Batch, Entry, JobRecord

HOUR_S = 3600


class Page(msgspec.Struct):
    """One hour's. `measured_joules` is summed from the devices, not from the entries."""

    entries: dict[Entry, Amounts] = msgspec.field(default_factory=dict)
    measured_joules: float = 0.0
    unobserved_seconds: float = 0.0


class Journal:
    """Gathers bookings until they are taken."""

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id
        self._pages: dict[int, Page] = {}

    def book(self, wall_s: float, entry: Entry, amounts: Amounts) -> None:
        """Add amounts to an entry, in the hour of the calendar's time."""
        entries = self._page(wall_s).entries
        if entry in entries:
            entries[entry].add(amounts)
        else:
            entries[entry] = amounts

    def measured(self, wall_s: float, joules: float) -> None:
        """Note what a device measured, whoever it is booked to."""
        self._page(wall_s).measured_joules += joules

    def unobserved(self, wall_s: float, seconds: float) -> None:
        """Note seconds in which nobody measured the node."""
        self._page(wall_s).unobserved_seconds += seconds

    def take(
        self, wall_s: float, jobs: tuple[JobRecord, ...], baselines: Mapping[str, Baseline]
    ) -> list[Batch]:
        """A batch for each hour, and begin anew; jobs and baselines go with the last."""
        self._page(wall_s)
        *earlier, (hour_s, last) = sorted(self._pages.items())
        self._pages = {}
        batches = [self._batch(wall_s, hour, page) for hour, page in earlier]
        newest = self._batch(wall_s, hour_s, last)
        return [*batches, msgspec.structs.replace(newest, jobs=jobs, baselines=dict(baselines))]

    def _page(self, wall_s: float) -> Page:
        return self._pages.setdefault(int(wall_s // HOUR_S) * HOUR_S, Page())

    def _batch(self, wall_s: float, hour_s: int, page: Page) -> Batch:
        return Batch(
            wall_s=wall_s,
            boot_id=self._boot_id,
            hour_s=hour_s,
            entries=page.entries,
            measured_joules=page.measured_joules,
            unobserved_seconds=page.unobserved_seconds,
        )
