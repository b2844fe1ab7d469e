"""The measure of use: one signal for each GPU, fixed, missed when it is lost, never swapped in silence."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.meters.activity import ActivityMeter
from clusterwatt.readings.base import Failure
from clusterwatt.readings.gpu import GpuGpm, GpuIntegrals, GpuUse
from clusterwatt.readings.gpu_links import GpuPcieTraffic
from clusterwatt.readings.gpu_measured import (
    GpuActive,
    GpuActivity,
    GpuActivitySignal,
    GpuC2cTraffic,
    GpuPipeActive,
)

A = "GPU-aaaaaaaa-0000-0000-0000-00000000000a"
NO_GPM = "none"
FAIR_S = 10


class Bench:
    """A meter and one GPU that works half of the time by utilisation, a quarter of it by SMs."""

    def __init__(self, chosen: Mapping[str, str] | None = None) -> None:
        self.meter = ActivityMeter()
        self.meter.go_on_with(chosen or {})
        self.now_s = 100.0
        self.since_s = 100.0
        self.busy_s = self.sm_s = 0.0
        self.activity: float | None = None
        self.signal: str | None = None
        self.active: GpuActive | None = None
        self.pipes: dict[str, float] = {}
        self.traffic: list[GpuPcieTraffic | GpuC2cTraffic] = []
        self.failures: list[Failure] = []

    def host(self) -> Bench:
        """A fresh driver host: its sums begin anew."""
        self.since_s, self.busy_s, self.sm_s = self.now_s, 0.0, 0.0
        return self

    def tick(
        self,
        times: int = 1,
        *,
        gpm: bool | str = True,
        use: bool = True,
        repeat: bool = False,
        pcie: bool = False,
        mig: bool = False,
        held: Collection[str] | None = None,
        sums: Mapping[str, float] | None = None,
    ) -> Bench:
        for _ in range(times):
            if not repeat:
                self.now_s += 1.0
                self.busy_s += 0.5
                self.sm_s += 0.25
            self._measure(gpm, use, pcie, mig, held, sums or {})
        return self

    def _measure(
        self,
        gpm: bool | str,
        use: bool,
        pcie: bool,
        mig: bool,
        held: Collection[str] | None,
        sums: Mapping[str, float],
    ) -> None:
        integrals = GpuIntegrals("0", A, self.since_s, self.now_s, busy_seconds=self.busy_s)
        told = GpuGpm("0", A, self.since_s, self.now_s, True, 0.25, sm_active_seconds=self.sm_s, **sums)
        if gpm == NO_GPM:
            told = GpuGpm("0", A, self.since_s, self.now_s, offered=False)
        self.activity = self.signal = self.active = None
        self.pipes, self.traffic = {}, []
        for reading in self.meter.measure(
            [integrals],
            [told] if gpm else [],
            [GpuUse("0", A, 0.5, 0.1)] if use else [],
            [GpuPcieTraffic("0", A, 1.0, 1.0)] if pcie else [],
            every_s=1.0,
            in_mig_mode={A} if mig else (),
            held=held,
        ):
            if isinstance(reading, Failure):
                self.failures.append(reading)
            elif isinstance(reading, GpuActivity):
                self.activity = reading.activity_seconds
            elif isinstance(reading, GpuActivitySignal):
                assert reading.chosen == 1.0
                self.signal = reading.signal
            elif isinstance(reading, GpuActive):
                self.active = reading
            elif isinstance(reading, GpuPipeActive):
                self.pipes[reading.pipe] = reading.active_seconds
            elif isinstance(reading, GpuPcieTraffic | GpuC2cTraffic):
                self.traffic.append(reading)


# --- the choice ------------------------------------------------------------------------------------------


def test_sm_activity_is_the_measure_where_it_is_offered() -> None:
    bench = Bench().tick()
    assert (bench.signal, bench.activity) == ("sm", 0.25)
    assert (bench.tick(8).signal, bench.activity) == ("sm", 2.25)


def test_a_card_without_gpm_has_its_utilisation_at_once() -> None:
    bench = Bench().tick(gpm=NO_GPM)
    assert (bench.signal, bench.activity) == ("utilization", 0.5)


def test_gpm_that_has_not_said_yet_gets_a_fair_chance() -> None:
    bench = Bench()
    for _ in range(FAIR_S):
        assert bench.tick(gpm=False).signal is None
    assert (bench.tick().signal, bench.failures) == ("sm", [])


def test_gpm_that_never_answers_leaves_the_utilisation_with_all_that_was_counted() -> None:
    bench = Bench().tick(FAIR_S + 2, gpm=False)
    assert (bench.signal, bench.activity) == ("utilization", 0.5 * (FAIR_S + 2))
    assert bench.tick(20).signal == "utilization"  # who holds the GPU is not known: it stays


def test_a_card_that_offers_neither_has_no_activity() -> None:
    bench = Bench().tick(30, gpm=NO_GPM, use=False)
    assert (bench.signal, bench.activity, bench.failures) == (None, None, [])


def test_the_choice_of_an_earlier_agent_stands() -> None:
    bench = Bench({A: "utilization"}).tick(20)
    assert (bench.signal, bench.meter.chosen) == ("utilization", {A: "utilization"})
    assert Bench({A: "sm"}).tick(20, gpm=False).activity is None


def test_a_choice_that_is_told_late_stands_and_the_activity_goes_on() -> None:
    bench = Bench().tick(5)
    before_s = bench.activity
    assert bench.signal == "sm"
    assert before_s == pytest.approx(1.25)
    for _ in range(4):  # it is told again at each tick
        bench.meter.go_on_with({A: "utilization"})
        bench.tick()
    assert bench.signal == "utilization"
    assert bench.activity == pytest.approx(1.25 + 4 * 0.5)
    bench.tick(20, held=())
    assert bench.signal == "sm", "a free GPU has its best signal"
    bench.meter.go_on_with({A: "utilization"})
    assert bench.tick().signal == "sm", "and keeps it"


# --- lost ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [None, {A}])
def test_a_signal_lost_in_mid_run_is_missed_counted_and_never_swapped(held: set[str] | None) -> None:
    bench = Bench().tick(20, held=held)
    for _ in range(60):
        bench.tick(gpm=False, held=held)
        assert (bench.signal, bench.activity) == (None, None)
    assert {failure.reason for failure in bench.failures} == {"signal_lost"}
    assert len(bench.failures) == 60
    bench.tick(held=held)
    assert bench.signal == "sm"
    assert bench.tick(held=held).failures == bench.failures[:60]


def test_a_lost_utilisation_is_missed_after_three_intervals() -> None:
    bench = Bench().tick(20, gpm=NO_GPM)
    said = [bench.tick(gpm=NO_GPM, use=False).signal for _ in range(5)]
    assert said == ["utilization"] * 3 + [None] * 2
    assert len(bench.failures) == 2


def test_a_gpu_that_is_known_to_be_free_takes_the_other_signal_in_time_and_says_so() -> None:
    bench = Bench().tick(20, held=())
    before = bench.activity
    assert before is not None
    bench.tick(FAIR_S, gpm=False, held=())
    assert (bench.signal, bench.activity) == (None, None)
    bench.tick(gpm=False, held=())
    assert bench.signal == "utilization"
    assert bench.activity == before  # the other signal counts from here on
    assert bench.tick(gpm=False, held=()).activity == before + 0.5
    assert bench.tick(held=()).signal == "sm"


def test_a_gpu_with_a_job_keeps_its_signal_when_the_other_appears() -> None:
    bench = Bench().tick(20, gpm=False, held={A})
    assert bench.signal == "utilization"
    assert bench.tick(20, held={A}).signal == "utilization"
    assert bench.tick(held=()).signal == "sm"


def test_a_gpu_in_mig_mode_has_no_activity_and_its_signal_is_lost() -> None:
    bench = Bench().tick(20).tick(5, mig=True)
    assert (bench.signal, bench.activity) == (None, None)
    assert len(bench.failures) == 5
    assert bench.tick().signal == "sm"


def test_a_fresh_driver_host_is_no_lost_signal() -> None:
    bench = Bench().tick(20)
    before = bench.activity
    bench.host().tick(3, gpm=False)
    assert bench.failures == []
    assert bench.tick().activity == before + 4 * 0.25  # type: ignore[operator]


def test_a_gpu_that_was_away_is_no_lost_signal() -> None:
    bench = Bench().tick(20)
    bench.now_s += 300.0
    assert bench.tick(3, gpm=False).failures == []


def test_a_reading_taken_twice_counts_once() -> None:
    bench = Bench().tick(20).tick(gpm=False).tick(5, gpm=False, repeat=True)
    assert len(bench.failures) == 1


@given(
    st.lists(
        st.tuples(st.sampled_from([True, False, NO_GPM]), st.booleans(), st.booleans(), st.booleans()),
        max_size=60,
    )
)
def test_activity_never_falls_whatever_comes_and_goes(
    steps: list[tuple[bool | str, bool, bool, bool]],
) -> None:
    bench, last = Bench(), 0.0
    for gpm, use, fresh_host, free in steps:
        if fresh_host:
            bench.host()
        bench.tick(gpm=gpm, use=use, held=() if free else {A})
        if bench.activity is not None:
            assert bench.activity >= last
            last = bench.activity
    assert last <= 0.5 * len(steps)


# --- what GPM measures beside it ---------------------------------------------------------------------------


def test_units_are_counters_that_go_on_over_driver_hosts() -> None:
    bench = Bench().tick(sums={"tensor_active_seconds": 7.0, "fp32_active_seconds": 3.0})
    bench.host().tick(sums={"tensor_active_seconds": 0.5, "fp32_active_seconds": 0.25})
    assert bench.active is not None
    assert bench.active.tensor_active_seconds == 7.5
    assert bench.active.sm_active_seconds == 0.5
    assert bench.active.dram_active_seconds is None
    assert bench.pipes == {"fp32": 3.25}


def test_units_are_absent_while_gpm_is() -> None:
    bench = Bench().tick(5, sums={"tensor_active_seconds": 7.0}).tick(gpm=False)
    assert (bench.active, bench.pipes) == (None, {})


def test_pcie_bytes_come_from_gpm_where_the_driver_does_not_count_them() -> None:
    carried = {"pcie_receive_bytes": 300.0, "pcie_transmit_bytes": 100.0}
    assert Bench().tick(sums=carried).traffic == [GpuPcieTraffic("0", A, 300.0, 100.0)]
    bench = Bench().tick(pcie=True, sums=carried)
    assert bench.traffic == []
    assert bench.tick(sums=carried).traffic == []  # a counter that is missed once is not replaced


def test_c2c_bytes_are_there_where_the_card_has_it() -> None:
    bench = Bench().tick(sums={"c2c_receive_bytes": 30.0, "c2c_transmit_bytes": 10.0})
    assert bench.traffic == [GpuC2cTraffic("0", A, 30.0, 10.0)]
    assert Bench().tick().traffic == []
