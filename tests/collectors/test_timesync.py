"""The kernel's word on its clock."""

from __future__ import annotations

import ctypes
import errno

import pytest

from clusterwatt.catalog import faults
from clusterwatt.collectors.timesync import METRICS, Adjtimex, TimesyncCollector, Timex
from clusterwatt.readings.host import ClockSync

TIME_OK, TIME_INS, TIME_ERROR = 0, 1, 5
STA_PLL, STA_UNSYNC, STA_NANO = 0x0001, 0x0040, 0x2000


def kernel(state: int, status: int, offset: int) -> Adjtimex:
    def adjtimex(timex: Timex) -> int:
        assert timex.modes == 0, "it must read and set nothing"
        timex.status, timex.offset = status, offset
        return state

    return adjtimex


def collect(adjtimex: Adjtimex) -> list[object]:
    return list(TimesyncCollector(adjtimex).collect())


@pytest.mark.parametrize(
    ("state", "status", "offset", "synchronized", "offset_seconds"),
    [
        (TIME_OK, STA_PLL | STA_NANO, -1_500_000, 1.0, -0.0015),
        (TIME_OK, STA_PLL, 2_000, 1.0, 0.002),
        (TIME_INS, STA_PLL | STA_NANO, 0, 1.0, 0.0),  # a leap second is announced: still disciplined
        (TIME_ERROR, STA_UNSYNC, 0, 0.0, 0.0),
    ],
)
def test_state_and_offset(
    state: int, status: int, offset: int, synchronized: float, offset_seconds: float
) -> None:
    (reading,) = TimesyncCollector(kernel(state, status, offset)).collect()
    assert reading == ClockSync(synchronized, offset_seconds)


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS])
def test_a_filter_of_system_calls_leaves_nothing_to_tell(code: int) -> None:
    def forbidden(_: Timex) -> int:
        raise OSError(code, "forbidden")

    assert collect(forbidden) == []


def test_another_error_is_one() -> None:
    def broken(_: Timex) -> int:
        raise OSError(errno.EFAULT, "broken")

    with pytest.raises(OSError, match="broken"):
        collect(broken)


def test_the_real_call_answers_and_the_structure_has_room() -> None:
    (reading,) = TimesyncCollector().collect()
    assert isinstance(reading, ClockSync)
    assert reading.synchronized in (0.0, 1.0)
    assert abs(reading.offset_seconds) < 1.0  # more, and the kernel would have stepped
    assert ctypes.sizeof(Timex) >= 208  # struct timex on 64 bits


def test_names_keep_the_rules() -> None:
    assert list(faults(METRICS)) == []
