"""`clusterwatt driver release`, `resume` and `status`: set the flag, wait until an agent has acted on it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from clusterwatt.clock import Clock
from clusterwatt.driver.holding import HOLD, Answer, Release, ReleaseFlag, ask, last_answer, withdraw

LOOK_EVERY_S = 0.1


class RefusedError(Exception):
    """What was asked for has not happened; the text is for the operator."""


class _UnansweredError(RefusedError):
    """What was asked for may still happen."""


def release(path: Path, uuid: str | None, timeout_s: float, clock: Clock) -> str:
    """Have the agent let go of the driver, or stop to read one GPU; what to say then. Raises RefusedError."""
    try:
        flag = ask(path, uuid)
    except OSError as error:
        raise RefusedError(f"{path}: cannot be written: {error.strerror}") from None

    try:
        if uuid is not None and not flag.everything:
            return _release_gpu(path, uuid, flag, timeout_s, clock)
        return _release_driver(path, flag, timeout_s, clock)
    except _UnansweredError as error:
        stands = f"The request {path} stands until `clusterwatt driver resume`"
        raise RefusedError(f"{error}. {stands}") from None


def _release_driver(path: Path, flag: Release, timeout_s: float, clock: Clock) -> str:
    def done(answer: Answer) -> bool:
        return answer.state == "released"

    answer = _wait(path, flag, done, timeout_s, clock)
    if not done(answer):
        raise _UnansweredError(
            f"{_processes(answer)} still has the driver open after {timeout_s:g} s: a call in it hangs. "
            "The agent makes no further ones; it kills the process only with driver.kill_hung"
        )
    return "released: no process of the agent has the driver open"


def _release_gpu(path: Path, uuid: str, flag: Release, timeout_s: float, clock: Clock) -> str:
    answer = _wait(path, flag, lambda answer: uuid in answer.gpus or _lacks(answer, uuid), timeout_s, clock)
    if _lacks(answer, uuid):
        withdraw(path, uuid)
        raise RefusedError(f"this node has no GPU {uuid}; it has {', '.join(answer.known)}")
    if uuid not in answer.gpus:
        raise _UnansweredError(
            f"agent {answer.pid} has not come to {uuid} within {timeout_s:g} s: see its log"
        )
    return f"{uuid} is not read any more; the driver stays in use: NVML cannot let go of a single GPU"


def resume(path: Path, uuid: str | None, timeout_s: float, clock: Clock) -> str:
    """Have the agent take up the driver, or one GPU, again; what to say then. Raises RefusedError."""
    before = ReleaseFlag(str(path)).look()
    if uuid and before.everything:
        raise RefusedError("the whole driver is released: resume without --uuid")
    if uuid and before.uuids and uuid not in before.uuids:
        raise RefusedError(f"{uuid} is not released; released are {', '.join(sorted(before.uuids))}")
    try:
        flag = withdraw(path, uuid)
    except OSError as error:
        raise RefusedError(f"{path}: cannot be removed: {error.strerror}") from None
    if before == HOLD:
        return "nothing was released"

    def done(answer: Answer) -> bool:
        return answer.state == "held" and bool(answer.host_pids) and set(answer.gpus) <= flag.uuids

    answer = _wait(path, flag, done, timeout_s, clock)
    if not done(answer):
        raise RefusedError(
            f"agent {answer.pid} has not started to read again within {timeout_s:g} s: see its log"
        )
    return f"{uuid} is read again" if uuid else "resumed: the agent reads the driver again"


def status(path: Path) -> list[str]:
    """What is asked for, and what the agent has last said about it."""
    flag, answer = ReleaseFlag(str(path)).look(), last_answer(path)
    if flag.everything:
        lines = [f"asked for: release of the driver ({path})"]
    elif flag.uuids:
        lines = [f"asked for: not to read {uuid} ({path})" for uuid in sorted(flag.uuids)]
    else:
        lines = [f"asked for: nothing ({path} does not exist)"]
    if answer is None:
        return [*lines, "agent: has not answered; it does so at the first request"]
    if not _runs(answer.pid):
        return [*lines, f"agent: does not run; {answer.pid}, which answered last, has ended"]
    if answer.stamp != flag.stamp:
        return [*lines, f"agent {answer.pid}: has not acted on this yet"]
    lines.append(
        f"agent {answer.pid}: {answer.state}" + (f", {_processes(answer)}" if answer.host_pids else "")
    )
    lines.extend(f"agent {answer.pid}: does not read {uuid}" for uuid in answer.gpus)
    lines.extend(
        f"agent {answer.pid}: has no GPU {uuid}" for uuid in sorted(flag.uuids) if _lacks(answer, uuid)
    )
    return lines


def _wait(
    path: Path, flag: Release, done: Callable[[Answer], bool], timeout_s: float, clock: Clock
) -> Answer:
    """The answer to this flag: the first that says it is done, else the last one within the time."""
    pause, end_s = threading.Event(), clock.monotonic_s() + timeout_s
    while True:
        answer = last_answer(path)
        answers = answer is not None and answer.stamp == flag.stamp and _runs(answer.pid)
        if answer is not None and answers and done(answer):
            return answer
        if clock.monotonic_s() >= end_s:
            break
        pause.wait(LOOK_EVERY_S)
    if answer is None or not answers:
        raise _UnansweredError(
            f"no agent has answered within {timeout_s:g} s: is one running here, and is its "
            f"driver.release_file {path}? One with simulated GPUs has a file of its own"
        )
    return answer


def _lacks(answer: Answer, uuid: str) -> bool:
    """Whether an agent knows its GPUs, and this is none of them."""
    return bool(answer.known) and uuid not in answer.known


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _processes(answer: Answer) -> str:
    pids = ", ".join(str(pid) for pid in answer.host_pids)
    return f"driver host {pids}"
