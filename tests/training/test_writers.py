"""Host names in the names of event files, and whose they are."""

from __future__ import annotations

import pytest

from clusterwatt.readings.work import Job, JobPod
from clusterwatt.training.event_files import Name, parse_name
from clusterwatt.training.writers import hosts_of_work


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        (
            "events.out.tfevents.1622966509.janoshs-mbp.lan.86059.0",
            Name(1622966509.0, "janoshs-mbp.lan", 86059),
        ),
        ("events.out.tfevents.1700000000.node7.123.4.v2", Name(1700000000.0, "node7", 123)),
        ("events.out.tfevents.1700000000.node7", Name(1700000000.0, "node7", None)),
        (
            "events.out.tfevents.1700000000.node7.cluster.local",
            Name(1700000000.0, "node7.cluster.local", None),
        ),
        ("events.out.tfevents.1700000000.gpu-0-1.2.3", Name(1700000000.0, "gpu-0-1", 2)),
        ("prefix.out.tfevents.1.h.2.3", Name(1.0, "h", 2)),
        ("events.out.tfevents", Name()),
        ("events.out.tfevents.x.h.1.0", Name()),
        ("events.out.tfevents.1.", Name()),
        ("tfevents", Name()),
    ],
)
def test_a_name_tells_time_host_and_process(name: str, parsed: Name) -> None:
    assert parse_name(name) == parsed


def test_pods_and_containers_are_known_by_their_host_names() -> None:
    pod = JobPod("k8s/uid-1", "team", "trainer-0", "main")
    long = JobPod("k8s/uid-2", "team", "a" * 62 + "-" + "b" * 20, "main")
    indexed = JobPod("k8s/uid-3", "team", "tune-0-x7k2p", "main", host="tune-0")
    jobs = [Job("container/0a1b2c3d4e5f", "container", "batch"), Job("slurm/7", "slurm", "batch")]
    assert hosts_of_work([pod, long, indexed], jobs) == {
        "trainer-0": "k8s/uid-1",
        "a" * 62: "k8s/uid-2",
        "tune-0": "k8s/uid-3",
        "0a1b2c3d4e5f": "container/0a1b2c3d4e5f",
    }


def test_pods_of_one_host_name_in_two_namespaces_own_nothing_by_it() -> None:
    pods = [JobPod(f"k8s/{name}", name, "trainer-0", "main") for name in ("ann", "bob", "cid")]
    assert hosts_of_work([*pods, *pods], ()) == {"trainer-0": ""}
    two = [JobPod("k8s/ann", "ann", "trainer-0", name) for name in ("main", "log")]
    assert hosts_of_work(two, ()) == {"trainer-0": "k8s/ann"}
