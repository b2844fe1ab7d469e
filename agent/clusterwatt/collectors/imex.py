"""Whether the IMEX domain of the node is complete, from `nvidia-imex-ctl -N -j`.

IMEX shares memory of GPUs between the nodes of an NVLink domain (NVIDIA IMEX guide, IMEX Service Command
Service): `-N` asks every node that IMEX is configured with, `-j` has the answer in JSON: `status` of the
domain, and `nodes` by number with theirs. Opt-in: it runs another program, which asks other machines. It
needs no root, but the daemons' command service (IMEX_CMD_ENABLED=1) and a configuration that the agent may
read.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence

import msgspec

from clusterwatt.catalog import FULL, Table
from clusterwatt.config.model import ImexCollector as Settings
from clusterwatt.program import lines_of
from clusterwatt.readings.base import Reading
from clusterwatt.readings.network import Imex

IMEX = Table(Imex)
METRICS = (
    IMEX.gauge(
        "imex_ready",
        "1: the IMEX daemons of this node and of all others in its domain run and are connected.",
        "ready",
        FULL,
    ),
)

COMPLETE = "UP"  # else DEGRADED, DOWN and others

Lines = Callable[[Sequence[str], float], Iterator[bytes]]


class Domain(msgspec.Struct, frozen=True):
    """What is read of the answer."""

    status: str
    nodes: dict[str, object]


class ImexCollector:
    """Runs the program once a pass."""

    name = "imex"

    def __init__(self, settings: Settings, lines: Lines = lines_of) -> None:
        self._settings = settings
        self._lines = lines

    def collect(self) -> Iterator[Reading]:
        """Whether the domain is complete. Raises OSError when the program does not tell."""
        printed: list[bytes] = []
        failed: OSError | None = None
        try:
            printed.extend(self._lines((self._settings.command, "-N", "-j"), self._settings.timeout_seconds))
        except (
            OSError
        ) as error:  # its exit status is not documented: a domain that is told counts all the same
            failed = error
        try:
            domain = msgspec.json.decode(b"\n".join(printed), type=Domain)
        except (msgspec.DecodeError, RecursionError) as error:
            raise failed or OSError(
                errno.EPROTO, f"{self._settings.command} -N -j printed no domain: {error}"
            ) from None
        yield Imex(ready=float(domain.status == COMPLETE and bool(domain.nodes)))
