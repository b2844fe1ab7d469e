"""Training runs, from the event files that they write for TensorBoard.

Files are found by `event_files`, followed by `tail`, decoded by `tfevents`; `tags` says what a tag means, and
`state` keeps what is known of a run. What is read in one pass is bounded: a large backlog is worked off in
several, and all files get their turn.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from clusterwatt.catalog import STANDARD, Table
from clusterwatt.clock import Clock
from clusterwatt.config.model import Training as Settings
from clusterwatt.config.model import node_name
from clusterwatt.failures import failure
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.training import (
    TrainingNonfinite,
    TrainingProgress,
    TrainingQuality,
    TrainingRun,
    TrainingScalar,
)
from clusterwatt.sysfs import NOT_OFFERED
from clusterwatt.training import reported
from clusterwatt.training.event_files import Finder, Place
from clusterwatt.training.reported import Mailbox, ReportedRuns
from clusterwatt.training.state import NEVER_S, RunState
from clusterwatt.training.tags import Meaning, Tags, better
from clusterwatt.training.tail import News, Tail
from clusterwatt.training.writers import Process, Writers

BYTES_A_PASS = 16 << 20
SHARE_OF_TIME = 0.25  # that reading may take, whatever anybody writes into the files
BYTES_OF_A_FILE = 2 << 20
MAX_FILES = 2_048
AHEAD_S = 86_400.0  # an event of the day after tomorrow would stand as the newest until then
ASK_AGAIN_SECONDS = 30.0
FORGET_LEFT_OUT_SECONDS = 120.0  # each folder is looked at more often

BY_RUN = ("run", "job_id")
RUN = Table(TrainingRun, labels=(*BY_RUN, "framework"))
PROGRESS = Table(TrainingProgress, labels=BY_RUN)
QUALITY = Table(TrainingQuality, labels=(*BY_RUN, "split"))
SCALAR = Table(TrainingScalar, labels=(*BY_RUN, "tag"))
NONFINITE = Table(TrainingNonfinite, labels=(*BY_RUN, "tag"))
METRICS = (
    RUN.info("training_info", "A training run, and the framework that its tags tell.", STANDARD),
    PROGRESS.gauge(
        "training_step",
        "Step of the event with the latest wall time; goes back when a run is resumed.",
        "step",
    ),
    QUALITY.gauge("training_loss", "Newest loss; absent while it is not a finite number.", "loss", STANDARD),
    QUALITY.gauge(
        "training_accuracy", "Newest accuracy; absent while it is not a finite number.", "accuracy", STANDARD
    ),
    PROGRESS.gauge("training_gradient_norm", "Newest norm of the gradients.", "gradient_norm", STANDARD),
    PROGRESS.gauge("training_learning_rate", "Newest learning rate.", "learning_rate", STANDARD),
    PROGRESS.gauge(
        "training_step_duration_seconds",
        "Time of a step, mean of the newest that were logged.",
        "step_duration_seconds",
        STANDARD,
    ),
    PROGRESS.counter(
        "training_tokens_total",
        "Tokens that the run was trained on, over all ranks; stands still while a resumed run repeats some.",
        "tokens_total",
        STANDARD,
    ),
    PROGRESS.gauge(
        "training_tokens_per_second", "Newest rate of tokens, over all ranks.", "tokens_per_second", STANDARD
    ),
    PROGRESS.gauge(
        "training_samples_per_second",
        "Newest rate of samples, over all ranks.",
        "samples_per_second",
        STANDARD,
    ),
    SCALAR.gauge(
        "training_scalar", "Newest value of a tag that the configuration lets through.", "scalar", STANDARD
    ),
    NONFINITE.counter(
        "training_nonfinite_total",
        "Values that were NaN or infinite since the run was found; steps skipped by loss scaling are not.",
        "nonfinite",
    ),
    PROGRESS.gauge(
        "training_last_event_timestamp_seconds",
        "When the run logged last, by its own clock.",
        "last_event_timestamp_seconds",
    ),
    PROGRESS.gauge(
        "training_last_checkpoint_timestamp_seconds",
        "When the run last said that it wrote a checkpoint.",
        "last_checkpoint_timestamp_seconds",
        STANDARD,
    ),
    *reported.METRICS,
)

# What is done with the values of a tag: what it means, and whether it is exported under its own name.
Use = tuple["Meaning | None", bool]


class _File:
    """An event file that is followed, and the run it belongs to."""

    def __init__(
        self, place: Place, state: RunState, tags: Tags, tail_bytes: int | None, *, history: bool
    ) -> None:
        self.place = place
        self.state = state
        self.corrupt = 0
        self.asked_s: float | None = None  # when its owner was asked for
        self.tail = Tail(place.path, self._wanted, tail_bytes=tail_bytes, history=history)
        self._tags = tags
        self._uses: dict[str, Use] = {}

    def take(self, news: News, latest_s: float) -> bool:
        """Give what is new to the run; returns whether an event was left out whose time cannot be."""
        take, uses = self.state.take, self._uses
        count, ahead = not news.history, False
        for tag, value, step, wall_s in news.scalars:
            if not 0.0 < wall_s <= latest_s:
                ahead = True
                continue
            meaning, exported = uses.get(tag) or self._use(tag)
            if meaning is not None:
                amount = meaning.of(value) if meaning.inverse else value
                iterations = meaning.counts_iterations
                take(meaning.quantity, amount, step, wall_s, counts_iterations=iterations, count=count)
            if exported:
                self.state.take_scalar(tag, value, step, wall_s)
        if news.other is not None and 0.0 < news.other.wall_s <= latest_s:
            self.state.seen(*news.other)
        if news.checkpoint_s is not None:
            self.state.last_checkpoint_s = max(news.checkpoint_s, self.state.last_checkpoint_s or 0.0)
        return ahead

    def broken(self) -> int:
        """How often something could not be decoded since the last time that this was asked."""
        known, self.corrupt = self.corrupt, self.tail.corrupt + self.tail.malformed
        return self.corrupt - known

    def _wanted(self, tag: str) -> bool:
        self.state.framework = better(self._tags.framework(tag), self.state.framework)
        return self._tags.wanted(tag)

    def _use(self, tag: str) -> Use:
        meaning = self._tags.meaning(tag, evaluation=self.place.evaluation)
        use = self._uses[tag] = (meaning, self._tags.exported(tag))
        return use


class TrainingCollector:
    """Follows the files of all live runs of this node, and takes what runs report out of the mailbox.

    `process` and `members`: see `Writers`.

    `job_id` of its readings is what a process shows (`slurm/211`, `pod/<uid>`): attribution knows the job.
    """

    name = "training"

    def __init__(
        self,
        root: str,
        settings: Settings,
        clock: Clock,
        *,
        host: str = "",
        process: Callable[[int], Process | None] = lambda _: None,
        members: Callable[[], Mapping[str, str]] = dict,
        mailbox: Mailbox | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._tags = Tags(settings)
        self._writers = Writers(settings, host or node_name(), process, members)
        self._finder = Finder(
            [root.rstrip("/") + directory for directory in settings.directories],
            self._writers.accepts,
            clock,
        )
        self._reported = ReportedRuns(mailbox or Mailbox(), settings, clock)
        self._files: dict[str, _File] = {}
        self._runs: dict[str, RunState] = {}
        self._left_out_s: float | None = None  # when a live run was left out last

    def collect(self) -> Iterator[Reading]:
        """The newest of every live run."""
        began, began_s = not self._finder.complete, self._clock.monotonic_s()
        for state in self._runs.values():
            state.date_back(self._clock.wall_s())
        for place, found in self._finder.look():
            self._consider(place, found, history=began)
        yield from self._finder.failures()
        yield from self._read()
        self._let_go()
        yield from self._reported.take(self._runs)
        yield from self._left_out(began_s)
        for run in sorted(self._runs):
            state = self._runs[run]
            if state.last_event_s != NEVER_S:
                yield from state.readings()
        yield from self._reported.readings(self._runs)

    def _consider(self, place: Place, found: os.stat_result, *, history: bool) -> None:
        """Follow a file that was found, if it is live and there is room."""
        known = self._files.get(place.path)
        if known is not None:
            self._find_owner(known, found.st_uid)
            return
        if not self._live(found.st_mtime):
            return
        moved = self._same_file(place, found)
        if moved is not None:
            if moved.tail.in_place():
                return  # another way to a file that is followed already
            del self._files[moved.tail.path]
            moved.tail.path = place.path
            self._files[place.path] = moved
            return
        if not self._make_room(place.run, found.st_mtime):
            self._left_out_s = self._clock.monotonic_s()
            return
        state = self._runs.setdefault(place.run, RunState(place.run))
        tail_bytes = self._settings.tail_bytes if self._settings.read_from == "tail" else None
        file = _File(place, state, self._tags, tail_bytes, history=history)
        file.tail.written_s = found.st_mtime
        self._files[place.path] = file
        self._find_owner(file, found.st_uid)

    def _same_file(self, place: Place, found: os.stat_result) -> _File | None:
        """The followed file that this one is, under another path. Numbers of inodes are given out again."""
        identity, name = (found.st_dev, found.st_ino), os.path.basename(place.path)
        for file in self._files.values():
            same = file.tail.identity == identity and found.st_size >= file.tail.size
            if same and name.startswith(os.path.basename(file.tail.path)):
                return file
        return None

    def _find_owner(self, file: _File, uid: int) -> None:
        """Ask whose a run is, by its newest file: when that is new, and while nobody knows."""
        now_s = self._clock.monotonic_s()
        asked_s = file.asked_s
        if asked_s is not None and (file.state.owner or now_s - asked_s < ASK_AGAIN_SECONDS):
            return
        file.asked_s = now_s
        newest = max(
            (other.place.name.created_s or 0.0) for other in self._files.values() if other.state is file.state
        )
        if (file.place.name.created_s or 0.0) >= newest:
            file.state.owner = self._writers.owner(file.place, uid)

    def _make_room(self, run: str, written_s: float) -> bool:
        """Whether one more file may be followed; the one that is silent longest makes room for a newer."""
        full = len(self._files) >= MAX_FILES
        if not full and (run in self._runs or len(self._runs) < self._settings.max_runs):
            return True
        oldest = min(self._files.values(), key=lambda file: file.tail.written_s)
        if oldest.tail.written_s + ASK_AGAIN_SECONDS > written_s:
            return False
        for file in [file for file in self._files.values() if file.state is oldest.state]:
            self._drop(file)
        self._runs.pop(oldest.place.run, None)
        self._left_out_s = self._clock.monotonic_s()
        return True

    def _left_out(self, began_s: float) -> Iterator[Failure]:
        if self._left_out_s is not None and began_s - self._left_out_s < FORGET_LEFT_OUT_SECONDS:
            limit = f"training.max_runs ({self._settings.max_runs}): further live runs are left out"
            yield Failure("runs", "too_many", limit, ongoing=self._left_out_s < began_s)

    def _read(self) -> Iterator[Failure]:
        """Read what was appended to each file; those that did not get their turn come first the next time."""
        budget = BYTES_A_PASS
        latest_s = self._clock.wall_s() + AHEAD_S
        until_s = self._clock.monotonic_s() + SHARE_OF_TIME * self._settings.every_seconds
        for path in list(self._files):
            if budget <= 0 or self._clock.monotonic_s() > until_s:
                break
            file = self._files.pop(path)
            try:
                got = file.tail.read(min(budget, BYTES_OF_A_FILE))
            except OSError as error:
                if error.errno in NOT_OFFERED:
                    continue
                yield failure(path, error)
                got = None
            self._files[path] = file
            if got is None:
                continue
            budget -= got[1]
            if file.take(got[0], latest_s):
                yield Failure(path, "clock", "it has events of no time or of the future, which are left out")
            broken = file.broken()
            if broken:
                yield Failure(path, "corrupt", f"{broken} times; the records around are read")

    def _let_go(self) -> None:
        """Stop following files that are silent, and forget runs without one."""
        for file in list(self._files.values()):
            if file.tail.identity is not None and not self._live(file.tail.written_s):
                self._drop(file)
        followed = {file.place.run for file in self._files.values()}
        for run in self._runs.keys() - followed:
            del self._runs[run]

    def _drop(self, file: _File) -> None:
        self._files.pop(file.tail.path, None)

    def _live(self, written_s: float) -> bool:
        return self._clock.wall_s() - written_s <= self._settings.live_seconds
