"""Containers of Docker, Podman and containerd that were given GPUs, outside pods and jobs of Slurm.

No runtime is asked: its socket gives whoever may speak to it the whole machine, and its files hold secrets.
A container is known by its cgroup, and its GPUs by NVIDIA_VISIBLE_DEVICES in the environment of a process in
it, which `docker run --gpus` and the NVIDIA container toolkit set: indexes as nvidia-smi counts, UUIDs, or
names of CDI (nvidia.com/gpu=0). Where it says `all`, or `void` (CDI has made the devices), or the container
is privileged and has every device anyway, nothing is claimed: then the processes on the GPUs tell. A
container without the variable, or with `none`, is no job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.failures import failure
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.work import Claim, Job, JobHostUse
from clusterwatt.sysfs import Files, read_once
from clusterwatt.workloads.cgroup import USER, owner_of_lines
from clusterwatt.workloads.cgroups import Cgroups, WorkCgroup
from clusterwatt.workloads.environ import Variables
from clusterwatt.workloads.process_start import started_s
from clusterwatt.workloads.users import Users

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
CDI = re.compile(r"[A-Za-z0-9.-]*nvidia\.com/[a-z-]+=")
UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,80}")
INDEX = re.compile(r"[0-9]{1,4}(?::[0-9]{1,2})?")  # `1:0`: the first MIG instance of GPU 1
NO_GPUS = frozenset({"", "none"})
MOST_DEVICES = 1024
BOUNDING = re.compile(rb"^CapBnd:\s*([0-9a-f]+)", re.MULTILINE)
# Beyond what runtimes leave a container; one that has both has all (capabilities(7)).
CAP_SYS_RAWIO, CAP_SYS_ADMIN = 1 << 17, 1 << 21
MAX_BYTES = 1 << 16
ASKED_PROCESSES = 8
ASK_EAGERLY = 6  # passes: at first a container's process is still the runtime's own
ASK_AGAIN_SECONDS = 60.0


class Inside(msgspec.Struct, frozen=True):
    """What its processes tell of a container: whether it has GPUs at all, and which it was given."""

    has_gpus: bool
    devices: tuple[str, ...]
    started_s: float | None


class _Asking(msgspec.Struct):
    """How far asking the processes of one container has come."""

    inside: Inside | None = None
    passes: int = 0
    next_s: float = 0.0


class ContainerCollector:
    """Looks at the cgroups of containers, and at the processes of each until one tells."""

    name = "container"

    def __init__(self, files: Files, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._cgroups = Cgroups(files, clock, {"container"})
        self._variables = Variables([VISIBLE])
        self._users = Users(files.root)
        self._asking: dict[str, _Asking] = {}
        self._denied = False

    def collect(self) -> Iterator[Reading]:
        """The containers that have GPUs, which they were given, and what they use of the host."""
        cgroups = {cgroup.owner.name: cgroup for cgroup in self._cgroups.scan()}
        yield from self._cgroups.take_failures()
        self._asking = {name: self._asking.get(name) or _Asking() for name in cgroups}
        denied: OSError | None = None
        for name, cgroup in cgroups.items():
            try:
                inside = self._ask(self._asking[name], cgroup)
            except PermissionError as error:
                denied = error
                continue
            except OSError as error:
                yield failure(name, error)
                continue
            if inside is not None and inside.has_gpus:
                yield from self._job(name, cgroup, inside)
        if denied is not None:
            yield Failure(
                item="containers",
                reason="permission",
                detail="processes of containers may not be looked at, so which GPUs they were given is not "
                "known: give the agent CAP_SYS_PTRACE",
                ongoing=self._denied,
            )
        self._denied = denied is not None

    def _job(self, name: str, cgroup: WorkCgroup, inside: Inside) -> Iterator[Reading]:
        user = None
        for user in USER.finditer(cgroup.path):  # noqa: B007 - the last one, of a container without root
            pass
        uid = user["uid"] if user else ""
        yield Job(
            job_id=name,
            scheduler="container",
            kind="service",
            user=self._users.name(uid),
            uid=uid,
            started_s=inside.started_s,
        )
        for device in inside.devices:
            yield Claim(job_id=name, device=device, source="container")
        try:
            cpu_seconds = self._cgroups.cpu_seconds(cgroup)
            memory_bytes = self._cgroups.memory_bytes(cgroup)
        except OSError as error:
            yield failure(name, error)
            return
        if cpu_seconds is not None or memory_bytes is not None:
            yield JobHostUse(owner=name, cpu_seconds=cpu_seconds, memory_bytes=memory_bytes)

    def _ask(self, asking: _Asking, cgroup: WorkCgroup) -> Inside | None:
        """What is known of a container. Raises OSError."""
        now_s = self._clock.monotonic_s()
        told = asking.inside is not None and asking.inside.devices
        if told or now_s < asking.next_s:
            return asking.inside
        asking.passes += 1
        asking.next_s = now_s if asking.passes < ASK_EAGERLY else now_s + ASK_AGAIN_SECONDS
        found: list[Inside] = []
        for pid in sorted(self._cgroups.pids(cgroup))[:ASKED_PROCESSES]:
            inside = self._look(pid, cgroup.owner.name)
            if inside is not None:
                found.append(inside)
                if inside.devices:
                    break
        if found:
            asking.inside = Inside(
                has_gpus=any(inside.has_gpus for inside in found),
                devices=found[-1].devices,
                started_s=min((i.started_s for i in found if i.started_s is not None), default=None),
            )
        return asking.inside

    def _look(self, pid: int, name: str) -> Inside | None:
        """What one process tells; None when its number means another process in the node's /proc."""
        root = self._files.root
        lines = read_once(f"{root}/proc/{pid}/cgroup", MAX_BYTES).decode("utf-8", "replace")
        owner = owner_of_lines(lines)
        if owner is None or owner.name != name:
            return None
        visible = self._variables.of(root, pid).get(VISIBLE, "")
        privileged = _is_privileged(read_once(f"{root}/proc/{pid}/status", MAX_BYTES))
        return Inside(
            has_gpus=visible.strip() not in NO_GPUS,
            devices=() if privileged else given(visible),
            started_s=started_s(self._files, pid),
        )


def given(visible: str) -> tuple[str, ...]:
    """The devices that the variable names, as in `Claim.device`; none where it says all of them or none."""
    devices: dict[str, None] = {}
    for entry in visible.split(",")[:MOST_DEVICES]:
        name = CDI.sub("", entry.strip(), count=1)
        if name == "all":
            return ()
        if UUID.fullmatch(name):
            devices[name] = None
        elif INDEX.fullmatch(name):
            devices[f"index:{name}"] = None
    return tuple(devices)


def _is_privileged(status: bytes) -> bool:
    bounding = BOUNDING.search(status)
    every = CAP_SYS_RAWIO | CAP_SYS_ADMIN
    return bounding is not None and int(bounding[1], 16) & every == every
