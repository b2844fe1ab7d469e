"""One holds a lock; the next is told who, and has it when the first has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clusterwatt import lock_file
from clusterwatt.lock_file import HeldError

HOLD = (
    "import sys, pathlib; from clusterwatt import lock_file\n"
    "lock_file.take(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
)


def test_a_lock_is_held_once_and_names_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = lock_file.take(path)
    with pytest.raises(HeldError) as held:
        lock_file.take(path)
    assert held.value.who == f" (pid {os.getpid()})"
    assert not os.get_inheritable(first)
    os.close(first)
    os.close(lock_file.take(path))


def test_a_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(HeldError, match=str(holder.pid)):
            lock_file.take(path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        os.close(lock_file.take(path))


def test_what_is_no_file_fails_and_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        lock_file.take(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="Invalid argument"):
        lock_file.take(tmp_path / "pipe")
