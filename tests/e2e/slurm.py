"""A Slurm of one node on the loopback: munged, slurmctld and slurmd from Debian's packages, in a folder.

It needs root and a cgroup file system that may be written: slurmd makes a cgroup for each job. The GPUs are
links to a device that every machine has, which is all that gres.conf asks for.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.e2e.servers import free_port, running, until, wait_for
from tests.tools import apt

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "slurm"
CGROUPS = Path("/sys/fs/cgroup")
PACKAGE = apt.CACHE / "slurm-wlm"
CLIENT_S = 30.0
READY_S = 30.0
MAX_JOBS = 1_000
NODE = socket.gethostname().split(".")[0]

SLURM_CONF = """\
ClusterName=clusterwatt
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
{plugins}
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
ProctrackType=proctrack/cgroup
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
MpiDefault=none
ReturnToService=2
PrologFlags=Contain
Prolog={folder}/prolog
Epilog={folder}/epilog
FirstJobId={first_job}
KillWait=1
NodeName={node} NodeAddr=127.0.0.1 CPUs=64 Gres=gpu:{gpus}
PartitionName=train Nodes={node} Default=YES MaxTime=INFINITE State=UP
"""
GRES_CONF = "NodeName={node} Name=gpu File={folder}/nvidia[0-{last}]\n"
CGROUP_CONF = "CgroupPlugin={plugin}\nConstrainDevices=no\nConstrainRAMSpace=no\nConstrainCores=no\n"
V2_WITHOUT_SYSTEMD = "IgnoreSystemd=yes\n"
HOOK = """\
#!/bin/sh
export CW_JOB_FILES='{folder}/jobs' CW_RECEIPTS='{folder}/receipts'
export CW_COMMAND='{folder}/clusterwatt' CW_RECEIPT_SECONDS=20
exec /bin/sh '{script}' >>"{folder}/{name}-$SLURM_JOB_ID.out" 2>>'{folder}/{name}.err'
"""


@dataclass(frozen=True)
class Slurm:
    """The running cluster. `job_files`: what the prolog writes; `receipts`: what the epilog looks for."""

    folder: Path
    environment: Mapping[str, str]
    clients: Path | None

    @property
    def job_files(self) -> Path:
        """The setting `workloads.slurm.job_files`."""
        return self.folder / "jobs"

    @property
    def command_file(self) -> Path:
        """What the epilog runs as `clusterwatt`."""
        return self.folder / "clusterwatt"

    def run(self, client: str, *arguments: str) -> str:
        """Standard output of one of Slurm's commands."""
        program = client if self.clients is None else str(self.clients / client)
        done = subprocess.run(
            [program, *arguments],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CLIENT_S,
            check=False,
        )
        assert done.returncode == 0, f"{client} {' '.join(arguments)}: {done.stderr}"
        return done.stdout.strip()

    def submit(self, script: str, *options: str) -> str:
        """Queue a batch script; returns its raw job id, or that of its array."""
        path = self.folder / f"script-{secrets.token_hex(4)}"
        path.write_text(f"#!/bin/sh\n{script}\n")
        output = f"--output={self.folder}/job-%j.out"
        return self.run("sbatch", "--parsable", output, *options, str(path)).partition(";")[0]

    def hold(self, *options: str) -> str:
        """Take GPUs and run nothing on them; returns the job id."""
        before = set(self.jobs())
        self.run("salloc", "--no-shell", *options)
        (job,) = set(self.jobs()) - before
        return job

    def jobs(self) -> dict[str, str]:
        """State of every job that is not over, by raw id."""
        lines = self.run("squeue", "--noheader", "--array", "--format=%A %T").splitlines()
        return {job: state for job, _, state in (line.partition(" ") for line in lines)}

    def cancel(self, *jobs: str) -> None:
        """End jobs, and wait until their epilogs have run."""
        self.run("scancel", *jobs)
        until(lambda: not set(jobs) & set(self.jobs()), READY_S, f"jobs {jobs} are over")

    def cancel_all(self) -> None:
        """End whatever runs; processes of jobs are in sessions of their own and would outlive slurmd."""
        jobs = self.jobs()
        if jobs:
            self.cancel(*jobs)

    def said_by_epilog(self, job: str) -> str:
        """What the epilog of a job wrote to standard output."""
        path = self.folder / f"epilog-{job}.out"
        return path.read_text() if path.exists() else ""


def missing() -> str:
    """Why there can be no Slurm here; empty when there can."""
    if os.geteuid() != 0:
        return "this machine's user is not root, and slurmd needs root"
    if not os.access(CGROUPS, os.W_OK):
        return "this machine's cgroup file system may not be written, and slurmd makes cgroups"
    gone = [name for name in ("munged", "slurmctld", "slurmd") if apt.find(name) is None]
    return f"{gone[0]} is not here: `python -m tests.tools.apt slurmctld` fetches it" if gone else ""


