"""Which file the driver's library is, where it is not among those of the machine or container we run in.

A container sees the driver of the host below a mount; NVIDIA's GPU operator installs one in a container of
its own, whose file system is at /run/nvidia/driver. There the file changes with each upgrade of the driver,
while one that the container runtime has put into our container is that of the day on which it began.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

log = logging.getLogger("clusterwatt.nvml")

NAME = "libnvidia-ml.so.1"
# Debian and Ubuntu, Red Hat and SUSE; lib64: what Google's Container-Optimized OS has in
# /home/kubernetes/bin/nvidia.
FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "lib64",
    "usr/lib",
)


def candidates(roots: Sequence[str]) -> Iterator[Path]:
    """The files of that name below the roots, in their order."""
    for root in roots:
        for folder in FOLDERS:
            path = Path(root, folder, NAME)
            if path.is_file():
                yield path


def load_below(roots: Sequence[str], load: Callable[[str], Any] = ctypes.CDLL) -> Any:
    """The first library below the roots that can be loaded; None where there is none.

    By its path: the loader takes what it has mapped under the same path before, so only a fresh process gets
    what an upgrade has put there.
    """
    for path in candidates(roots):
        try:
            return load(str(path))
        except OSError as error:  # of another architecture, or half written
            log.warning("%s cannot be loaded: %s", path, error)
    return None
