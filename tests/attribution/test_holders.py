"""Whose word counts for a GPU, and what share it gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clusterwatt.attribution import holders
from clusterwatt.attribution.holders import Holders
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.gpu import GpuInfo, GpuIntegrals, GpuProcess
from clusterwatt.readings.gpu_measured import GpuUp
from clusterwatt.readings.work import (
    GpuAllocated,
    JobMember,
    ProcessOwner,
    Scheduler,
    SchedulerGpus,
    SlurmdPod,
)
from tests.attribution.node import A, B, by_type, gpu, held_by, job, mig

ALL = {"slurm": True, "kubernetes": True, "container": True, "process": True}
Shares = dict[tuple[str, str], tuple[str, float]]


class Bench:
    def __init__(self, *infos: GpuInfo) -> None:
        self.infos = infos or (gpu(A), gpu(B, "1"))
        self.holders = Holders()
        self.failures: list[Failure] = []
        self.made: dict[type[Reading], tuple[Any, ...]] = {}
        self.silent = False

    def take(
        self, *said: Reading, sources: Mapping[str, bool] = ALL, now_s: float = 0.0, user_label: str = "name"
    ) -> Shares:
        """Shares by device and job, with the source."""
        ups = [GpuUp(info.gpu, info.uuid, 1.0) for info in self.infos]
        read = [] if self.silent else [GpuIntegrals(info.gpu, info.uuid, 0.0, now_s) for info in self.infos]
        parts = by_type((*self.infos, *ups, *read, *said))
        self.made = by_type(self.holders.take(parts, sources, now_s=now_s, user_label=user_label))
        self.failures += self.made.get(Failure, ())
        allocated: tuple[GpuAllocated, ...] = self.made.get(GpuAllocated, ())
        return {(each.uuid, each.job_id): (each.source, each.share) for each in allocated}

    def given(self) -> dict[str, float]:
        return {each.scheduler: each.gpus for each in self.made.get(SchedulerGpus, ())}


def on(pid: int, uuid: str, owner: str, *, sm: float | None = None, kind: str = "compute") -> list[Reading]:
    return [GpuProcess("0", uuid, pid, kind, sm_ratio=sm), ProcessOwner(pid, owner)]


def test_slurm_stands_before_kubernetes_and_that_before_containers() -> None:
    bench = Bench(gpu(A), gpu(B, "1"), gpu("GPU-c", "2"))
    shares = bench.take(
        Scheduler("slurm"),
        Scheduler("kubernetes"),
        held_by("slurm/1", "minor:0"),
        held_by("k8s/x", A, source="kubernetes", member="pod/x"),
        held_by("k8s/x", B, source="kubernetes", member="pod/x"),
        held_by("container/y", "GPU-c", source="container"),
        *on(7, "GPU-c", "user/1000"),
    )
    assert shares == {(A, "slurm/1"): ("slurm", 1.0), (B, "k8s/x"): ("kubernetes", 1.0)}
    assert bench.given() == {"slurm": 1.0, "kubernetes": 1.0}


def test_without_a_scheduler_containers_and_then_processes_decide() -> None:
    shares = Bench().take(
        held_by("container/y", A, source="container"),
        *on(7, A, "user/1000"),
        *on(8, B, "unit/trainer.service"),
    )
    assert shares == {
        (A, "container/y"): ("container", 1.0),
        (B, "unit/trainer.service"): ("process", 1.0),
    }


def test_what_a_scheduler_gives_to_no_job_is_free_whatever_runs_there() -> None:
    bench = Bench()
    assert bench.take(Scheduler("slurm"), *on(7, A, "user/1000")) == {}
    assert bench.given() == {"slurm": 0.0}
    assert bench.holders.holding.jobs == {}


def test_in_a_pod_that_runs_slurmd_slurm_decides() -> None:
    uid = "2fc932ce-fdcc-454b-97bd-aadfdeb4c340"
    bench = Bench()
    shares = bench.take(
        Scheduler("slurm"),
        Scheduler("kubernetes"),
        SlurmdPod(uid),
        held_by("k8s/nodeset", A, source="kubernetes", member=f"pod/{uid}"),
        held_by("k8s/nodeset", B, source="kubernetes", member=f"pod/{uid}/slurmd"),
        held_by("slurm/1", "minor:1"),
    )
    assert shares == {(B, "slurm/1"): ("slurm", 1.0)}
    assert bench.given() == {"slurm": 1.0, "kubernetes": 0.0}


def test_sharers_are_jobs_and_members_and_a_job_has_the_sum_of_its_members() -> None:
    shares = Bench().take(
        Scheduler("kubernetes"),
        held_by("k8s/x", f"{A}::0", source="kubernetes", member="pod/1"),
        held_by("k8s/x", f"{A}::1", source="kubernetes", member="pod/2"),
        held_by("k8s/y", f"{A}::2", source="kubernetes", member="pod/3"),
        held_by("k8s/y", f"{A}::3", source="kubernetes", member="pod/3"),
    )
    assert shares[A, "k8s/x"][1] == pytest.approx(2 / 3)
    assert shares[A, "k8s/y"][1] == pytest.approx(1 / 3)


def test_two_jobs_that_were_given_the_whole_gpu_hold_half_each() -> None:
    shares = Bench().take(held_by("slurm/1", A), held_by("slurm/2", "minor:0"))
    assert shares == {(A, "slurm/1"): ("slurm", 0.5), (A, "slurm/2"): ("slurm", 0.5)}


def test_an_instance_is_its_slices_of_the_board_and_the_board_all_its_instances() -> None:
    bench = Bench(gpu(A), mig(A, 0, "3g.40gb"), mig(A, 1, "2g.20gb"))
    small, large = f"MIG-00000001-{A[4:]}", f"MIG-00000000-{A[4:]}"
    assert bench.take(held_by("slurm/1", small)) == {(small, "slurm/1"): ("slurm", 2 / 7)}
    assert bench.take(held_by("slurm/1", A)) == {
        (large, "slurm/1"): ("slurm", 3 / 7),
        (small, "slurm/1"): ("slurm", 2 / 7),
    }
    assert bench.holders.held_uuids == frozenset({small, large, A})


def test_g38_tasks_of_an_array_are_jobs_of_their_own() -> None:
    bench = Bench()
    shares = bench.take(
        Scheduler("slurm"),
        job("slurm/502", array_job="501", array_task="2"),
        job("slurm/501", array_job="501", array_task="3"),
        held_by("slurm/502", A),
        held_by("slurm/501", B),
    )
    assert set(shares) == {(A, "slurm/502"), (B, "slurm/501")}


def test_a_device_that_nobody_knows_is_told_once_and_its_neighbour_counts() -> None:
    bench = Bench()
    for _ in range(3):
        assert set(bench.take(held_by("slurm/1", "minor:9"), held_by("slurm/1", A))) == {(A, "slurm/1")}
    assert [(failure.reason, failure.ongoing) for failure in bench.failures] == [
        ("unknown_device", False),
        ("unknown_device", True),
        ("unknown_device", True),
    ]
    assert "minor:9" in bench.failures[0].item


def test_what_a_scheduler_hands_out_and_nobody_can_name_counts_as_handed_out() -> None:
    bench = Bench()
    ruled = Scheduler(scheduler="slurm")
    shares = bench.take(
        ruled, held_by("slurm/1", A), held_by("slurm/1", "minor:9"), held_by("slurm/2", "minor:9")
    )
    assert (len(shares), bench.given()) == (1, {"slurm": 2.0})


def test_while_the_driver_shows_nothing_no_device_is_called_unknown() -> None:
    bench = Bench()
    bench.infos = ()
    assert bench.take(held_by("slurm/1", "minor:0")) == {}
    assert bench.failures == []


@pytest.mark.parametrize(
    ("owner", "kind"),
    [("container/0123456789ab", "service"), ("unit/x.service", "service"), ("user/1000", "interactive")],
)
def test_the_kind_of_a_job_of_which_only_the_name_is_known(owner: str, kind: str) -> None:
    assert holders._bare(owner).kind == kind


def test_g08_a_process_of_which_nobody_knows_the_owner_is_nobodys() -> None:
    shares = Bench().take(GpuProcess("0", A, 17, "compute"), GpuProcess("0", A, 31_007, "compute"))
    assert shares == {}


def test_processes_share_by_job_and_a_desktop_is_no_job() -> None:
    shares = Bench().take(
        *on(1, A, "user/1000"),
        *on(2, A, "user/1000"),
        *on(3, A, "unit/x.service"),
        *on(4, A, "unit/gdm.service", kind="graphics"),
    )
    assert {key: share for key, (_, share) in shares.items()} == {
        (A, "user/1000"): 0.5,
        (A, "unit/x.service"): 0.5,
    }


def test_an_owner_may_be_a_member_and_a_pod_without_one_is_its_own_job() -> None:
    shares = Bench().take(
        *on(1, A, "pod/1"),
        *on(2, B, "pod/2"),
        *on(3, B, "sluid/s8FXKTA79XAR00"),
        JobMember("pod/1", "k8s/x"),
    )
    assert set(shares) == {(A, "k8s/x"), (B, "k8s/2")}


def test_a_silent_source_stands_by_its_last_word_until_it_says_otherwise() -> None:
    bench = Bench()
    said = (Scheduler("slurm"), job("slurm/1", "physics"), held_by("slurm/1", A))
    bench.take(*said)
    silent = {**ALL, "slurm": False}
    assert set(bench.take(sources=silent)) == {(A, "slurm/1")}
    assert bench.holders.holding.jobs["slurm/1"].account == "physics"
    assert bench.given() == {"slurm": 1.0}
    assert bench.take(Scheduler("slurm")) == {}


def test_a_silent_slurm_still_rules_over_its_pods() -> None:
    bench = Bench()
    pod = (Scheduler("kubernetes"), held_by("k8s/n", A, source="kubernetes", member="pod/1"))
    assert bench.take(Scheduler("slurm"), SlurmdPod("1"), *pod) == {}
    assert bench.take(*pod, sources={**ALL, "slurm": False}) == {}


def test_a_source_that_is_switched_off_says_nothing_any_more() -> None:
    bench = Bench()
    bench.take(Scheduler("slurm"), held_by("slurm/1", A))
    assert bench.take(sources={"process": True}) == {}


def test_nobody_knows_who_holds_what_before_the_first_answer() -> None:
    bench = Bench()
    bench.take(sources=dict.fromkeys(ALL, False))
    assert bench.holders.held_uuids is None
    bench.take(Scheduler("slurm"), sources={**dict.fromkeys(ALL, False), "slurm": True}, now_s=1.0)
    assert bench.holders.held_uuids == frozenset()


def test_free_is_a_fact_when_every_source_was_heard() -> None:
    bench = Bench()
    settled = []
    for sources in ({**ALL, "kubernetes": False}, ALL, {**ALL, "kubernetes": False}):
        bench.take(sources=sources)
        settled.append(bench.holders.holding.settled)
    assert settled == [False, True, True]


def test_a_source_that_never_answers_is_not_waited_for_for_long() -> None:
    bench = Bench()
    silent = {**ALL, "kubernetes": False}
    settled = []
    for now_s in (100.0, 129.0, 131.0):
        bench.take(sources=silent, now_s=now_s)
        settled.append(bench.holders.holding.settled)
    assert settled == [False, False, True]


def test_without_any_source_nobody_knows_and_all_is_free() -> None:
    bench = Bench()
    bench.take(sources={})
    assert bench.holders.held_uuids is None
    assert bench.holders.holding.settled


def test_a_lost_gpu_is_still_held() -> None:
    bench = Bench()
    bench.take(held_by("slurm/1", "minor:0"))
    bench.infos = (gpu(B, "1"),)
    made = by_type(
        bench.holders.take(
            by_type((gpu(B, "1"), GpuUp("0", A, 0.0), GpuUp("1", B, 1.0), held_by("slurm/1", "minor:0"))),
            ALL,
            now_s=1.0,
        )
    )
    assert [each.uuid for each in made[GpuAllocated]] == [A]


@pytest.mark.parametrize(("label", "user"), [("name", "ada"), ("uid", "1000"), ("none", "")])
def test_users_appear_as_they_are_configured(label: str, user: str) -> None:
    bench = Bench()
    said = (job("slurm/1", user="ada", uid="1000"), held_by("slurm/1", A))
    bench.take(*said, user_label=label)
    assert [each.user for each in bench.made[GpuAllocated]] == [user]


def test_time_on_the_sms_is_summed_by_job_where_jobs_share() -> None:
    bench = Bench()
    bench.take(
        Scheduler("kubernetes"),
        held_by("k8s/x", A, source="kubernetes", member="pod/1"),
        held_by("k8s/y", A, source="kubernetes", member="pod/2"),
        JobMember("pod/1", "k8s/x"),
        JobMember("pod/2", "k8s/y"),
        *on(1, A, "pod/1", sm=0.3),
        *on(2, A, "pod/1", sm=0.1),
        GpuProcess("0", A, 2, "mps", sm_ratio=0.1),
        *on(3, A, "pod/2", sm=0.2),
    )
    assert bench.holders.holding.weights[A] == pytest.approx({"k8s/x": 0.4, "k8s/y": 0.2})


def test_a_driver_that_gives_nothing_for_a_while_ends_no_job() -> None:
    bench = Bench()
    bench.take(*on(1, A, "user/1000"))
    bench.silent = True
    for second in range(1, 120, 5):
        assert set(bench.take(now_s=float(second))) == {(A, "user/1000")}
    bench.silent = False
    listed = GpuProcess("0", A, 1, "compute")  # its cgroup has not been looked up again yet
    assert set(bench.take(listed, now_s=121.0)) == {(A, "user/1000")}
    assert bench.take(now_s=122.0) == {}


def test_a_process_of_which_the_owner_stays_unknown_is_nobodys_in_the_end() -> None:
    bench = Bench()
    listed = GpuProcess("0", A, 1, "compute")
    bench.take(listed, ProcessOwner(1, "user/1000"))
    assert set(bench.take(listed, now_s=10.0)) == {(A, "user/1000")}
    assert bench.take(listed, now_s=16.0) == {}


def test_a_number_that_goes_to_another_owner_goes_at_once() -> None:
    bench = Bench()
    bench.take(*on(1, A, "user/1000"))
    assert set(bench.take(*on(1, A, "user/2000"), now_s=1.0)) == {(A, "user/2000")}


def test_a_simulation_speaks_for_every_source() -> None:
    bench = Bench()
    said = (Scheduler("slurm"), held_by("slurm/1", A), held_by("k8s/x", B, source="kubernetes"))
    bench.take(sources={"simulated_jobs": False})
    assert bench.holders.held_uuids is None
    held = [set(bench.take(*said, sources={"simulated_jobs": True}))]
    settled = bench.holders.holding.settled
    held.append(set(bench.take(sources={"simulated_jobs": False})))
    assert settled
    assert held == [{(A, "slurm/1"), (B, "k8s/x")}] * 2
