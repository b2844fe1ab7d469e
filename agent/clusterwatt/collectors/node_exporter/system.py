"""The kernel itself: its name, and all that it says of its clock (uname(2), adjtimex(2))."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from clusterwatt.collectors.node_exporter.families import COUNTER, GAUGE, Found, single, table
from clusterwatt.collectors.timesync import STA_NANO, TIME_ERROR, Adjtimex, Timex

DOMAIN = Path("/proc/sys/kernel/domainname")
UNAME = ("sysname", "release", "version", "machine", "nodename", "domainname")

MICROSECONDS = 1e6
SCALED_PPM = 1e6 * 65536  # parts per million with 16 bits behind the point (adjtimex(2), NOTES)


class Rest(ctypes.Structure):
    """struct timex behind its status."""

    _fields_ = (
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time", ctypes.c_long * 2),
        ("tick", ctypes.c_long),
        ("ppsfreq", ctypes.c_long),
        ("jitter", ctypes.c_long),
        ("shift", ctypes.c_int),
        ("stabil", ctypes.c_long),
        ("jitcnt", ctypes.c_long),
        ("calcnt", ctypes.c_long),
        ("errcnt", ctypes.c_long),
        ("stbcnt", ctypes.c_long),
        ("tai", ctypes.c_int),
    )


def timex(adjtimex: Adjtimex) -> Found:
    """Nothing where the call is forbidden."""
    answer = Timex()
    try:
        state = adjtimex(answer)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            return
        raise
    rest = Rest.from_buffer(answer, Timex.rest.offset)
    per_second = 1e9 if answer.status & STA_NANO else MICROSECONDS
    values = (
        ("sync_status", GAUGE, float(state != TIME_ERROR)),
        ("offset_seconds", GAUGE, answer.offset / per_second),
        ("frequency_adjustment_ratio", GAUGE, 1 + answer.freq / SCALED_PPM),
        ("maxerror_seconds", GAUGE, answer.maxerror / MICROSECONDS),
        ("estimated_error_seconds", GAUGE, answer.esterror / MICROSECONDS),
        ("status", GAUGE, float(answer.status)),
        ("loop_time_constant", GAUGE, float(rest.constant)),
        ("tick_seconds", GAUGE, rest.tick / MICROSECONDS),
        ("pps_frequency_hertz", GAUGE, rest.ppsfreq / SCALED_PPM),
        ("pps_jitter_seconds", GAUGE, rest.jitter / per_second),
        ("pps_shift_seconds", GAUGE, float(rest.shift)),
        ("pps_stability_hertz", GAUGE, rest.stabil / SCALED_PPM),
        ("pps_jitter_total", COUNTER, float(rest.jitcnt)),
        ("pps_calibration_total", COUNTER, float(rest.calcnt)),
        ("pps_error_total", COUNTER, float(rest.errcnt)),
        ("pps_stability_exceeded_total", COUNTER, float(rest.stbcnt)),
        ("tai_offset_seconds", GAUGE, float(rest.tai)),
    )
    yield from single("adjtimex(2)", ((f"node_timex_{name}", kind, value) for name, kind, value in values))


def uname() -> Found:
    """Name and version of the kernel, and of the machine as the agent's own namespace calls it."""
    names = os.uname()
    try:
        domain = DOMAIN.read_text(encoding="utf-8").strip()
    except OSError:
        domain = ""
    key = (names.sysname, names.release, names.version, names.machine, names.nodename, domain)
    yield from table("uname(2)", UNAME, (("node_uname_info", GAUGE),), [(key, (1.0,))])
