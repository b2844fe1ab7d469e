"""Nodes made of files: cgroups with processes, as the kernel shows them below /sys/fs/cgroup and /proc."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

BOOT_S = 1_699_000_000
V2 = "/sys/fs/cgroup"
TICKS_PER_SECOND = 100


class Tree:
    """A node's root; cgroup v2 unless hierarchies of v1 are named."""

    def __init__(self, root: Path, hierarchies: tuple[str, ...] = ()) -> None:
        self.root = root
        self._tops = [f"{V2}/{name}" for name in hierarchies] or [V2]
        for top in self._tops:
            (root / top[1:]).mkdir(parents=True)
        if not hierarchies:
            self.write(f"{V2}/cgroup.controllers", "cpuset cpu io memory pids\n")
        self.write("/proc/stat", f"cpu  1 2 3 4\nbtime {BOOT_S}\nprocesses 5\n")

    def write(self, path: str, text: str | bytes) -> None:
        """A file of the node."""
        file = self.root / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def cgroup(self, path: str, *pids: int, **files: str) -> None:
        """A cgroup with processes and files, in every hierarchy; `_` in their names stands for a point."""
        for top in self._tops:
            folder = top
            for part in path.strip("/").split("/"):
                folder += f"/{part}"
                if not (self.root / folder[1:] / "cgroup.procs").exists():
                    self.write(f"{folder}/cgroup.procs", "")
            if pids:
                self.write(f"{top}{path}/cgroup.procs", "".join(f"{pid}\n" for pid in pids))
            for name, text in files.items():
                self.write(f"{top}{path}/{name.replace('__', '.')}", text)

    def remove(self, path: str) -> None:
        """A cgroup and all below it is gone."""
        for top in self._tops:
            shutil.rmtree(self.root / f"{top}{path}"[1:])

    def process(self, pid: int, variables: Mapping[str, str], *, age_s: float = 100.0) -> None:
        """A process that started so long after boot."""
        self.write(f"/proc/{pid}/environ", "".join(f"{name}={text}\0" for name, text in variables.items()))
        zeros = " 0" * 18
        self.write(f"/proc/{pid}/stat", f"{pid} (a) b) S{zeros} {age_s * TICKS_PER_SECOND:.0f} 0 0\n")
