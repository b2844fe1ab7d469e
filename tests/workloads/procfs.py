"""Processes of a made-up host, as /proc shows them, for tests."""

from __future__ import annotations

import os
from pathlib import Path

from tests.clocks import FakeClock
from tests.machines import put
from tests.test_node_pids import KTHREADD

BOOT_S = 1_699_990_000.0  # Unix time
TICKS = os.sysconf("SC_CLK_TCK")


class Host:
    """A host whose processes start when a test says so. Its time is that of `clock`."""

    def __init__(self, root: Path, clock: FakeClock, *, shows_all: bool = True) -> None:
        self.root = root
        self.clock = clock
        if shows_all:
            put(root, "/proc/2/stat", KTHREADD)
        put(root, "/proc/stat", f"cpu  1 2 3\nbtime {BOOT_S:.0f}\n")
        self.tell_time()

    def tell_time(self) -> None:
        """Let /proc/uptime say what time it is."""
        put(self.root, "/proc/uptime", f"{self.clock.monotonic_s():.2f} 0.00\n")

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.tell_time()

    def process(
        self,
        pid: int,
        cgroup: str,
        *,
        started_s: float = 100.0,
        environ: dict[str, str] | None = None,
        command: str = "python3",
    ) -> None:
        """A process; `started_s`: seconds after boot, on the clock of `clock.monotonic_s`."""
        fields = " ".join(["S", "1", *["0"] * 17, f"{started_s * TICKS:.0f}", *["0"] * 30])
        put(self.root, f"/proc/{pid}/stat", f"{pid} ({command}) {fields}\n")
        put(self.root, f"/proc/{pid}/cgroup", cgroup if cgroup.endswith("\n") else f"0::{cgroup}\n")
        text = "".join(f"{name}={value}\0" for name, value in (environ or {}).items())
        put(self.root, f"/proc/{pid}/environ", text)
