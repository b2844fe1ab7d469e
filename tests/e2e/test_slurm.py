"""A real Slurm with simulated GPUs: who holds what, what it costs, and what is left of it afterwards."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.config.model import Slurm as Settings
from clusterwatt.config.model import SlurmNode, SlurmQueue
from clusterwatt.discovery import slurm as discovery
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.work import Claim, Job, Scheduler, SchedulerNode, SchedulerPending
from clusterwatt.sysfs import Files
from clusterwatt.workloads.slurm import SlurmCollector
from clusterwatt.workloads.slurm_node import SlurmNodeCollector
from clusterwatt.workloads.slurm_queue import SlurmQueueCollector
from tests.e2e import slurm
from tests.e2e.page import Page
from tests.e2e.servers import Server, agent, until
from tests.e2e.slurm import Slurm

pytestmark = [pytest.mark.e2e, pytest.mark.full]

SEEN_S = 20.0
MARKED_S = 90.0  # slurmctld looks at its reservations now and then
SECRET = "EXAMPLE-NOT-REAL"


BUSY, IDLE, FREE = (
    6,
    1,
    1,
)  # of eight simulated GPUs: those that compute, and those that hold memory or nothing


@pytest.fixture(scope="module")
def running() -> Iterator[Slurm]:
    """One node with eight GPUs."""
    reason = slurm.missing()
    if reason:
        pytest.skip(reason)
    with slurm.cluster(gpus=BUSY + IDLE + FREE) as started:
        yield started


@pytest.fixture
def cluster(running: Slurm) -> Iterator[Slurm]:
    """The cluster without a job, before and after each test."""
    yield running
    running.cancel_all()


def devices(readings: list[Reading], job: str) -> set[str]:
    return {
        reading.device
        for reading in readings
        if isinstance(reading, Claim) and reading.job_id == f"slurm/{job}"
    }


def jobs(readings: list[Reading]) -> dict[str, Job]:
    return {reading.job_id: reading for reading in readings if isinstance(reading, Job)}


def collector(folder: Path) -> SlurmCollector:
    clock = SystemClock()
    return SlurmCollector(Files("/", clock), Settings(job_files=str(folder)), clock)


def seen(looking: SlurmCollector, job: str) -> list[Reading] | None:
    """A pass of the collector in which the job is there with its name, which its first process tells."""
    readings = list(looking.collect())
    found = jobs(readings).get(f"slurm/{job}")
    return readings if found is not None and found.name else None


def test_jobs_are_seen_with_their_gpus_until_their_end(cluster: Slurm) -> None:
    looking = collector(cluster.job_files)
    batch = cluster.submit("sleep 600", "--gres=gpu:2", "--job-name=train me", "--comment=clusterwatt-exempt")
    holder = cluster.hold("--gres=gpu:1")
    until(lambda: cluster.jobs().get(batch) == "RUNNING", SEEN_S, "the job runs")
    readings = until(lambda: seen(looking, batch), SEEN_S, "the job is seen and has told its name")
    job = jobs(readings)[f"slurm/{batch}"]
    assert (job.name, job.user, job.partition, job.kind, job.exempt) == (
        "train me",
        "root",
        "train",
        "batch",
        True,
    )
    assert len(devices(readings, batch)) == 2
    assert len(devices(readings, holder)) == 1
    assert not devices(readings, batch) & devices(readings, holder)
    assert Scheduler("slurm") in readings
    assert not [reading for reading in readings if isinstance(reading, Failure)]
    cluster.cancel(batch, holder)
    after = list(looking.collect())
    assert not {f"slurm/{batch}", f"slurm/{holder}"} & jobs(after).keys()
    assert list(cluster.job_files.iterdir()) == []


def test_without_the_prologs_files_a_running_job_tells_its_gpus_itself(
    cluster: Slurm, tmp_path: Path
) -> None:
    looking = collector(tmp_path)
    other = cluster.hold("--gres=gpu:1")
    batch = cluster.submit("sleep 600", "--gres=gpu:2")
    readings = until(
        lambda: found if devices(found := list(looking.collect()), batch) else None,
        SEEN_S,
        "its GPUs are seen",
    )
    assert devices(readings, batch) == {"minor:1", "minor:2"}
    assert jobs(readings)[f"slurm/{other}"].user == "root"
    cluster.cancel(batch, other)


def test_g38_tasks_of_an_array_are_jobs_of_their_own(cluster: Slurm) -> None:
    looking = collector(cluster.job_files)
    array = cluster.submit("sleep 600", "--gres=gpu:1", "--array=2-3")

    def tasks() -> dict[str, str]:
        found = jobs(list(looking.collect())).items()
        return {job_id: job.array_task for job_id, job in found if job.array_job == array}

    seen = until(lambda: found if len(found := tasks()) == 2 else None, SEEN_S, "both tasks are seen")
    assert sorted(seen.values()) == ["2", "3"]
    assert {job_id.removeprefix("slurm/") for job_id in seen} == set(cluster.jobs())
    cluster.cancel(*cluster.jobs())


@contextlib.contextmanager
def watching(cluster: Slurm, folder: Path) -> Iterator[Server]:
    """The agent, with simulated GPUs that are held by the jobs of a real Slurm."""
    settings = (
        "simulate.jobs=false",
        f"workloads.slurm.job_files={cluster.job_files}",
        f"ledger.path={folder}/ledger.db",
        "ledger.commit_seconds=0.5",
        "meters.idle_window_seconds=2",
        "log.level=debug",
    )
    arguments = [argument for setting in settings for argument in ("--set", setting)]
    with agent(folder, "--simulate", "h100", *arguments) as server:
        yield server


def totals(page: Page, job: str) -> dict[str, float] | None:
    """What a job has used by the page; None before all of it is more than 0."""
    job_id = f"slurm/{job}"
    found = {
        "gpu_seconds": page.value("clusterwatt_job_gpu_seconds_total", job_id=job_id),
        "joules": sum(
            page.by("method", "clusterwatt_job_energy_joules_total", job_id=job_id, component="gpu").values()
        ),
        "grams": page.value("clusterwatt_job_carbon_grams_total", job_id=job_id),
        "cost": page.value("clusterwatt_job_cost_total", job_id=job_id, kind="gpu"),
    }
    return {name: value for name, value in found.items() if value} if all(found.values()) else None


def over(page: Page, *jobs: str) -> bool:
    """Whether the page says of all these jobs that they have ended."""
    ended = page.by("job_id", "clusterwatt_job_end_timestamp_seconds")
    return {f"slurm/{job}" for job in jobs} <= ended.keys()


def test_jobs_are_charged_over_a_restart_and_the_epilog_prints_the_receipt(
    cluster: Slurm, tmp_path: Path
) -> None:
    cluster.command_file.write_text(
        f"#!/bin/sh\nexec '{sys.executable}' -m clusterwatt \"$@\" --set ledger.path='{tmp_path}/ledger.db'\n"
    )
    cluster.command_file.chmod(0o755)
    exported = f"--export=ALL,DB_PASSWORD={SECRET}"
    busy = cluster.submit(
        f"exec sh -c 'sleep 600; :' --api-key={SECRET}", f"--gres=gpu:{BUSY}", "--job-name=busy", exported
    )
    until(lambda: cluster.jobs().get(busy) == "RUNNING", SEEN_S, "the job runs")
    holder = cluster.hold(f"--gres=gpu:{IDLE}")

    def both(server: Server) -> dict[str, dict[str, float]] | None:
        page = server.page()
        found = {job: totals(page, job) for job in (busy, holder)}
        return {job: used for job, used in found.items() if used} if all(found.values()) else None

    with watching(cluster, tmp_path) as server:
        held = until(lambda: server.page().by("gpu", "clusterwatt_gpu_allocated"), SEEN_S, "GPUs are held")
        assert held == {str(gpu): 1.0 for gpu in range(BUSY + IDLE)}
        until(lambda: both(server), SEEN_S, "both jobs have totals")
        until(
            lambda: server.page().value("clusterwatt_job_idle_gpu_seconds_total", job_id=f"slurm/{holder}"),
            SEEN_S,
            "the job that holds a GPU and runs nothing is idle",
        )
        page = server.page()
        before = {job: totals(page, job) for job in (busy, holder)}
        assert page.value("clusterwatt_job_idle_gpu_seconds_total", job_id=f"slurm/{busy}") == 0
        assert page.value("clusterwatt_job_idle_cost_total", job_id=f"slurm/{holder}")
        assert page.value("clusterwatt_scheduler_gpus_allocated", scheduler="slurm") == BUSY + IDLE
        states = page.by("state", "clusterwatt_gpu_state_seconds_total", gpu=str(BUSY + IDLE))
        assert states["active"] == states["idle"] == 0 < states["free"]
        assert page.by("name", "clusterwatt_job_info", job_id=f"slurm/{busy}") == {"busy": 1.0}

    with watching(cluster, tmp_path) as server:
        first = until(lambda: both(server), SEEN_S, "both jobs have totals again")
        for job, used in first.items():
            earlier = before[job]
            assert earlier is not None
            assert all(used[name] >= value for name, value in earlier.items()), (used, earlier)
        until(
            lambda: (found := both(server)) and found[busy]["joules"] > first[busy]["joules"], SEEN_S, "more"
        )
        cluster.cancel(busy, holder)
        until(lambda: over(server.page(), busy, holder), SEEN_S, "both jobs are over")
        last = both(server)
        assert last is not None
        assert not server.page().by("gpu", "clusterwatt_gpu_allocated")
        until(lambda: cluster.said_by_epilog(busy) and cluster.said_by_epilog(holder), SEEN_S, "both epilogs")
        for job, gpus in ((busy, BUSY), (holder, IDLE)):
            receipt = cluster.said_by_epilog(job)
            assert f"slurm/{job}" in receipt
            assert f"{gpus} x NVIDIA H100" in receipt
            assert "kWh" in receipt
        files = [tmp_path / "receipts" / f"slurm-{job}.txt" for job in (busy, holder)]
        until(lambda: all(file.exists() for file in files), SEEN_S, "the agent leaves both receipts")
        written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        assert len(written) > len(files) + 1  # the ledger and the agent's log
        for text in (server.get("/metrics").encode(), *written):
            assert SECRET.encode() not in text


def test_discovery_finds_the_node_in_both_forms(cluster: Slurm) -> None:
    as_text = cluster.run("scontrol", "show", "nodes", "--oneliner")
    (node,) = discovery.read(as_text)
    assert (node.name, node.address, node.partitions) == (slurm.NODE, "127.0.0.1", ("train",))
    assert node.gres == f"gpu:{BUSY + IDLE + FREE}"
    assert "idle" in node.states
    with contextlib.suppress(AssertionError):  # --json needs a plugin that Debian packs apart
        assert discovery.read(cluster.run("scontrol", "show", "nodes", "--json")) == [node]


@pytest.fixture
def commands(cluster: Slurm, tmp_path: Path) -> Path:
    """A folder of Slurm's commands for who has no environment; those of an unpacked package need one."""
    folder = tmp_path / "commands"
    folder.mkdir()
    given = [key for key in ("SLURM_CONF", "LD_LIBRARY_PATH") if key in cluster.environment]
    variables = " ".join(f"{key}='{cluster.environment[key]}'" for key in given)
    for name in ("squeue", "scontrol", "sinfo"):
        program = name if cluster.clients is None else cluster.clients / name
        (folder / name).write_text(f"#!/bin/sh\nexec env {variables} '{program}' \"$@\"\n")
        (folder / name).chmod(0o755)
    return folder


