"""What is kept of earlier snapshots: the right ages, the right types, and no more."""

from __future__ import annotations

from clusterwatt.expose.dcgm.recent import Recent, ago
from clusterwatt.readings.gpu import GpuThrottle, GpuUse
from clusterwatt.readings.snapshot import Snapshot
from tests.expose.dcgm.pages import A, snapshot

USE = GpuUse("0", A, 0.5)
THROTTLE = GpuThrottle("0", A, "idle", 0.0)


def ages(kept: tuple[Snapshot, ...], now_s: float) -> list[float]:
    return [round(now_s - past.monotonic_s) for past in kept]


def test_nothing_is_older_than_asked_and_nothing_is_closer() -> None:
    recent = Recent({GpuUse}, every_s=3.0, reach_s=30.0)
    kept: tuple[Snapshot, ...] = ()
    for second in range(200):
        kept = recent.take(snapshot(USE, monotonic_s=1000.0 + second))
    assert ages(kept, 1199.0) == [32, 29, 26, 23, 20, 17, 14, 11, 8, 5, 2]


def test_there_is_always_one_of_the_age_once_that_time_has_passed() -> None:
    recent = Recent({GpuUse}, every_s=3.0, reach_s=30.0)
    for second in range(300):
        now_s = 1000.0 + second * 1.01
        past = ago(recent.take(snapshot(USE, monotonic_s=now_s)), now_s, 30.0)
        if second < 29:
            assert past is None
        elif second > 30:
            assert past is not None
            assert 30.0 <= now_s - past.monotonic_s <= 33.0


def test_only_what_is_needed_is_kept() -> None:
    recent = Recent({GpuUse}, every_s=1.0, reach_s=10.0)
    recent.take(snapshot(USE, THROTTLE))
    (past,) = recent.take(snapshot(monotonic_s=1001.0))
    assert past.of(GpuUse) == (USE,)
    assert past.of(GpuThrottle) == ()


def test_nothing_is_kept_when_no_counter_needs_it() -> None:
    recent = Recent((), every_s=1.0, reach_s=10.0)
    recent.take(snapshot(USE))
    assert recent.take(snapshot(USE, monotonic_s=1005.0)) == ()


def test_a_second_snapshot_of_one_tick_is_not_kept() -> None:
    recent = Recent({GpuUse}, every_s=1.0, reach_s=10.0)
    for monotonic_s in (1000.1, 1000.4, 1001.1, 1001.4):
        recent.take(snapshot(USE, monotonic_s=monotonic_s))
    assert ages(recent.take(snapshot(monotonic_s=1002.1)), 1002.1) == [2, 1]  # those at .1
