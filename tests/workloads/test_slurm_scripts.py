"""Prolog and epilog of Slurm, run by the system's shell with what slurmd tells them."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from pathlib import Path

import pytest

from clusterwatt.readings.base import Failure
from clusterwatt.workloads.job_files import JobFile, JobFiles

SCRIPTS = Path(__file__).resolve().parents[2] / "deploy" / "slurm"
# As slurmd 22.05 sets it for a job that holds two GPUs.
JOB = {
    "SLURM_JOB_ID": "4242",
    "SLURM_JOBID": "4242",
    "SLURM_JOB_UID": "1000",
    "SLURM_JOB_USER": "ada",
    "SLURM_JOB_PARTITION": "gpu",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_JOB_COMMENT": "clusterwatt-exempt",
    "SLURM_JOB_GPUS": "0,1",
    "CUDA_VISIBLE_DEVICES": "0,1",
    "GPU_DEVICE_ORDINAL": "0,1",
    "SLURMD_NODENAME": "gpu07",
}
# PCI order and minor numbers of a board where they differ.
CARDS = (("0000:1b:00.0", 3, "GPU-aaaa"), ("0000:43:00.0", 2, "GPU-bbbb"), ("0000:b2:00.0", 0, "GPU-cccc"))
INFORMATION = """Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 42
GPU UUID: \t {uuid}
Video BIOS: \t 96.00.30.00.01
Bus Location: \t {address}
Device Minor: \t {minor}
GPU Firmware: \t 535.104.05
"""


class Host:
    """A folder with the driver's cards, the folder of jobs and receipts, and the scripts run in it."""

    def __init__(self, folder: Path, cards: tuple[tuple[str, int, str], ...] = CARDS) -> None:
        self.jobs, self.receipts = folder / "jobs", folder / "receipts"
        self._cards = folder / "gpus"
        for address, minor, uuid in cards:
            (self._cards / address).mkdir(parents=True)
            text = INFORMATION.format(uuid=uuid, address=address, minor=minor)
            (self._cards / address / "information").write_text(text)

    def run(self, script: str, *, within_s: float = 10, **changes: str) -> subprocess.CompletedProcess[str]:
        """Run it with nothing else in its environment; it must always end well."""
        places = {
            "CW_JOB_FILES": str(self.jobs),
            "CW_RECEIPTS": str(self.receipts),
            "CW_CARDS": str(self._cards),
            "CW_COMMAND": "/nowhere/clusterwatt",
            "CW_GROUP": "no-such-group",
        }
        done = subprocess.run(
            ["/bin/sh", SCRIPTS / script],
            env={**JOB, **places, **changes},
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )
        assert done.returncode == 0
        return done

    def job(self) -> JobFile:
        (job,) = JobFiles(str(self.jobs)).read()
        assert not isinstance(job, Failure)
        return job


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_prolog_writes_what_the_agent_reads(host: Host) -> None:
    before_s = int(time.time())
    done = host.run("prolog")
    job = host.job()
    assert (job.job_id, job.uid, job.user, job.partition) == ("4242", "1000", "ada", "gpu")
    assert (job.comment, job.nodes) == ("clusterwatt-exempt", "4")
    assert job.started_s is not None
    assert before_s <= job.started_s <= time.time()
    assert [path.name for path in host.jobs.iterdir()] == ["slurm-4242.gpu07"]
    assert done.stdout == ""  # a task prolog's output is taken for commands; nobody is to be led astray


def test_other_users_do_not_read_whose_job_it_is(host: Host) -> None:
    host.run("prolog")
    host.run("prolog", CW_GROUP=str(os.getgid()), SLURMD_NODENAME="gpu08")
    alone, shared = (path.stat() for path in sorted(host.jobs.iterdir()))
    assert stat.S_IMODE(alone.st_mode) == 0o600
    assert (stat.S_IMODE(shared.st_mode), shared.st_gid) == (0o640, os.getgid())
    assert stat.S_IMODE(host.jobs.stat().st_mode) == 0o755


def test_g23_gpus_are_named_by_the_uuid_of_their_minor_number(host: Host) -> None:
    host.run("prolog", SLURM_JOB_GPUS="0,3")
    assert host.job().gpus == ("GPU-cccc", "GPU-aaaa")


def test_gpus_are_named_by_the_order_of_the_driver_where_slurm_counts_so(host: Host) -> None:
    host.run("prolog", SLURM_JOB_GPUS="0,2", CW_GPU_NUMBERS="index")
    assert host.job().gpus == ("GPU-aaaa", "GPU-cccc")


@pytest.mark.parametrize(
    ("gpus", "visible", "expected"),
    [
        ("0", "0", ("GPU-cccc",)),
        ("2-3", "2,3", ("GPU-bbbb", "GPU-aaaa")),
        ("0,7", "0,7", ("GPU-cccc", "minor:7")),
        ("", "3", ("GPU-aaaa",)),
        ("", "", ()),
        ("", "NoDevFiles", ()),
        ("0,1", "MIG-11111111-2222,GPU-cccc", ("MIG-11111111-2222", "GPU-cccc")),
        ("0", "MIG-GPU-aaaa/3/0", ("MIG-GPU-aaaa/3/0",)),
        ("0,x,-1,1-,08,0-99999", "", ("GPU-cccc",)),
    ],
)
def test_forms_of_lists(host: Host, gpus: str, visible: str, expected: tuple[str, ...]) -> None:
    host.run("prolog", SLURM_JOB_GPUS=gpus, CUDA_VISIBLE_DEVICES=visible)
    assert host.job().gpus == expected


