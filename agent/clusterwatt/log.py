"""What the agent says on standard error: one line an event, as logfmt for people or JSON for machines.

logfmt: `time=... level=warning logger=clusterwatt.driver msg="..." gpu=3`, the form of Prometheus and its
exporters (https://brandur.org/logfmt). Fields come from `extra=`. A line never holds a line break: names of
devices, mounts and processes are other people's text.
"""

from __future__ import annotations

import codecs
import json
import logging
import math
import re
import sys
from collections import deque
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TextIO

from clusterwatt.clock import Clock

OWN_ATTRIBUTES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
codecs.lookup("unicode_escape")  # now: its first use loads a file, which fails when descriptors run out
REPEAT_SECONDS = 600.0
CHANGES_PER_REPEAT = 6
CAUSE_SECONDS = 60.0
NUMBERS = re.compile(r"\d[\w.]*")


def configure(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send all logging to a stream, standard error unless told otherwise, in place of what was set before.

    `level` and `form` are the values of the settings log.level and log.format.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else LogfmtFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)


def fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """The fields of a line, in order; a traceback is a field like any other."""
    time = datetime.fromtimestamp(record.created, timezone.utc)
    yield "time", time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    yield "level", record.levelname.lower()
    yield "logger", record.name
    yield "msg", record.getMessage()
    for name, field in record.__dict__.items():
        if name not in OWN_ATTRIBUTES:
            yield name, field
    if record.exc_info:
        yield "exception", logging.Formatter().formatException(record.exc_info)


class LogfmtFormatter(logging.Formatter):
    """`name=value` pairs; a value that is not one plain word is quoted and escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        return " ".join(f"{name}={_quoted(str(field))}" for name, field in fields(record))


class JsonFormatter(logging.Formatter):
    """One JSON object a line, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        return json.dumps({name: _plain(field) for name, field in fields(record)})


class ChangeLog:
    """Logs a state when it changes, and a bad one again every ten minutes while it lasts.

    A state that flaps is logged a few times in ten minutes; then its changes are counted and told with the
    next line. Belongs to one thread.

    `tells_causes`: a bad state is logged as well when its message is another, numbers apart, than the last
    that was: once a minute at most, and it keeps back no change.
    """

    def __init__(self, logger: logging.Logger, clock: Clock, *, tells_causes: bool = False) -> None:
        self._logger = logger
        self._clock = clock
        self._tells_causes = tells_causes
        self._kept: dict[str, _Kept] = {}

    def bad(self, key: str, state: str, message: str, **extra: object) -> None:
        """Say that `key` is in a bad state: `state` is a short word, the message names the remedy."""
        kept = self._kept.setdefault(key, _Kept())
        self._log(kept, state, logging.WARNING, message, extra)

    def good(self, key: str, message: str, **extra: object) -> None:
        """Say that `key` is well; silent when it was so before."""
        kept = self._kept.get(key)
        if kept is None:
            return
        self._log(kept, "", logging.INFO, message, extra)
        if kept.told == kept.state and self._clock.monotonic_s() - kept.told_s >= REPEAT_SECONDS:
            del self._kept[key]

    def _log(self, kept: _Kept, state: str, level: int, message: str, extra: dict[str, object]) -> None:
        now_s = self._clock.monotonic_s()
        if state != kept.state:
            kept.state = state
            kept.changes += 1
        lines = kept.lines
        cause = NUMBERS.sub("0", message) if self._tells_causes else ""
        if state == kept.told:
            due_s = REPEAT_SECONDS if cause == kept.cause else CAUSE_SECONDS
            if not state or now_s - kept.told_s < due_s:
                return
        elif len(lines) == CHANGES_PER_REPEAT and now_s - lines[0] < REPEAT_SECONDS:
            return
        if kept.changes > 1:
            extra = {**extra, "changes": kept.changes}
        self._logger.log(level, message, extra=extra)
        if state != kept.told:
            lines.append(now_s)
        kept.told, kept.told_s, kept.cause = state, now_s, cause
        kept.changes = 0


class _Kept:
    """What is known of one key: its state, what was logged last and when, and when changes were."""

    __slots__ = ("cause", "changes", "lines", "state", "told", "told_s")

    def __init__(self) -> None:
        self.state: str | None = None
        self.told: str | None = None
        self.told_s = 0.0
        self.cause = ""
        self.changes = 0
        self.lines: deque[float] = deque(maxlen=CHANGES_PER_REPEAT)


def _quoted(text: str) -> str:
    if text and text.isprintable() and not any(character in ' ="\\' for character in text):
        return text
    escaped = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text.replace("\\", "\\\\").replace('"', '\\"')
    )
    return f'"{escaped}"'


def _plain(field: object) -> object:
    """What JSON can hold as it is; else its text."""
    if field is None or isinstance(field, bool | int | str):
        return field
    return field if isinstance(field, float) and math.isfinite(field) else str(field)