@contextlib.contextmanager
def cluster(gpus: int = 8) -> Iterator[Slurm]:
    """Start all three daemons; ends every job, every daemon and every cgroup of it afterwards."""
    # A socket's path has an end at 107 characters, which pytest's folders come near.
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    # Cgroups of jobs bear the node's name and the job's number only: no two clusters here may share one.
    first_job = 1_000 + secrets.randbelow(60_000_000)
    try:
        with _started(folder, gpus, first_job) as slurm:
            try:
                yield slurm
            finally:
                slurm.cancel_all()
    finally:
        _remove_cgroups(range(first_job, first_job + MAX_JOBS))
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _started(folder: Path, gpus: int, first_job: int) -> Iterator[Slurm]:
    unpacked = apt.find("slurmctld") == apt.BIN / "slurmctld"
    _configure(folder, gpus, first_job, unpacked=unpacked)
    environment = dict(os.environ, SLURM_CONF=str(folder / "slurm.conf"), PWD=str(folder))
    if unpacked:
        libraries = [str(found) for pattern in apt.LIBRARIES for found in PACKAGE.glob(pattern)]
        environment["LD_LIBRARY_PATH"] = ":".join(libraries)
    slurm = Slurm(folder, environment, PACKAGE / "usr" / "bin" if unpacked else None)
    names = ("key-file", "socket", "pid-file", "log-file", "seed-file")
    options = [f"--{name}={folder}/munge.{name.partition('-')[0]}" for name in names]
    with contextlib.ExitStack() as stack:

        def start(name: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
            program, log = apt.find(name), folder / f"{name}.out"
            assert program is not None
            return stack.enter_context(running([program, *arguments], log, environment)), log

        process, log = start("munged", "--foreground", "--force", *options)
        wait_for(process, log, (folder / "munge.socket").exists, "munge's socket")
        process, log = start("slurmctld", "-D")
        wait_for(process, log, (folder / "slurmctld.pid").exists, "slurmctld's pid file")
        # The daemon that runs jobs lies beside slurmd, and slurmd looks for it where Debian installs it.
        stepd = next(PACKAGE.glob("usr/sbin/slurmstepd*"), None) if unpacked else None
        process, log = start("slurmd", "-D", *(() if stepd is None else ("-d", str(stepd))))
        wait_for(process, log, lambda: _state(slurm) == "idle", "the node is idle")
        yield slurm


def _state(slurm: Slurm) -> str:
    with contextlib.suppress(AssertionError):
        return slurm.run("sinfo", "--noheader", "--format=%t")
    return ""


def _configure(folder: Path, gpus: int, first_job: int, *, unpacked: bool) -> None:
    for name in ("state", "spool", "jobs", "receipts"):
        (folder / name).mkdir()
    for number in range(gpus):
        (folder / f"nvidia{number}").symlink_to("/dev/null")
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    plugins = next(PACKAGE.glob("usr/lib/*-linux-gnu/slurm*"), None) if unpacked else None
    values = {
        "folder": folder,
        "node": NODE,
        "gpus": gpus,
        "last": gpus - 1,
        "ctld_port": free_port(),
        "slurmd_port": free_port(),
        "first_job": first_job,
        "plugins": f"PluginDir={plugins}" if plugins else "",
    }
    (folder / "slurm.conf").write_text(SLURM_CONF.format(**values))
    (folder / "gres.conf").write_text(GRES_CONF.format(**values))
    v1 = (CGROUPS / "freezer").is_dir()
    cgroup = CGROUP_CONF.format(plugin="cgroup/v1" if v1 else "cgroup/v2")
    systemd = Path("/run/systemd/system").is_dir()
    (folder / "cgroup.conf").write_text(cgroup + ("" if v1 or systemd else V2_WITHOUT_SYSTEMD))
    for name in ("prolog", "epilog"):
        hook = folder / name
        hook.write_text(HOOK.format(folder=folder, name=name, script=DEPLOY / name))
        hook.chmod(0o755)


def _remove_cgroups(jobs: range) -> None:
    """Remove what slurmd leaves: an agent on this machine would take it for a sign that Slurm rules here.

    What still runs in a job of ours, because a daemon failed, is killed.
    """
    for pattern in (f"*/slurm_{NODE}", "system.slice/slurmstepd.scope"):
        for root in CGROUPS.glob(pattern):
            for procs in root.rglob("cgroup.procs"):
                if any(number in jobs for number in _numbers(procs)):
                    for pid in procs.read_text().split():
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(int(pid), signal.SIGKILL)
            until(partial(_removed, root, jobs), READY_S, "the cgroups of our jobs are empty")


def _numbers(path: Path) -> list[int]:
    return [int(part.removeprefix("job_")) for part in path.parts if re.fullmatch(r"job_[0-9]+", part)]


def _removed(root: Path, jobs: range) -> bool:
    """Remove every empty cgroup; whether none of our jobs is left."""
    for folder, _, _ in os.walk(root, topdown=False):
        with contextlib.suppress(OSError):  # it is busy, or another cluster's
            os.rmdir(folder)
    return not any(number in jobs for left in root.rglob("job_*") for number in _numbers(left))
