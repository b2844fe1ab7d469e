"""Whether the agent may hold the NVIDIA driver, and how it is told to let go of it.

A process that has NVML open keeps the kernel module from being unloaded and a GPU from being reset. The
operator says so with a file, the release flag: an empty one, as `touch` makes it, asks for the whole driver;
one with UUIDs, one a line, asks that these GPUs are not read. It needs no port, outlives a restart of the
agent and is gone with the next boot. Beside it the agent writes what it has done about it.

NVML has no call that lets go of a single GPU: `nvmlShutdown` ends all of it. So a GPU whose UUID is listed is
not asked for anything any more, but the driver stays in use.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from clusterwatt import lock_file, plain_file, whole_file

UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"
MIG_STATE = "nvidia.com/mig.config.state"
OPERANDS = "nvidia.com/gpu.deploy."
PAUSED = "paused-"
MAX_BYTES = 1 << 16  # of a flag or an answer
# Earlier states (upgrade-required, cordon-required, wait-for-jobs-required) leave jobs on the GPUs, and can
# last for days: their energy is still to be counted. Later ones (uncordon-required, upgrade-done,
# upgrade-failed) have a driver again, or nobody who waits for us.
DRIVER_GOES = frozenset(
    {
        "pod-deletion-required",
        "drain-required",
        "node-maintenance-required",
        "post-maintenance-required",
        "pod-restart-required",
        "validation-required",
    }
)


class Release(msgspec.Struct, frozen=True):
    """What is to be let go of: the driver or single GPUs. `stamp` tells one state of the flag from others."""

    everything: bool = False
    uuids: frozenset[str] = frozenset()
    stamp: int = 0


HOLD = Release()


class Answer(msgspec.Struct, frozen=True):
    """What an agent has done about a flag. state: released, leaving, held.

    `stamp` is that of the flag; `host_pids` are the processes that still have the driver open; `known` the
    UUIDs of all GPUs, as far as a driver host has told them, `gpus` of those that are not read.
    """

    pid: int
    state: str
    stamp: int
    host_pids: list[int] = []
    gpus: list[str] = []
    known: list[str] = []


class ClaimedError(Exception):
    """Another agent answers at this flag."""


class ReleaseFlag:
    """The flag file, empty path: none. Read again only when it has changed; `look` is a single stat."""

    def __init__(self, path: str) -> None:
        self.path = Path(path) if path else None
        self._seen: tuple[int, int, int] | None = None
        self._release = HOLD

    def look(self) -> Release:
        """What is asked for now. A flag that is there and cannot be read asks for everything."""
        if self.path is None:
            return HOLD
        try:
            status = self.path.stat()
        except OSError:
            self._seen, self._release = None, HOLD
            return HOLD
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._seen, self._release = seen, _read(self.path, status.st_mtime_ns)
        return self._release


def ask(path: Path, uuid: str | None = None) -> Release:
    """Ask for the whole driver, or also for one GPU; the flag as it stands then. Raises OSError."""
    present = ReleaseFlag(str(path)).look()
    if uuid is not None and present.everything:
        return present  # more than that is asked for already
    _write(path, "" if uuid is None else "".join(f"{known}\n" for known in sorted(present.uuids | {uuid})))
    return ReleaseFlag(str(path)).look()


def withdraw(path: Path, uuid: str | None = None) -> Release:
    """Let the agent take up the driver, or one GPU, again; the flag as it stands then. Raises OSError."""
    present = ReleaseFlag(str(path)).look()
    rest = present.uuids - {uuid} if uuid is not None else frozenset()
    if uuid is not None and present.everything:
        return present
    if rest:
        _write(path, "".join(f"{known}\n" for known in sorted(rest)))
    else:
        path.unlink(missing_ok=True)
    return ReleaseFlag(str(path)).look()


def claim(path: Path) -> int | None:
    """Be the one agent that answers at a flag, for as long as the descriptor is open.

    Answers of two would be taken for each other's, and a driver for free that one of them holds. None where
    nothing may be written, so that no answer could be either. Raises ClaimedError, with what to do.
    """
    try:
        _make_folder(path)
        return lock_file.take(path.with_name(path.name + ".lock"))
    except lock_file.HeldError as held:
        raise ClaimedError(
            f"driver.release_file: {path}: another agent{held.who} answers there; "
            "end it, or name another file for this one"
        ) from None
    except OSError:
        return None


def answer(path: Path, said: Answer) -> None:
    """Leave an answer beside the flag. Raises OSError.

    It does not wait for the disk: it is written within the tick, and holds only while the agent runs.
    """
    _write(_answer_path(path), msgspec.json.encode(said).decode(), sync=False)


def last_answer(path: Path) -> Answer | None:
    """The newest answer; None when no agent has ever seen the flag, or its answer cannot be read."""
    try:
        return msgspec.json.decode(plain_file.content(_answer_path(path), MAX_BYTES), type=Answer)
    except (OSError, ValueError):
        return None


def may_hold_driver(labels: Mapping[str, str]) -> str | None:
    """Why the labels of a Kubernetes node forbid to hold the driver, for the log; None: they do not.

    They are set by NVIDIA's GPU operator when it replaces the driver, and by its MIG manager.
    """
    if labels.get(UPGRADE_STATE) in DRIVER_GOES:
        return "driver_upgrade"
    if labels.get(MIG_STATE) == "pending":
        return "mig_change"
    for name, value in labels.items():
        if name.startswith(OPERANDS) and value.startswith(PAUSED):
            return value.replace("-", "_")
    return None


def _read(path: Path, stamp: int) -> Release:
    try:
        uuids = frozenset(plain_file.content(path, MAX_BYTES).decode("utf-8", "replace").split())
    except OSError:
        uuids = frozenset()
    return Release(everything=not uuids, uuids=uuids, stamp=stamp)


def _answer_path(path: Path) -> Path:
    return path.with_name(path.name + ".answer")


def _make_folder(path: Path) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)


def _write(path: Path, text: str, *, sync: bool = True) -> None:
    """Replace a file whole; its folder is made."""
    _make_folder(path)
    whole_file.write(path, text, sync=sync)
