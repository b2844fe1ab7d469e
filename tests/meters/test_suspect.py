"""Utilisation that lies: what is a latched 100 %, and all that only looks like it."""

from __future__ import annotations

import pytest

from clusterwatt.meters.suspect import SuspectMeter, holders
from clusterwatt.readings.gpu import GpuGpm, GpuIntegrals, GpuPower, GpuProcesses, GpuUse

A = "GPU-aaaaaaaa-0000-0000-0000-00000000000a"
TEN_MINUTES = 600
IDLE_W = 50.0


class Bench:
    """A meter and one GPU, read once a second."""

    def __init__(self) -> None:
        self.meter = SuspectMeter()
        self.now_s = 0.0

    def tick(
        self,
        times: int,
        utilization: float | None,
        *,
        sm: float | None = None,
        gpm: bool = True,
        watts: float | None = None,
        processes: int | None = None,
        kind: str = "average",
    ) -> float | None:
        """What stands on the page in the end."""
        said: float | None = None
        for _ in range(times):
            self.now_s += 1.0
            readings = list(
                self.meter.measure(
                    [GpuIntegrals("0", A, 0.0, self.now_s)],
                    [GpuGpm("0", A, 0.0, self.now_s, offered=gpm, sm_active_ratio=sm)],
                    [GpuUse("0", A, utilization, None)],
                    [] if watts is None else [GpuPower("0", A, "gpu", kind, watts)],
                    every_s=1.0,
                    processes=None if processes is None else {A: float(processes)},
                )
            )
            said = readings[0].suspect if readings else None
        return said


# --- with GPM ----------------------------------------------------------------------------------------------


def test_ten_minutes_at_full_with_idle_sms_is_suspect_and_one_sample_of_work_ends_it() -> None:
    bench = Bench()
    assert bench.tick(TEN_MINUTES, 1.0, sm=0.0) is None  # not known for ten minutes yet
    assert bench.tick(1, 1.0, sm=0.004) == 1.0
    assert bench.tick(3600, 0.99, sm=0.0) == 1.0
    assert bench.tick(1, 1.0, sm=0.5) == 0.0


def test_a_gpu_that_latches_later_is_suspect_ten_minutes_after() -> None:
    bench = Bench()
    assert bench.tick(3600, 0.0, sm=0.0) == 0.0
    assert bench.tick(TEN_MINUTES, 1.0, sm=0.0) == 0.0
    assert bench.tick(1, 1.0, sm=0.0) == 1.0


@pytest.mark.parametrize(
    ("what", "utilization", "sm"),
    [
        ("an idle GPU", 0.0, 0.0),
        ("just under", 0.98, 0.0),
        ("a collective that spins", 1.0, 0.03),
        ("just above", 1.0, 0.005),
        ("a job", 1.0, 0.9),
    ],
)
def test_near_misses_stay_silent(what: str, utilization: float, sm: float) -> None:
    assert Bench().tick(2 * TEN_MINUTES, utilization, sm=sm) == 0.0


def test_one_sample_below_begins_the_ten_minutes_anew() -> None:
    bench = Bench()
    bench.tick(599, 1.0, sm=0.0)
    bench.tick(1, 0.97, sm=0.0)
    assert bench.tick(TEN_MINUTES, 1.0, sm=0.0) == 0.0
    assert bench.tick(1, 1.0, sm=0.0) == 1.0


def test_three_intervals_without_reading_are_borne_more_are_not() -> None:
    bench = Bench()
    bench.tick(601, 1.0, sm=0.0)
    assert bench.tick(3, 1.0, sm=None) == 1.0
    assert bench.tick(1, 1.0, sm=0.0) is None
    bench = Bench()
    bench.tick(601, 1.0, sm=0.0)
    assert bench.tick(2, 1.0, sm=None) == 1.0
    assert bench.tick(1, 1.0, sm=0.0) == 1.0


def test_a_gpu_in_mig_mode_states_no_utilisation_and_is_not_judged() -> None:
    bench = Bench()
    bench.tick(601, 1.0, sm=0.0)
    assert bench.tick(10, None, sm=0.0) is None


def test_lost_gpm_is_not_replaced_by_power() -> None:
    bench = Bench()
    bench.tick(700, 0.0, sm=0.0, watts=IDLE_W, processes=0)
    assert bench.tick(700, 1.0, sm=None, watts=IDLE_W, processes=0) is None


# --- without -----------------------------------------------------------------------------------------------


def without_gpm(
    bench: Bench, times: int, utilization: float, watts: float | None, processes: int | None
) -> float | None:
    return bench.tick(times, utilization, gpm=False, watts=watts, processes=processes)


def test_no_process_and_idle_power_are_enough_without_gpm() -> None:
    bench = Bench()
    without_gpm(bench, 60, 0.0, IDLE_W, 0)
    assert without_gpm(bench, 600, 1.0, IDLE_W * 1.09, 0) == 0.0
    assert without_gpm(bench, 1, 1.0, IDLE_W * 1.09, 0) == 1.0
    assert without_gpm(bench, 1, 1.0, IDLE_W * 1.09, 1) == 0.0


@pytest.mark.parametrize(
    ("what", "watts", "processes"),
    [("above its floor", IDLE_W * 1.11, 0), ("held by a process", IDLE_W, 1), ("a job", 380.0, 2)],
)
def test_near_misses_without_gpm_stay_silent(what: str, watts: float, processes: int) -> None:
    bench = Bench()
    without_gpm(bench, 60, 0.0, IDLE_W, 0)
    assert without_gpm(bench, 1200, 1.0, watts, processes) == 0.0


@pytest.mark.parametrize(("watts", "processes"), [(None, 0), (IDLE_W, None), (None, None)])
def test_nothing_is_said_without_power_or_process_list(watts: float | None, processes: int | None) -> None:
    bench = Bench()
    without_gpm(bench, 60, 0.0, watts, processes)
    assert without_gpm(bench, 1200, 1.0, watts, processes) is None


def test_a_gpu_is_held_by_processes_of_every_type_and_not_known_free_without_those_that_compute() -> None:
    def of(uuid: str, kind: str, processes: float) -> GpuProcesses:
        return GpuProcesses("0", uuid, kind, processes)

    assert holders([of(A, "compute", 0.0), of(A, "graphics", 1.0), of(A, "mps", 2.0)]) == {A: 3.0}
    assert holders([of(A, "compute", 0.0)]) == {A: 0.0}
    assert holders([of(A, "graphics", 0.0)]) == {}


def test_a_floor_that_was_never_seen_is_not_guessed() -> None:
    """A job whose processes cannot be seen draws 300 W all the time: that is not its idle floor."""
    assert without_gpm(Bench(), 1200, 1.0, 300.0, 0) is None


def test_a_card_that_states_no_average_is_judged_by_the_moment() -> None:
    bench = Bench()
    bench.tick(60, 0.0, gpm=False, watts=IDLE_W, processes=0, kind="instant")
    assert bench.tick(601, 1.0, gpm=False, watts=IDLE_W, processes=0, kind="instant") == 1.0
