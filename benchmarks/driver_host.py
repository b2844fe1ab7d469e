"""CPU time of the driver host, with what the simulated library uses taken apart.

    python -m benchmarks.driver_host [seconds]

The host runs alone, with a clock around every call of the simulated library: the CPU time of
the calling thread before and after, added up. What is left of the process' CPU time is our own: scheduling,
binding, readings, frames. Start-up is left out of both.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from clusterwatt.config.model import Config, Simulate
from clusterwatt.driver.frames import Frame, FrameReader, FrameWriter, HostSettings, write_message

ROOT = Path(__file__).resolve().parents[1]
WARM_UP_FRAMES = 5
MARK = "library seconds: "  # before each figure: the host's log goes the same way


class Cost(NamedTuple):
    """CPU seconds a minute: of the process, and of the simulated library in it."""

    process_s: float
    library_s: float


def measure(seconds: float) -> Cost:
    """Run a host for so long and read its account."""
    config = Config()
    settings = HostSettings(
        every_seconds=config.collectors.gpu.every_seconds,
        slow_seconds=config.collectors.gpu.slow_seconds,
        deadline_seconds=config.driver.deadline_seconds,
        retry_seconds=config.driver.retry_seconds,
        simulate=Simulate(profile="h100"),
        log_level="warning",
    )
    host = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.driver_host", "--host"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert host.stdin is not None
    assert host.stdout is not None
    assert host.stderr is not None
    write_message(host.stdin, settings)
    process = psutil.Process(host.pid)
    reader = FrameReader(host.stdout)

    def take_frames(number: int) -> float:
        for _ in range(number):
            frame = reader.read()
            assert frame is not None, "the host ended"
            assert len(frame.devices) == settings.simulate.gpus
        times = process.cpu_times()
        return times.user + times.system

    frames = round(seconds / settings.every_seconds)
    first_s = take_frames(WARM_UP_FRAMES)
    started_s = time.monotonic()
    last_s = take_frames(frames)
    lasted_s = time.monotonic() - started_s
    host.stdin.close()
    said = host.stderr.read().decode().splitlines()
    per_frame_s = [float(line.removeprefix(MARK)) for line in said if line.startswith(MARK)]
    host.wait()
    host.stdout.close()
    host.stderr.close()
    per_minute = 60 / lasted_s
    library_s = sum(per_frame_s[WARM_UP_FRAMES : WARM_UP_FRAMES + frames])
    return Cost(process_s=(last_s - first_s) * per_minute, library_s=library_s * per_minute)


def serve() -> None:
    """Be the host: the real one, with the clock in it; one line for each frame on standard error."""
    from clusterwatt.driver import host
    from clusterwatt.simulate.nvml import SimulatedLibrary

    call = SimulatedLibrary._call  # noqa: SLF001 - the one place that every call goes through
    lock = threading.Lock()
    used_s = 0.0

    def timed(*arguments: object) -> object:
        nonlocal used_s
        started_s = time.thread_time()
        try:
            return call(*arguments)  # type: ignore[arg-type] # whatever it takes
        finally:
            with lock:
                used_s += time.thread_time() - started_s

    class ReportingWriter(FrameWriter):
        def write(self, frame: Frame) -> None:
            nonlocal used_s
            with lock:
                spent_s, used_s = used_s, 0.0
            print(f"{MARK}{spent_s:.6f}", file=sys.stderr, flush=True)
            super().write(frame)

    SimulatedLibrary._call = timed  # type: ignore[assignment,method-assign] # noqa: SLF001
    setattr(host, "FrameWriter", ReportingWriter)  # noqa: B010 - mypy: not exported there
    host.main()


def main() -> None:
    """Print the account."""
    if sys.argv[1:] == ["--host"]:
        serve()
        return
    cost = measure(float(sys.argv[1]) if len(sys.argv) > 1 else 30)
    own_s = cost.process_s - cost.library_s
    print(f"driver host, CPU seconds a minute: {cost.process_s:.2f}")
    print(f"  in the simulated library:        {cost.library_s:.2f}")
    print(f"  our own:                         {own_s:.2f}")


if __name__ == "__main__":
    main()
