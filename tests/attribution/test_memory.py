"""Memory by job: what is known is summed, what belongs to nobody known is said too."""

from __future__ import annotations

from collections.abc import Iterable

from clusterwatt.attribution.memory import memory_by_job
from clusterwatt.readings.gpu import GpuProcess
from clusterwatt.readings.work import JobMember, ProcessOwner

A, B = "GPU-aaaaaaaa", "GPU-bbbbbbbb"
GIB = float(1 << 30)


def on(uuid: str, pid: int, used_bytes: float | None, kind: str = "compute") -> GpuProcess:
    return GpuProcess("0" if uuid == A else "1", uuid, pid, kind, used_bytes)


def by_job(
    processes: Iterable[GpuProcess], owners: dict[int, str], members: dict[str, str] | None = None
) -> dict[tuple[str, str], float]:
    """Bytes by GPU and job."""
    found = list(
        memory_by_job(
            processes,
            [ProcessOwner(pid, owner) for pid, owner in owners.items()],
            [JobMember(member, job_id) for member, job_id in (members or {}).items()],
        )
    )
    assert len({(reading.uuid, reading.job_id) for reading in found}) == len(found)
    assert all(reading.gpu == ("0" if reading.uuid == A else "1") for reading in found)
    return {(reading.uuid, reading.job_id): reading.used_bytes for reading in found}


def test_processes_of_a_job_are_added_for_each_gpu() -> None:
    processes = [on(A, 1, GIB), on(A, 2, 2 * GIB), on(A, 3, 4 * GIB), on(B, 1, 8 * GIB)]
    assert by_job(processes, {1: "slurm/7", 2: "slurm/7", 3: "user/1000"}) == {
        (A, "slurm/7"): 3 * GIB,
        (A, "user/1000"): 4 * GIB,
        (B, "slurm/7"): 8 * GIB,
    }


def test_g02_a_process_that_has_ended_holds_nothing() -> None:
    owners = {4101: "slurm/7", 4102: "slurm/7"}
    assert by_job([on(A, 4101, 2147483648.0), on(A, 4102, 1073741824.0)], owners) == {
        (A, "slurm/7"): 3221225472.0
    }
    assert by_job([on(A, 4102, 1073741824.0)], owners) == {(A, "slurm/7"): 1073741824.0}
    assert by_job([], owners) == {}


def test_g08_memory_of_processes_that_nobody_knows_is_not_attributed() -> None:
    assert by_job([on(A, 17, GIB), on(A, 31007, 4 * GIB)], {}) == {(A, ""): 5 * GIB}


def test_g28_memory_that_the_driver_does_not_tell_is_left_out_of_the_sum() -> None:
    processes = [on(A, 79, None), on(A, 80, 536870912.0)]
    assert by_job(processes, {79: "slurm/7", 80: "slurm/7"}) == {(A, "slurm/7"): 536870912.0}
    assert by_job(processes[:1], {79: "slurm/7"}) == {}


def test_a_process_that_computes_and_draws_is_counted_once() -> None:
    assert by_job([on(A, 1, GIB), on(A, 1, GIB, "graphics")], {1: "user/1000"}) == {(A, "user/1000"): GIB}


def test_members_stand_for_their_job() -> None:
    owners = {1: "pod/aa", 2: "pod/bb", 3: "sluid/s8FXKTA79XAR00", 4: "sluid/sNOBODYKNOWS00"}
    members = {"pod/aa": "k8s/42", "pod/bb": "k8s/42", "sluid/s8FXKTA79XAR00": "slurm/7"}
    assert by_job([on(A, pid, GIB) for pid in owners], owners, members) == {
        (A, "k8s/42"): 2 * GIB,
        (A, "slurm/7"): GIB,
        (A, ""): GIB,
    }
