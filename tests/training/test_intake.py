from __future__ import annotations

import json

from clusterwatt.training.intake import Intake, Sender, Verdict
from clusterwatt.training.report import Report
from tests.clocks import FakeClock

ANYBODY = Sender("127.0.0.1")


class Taken:
    """Runs that keep what they are told."""

    def __init__(self) -> None:
        self.reports: list[tuple[Report, str]] = []
        self.room = True

    def report(self, report: Report, owner: str, *, known: bool) -> bool:
        if self.room:
            self.reports.append((report, owner))
        return self.room


def intake() -> tuple[Intake, Taken, FakeClock]:
    taken, clock = Taken(), FakeClock()
    return Intake(taken, clock), taken, clock


def body(**keys: object) -> bytes:
    return json.dumps({"run": "a"} | keys).encode()


def test_a_report_without_a_time_is_of_now() -> None:
    takes, taken, clock = intake()
    assert takes.take(body(step=1), ANYBODY) == Verdict(204)
    assert taken.reports == [(Report(run="a", step=1.0, time_s=clock.wall_s()), "")]


def test_faults_are_told_and_nothing_is_taken() -> None:
    takes, taken, _ = intake()
    verdict = takes.take(body(step=-1, other=1), ANYBODY)
    assert verdict.status == 400
    assert len(verdict.faults) == 2
    assert not taken.reports


def test_a_time_in_milliseconds_is_refused() -> None:
    takes, _, clock = intake()
    verdict = takes.take(body(time=clock.wall_s() + 3_600), ANYBODY)
    assert verdict == Verdict(
        400, ("time: expected Unix time in seconds, got 3600 s ahead of the agent's clock",)
    )
    assert takes.take(body(time=clock.wall_s() + 1), ANYBODY).status == 204


def test_without_the_kernels_word_the_job_is_the_one_that_the_report_names() -> None:
    takes, taken, _ = intake()
    takes.take(body(job="slurm/1"), ANYBODY)
    assert taken.reports[0][1] == "slurm/1"


def test_nobody_reports_for_the_job_of_another() -> None:
    takes, taken, _ = intake()
    sender = Sender("uid 1000", known=True, owner="slurm/1", job_id="slurm/1")
    assert takes.take(body(), sender).status == 204
    assert takes.take(body(job="slurm/1"), sender).status == 204
    assert takes.take(body(job="slurm/2"), sender) == Verdict(
        403, ("job: the process belongs to slurm/1, so it cannot report for slurm/2",)
    )
    assert [job for _, job in taken.reports] == ["slurm/1", "slurm/1"]


def test_a_pod_may_name_itself_or_the_job_that_it_is_a_member_of() -> None:
    takes, taken, _ = intake()
    sender = Sender("uid 0", known=True, owner="pod/7c1a", job_id="k8s/90ab")
    assert takes.take(body(job="k8s/90ab"), sender).status == 204
    assert takes.take(body(job="k8s/ffff"), sender).status == 403
    assert [owner for _, owner in taken.reports] == ["pod/7c1a"]


def test_who_belongs_to_no_job_reports_for_none() -> None:
    takes, _, _ = intake()
    verdict = takes.take(body(job="slurm/2"), Sender("uid 1000", known=True))
    assert verdict == Verdict(403, ("job: the process belongs to no job, so it cannot report for slurm/2",))


def test_a_client_that_sends_without_end_is_slowed_and_another_is_not() -> None:
    takes, _, clock = intake()
    statuses = [takes.take(body(), ANYBODY).status for _ in range(150)]
    assert statuses == [204] * 100 + [429] * 50
    assert takes.take(body(), Sender("uid 5")).status == 204
    clock.advance(1.0)
    assert [takes.take(body(), ANYBODY).status for _ in range(30)] == [204] * 20 + [429] * 10


def test_what_is_kept_of_clients_is_bounded() -> None:
    takes, _, _ = intake()
    for number in range(3_000):
        takes.take(b"", Sender(f"uid {number}"))
    assert len(takes._rates._left) == 1_024


def test_no_room_is_said() -> None:
    takes, taken, _ = intake()
    taken.room = False
    assert takes.take(body(), ANYBODY).status == 503