ASKED = (  # more than fits: each way to ask for GPUs, and how many that makes
    (("--gres=gpu:2",), 2),
    (("--gres=gpu:1", "--array=1-5%2"), 5),
    (("--gpus=3",), 3),
    (("--gpus-per-node=2",), 2),
    (("--gpus-per-task=1", "--ntasks=4"), 4),
    (("--gpus-per-socket=1", "--sockets-per-node=1"), 1),
    (("--gres=gpu", "--hold", "--job-name=two words|and more"), 1),
    (("--ntasks=1", "--begin=now+1day"), 0),
)
WAITING = SchedulerPending("slurm", "train", len(ASKED) - 1 + 5.0, sum(gpus for _, gpus in ASKED) + 0.0)
NOTHING = SchedulerPending("slurm", "train", 0.0, 0.0)


def fill(cluster: Slurm) -> None:
    """One job that takes all GPUs, and those that wait for them."""
    holder = cluster.submit("sleep 600", f"--gres=gpu:{BUSY + IDLE + FREE}")
    until(lambda: cluster.jobs().get(holder) == "RUNNING", SEEN_S, "the job runs")
    for options, _ in ASKED:
        cluster.submit("exit 0", *options)


def test_what_waits_is_counted_as_it_asks(cluster: Slurm, commands: Path) -> None:
    asking = SlurmQueueCollector(SlurmQueue(commands=str(commands)))
    assert list(asking.collect()) == [NOTHING]
    fill(cluster)
    assert list(asking.collect()) == [WAITING]
    cluster.cancel_all()
    assert list(asking.collect()) == [NOTHING]
    (commands / "squeue").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(OSError, match="squeue ended with 1"):
        list(asking.collect())


