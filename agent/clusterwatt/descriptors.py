"""The process's file descriptors: how many there are, and what is kept back.

The kernel gives out the lowest free number (open(2)), so the number of a new descriptor says how full the
table is; nobody has to count. Above half of the table collectors keep no file open; in the last part of it
there are no connections, so that collectors can always read and a driver host can always be started.
"""

from __future__ import annotations

import errno
import resource

RESERVED = 64  # about 25 collectors with one open file each, and the pipes of a process that is started
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})


def raise_limit() -> None:
    """Take as many as the system lets this process have; 1024 are few on a node with many devices."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def may_keep(descriptor: int) -> bool:
    """Whether a file may stay open for its next read."""
    return descriptor < _limit() // 2


def may_serve(descriptor: int) -> bool:
    """Whether a connection may stay."""
    limit = _limit()
    return descriptor < limit - min(RESERVED, limit // 4)


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
