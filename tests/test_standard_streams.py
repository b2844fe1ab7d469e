"""How a command ends whose output goes nowhere, and what signals do before the agent listens for them."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

CLUSTERWATT = f"{shlex.quote(sys.executable)} -m clusterwatt"
RUN = "run --simulate --listen 127.0.0.1:0"


def shell(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, timeout=60, check=False, start_new_session=True
    )


@pytest.mark.parametrize("command", ["metrics", "once --simulate", "check-config"])
def test_a_full_disk_is_one_line(command: str) -> None:
    ended = shell(f"{CLUSTERWATT} {command} > /dev/full")
    assert ended.returncode == 1
    assert ended.stderr == "clusterwatt: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize("command", ["--help", "--version"])
def test_help_that_cannot_be_written_is_no_traceback(command: str) -> None:
    assert shell(f"{CLUSTERWATT} {command} > /dev/full").stderr.count("\n") <= 1


@pytest.mark.parametrize("command", ["metrics", "once --simulate"])
def test_output_that_is_closed_is_no_traceback(command: str) -> None:
    ended = shell(f"{CLUSTERWATT} {command} >&-")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_the_agent_runs_and_ends_without_streams(closed: str, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        agent = subprocess.Popen(
            ["sh", "-c", f"exec {CLUSTERWATT} {RUN} {closed}"],
            stderr=subprocess.PIPE,
            env=os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify")},
            text=True,
        )
        assert systemd.recv(100) == b"READY=1"
        agent.terminate()
        _, error = agent.communicate(timeout=60)
    assert agent.returncode == 0
    assert "Traceback" not in error


def test_an_error_without_a_place_to_say_it_is_a_status() -> None:
    assert shell(f"{CLUSTERWATT} run --frob 2>&-").returncode == 2


def test_a_hangup_before_the_agent_is_up_is_a_reload_and_not_its_end(tmp_path: Path) -> None:
    """systemd and log rotation may send it at any time; from the first line of `main` on it is kept."""
    config = tmp_path / "c.yaml"
    config.write_text("{}")
    log = tmp_path / "log"
    program = (
        "import os, signal, sys\n"
        "from clusterwatt import cli\n"
        "from clusterwatt.cli import settings\n"
        "load = settings.load\n"
        "def hit(arguments):\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    settings.load = load\n"
        "    return load(arguments)\n"
        "settings.load = hit\n"
        f"sys.exit(cli.main(['run', '--simulate', '--listen', '127.0.0.1:0', '--config', {str(config)!r}]))\n"
    )
    with log.open("wb") as file:
        agent = subprocess.Popen([sys.executable, "-c", program], stdout=file, stderr=file)
    try:
        deadline_s = time.monotonic() + 30
        while "configuration reloaded" not in log.read_text() and time.monotonic() < deadline_s:
            assert agent.poll() is None, log.read_text()
            time.sleep(0.1)
        os.kill(agent.pid, signal.SIGTERM)
        assert agent.wait(20) == 0
    finally:
        agent.kill()
    assert log.read_text().count("configuration reloaded") == 1
