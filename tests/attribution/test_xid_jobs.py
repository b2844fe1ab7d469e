"""Different jobs that failed on one GPU."""

from __future__ import annotations

import pytest

from clusterwatt.attribution.devices import Devices
from clusterwatt.attribution.entries import Held
from clusterwatt.attribution.holders import Holding
from clusterwatt.attribution.xid_jobs import MOST_JOBS, XidJobs
from clusterwatt.learnt import Learnt
from clusterwatt.readings.gpu import GpuInfo
from clusterwatt.readings.gpu_measured import HardwareEvent
from tests.clocks import FakeClock

A, B = "GPU-aaaaaaaa-0000-0000-0000-00000000000a", "GPU-bbbbbbbb-0000-0000-0000-00000000000b"
FIRST, SECOND = "MIG-11111111-0000-0000-0000-000000000001", "MIG-22222222-0000-0000-0000-000000000002"
DAY_S = 86_400.0


def info(gpu: str, uuid: str, parent: str = "", instance: str = "") -> GpuInfo:
    profile = "3g.40gb" if parent else ""
    return GpuInfo(gpu, uuid, "H100", "hopper", "", "", "", "", parent, profile, "true", instance)


WHOLE = Devices([info("0", A), info("1", B)])
CUT = Devices([info("0", A), info("0:0", FIRST, A, "1"), info("0:1", SECOND, A, "2")])


def holding(devices: Devices, **jobs: str) -> Holding:
    """Who holds what: `a`, `b`, `first`, `second`, each by jobs with blanks between them."""
    uuids = {"a": A, "b": B, "first": FIRST, "second": SECOND}
    return Holding(
        devices,
        held={
            uuids[name]: tuple(Held(job_id, "", 0.1) for job_id in ids.split()) for name, ids in jobs.items()
        },
    )


def event(uuid: str = A, at_s: float = 0.0, *, kind: str = "xid", **other: object) -> HardwareEvent:
    fields: dict[str, object] = {
        "kind": kind,
        "code": 31,
        "name": "mmu_fault",
        "xid_class": "application",
        "severity": "warning",
        "action": "",
        "text": "",
        "gpu": "0",
        "uuid": uuid,
        "pci": "",
        "instance": "",
        "switch": "",
        "fatality": "",
        "detail": "",
        "echo": False,
        "wall_s": at_s,
        "monotonic_s": at_s,
    }
    return HardwareEvent(**{**fields, **other})  # type: ignore[arg-type]  # all are of the right type


class Told:
    """What a GPU says when jobs come and go."""

    def __init__(self) -> None:
        self.jobs = XidJobs(FakeClock(), Learnt(None, FakeClock()))

    def tick(self, now_s: float, held: Holding, *events: HardwareEvent) -> dict[str, float]:
        found = list(self.jobs.take(events, held, now_s=now_s))
        assert all((each.xid_class, each.window) == ("application", "1d") for each in found)
        return {each.uuid: each.jobs for each in found}


@pytest.fixture
def told() -> Told:
    return Told()


def test_without_an_event_there_is_no_series(told: Told) -> None:
    assert told.tick(0.0, holding(WHOLE, a="slurm/1")) == {}


def test_a_job_that_fails_again_counts_once_and_different_jobs_each(told: Told) -> None:
    assert told.tick(1.0, holding(WHOLE, a="slurm/1", b="slurm/1"), event(at_s=1.0), event(at_s=1.0)) == {
        A: 1.0
    }
    assert told.tick(2.0, holding(WHOLE, a="slurm/1"), event(at_s=2.0)) == {A: 1.0}
    assert told.tick(3.0, holding(WHOLE, a="slurm/2"), event(at_s=3.0)) == {A: 2.0}
    assert told.tick(4.0, holding(WHOLE), event(B, at_s=4.0)) == {A: 2.0}


def test_the_job_that_the_event_has_ended_is_the_one_that_was_hit(told: Told) -> None:
    told.tick(10.0, holding(WHOLE, a="slurm/1"))
    assert told.tick(12.0, holding(WHOLE, a="slurm/2"), event(at_s=11.0)) == {A: 1.0}
    assert told.tick(13.0, holding(WHOLE, a="slurm/1"), event(at_s=13.0)) == {A: 1.0}
    assert told.tick(14.0, holding(WHOLE, a="slurm/2"), event(at_s=14.0)) == {A: 2.0}


def test_only_applications_and_only_first_causes_count(told: Told) -> None:
    others = (
        event(xid_class="hardware"),
        event(kind="sxid"),
        event(echo=True),
        event(uuid=""),
        event(uuid="GPU-unheard-of"),
    )
    assert told.tick(1.0, holding(WHOLE, a="slurm/1"), *others) == {}


def test_a_day_later_it_is_forgotten(told: Told) -> None:
    told.tick(0.0, holding(WHOLE, a="slurm/1"), event(at_s=0.0))
    told.tick(100.0, holding(WHOLE, a="slurm/2"), event(at_s=100.0))
    assert told.tick(DAY_S - 1, holding(WHOLE)) == {A: 2.0}
    assert told.tick(DAY_S + 1, holding(WHOLE)) == {A: 1.0}
    assert told.tick(DAY_S + 101, holding(WHOLE)) == {}


def test_sharers_of_a_gpu_are_all_hit(told: Told) -> None:
    assert told.tick(1.0, holding(WHOLE, a="slurm/1 slurm/2"), event(at_s=1.0)) == {A: 2.0}


def test_an_event_of_an_instance_hits_its_holder_only(told: Told) -> None:
    held = holding(CUT, first="k8s/1", second="k8s/2")
    assert told.tick(1.0, held, event(at_s=1.0, instance="2/0")) == {A: 1.0}
    assert told.tick(2.0, held, event(at_s=2.0, instance="2")) == {A: 1.0}
    assert told.tick(3.0, held, event(at_s=3.0)) == {A: 2.0}


def test_a_gpu_that_fails_everything_takes_no_more_room_than_allowed(told: Told) -> None:
    for number in range(MOST_JOBS + 50):
        found = told.tick(number, holding(WHOLE, a=f"slurm/{number}"), event(at_s=number))
    assert found == {A: float(MOST_JOBS)}


def test_jobs_that_were_hit_before_a_restart_count_until_their_day_is_over() -> None:
    clock = FakeClock()
    learnt = Learnt(None, clock)
    hit = XidJobs(clock, learnt)
    at_s = clock.monotonic_s()
    xid = event(at_s=at_s, wall_s=clock.wall_s())
    list(hit.take([xid], holding(WHOLE, a="slurm/1 slurm/2"), now_s=at_s))
    clock.advance(DAY_S - 60.0)
    later = XidJobs(clock, learnt)
    (said,) = later.take((), holding(WHOLE), now_s=clock.monotonic_s())
    assert (said.uuid, said.jobs) == (A, 2.0)
    assert list(later.take((), holding(WHOLE), now_s=clock.monotonic_s() + 60.0)) == []
