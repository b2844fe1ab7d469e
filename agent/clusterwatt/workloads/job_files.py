"""What our prolog says of a job: one file each in a folder of /run, written by deploy/slurm/prolog.

Lines of `key=value`; the values are a user's in part, so that a line break in one is a blank. The epilog
removes the file. One that it left behind is told by its job having no cgroup.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import msgspec

from clusterwatt.failures import failure
from clusterwatt.readings.base import Failure
from clusterwatt.sysfs import FLAGS, NOT_OFFERED, raise_unless_not_offered

MAX_BYTES = 16_384
MAX_FILES = 1024
NAME = re.compile(
    r"slurm-[0-9]{1,20}(?:\..*)?"
)  # what follows the point is the name of one of several slurmd
# What attribution takes for a device; anything else in a job's file is not passed on.
DEVICE = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,80}|(?:minor|index):[0-9]{1,4}")


class JobFile(msgspec.Struct, frozen=True):
    """A job as the prolog wrote it; what it was not told is empty. `gpus`: as in `Claim.device`."""

    job_id: str
    written_s: float
    uid: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    name: str = ""
    comment: str = ""
    array_job: str = ""
    array_task: str = ""
    nodes: str = ""
    started_s: float | None = None
    gpus: tuple[str, ...] = ()


class JobFiles:
    """The files of one folder; each is read once, for it is replaced and never changed."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._read: dict[str, tuple[tuple[int, int], JobFile]] = {}

    def read(self) -> Iterator[JobFile | Failure]:
        """A job, or what is wrong, for each file there is; none when the folder is not there.

        What cannot be read just now is as it was read last.
        """
        kept, self._read = self._read, {}
        try:
            names = self._names()
        except OSError as error:
            yield failure(self._directory, error)
            self._read = kept
            yield from (job for _, job in kept.values())
            return
        if len(names) > MAX_FILES:
            detail = (
                f"{len(names)} files of jobs, of which the {MAX_FILES} with the highest numbers are read: "
                "install deploy/slurm/epilog, which removes them, and remove what was left behind"
            )
            yield Failure(item=self._directory, reason="limit", detail=detail)
        for name in sorted(names, key=_number)[-MAX_FILES:]:
            path = f"{self._directory}/{name}"
            try:
                self._look(name, path, kept.get(name))
            except OSError as error:
                yield failure(path, error)
                if name in kept:
                    self._read[name] = kept[name]
            except ValueError as error:
                yield Failure(item=path, reason="malformed", detail=str(error))
            if name in self._read:
                yield self._read[name][1]

    def _names(self) -> list[str]:
        try:
            with os.scandir(self._directory) as entries:
                return [entry.name for entry in entries if NAME.fullmatch(entry.name)]
        except OSError as error:
            raise_unless_not_offered(error, self._directory)
            return []

    def _look(self, name: str, path: str, kept: tuple[tuple[int, int], JobFile] | None) -> None:
        """Read a file unless it is the one that was read before. Raises OSError or ValueError."""
        try:
            status = os.stat(path, follow_symlinks=False)
            identity = (status.st_ino, status.st_mtime_ns)
            if kept is None or kept[0] != identity:
                kept = identity, parse(_content(path), status.st_mtime)
        except OSError as error:
            if error.errno in NOT_OFFERED:
                return  # its job ended between listing and reading
            raise
        self._read[name] = kept


def _number(name: str) -> tuple[int, str]:
    """By this the files of newer jobs come later."""
    return int(name.removeprefix("slurm-").partition(".")[0]), name


def parse(text: str, written_s: float) -> JobFile:
    """The job that a file states. Raises ValueError, which says what is wrong, without the file's content."""
    said: dict[str, str] = {}
    for line in text.split("\n"):  # a name may hold other characters that end a line in Unicode
        key, equals, value = line.partition("=")
        if equals:
            said.setdefault(key, value.strip())
    if not re.fullmatch(r"[0-9]{1,20}", said.get("job_id", "")):
        raise ValueError("there is no line job_id= with a number; the file is not one of our prolog")
    gpus = tuple(dict.fromkeys(gpu for gpu in said.get("gpus", "").split(",") if gpu))
    if not all(DEVICE.fullmatch(gpu) for gpu in gpus):
        raise ValueError("gpus= holds what is neither a UUID nor minor:N or index:N")
    started = said.get("started", "")
    texts = ("uid", "user", "account", "partition", "name", "comment", "array_job", "array_task", "nodes")
    return JobFile(
        job_id=said["job_id"],
        written_s=written_s,
        started_s=float(started) if re.fullmatch(r"[0-9]{1,12}", started) else None,
        gpus=gpus,
        **{key: said.get(key, "") for key in texts},
    )


def _content(path: str) -> str:
    descriptor = os.open(path, FLAGS | os.O_NOFOLLOW)
    try:
        return os.read(descriptor, MAX_BYTES).decode("utf-8", "replace")
    finally:
        os.close(descriptor)
