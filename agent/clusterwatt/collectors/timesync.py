"""Whether the clock is disciplined, from the kernel (adjtimex(2), include/uapi/linux/timex.h).

Reading takes no privilege, but a filter of system calls may forbid it; then there is nothing to tell. The
clock is the machine's, in a container too.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator

from clusterwatt.catalog import Table
from clusterwatt.readings.base import Reading
from clusterwatt.readings.host import ClockSync

TIME_ERROR = 5  # returned while the clock is not synchronized
STA_NANO = 0x2000  # the offset is in nanoseconds, else in microseconds

CLOCK = Table(ClockSync)
METRICS = (
    CLOCK.gauge("clock_synchronized", "1 while the kernel's clock is disciplined.", "synchronized"),
    CLOCK.gauge(
        "clock_offset_seconds",
        "Offset that the kernel still works off; signed. A daemon that steers by frequency leaves it at 0.",
        "offset_seconds",
    ),
)


class Timex(ctypes.Structure):
    """struct timex, up to what is read; the rest is room for the kernel to write."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    )


Adjtimex = Callable[[Timex], int]


class TimesyncCollector:
    """Asks the kernel. `adjtimex` fills a structure and returns the state of the clock, or raises OSError."""

    name = "timesync"

    def __init__(self, adjtimex: Adjtimex | None = None) -> None:
        self._adjtimex = adjtimex or library_adjtimex()

    def collect(self) -> Iterator[Reading]:
        """One reading; none where the call is forbidden or unknown."""
        timex = Timex()
        try:
            state = self._adjtimex(timex)
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
                return
            raise
        per_second = 1e9 if timex.status & STA_NANO else 1e6
        yield ClockSync(synchronized=float(state != TIME_ERROR), offset_seconds=timex.offset / per_second)


def library_adjtimex() -> Adjtimex:
    """The C library's function."""
    function = ctypes.CDLL(None, use_errno=True).adjtimex
    function.argtypes, function.restype = [ctypes.POINTER(Timex)], ctypes.c_int

    def adjtimex(timex: Timex) -> int:
        state: int = function(ctypes.byref(timex))
        if state < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return state

    return adjtimex