def test_the_page_of_the_agent_that_asks_has_what_waits(
    cluster: Slurm, commands: Path, tmp_path: Path
) -> None:
    fill(cluster)
    settings = (
        "simulate.jobs=false",
        f"ledger.path={tmp_path}/ledger.db",
        f"workloads.slurm.job_files={cluster.job_files}",
        "workloads.slurm_queue.enabled=true",
        "workloads.slurm_queue.every_seconds=10",
        f"workloads.slurm_queue.commands={commands}",
        "limits.families={scheduler_pending_jobs: true, scheduler_pending_gpus: true}",
    )
    arguments = [argument for setting in settings for argument in ("--set", setting)]
    with agent(tmp_path, "--simulate", "h100", *arguments) as server:

        def told() -> tuple[float | None, float | None]:
            page, labels = server.page(), {"scheduler": "slurm", "partition": "train"}
            return (
                page.value("clusterwatt_scheduler_pending_jobs", **labels),
                page.value("clusterwatt_scheduler_pending_gpus", **labels),
            )

        until(lambda: told() == (WAITING.jobs, WAITING.gpus), SEEN_S, "what waits is on the page")
        cluster.cancel_all()
        until(lambda: told() == (0.0, 0.0), SEEN_S, "nothing waits any more")


def in_state(cluster: Slurm, state: str, *more: str) -> None:
    cluster.run("scontrol", "update", f"NodeName={slurm.NODE}", f"State={state}", "Reason=a test", *more)


