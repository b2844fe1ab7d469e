"""Jobs come, end, linger, and come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clusterwatt.attribution.entries import JobRecord
from clusterwatt.attribution.roster import MOST_ENDED, Roster
from clusterwatt.readings.base import Reading
from clusterwatt.readings.work import JobExempt, JobInfo, JobTimes
from tests.attribution.node import HOUR, by_type, job

ONE = job("slurm/1", "physics", user="ada", uid="1000", started_s=HOUR - 50.0)


class Bench:
    def __init__(self) -> None:
        self.roster = Roster(300.0)

    def at(self, second: float, *ids: str, wall: float | None = None) -> dict[type[Reading], tuple[Any, ...]]:
        running = {each: ONE if each == ONE.job_id else job(each) for each in ids}
        wall_s = HOUR + (second if wall is None else wall)
        self.roster.take(running, wall_s=wall_s, now_s=second)
        return by_type(self.roster.readings())


def ends(readings: Mapping[type[Reading], tuple[Any, ...]]) -> dict[str, float | None]:
    return {each.job_id: each.end_timestamp_seconds for each in readings.get(JobTimes, ())}


def test_a_job_that_ended_lingers_with_its_end_and_then_goes() -> None:
    bench = Bench()
    assert ends(bench.at(0.0, "slurm/1")) == {"slurm/1": None}
    assert ends(bench.at(10.0)) == {"slurm/1": HOUR + 10.0}
    assert ends(bench.at(310.0)) == {"slurm/1": HOUR + 10.0}
    assert ends(bench.at(311.0)) == {}


def test_start_is_that_of_the_oldest_member() -> None:
    (times,) = Bench().at(0.0, "slurm/1")[JobTimes]
    assert times.start_timestamp_seconds == HOUR - 50.0


def test_a_job_whose_start_nobody_tells_began_when_it_was_first_seen() -> None:
    """Pods that only the kubelet tells of: without a start no rule about their age could ever fire."""
    bench = Bench()
    bench.at(0.0, "k8s/x")
    (times,) = bench.at(500.0, "k8s/x")[JobTimes]
    assert times.start_timestamp_seconds == HOUR
    bench.roster.recover(bench.roster.take_records())
    (times,) = bench.at(900.0, "k8s/x")[JobTimes]
    assert times.start_timestamp_seconds == HOUR


def test_a_job_that_is_there_again_goes_on() -> None:
    bench = Bench()
    bench.at(0.0, "k8s/x")
    bench.at(10.0)
    assert ends(bench.at(20.0, "k8s/x")) == {"k8s/x": None}
    (record,) = bench.roster.take_records()
    assert (record.first_seen_s, record.last_seen_s, record.ended_s) == (HOUR, HOUR + 20.0, None)


def test_records_tell_of_the_end_once() -> None:
    bench = Bench()
    bench.at(0.0, "slurm/1", "slurm/2")
    bench.at(10.0, "slurm/2")
    records = {record.job.job_id: record for record in bench.roster.take_records()}
    assert records["slurm/1"].job is ONE
    assert (records["slurm/1"].last_seen_s, records["slurm/1"].ended_s) == (HOUR, HOUR + 10.0)
    assert records["slurm/2"].ended_s is None
    bench.at(20.0, "slurm/2")
    assert [record.job.job_id for record in bench.roster.take_records()] == ["slurm/2"]


def test_g34_a_clock_that_steps_back_ends_no_job_before_it_began() -> None:
    bench = Bench()
    bench.at(0.0, "slurm/1")
    bench.at(10.0, "slurm/1", wall=-3_600.0)
    (record,) = bench.roster.take_records()
    assert record.first_seen_s <= record.last_seen_s
    bench.at(20.0, wall=-3_590.0)
    (record,) = bench.roster.take_records()
    assert record.ended_s is not None
    assert record.first_seen_s <= record.last_seen_s <= record.ended_s


def test_a_storm_of_jobs_does_not_fill_the_page() -> None:
    bench = Bench()
    for second in range(3):
        bench.at(float(second), *(f"slurm/{second}{number:04}" for number in range(MOST_ENDED)))
    assert len(ends(bench.at(4.0))) == MOST_ENDED
    assert len(bench.roster.take_records()) == 3 * MOST_ENDED, "the ledger hears of all"


@pytest.mark.parametrize(("label", "user"), [("name", "ada"), ("uid", "1000"), ("none", "")])
def test_identity_is_exported_with_the_user_as_configured(label: str, user: str) -> None:
    bench = Bench()
    bench.at(0.0, "slurm/1")
    (info,) = by_type(bench.roster.readings(label))[JobInfo]
    assert (info.account, info.user) == ("physics", user)


def test_who_is_exempt_is_said() -> None:
    roster = Roster(300.0)
    roster.take({"slurm/9": job("slurm/9", exempt=True)}, wall_s=HOUR, now_s=0.0)
    (exempt,) = by_type(roster.readings())[JobExempt]
    assert (exempt.job_id, exempt.exempt) == ("slurm/9", 1.0)


def test_a_job_that_ended_while_no_agent_ran_ended_when_it_was_last_seen() -> None:
    roster = Roster(300.0)
    roster.recover(JobRecord(job(each), HOUR - 900.0, HOUR - 60.0) for each in ("slurm/8", "slurm/9"))
    running = {"slurm/9": job("slurm/9")}
    roster.take({}, wall_s=HOUR, now_s=0.0, all_answered=False)
    assert ends(by_type(roster.readings())) == {"slurm/8": None, "slurm/9": None}
    roster.take(running, wall_s=HOUR + 1.0, now_s=1.0)
    assert ends(by_type(roster.readings())) == {"slurm/8": HOUR - 60.0, "slurm/9": None}
    times = {r.job.job_id: (r.first_seen_s, r.last_seen_s, r.ended_s) for r in roster.take_records()}
    assert times == {
        "slurm/8": (HOUR - 900.0, HOUR - 60.0, HOUR - 60.0),
        "slurm/9": (HOUR - 900.0, HOUR + 1.0, None),
    }
