"""Event files on disk: what their names say, and where they are.

A name is `<prefix>.out.tfevents.<time>.<host>[.<pid>.<number>][.<suffix>]`: EventFileWriter of tensorboard,
which torch.utils.tensorboard has too, and EventsWriter of TensorFlow; tensorboardX leaves out pid and number.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.failures import failure
from clusterwatt.readings.base import Failure
from clusterwatt.sysfs import NOT_OFFERED

MARK = "tfevents"  # what TensorBoard looks for (tensorboard/backend/event_processing/io_wrapper.py)
NAME = re.compile(
    r"\.out\.tfevents\.(?P<time>\d{1,12})\.(?P<host>.+?)(?:\.(?P<pid>\d{1,10})\.\d+(?:\.v2)?)?$"
)

EVALUATION_FOLDERS = frozenset({"validation", "val", "eval"})
TRAINING_FOLDER = "train"

FRESH_SECONDS = 600.0  # a folder in which something changed so recently is looked at more often
FRESH_EVERY_SECONDS = 5.0
STILL_EVERY_SECONDS = 60.0
SETTLED_SECONDS = 5.0  # a younger change may be followed by one at the same tick of the file system's clock
FOLDERS_A_PASS = 500
MAX_FOLDERS = 20_000
MAX_ENTRIES = 20_000  # of one folder
MAX_DEPTH = 8


class Name(msgspec.Struct, frozen=True):
    """What the name of an event file says; `host` is empty and `pid` None where it does not."""

    created_s: float | None = None
    host: str = ""
    pid: int | None = None


def parse_name(name: str) -> Name:
    """Take the name of an event file apart."""
    match = NAME.search(name)
    if match is None:
        return Name()
    pid = match["pid"]
    return Name(float(match["time"]), match["host"], None if pid is None else int(pid))


class Place(msgspec.Struct, frozen=True):
    """An event file. `run`: which run it belongs to. `evaluation`: it is in a folder for evaluation."""

    path: str
    run: str
    evaluation: bool
    name: Name


class _Folder(msgspec.Struct):
    """A folder that was seen. `top`: the configured one above it. `changed_ns`: when it changed last."""

    top: str
    parts: tuple[str, ...]
    changed_ns: int = -1
    files: tuple[Place, ...] = ()


class Finder:
    """Walks the configured folders, a part of them at each pass, and lists anew only what has changed.

    A folder that has not changed costs one stat, and so does each event file that is accepted: on a shared
    file system it is listings that are dear. Links are not followed, but for the configured folders.
    """

    def __init__(self, directories: Iterable[str], accepts: Callable[[Name], bool], clock: Clock) -> None:
        self._accepts = accepts
        self._clock = clock
        self._tops = tuple(dict.fromkeys(directory.rstrip("/") or "/" for directory in directories))
        self._folders = {top: _Folder(top, ()) for top in self._tops}
        self._due = [(0.0, top) for top in self._tops]
        self._top_of_run: dict[str, str] = {}
        self._failures: dict[str, Failure] = {}
        self._tried: set[str] = set()
        self.complete = False

    def failures(self) -> Iterator[Failure]:
        """Folders that could not be read when they were looked at last; ongoing where that was earlier."""
        for path, failed in self._failures.items():
            yield failed if path in self._tried else msgspec.structs.replace(failed, ongoing=True)

    def look(self) -> Iterator[tuple[Place, os.stat_result]]:
        """Go on with the walk: accepted event files in folders that are due. `complete` after the first."""
        now_s = self._clock.monotonic_s()
        self._tried.clear()
        for _ in range(FOLDERS_A_PASS):
            if not self._due or self._due[0][0] > now_s:
                self.complete = True
                return
            _, path = heapq.heappop(self._due)
            folder = self._folders[path]
            self._tried.add(path)
            try:
                fresh = self._visit(path, folder)
            except OSError as error:
                fresh = False
                gone = error.errno in NOT_OFFERED or error.errno == errno.ESTALE
                if gone:
                    self._failures.pop(path, None)
                else:
                    self._failures[path] = failure(path, error)
                if gone and folder.parts:
                    del self._folders[path]
                    continue
                folder.changed_ns, folder.files = -1, ()
            every_s = FRESH_EVERY_SECONDS if fresh or not folder.parts else STILL_EVERY_SECONDS
            heapq.heappush(self._due, (now_s + every_s, path))
            yield from self._stated(folder.files)

    def _visit(self, path: str, folder: _Folder) -> bool:
        """List a folder if it has changed; returns whether it did lately. Raises OSError."""
        changed_ns = os.stat(path).st_mtime_ns
        age_s = self._clock.wall_s() - changed_ns / 1e9
        if changed_ns != folder.changed_ns:
            self._list(path, folder)
            folder.changed_ns = changed_ns if age_s > SETTLED_SECONDS else -1
        return age_s < FRESH_SECONDS

    def _list(self, path: str, folder: _Folder) -> None:
        self._failures.pop(path, None)
        files: list[Place] = []
        with os.scandir(path) as entries:
            for number, entry in enumerate(entries):
                if number == MAX_ENTRIES or len(self._folders) >= MAX_FOLDERS:
                    self._failures[path] = Failure(path, "limit", "there is more in it than is looked at")
                    break
                if entry.is_dir(follow_symlinks=False):
                    if len(folder.parts) < MAX_DEPTH and entry.path not in self._folders:
                        self._folders[entry.path] = _Folder(folder.top, (*folder.parts, entry.name))
                        heapq.heappush(self._due, (0.0, entry.path))
                elif MARK in entry.name and not entry.is_symlink():
                    run, evaluation = self._run_of(folder)
                    files.append(Place(entry.path, run, evaluation, parse_name(entry.name)))
        folder.files = tuple(files)

    def _run_of(self, folder: _Folder) -> tuple[str, bool]:
        """The run whose files are in a folder, and whether it is that of its evaluation."""
        parts = folder.parts
        evaluation = parts[-1:] != () and parts[-1] in EVALUATION_FOLDERS
        if evaluation or parts[-1:] == (TRAINING_FOLDER,):
            parts = parts[:-1]
        run = "/".join(parts) or os.path.basename(folder.top) or folder.top
        if self._top_of_run.setdefault(run, folder.top) != folder.top:
            run = "/".join((folder.top, *parts))  # another configured folder has a run of this name
        return run, evaluation

    def _stated(self, places: Iterable[Place]) -> Iterator[tuple[Place, os.stat_result]]:
        for place in places:
            if self._accepts(place.name):
                with contextlib.suppress(OSError):  # gone since
                    yield place, os.stat(place.path, follow_symlinks=False)
