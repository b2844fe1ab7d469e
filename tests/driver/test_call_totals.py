"""Durations of driver calls: counted in the host, added up over hosts, on the page as a histogram."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from clusterwatt.config.model import Simulate
from clusterwatt.driver.call_totals import CallTotals
from clusterwatt.driver.frames import HostSettings
from clusterwatt.driver.host import CALL_TIMES_EVERY_S, Host
from clusterwatt.expose.render import Renderer
from clusterwatt.inventory import CATALOG
from clusterwatt.nvml.call_times import BUCKETS, CallTime, CallTimes
from clusterwatt.nvml.session import Session
from clusterwatt.readings.agent import DriverCallDuration
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.simulate.nvml import SimulatedLibrary, install, uninstall
from tests.clocks import FakeClock


@pytest.fixture(autouse=True)
def binding() -> Iterator[None]:
    yield
    uninstall()


def counted(*seconds: float, call: str = "nvmlX") -> tuple[CallTime, ...]:
    times = CallTimes()
    for each in seconds:
        times.took(call, each)
    return times.so_far()


def test_a_call_is_in_the_first_bucket_whose_bound_it_does_not_exceed() -> None:
    [calls] = counted(0.0, 0.0001, 0.00011, 0.5, 10.0, 11.0)
    filled = {bound: n for bound, n in zip((*BUCKETS, "more"), calls.counts, strict=True) if n}
    assert filled == {0.0001: 2, 0.0003: 1, 1.0: 1, 10.0: 1, "more": 1}
    assert calls.sum_s == pytest.approx(21.50021)


def test_calls_of_many_threads_are_all_counted() -> None:
    times = CallTimes()

    def call() -> None:
        for _ in range(1_000):
            times.took("nvmlX", 0.01)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(times.so_far()[0].counts) == 4_000


def test_totals_go_on_over_hosts_and_never_fall() -> None:
    totals = CallTotals()
    totals.fresh_host()
    totals.heard(counted(0.01, 0.02))
    totals.heard(counted(0.01, 0.02, 0.5))
    totals.heard(())  # most frames say nothing of it
    [before] = totals.readings
    assert before.counts[-1] == 3.0
    assert before.sum_seconds == pytest.approx(0.53)
    totals.fresh_host()
    assert totals.readings == (before,)
    totals.heard(counted(0.2) + counted(1.0, call="nvmlY"))
    after = {reading.call: reading for reading in totals.readings}
    assert after["nvmlX"].counts[-1] == 4.0
    assert all(now >= then for now, then in zip(after["nvmlX"].counts, before.counts, strict=True))
    assert after["nvmlY"].counts[-1] == 1.0
    totals.fresh_host()
    totals.heard(counted(1.0, call="nvmlY"))
    assert {reading.call: reading.counts[-1] for reading in totals.readings} == {"nvmlX": 4.0, "nvmlY": 2.0}


def test_the_host_tells_of_them_now_and_then() -> None:
    clock, times = FakeClock(), CallTimes()
    install(SimulatedLibrary("h100", 1, 1, clock.wall_s))
    session = Session(simulated=True, clock=clock, took=times.took)
    host = Host(HostSettings(1.0, 30.0, 2.0, 5.0, Simulate(profile="h100")), session, clock, times)
    told = []
    for _ in range(21):
        told.append({each.call for each in host.tick().calls})
        clock.advance(1.0)
    host.close()
    assert [second for second, calls in enumerate(told) if calls] == [0, 10, 20]
    assert CALL_TIMES_EVERY_S == 10.0
    assert "nvmlDeviceGetFieldValues" in told[1 * 10]
    assert "nvmlEventSetWait_v2" not in told[20]


def test_the_page_has_them_with_the_full_profile_only() -> None:
    reading = DriverCallDuration("nvmlX", tuple(float(n) for n in range(len(BUCKETS) + 1)), 1.5)
    snapshot = Snapshot(1, 0.0, 0.0, {DriverCallDuration: (reading,)})
    pages = {
        profile: Renderer(CATALOG, profile, {}, 1_000).render(snapshot, openmetrics=False).body.decode()
        for profile in ("standard", "full")
    }
    assert "driver_call" not in pages["standard"]
    series = [line for line in pages["full"].splitlines() if not line.startswith("#")]
    assert series[0] == 'clusterwatt_driver_call_duration_seconds_bucket{call="nvmlX",le="0.0001"} 0.0'
    assert series[-3:] == [
        'clusterwatt_driver_call_duration_seconds_bucket{call="nvmlX",le="+Inf"} 11.0',
        'clusterwatt_driver_call_duration_seconds_count{call="nvmlX"} 11.0',
        'clusterwatt_driver_call_duration_seconds_sum{call="nvmlX"} 1.5',
    ]
