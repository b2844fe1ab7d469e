from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.expose.senders import Senders
from clusterwatt.expose.training import Peer
from clusterwatt.training.intake import Sender
from tests.workloads.trees import Tree

POD = "7c1a4f62-0d3e-4b8a-9c55-2f6f5d1e8a90"


def senders(root: Path) -> Senders:
    return Senders(lambda: {f"pod/{POD}": "k8s/90ab"}, str(root))


@pytest.mark.parametrize(
    ("path", "owner", "job_id"),
    [
        ("/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "slurm/4711", "slurm/4711"),
        (f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/x", f"pod/{POD}", "k8s/90ab"),
        ("/system.slice/train.service", "unit/train.service", "unit/train.service"),
        ("/user.slice/user-1000.slice/session-2.scope", "user/1000", "user/1000"),
    ],
)
def test_the_cgroup_names_the_job(tmp_path: Path, path: str, owner: str, job_id: str) -> None:
    tree = Tree(tmp_path)
    tree.process(100, {})
    tree.write("/proc/100/cgroup", f"0::{path}\n")
    assert senders(tmp_path)(Peer(100, 1000)) == Sender(owner, known=True, owner=owner, job_id=job_id)


@pytest.mark.parametrize("pid", [0, 4_000_000])
def test_who_cannot_be_seen_is_of_no_job(tmp_path: Path, pid: int) -> None:
    Tree(tmp_path)
    assert senders(tmp_path)(Peer(pid, 1000)) == Sender("uid 1000", known=True)
