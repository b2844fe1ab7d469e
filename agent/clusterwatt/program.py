"""Runs another program for one answer: no shell, a bare environment, a deadline, an answer of limited size.

For sources that opt in, on their own threads, never in a tick.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator, Sequence

from clusterwatt.clock import SystemClock

CHUNK_BYTES = 1 << 16
MAX_ANSWER_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 20  # JSON may be one line; each chunk of a line copies what there is of it
MAX_COMPLAINT_BYTES = 1 << 12
ENDS_WITHIN_S = 1.0

_running: set[subprocess.Popen[bytes]] = set()
_running_lock = threading.Lock()


def end_all() -> None:
    """End every program that runs, with all that it has started: the agent stops, and nobody waits for it.

    One that is started meanwhile on another thread is ended by another call.
    """
    with _running_lock:
        for process in _running:
            _kill(process)


def output_of(command: Sequence[str], timeout_s: float) -> str:
    """What a program prints. Raises OSError: it cannot be run, fails, takes too long or prints too much."""
    return b"\n".join(lines_of(command, timeout_s)).decode("utf-8", "replace")


def lines_of(
    command: Sequence[str],
    timeout_s: float,
    *,
    max_bytes: int = MAX_ANSWER_BYTES,
    variables: Collection[str] = (),
) -> Iterator[bytes]:
    """Each line that a program prints, as it comes; whether all is well is known at the end only.

    `variables`: of the agent's environment, what the program gets besides PATH.
    Raises OSError as `output_of`.
    """
    clock = SystemClock()
    until_s = clock.monotonic_s() + timeout_s
    kept = {name: os.environ[name] for name in ("PATH", *variables) if name in os.environ}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**kept, "LC_ALL": "C"},
        cwd="/",
        start_new_session=True,  # what it starts itself is ended with it
    )
    with _running_lock:
        _running.add(process)
    complaint = bytearray()
    rest, size = b"", 0
    try:
        for chunk, of_answer in _chunks(process, lambda: until_s - clock.monotonic_s()):
            if not of_answer:
                complaint = (complaint + chunk)[-MAX_COMPLAINT_BYTES:]
                continue
            size += len(chunk)
            if size > max_bytes:
                raise OSError(errno.EMSGSIZE, f"{command[0]} printed more than {max_bytes} bytes")
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
            if len(rest) > MAX_LINE_BYTES:
                raise OSError(
                    errno.EMSGSIZE, f"{command[0]} printed a line of more than {MAX_LINE_BYTES} bytes"
                )
        status = process.wait(max(0.0, until_s - clock.monotonic_s()))
    except (TimeoutError, subprocess.TimeoutExpired):
        raise TimeoutError(errno.ETIMEDOUT, f"{command[0]} took more than {timeout_s:g} s") from None
    finally:
        _end(process)
    if rest:
        yield rest
    if status:
        said = complaint.decode("utf-8", "replace").strip() or rest.decode("utf-8", "replace")
        last = said.splitlines()[-1] if said else "no word"
        raise OSError(errno.EIO, f"{command[0]} ended with {status}: {last}")


def _chunks(process: subprocess.Popen[bytes], left_s: Callable[[], float]) -> Iterator[tuple[bytes, bool]]:
    """What it prints, and whether that is its answer or what it complains of, until it has closed both."""
    with selectors.DefaultSelector() as selector:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            if (wait_s := left_s()) <= 0:
                raise TimeoutError
            for key, _ in selector.select(wait_s):
                chunk = os.read(key.fd, CHUNK_BYTES)
                if chunk:
                    yield chunk, key.fileobj is process.stdout
                else:
                    selector.unregister(key.fileobj)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it with everything that it has started; one that hangs in the kernel is not waited for."""
    with _running_lock:
        _running.discard(process)
    _kill(process)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(ENDS_WITHIN_S)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill its group; not once it has been waited for, since its number may then be another's."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
