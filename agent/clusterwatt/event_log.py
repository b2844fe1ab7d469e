"""One line in the log for each XID and SXid: what it was, what to do, where.

A code that comes again and again on one GPU (an aborted job leaves hundreds of XID 45) has a line a minute,
which says how many went before it without one.
"""

from __future__ import annotations

import logging

from clusterwatt.clock import Clock
from clusterwatt.readings.gpu_measured import HardwareEvent

log = logging.getLogger("clusterwatt.events")

EVERY_S = 60.0
MOST_LINES = 100  # in that time, of all codes together
LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.ERROR}


class EventLog:
    """Takes events and logs them. Belongs to one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged_s: dict[tuple[str, ...], float] = {}
        self._unlogged: dict[tuple[str, ...], int] = {}
        self._lines: list[float] = []

    def __call__(self, event: HardwareEvent) -> None:
        """Log an event, or count it for the next line of its kind."""
        now_s = self._clock.monotonic_s()
        key = (event.kind, str(event.code), event.uuid or event.pci, event.switch)
        self._lines = [line_s for line_s in self._lines if now_s - line_s < EVERY_S]
        recent = now_s - self._logged_s.get(key, now_s - EVERY_S) < EVERY_S
        if recent or len(self._lines) >= MOST_LINES:
            self._unlogged[key] = self._unlogged.get(key, 0) + 1
            return
        self._logged_s[key] = now_s
        self._lines.append(now_s)
        level = logging.INFO if event.echo else LEVELS[event.severity]
        log.log(level, self._text(event), extra=self._fields(event, self._unlogged.pop(key, 0)))

    def _text(self, event: HardwareEvent) -> str:
        what = "XID" if event.kind == "xid" else "SXid"
        where = "an echo of the one before. " if event.echo else ""
        return f"{what} {event.code} {event.name}: {where}{event.text}"

    def _fields(self, event: HardwareEvent, unlogged: int) -> dict[str, object]:
        fields: dict[str, object] = {
            "gpu": event.gpu,
            "uuid": event.uuid,
            "switch": event.switch,
            "pci": event.pci,
            "instance": event.instance,
            "xid_class": event.xid_class,
            "severity": event.severity,
            "fatality": event.fatality,
            "action": event.action,
            "detail": event.detail,
            "more": unlogged or "",
        }
        return {name: field for name, field in fields.items() if field != ""}
