"""What was learnt of the hardware by watching it, kept over restarts of the agent.

A port that went down yesterday should be up today too, though the agent of today has never seen it up. One
small JSON file holds for each kind of knowledge and each item the highest value and the day on which the item
was last seen as it should be. What was not seen so for a week is forgotten with the next start: the hardware
is another, or people want it so.

Sources and meters learn on their own threads; the file is written from a thread of its own when what is known
has changed, once a day for what is only seen again.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import msgspec

from clusterwatt import plain_file, whole_file
from clusterwatt.clock import Clock
from clusterwatt.worker import Outcome, Worker

log = logging.getLogger("clusterwatt.learnt")

FORGOTTEN_S = 7 * 86_400.0
SEEN_AGAIN_S = 86_400.0  # being seen is written down no more often
MOST_ITEMS = 4_096  # of a kind; beyond, the one not seen for longest goes
MAX_BYTES = 4 << 20


class Known(msgspec.Struct):
    """The highest value of an item, and the Unix time at which it was last seen as it should be."""

    value: float
    seen_s: float


class Learnt:
    """Remembers the highest value of each item. `path` None: for as long as the agent runs.

    `writes`: False for a process that runs beside the agent whose file it is.
    """

    def __init__(self, path: Path | None, clock: Clock, *, writes: bool = True) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds = {} if path is None else _read(path, clock.wall_s())
        self._changed = False
        self._worker = Worker("learnt", clock) if path is not None and writes else None

    def most(self, kind: str, item: str, value: float) -> float:
        """See an item as it should be; returns the highest value of all times."""
        now_s = self._clock.wall_s()
        with self._lock:
            items = self._kinds.setdefault(kind, {})
            known = items.get(item)
            if known is None or value > known.value or abs(now_s - known.seen_s) > SEEN_AGAIN_S:
                items[item] = known = Known(max(value, known.value if known else value), now_s)
                self._changed = True
                if len(items) > MOST_ITEMS:
                    del items[min(items, key=lambda each: items[each].seen_s)]
            return known.value

    def of(self, kind: str) -> dict[str, float]:
        """Every item of a kind and its highest value."""
        with self._lock:
            return {item: known.value for item, known in self._kinds.get(kind, {}).items()}

    def keep(self) -> None:
        """Have the file written if anything has changed; never waits. To be called from one thread."""
        path, worker = self._path, self._worker
        if path is None or worker is None or worker.busy_since_s is not None:
            return
        with self._lock:
            if not self._changed:
                return
            text = msgspec.json.encode(self._kinds).decode()
            self._changed = False

        def write() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            whole_file.write(path, text)

        worker.start(write, _written)

    def close(self) -> None:
        """End the thread that writes, with what it has to write."""
        if self._worker is not None:
            self.keep()
            self._worker.stop()


def _read(path: Path, now_s: float) -> dict[str, dict[str, Known]]:
    """What the file holds; nothing, with one line in the log, when it cannot be understood."""
    try:
        text = plain_file.content(path, MAX_BYTES)  # of a longer one the end is missing: it is not understood
        kinds = msgspec.json.decode(text, type=dict[str, dict[str, Known]])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("%s: cannot be read (%s); what ports and links should be is learnt anew", path, error)
        return {}
    return {
        kind: {item: known for item, known in items.items() if now_s - known.seen_s <= FORGOTTEN_S}
        for kind, items in kinds.items()
    }


def _written(outcome: Outcome[None]) -> None:
    if outcome.error is not None:
        log.warning("what was learnt of ports and links is not kept over a restart: %s", outcome.error)