@pytest.mark.parametrize(("numbers", "gpus"), [("minor", "3"), ("index", "0")])
def test_a_gpu_that_is_not_initialised_has_no_uuid_yet(tmp_path: Path, numbers: str, gpus: str) -> None:
    unknown = "GPU-????????-????-????-????-????????????"
    host = Host(tmp_path, (("0000:1b:00.0", 3, unknown),))
    host.run("prolog", SLURM_JOB_GPUS=gpus, CW_GPU_NUMBERS=numbers)
    assert host.job().gpus == ("minor:3",)


def test_without_the_drivers_files_the_numbers_are_kept(tmp_path: Path) -> None:
    host = Host(tmp_path, ())
    host.run("prolog")
    assert host.job().gpus == ("minor:0", "minor:1")


def test_a_job_may_hold_every_instance_of_a_node(host: Host) -> None:
    instances = tuple(f"MIG-{number:08}-1111-2222-3333-444444444444" for number in range(56))
    host.run("prolog", CUDA_VISIBLE_DEVICES=",".join(instances))
    assert host.job().gpus == instances


def test_a_jobs_name_adds_no_line(host: Host) -> None:
    host.run("prolog", SLURM_JOB_NAME="a\nuser=root\r\x0bgpus=GPU-x\n\n" + "é" * 600, SLURM_JOB_USER="ada")
    job = host.job()
    assert job.user == "ada"
    assert job.gpus == ("GPU-cccc", "minor:1")
    assert job.name.startswith("auser=rootgpus=GPU-xé")
    assert len(job.name) < 512


def test_a_jobs_name_is_not_run(host: Host, tmp_path: Path) -> None:
    name = f"$(touch {tmp_path}/x) `touch {tmp_path}/x` '; touch {tmp_path}/x; %s%n \\n"
    host.run("prolog", SLURM_JOB_NAME=name)
    assert host.job().name == name.strip()
    assert not (tmp_path / "x").exists()


def test_a_prolog_that_runs_again_replaces_its_file(host: Host) -> None:
    host.run("prolog")
    host.run("prolog", SLURM_JOB_GPUS="3")
    assert host.job().gpus == ("GPU-aaaa",)


def test_each_of_several_daemons_has_its_file(host: Host) -> None:
    host.run("prolog")
    host.run("prolog", SLURMD_NODENAME="gpu08")
    assert len(list(host.jobs.iterdir())) == 2
    host.run("epilog")
    assert [path.name for path in host.jobs.iterdir()] == ["slurm-4242.gpu08"]


@pytest.mark.parametrize("number", ["", "../../etc/passwd", "42; rm"])
@pytest.mark.parametrize("script", ["prolog", "epilog"])
def test_without_a_job_nothing_happens_and_it_is_said(host: Host, script: str, number: str) -> None:
    done = host.run(script, SLURM_JOB_ID=number)
    assert "SLURM_JOB_ID" in done.stderr
    assert not host.jobs.exists()


def test_a_folder_that_cannot_be_made_fails_no_job(host: Host) -> None:
    host.jobs.write_text("a file is in the way")
    done = host.run("prolog")
    assert str(host.jobs) in done.stderr
    host.run("epilog")


def test_the_epilog_removes_the_file_and_prints_the_agents_receipt(host: Host) -> None:
    host.run("prolog")
    host.receipts.mkdir()
    (host.receipts / "slurm-4242.txt").write_text("job slurm/4242\nenergy 1.2 kWh\n\n")
    later_s = time.time() + 10
    os.utime(host.receipts / "slurm-4242.txt", (later_s, later_s))
    assert host.run("epilog").stdout == "job slurm/4242\nenergy 1.2 kWh\n"
    assert list(host.jobs.iterdir()) == []
    assert host.run("epilog").stdout.startswith("job slurm/4242")  # again, without complaint


def command(folder: Path, script: str) -> str:
    path = folder / "clusterwatt"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_before_there_is_a_receipt_the_ledger_is_asked(host: Host, tmp_path: Path) -> None:
    asked = command(tmp_path, 'echo "receipt for $*"')
    done = host.run("epilog", CW_COMMAND=asked)
    assert done.stdout == "receipt for job slurm/4242 --format receipt\n"


def test_a_receipt_from_before_the_job_was_requeued_is_not_printed(host: Host, tmp_path: Path) -> None:
    host.receipts.mkdir()
    (host.receipts / "slurm-4242.txt").write_text("of the first run\n")
    earlier_s = time.time() - 10
    os.utime(host.receipts / "slurm-4242.txt", (earlier_s, earlier_s))
    host.run("prolog")
    asked = command(tmp_path, "echo of both runs")
    assert host.run("epilog", CW_COMMAND=asked).stdout == "of both runs\n"


def test_a_command_that_hangs_is_cut_off(host: Host, tmp_path: Path) -> None:
    hangs = command(tmp_path, "exec sleep 60")
    done = host.run("epilog", CW_COMMAND=hangs, CW_RECEIPT_SECONDS="0.2", within_s=8)
    assert done.stdout == ""
    assert "no receipt" in done.stderr


def test_without_agent_and_receipt_the_epilog_is_silent(host: Host) -> None:
    done = host.run("epilog")
    assert (done.stdout, done.stderr) == ("", "")