@pytest.fixture
def in_use(cluster: Slurm) -> Iterator[Slurm]:
    """The cluster, whose node works again afterwards."""
    yield cluster
    cluster.cancel_all()
    state = ("sinfo", "--noheader", "--format=%T")
    if cluster.run(*state).startswith(("drain", "down")):
        in_state(cluster, "RESUME")
    until(lambda: cluster.run(*state) == "idle", SEEN_S, "the node is idle")


def test_a_drained_node_is_told_as_such_and_one_that_is_down_is_not(in_use: Slurm, commands: Path) -> None:
    asking = SlurmNodeCollector(SlurmNode(commands=str(commands), node_name=slurm.NODE), SystemClock())

    def told() -> bool:
        (said,) = asking.collect()
        assert isinstance(said, SchedulerNode)
        assert said.gpus == BUSY + IDLE + FREE
        return said.maintenance

    assert told() is False
    in_state(in_use, "DRAIN")
    assert told() is True
    in_state(in_use, "DOWN")
    assert told() is True  # DOWN+DRAIN
    in_state(in_use, "RESUME")
    in_state(in_use, "DOWN")
    assert told() is False
    in_state(in_use, "RESUME")
    job = in_use.submit("sleep 600", "--gres=gpu:1")
    until(lambda: in_use.jobs().get(job) == "RUNNING", SEEN_S, "the job runs")
    in_state(in_use, "DRAIN")
    assert told() is True  # while it drains
    in_use.cancel_all()
    in_state(in_use, "RESUME")
    window = ("starttime=now", "duration=60", "user=root", f"nodes={slurm.NODE}")
    made = in_use.run("scontrol", "create", "reservation", "flags=maint,ignore_jobs", *window)
    until(told, MARKED_S, "slurmctld marks the node as in maintenance")
    in_use.run("scontrol", "delete", f"ReservationName={made.rpartition(' ')[2]}")
    until(lambda: not told(), MARKED_S, "the mark is gone")


def test_slurmctld_is_asked_for_one_node_alone(cluster: Slurm, commands: Path) -> None:
    """Else each of a thousand agents would be sent a thousand nodes."""
    asking = SlurmNodeCollector(SlurmNode(commands=str(commands), node_name=slurm.NODE), SystemClock())
    cluster.run("sdiag", "--reset")
    list(asking.collect())
    asked = cluster.run("sdiag")
    assert "REQUEST_NODE_INFO_SINGLE" in asked
    assert "REQUEST_NODE_INFO " not in asked


def test_a_drain_is_maintenance_on_the_page_and_slurms_gpus_are_expected(
    in_use: Slurm, commands: Path, tmp_path: Path
) -> None:
    settings = (
        "simulate.jobs=false",
        "simulate.gpus=4",
        f"ledger.path={tmp_path}/ledger.db",
        f"collectors.maintenance.file={tmp_path}/maintenance",
        "workloads.slurm_node.enabled=true",
        "workloads.slurm_node.every_seconds=10",
        f"workloads.slurm_node.node_name={slurm.NODE}",
        f"workloads.slurm_node.commands={commands}",
    )
    arguments = [argument for setting in settings for argument in ("--set", setting)]
    with agent(tmp_path, "--simulate", "h100", *arguments) as server:

        def told(name: str) -> float | None:
            return server.page().value(f"clusterwatt_{name}")

        until(lambda: told("gpus_expected") == BUSY + IDLE + FREE, SEEN_S, "Slurm's number is expected")
        until(lambda: told("gpus_visible") == 4.0, SEEN_S, "the driver's number is seen")
        assert told("node_maintenance") == 0.0
        in_state(in_use, "DRAIN")
        until(lambda: told("node_maintenance") == 1.0, SEEN_S, "the drain is seen")
        in_state(in_use, "RESUME")
        until(lambda: told("node_maintenance") == 0.0, SEEN_S, "and its end")
