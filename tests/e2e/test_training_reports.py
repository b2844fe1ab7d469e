"""Processes that report their training to a running agent, over HTTP and at its socket."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterwatt.meters.training import flops_per_token
from clusterwatt.training import Reporter
from clusterwatt.workloads.process import look
from tests.e2e.page import Page
from tests.e2e.servers import Server, agent, until
from tests.machines import REPOSITORY

pytestmark = pytest.mark.e2e

WITHIN_S = 20.0
BF16_H100 = 989.5e12
FLOPS = flops_per_token(7e9, layers=32, hidden_size=4096, sequence_length=4096)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agent")


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[Server]:
    """An agent with simulated GPUs, which a simulated job of Slurm holds."""
    settings = ["training.api.enabled=true", f"training.api.socket={folder}/reports/agent.sock"]
    sets = [argument for setting in (*settings, "limits.profile=full") for argument in ("--set", setting)]
    with agent(folder, "--simulate", "h100", *sets) as server:
        until(lambda: list(batch_job(server.page())), WITHIN_S, "a job that holds GPUs")
        yield server


def batch_job(page: Page) -> dict[str, int]:
    """The job that trains, and how many GPUs it holds."""
    jobs: dict[str, int] = {}
    for labels, _ in page.series("clusterwatt_gpu_allocated", kind="batch"):
        jobs[labels["job_id"]] = jobs.get(labels["job_id"], 0) + 1
    return jobs


def told(node: Server, name: str, **labels: str) -> float:
    """A series, once it is there."""
    found: list[float] = []

    def look_up() -> bool:
        value = node.page().value(f"clusterwatt_{name}", **labels)
        found.extend(() if value is None else (value,))
        return bool(found)

    until(look_up, WITHIN_S, f"{name} {labels}")
    return found[0]


def test_over_http_a_run_has_loss_phase_and_utilisation(node: Server) -> None:
    ((job, gpus),) = batch_job(node.page()).items()
    tokens_per_second = 0.4 * gpus * BF16_H100 / FLOPS
    with Reporter(
        "http/7b",
        node.url,
        job=job,
        framework="PyTorch",
        flops_per_token=FLOPS,
        precision="bf16",
        gpus=gpus,
        every_seconds=0.05,
        enabled=True,
    ) as reporter:
        reporter.set_phase("train")
        reporter.log(step=10, tokens=1_000_000, loss=2.5, tokens_per_second=tokens_per_second)
        run = {"run": "http/7b", "job_id": job}
        assert told(node, "training_loss", **run, split="train") == 2.5
        assert told(node, "training_step", **run) == 10
        assert told(node, "training_tokens_total", **run) == 1_000_000
        assert told(node, "training_flops_per_token", **run) == FLOPS
        assert told(node, "training_mfu_ratio", **run) == pytest.approx(0.4)
        assert told(node, "training_info", **run, framework="PyTorch") == 1
        with reporter.phase("checkpoint"):
            reporter.log(loss=float("nan"))
            until(
                lambda: told(node, "training_phase", **run, phase="checkpoint") == 1, WITHIN_S, "checkpoint"
            )
        assert told(node, "training_last_checkpoint_timestamp_seconds", **run) > 0
        assert told(node, "training_nonfinite_total", **run, tag="loss") == 1
        assert node.page().value("clusterwatt_training_loss", **run, split="train") is None
    assert reporter.dropped == 0


def test_a_run_that_states_nothing_says_what_is_missing(node: Server) -> None:
    ((job, _),) = batch_job(node.page()).items()
    with Reporter("bare", node.url, job=job, enabled=True) as reporter:
        reporter.log(step=1)
    run = {"run": "bare", "job_id": job}
    assert told(node, "training_mfu_missing_info", **run, missing="flops_per_token") == 1
    assert node.page().value("clusterwatt_training_mfu_ratio", **run) is None


def test_at_the_socket_the_job_is_that_of_the_process(node: Server, folder: Path) -> None:
    seen = look("", os.getpid())
    owner = "" if seen is None else seen.owner.name
    address = f"unix:{folder}/reports/agent.sock"
    with Reporter("socket", address, every_seconds=0.05, enabled=True) as reporter:
        reporter.log(step=3, loss=1.5)
    assert (reporter.sent, reporter.dropped) == (1, 0)
    assert told(node, "training_step", run="socket", job_id=owner) == 3
    with Reporter("stolen", address, job="slurm/1", every_seconds=0.05, enabled=True) as thief:
        thief.log(step=3)
    assert (thief.sent, thief.dropped) == (0, 1)
    assert 'run="stolen"' not in node.get("/metrics")


@pytest.fixture
def job_cgroup() -> Iterator[Path]:
    """A real cgroup, called as Slurm calls those of its jobs; in a hierarchy that the tests may write to."""
    top = Path("/sys/fs/cgroup/freezer")
    slurm = (top if top.is_dir() else top.parent) / f"slurm_clusterwatt-{os.getpid()}"
    job = slurm / "uid_0" / "job_4711"
    try:
        job.mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"this machine lets nobody make a cgroup: {error}")
    try:
        yield job
    finally:
        for folder in (job, job.parent, slurm):
            folder.rmdir()


def report_from(cgroup: Path, address: str, script: str) -> str:
    """What a process in a cgroup says that reports with this script."""
    program = f"from clusterwatt.training import Reporter\naddress = {address!r}\n{script}"
    done = subprocess.run(
        [
            "sh",
            "-c",
            'echo $$ > "$1/cgroup.procs" && exec "$2" -c "$3"',
            "-",
            cgroup,
            sys.executable,
            program,
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "agent")},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout.strip()


def test_a_process_of_a_slurm_job_reports_for_that_job_and_no_other(
    node: Server, folder: Path, job_cgroup: Path
) -> None:
    address = f"unix:{folder}/reports/agent.sock"
    script = """
for job in ("", "slurm/4711", "slurm/1"):
    with Reporter("in-job", address, job=job, enabled=True) as reporter:
        reporter.log(step=1, loss=0.5)
    print(reporter.sent, reporter.dropped)
"""
    assert report_from(job_cgroup, address, script).splitlines() == ["1 0", "1 0", "0 1"]
    assert told(node, "training_loss", run="in-job", job_id="slurm/4711", split="train") == 0.5
    jobs = {labels["job_id"] for labels, _ in node.page().series("clusterwatt_training_step", run="in-job")}
    assert jobs == {"slurm/4711"}


def test_faults_are_told_in_lines(node: Server) -> None:
    body = json.dumps({"run": "", "steps": 5}).encode()
    request = urllib.request.Request(
        f"{node.url}/api/v1/training", data=body, headers={"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=5)
    assert refused.value.code == 400
    faults = json.loads(refused.value.read())["errors"]
    refused.value.close()
    assert len(faults) == 2


def test_reporting_is_off_unless_it_is_switched_on(tmp_path: Path) -> None:
    with agent(tmp_path, "--simulate", "t4") as server:
        url, headers = f"{server.url}/api/v1/training", {"Content-Type": "application/json"}
        request = urllib.request.Request(url, data=b'{"run":"a"}', headers=headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=5)
    assert refused.value.code == 404
    refused.value.close()
