"""Which GPU a source of allocation means: every scheduler and runtime names devices in words of its own.

Slurm speaks in minors of /dev/nvidiaN, NVML counts by PCI bus, and the two orders differ on many boards;
Kubernetes' device plugins hand out UUIDs, with a suffix behind `::` for each replica of a shared GPU; GKE's
plugin says `nvidia0/gi3`, drivers before R470 said `MIG-GPU-<uuid>/<gi>/<ci>`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TypeVar

import msgspec

from clusterwatt.meters.xid import address
from clusterwatt.readings.gpu import GpuInfo

K = TypeVar("K")

COMPUTE_SLICES = 7  # of a board in MIG mode, but for these (NVIDIA MIG user guide, supported GPUs)
FEWER_SLICES = {"A30": 4, "RTX PRO 6000": 4, "RTX PRO 5000": 2, "RTX PRO 4500": 2}

# "3g.40gb", "1g.10gb+me"; "1c.3g.40gb" is a compute instance that has one slice of the three.
PROFILE = re.compile(r"(?:(?P<compute>\d+)c\.)?(?P<slices>\d+)g\.")
OLD_MIG = re.compile(r"MIG-(?P<board>GPU-[0-9a-f-]+)/(?P<instance>\d+)/\d+", re.IGNORECASE)
GKE = re.compile(r"nvidia(?P<minor>\d+)(?:/vgpu\d+)?")
GKE_INSTANCE = re.compile(r"(?P<board>nvidia\d+)/gi(?P<instance>\d+)(?:/vgpu\d+)?")
UUID_OR_BEGINNING = re.compile(r"(?:GPU|MIG)-[0-9a-f][0-9a-f-]*", re.IGNORECASE)


class Unit(msgspec.Struct, frozen=True):
    """What can be held: a whole GPU, or a MIG instance with its `part` of the board, by compute slices."""

    gpu: str
    uuid: str
    part: float = 1.0


class Board(msgspec.Struct, frozen=True):
    """A GPU: what can be held of it. What no unit covers is free."""

    gpu: str
    uuid: str
    name: str
    units: tuple[Unit, ...]

    @property
    def partitioned(self) -> bool:
        """Whether it is parted into MIG instances."""
        return self.units[0].uuid != self.uuid


class Devices:
    """The GPUs and instances of the node, under every name that a source may use for them."""

    def __init__(self, infos: Iterable[GpuInfo]) -> None:
        found = tuple(infos)
        self.boards = {info.uuid: _board(info, found) for info in found if not info.parent_uuid}
        self.units = {unit.uuid: unit for board in self.boards.values() for unit in board.units}
        self._uuids = [info.uuid for info in found]
        boards = [info for info in found if not info.parent_uuid]
        self._by_minor = _unique((info.minor, info.uuid) for info in boards if info.minor)
        self._by_index = _unique((info.gpu, info.uuid) for info in found)  # also `1:0`, an instance
        self._by_place = _unique((address(info.pci_bus_id), info.uuid) for info in boards if info.pci_bus_id)
        self._by_instance = _unique(
            ((info.parent_uuid, info.gpu_instance), info.uuid)
            for info in found
            if info.parent_uuid and info.gpu_instance
        )

    def resolve(self, reference: str) -> str | None:
        """UUID of the device that a source means; None where there is none, or more than one."""
        name = reference.partition("::")[0].strip()
        kind, colon, number = name.partition(":")
        if colon:
            return self._numbered(kind, number)
        instance = OLD_MIG.fullmatch(name) or GKE_INSTANCE.fullmatch(name)
        if instance is not None:
            board = self.resolve(instance["board"])
            return None if board is None else self._by_instance.get((board, instance["instance"]))
        node = GKE.fullmatch(name)
        if node is not None:
            return self._by_minor.get(node["minor"])
        return self._by_beginning(name) if UUID_OR_BEGINNING.fullmatch(name) else None

    def _numbered(self, kind: str, number: str) -> str | None:
        if kind == "pci":
            place = address(number)
            return None if place is None else self._by_place.get(place)
        return {"minor": self._by_minor, "index": self._by_index}.get(kind, {}).get(number)

    def held_by(self, uuid: str) -> tuple[Unit, ...]:
        """What a job holds that was given this device: of a board in instances, all of them."""
        board = self.boards.get(uuid)
        return board.units if board is not None else (self.units[uuid],)

    def _by_beginning(self, text: str) -> str | None:
        wanted = text.lower()
        found = [uuid for uuid in self._uuids if uuid.lower().startswith(wanted)]
        return found[0] if len(found) == 1 else None


class Known:
    """The devices now, with those that do not answer: a lost GPU keeps its names, and who holds it."""

    def __init__(self) -> None:
        self.devices = Devices(())
        self._infos: dict[str, GpuInfo] = {}

    def take(self, infos: Iterable[GpuInfo], met: Collection[str]) -> Devices:
        """Take what the driver shows now; `met`: UUIDs of all that it has met and not given up."""
        current = {info.uuid: info for info in infos}
        kept = {uuid: info for uuid, info in self._infos.items() if uuid in met and uuid not in current}
        everything = {**current, **kept}
        if everything != self._infos:
            self._infos = everything
            self.devices = Devices(everything.values())
        return self.devices


def _board(info: GpuInfo, found: Iterable[GpuInfo]) -> Board:
    instances = [each for each in found if each.parent_uuid == info.uuid]
    if not instances:
        return Board(gpu=info.gpu, uuid=info.uuid, name=info.name, units=(Unit(info.gpu, info.uuid),))
    slices = {each.uuid: _slices(each.mig_profile) for each in instances}
    # A board that is parted finer than we know of must not give out more than itself.
    total = max(_total_slices(info.name), sum(slices.values()))
    return Board(
        gpu=info.gpu,
        uuid=info.uuid,
        name=info.name,
        units=tuple(Unit(each.gpu, each.uuid, slices[each.uuid] / total) for each in instances),
    )


def _slices(profile: str) -> int:
    """Compute slices of a profile; one where the driver does not state it, the least that there is."""
    match = PROFILE.match(profile)
    return int(match["compute"] or match["slices"]) if match else 1


def _total_slices(name: str) -> int:
    return next((slices for part, slices in FEWER_SLICES.items() if part in name), COMPUTE_SLICES)


def _unique(pairs: Iterable[tuple[K, str]]) -> dict[K, str]:
    """Names that mean one device; what two devices have names neither."""
    named: dict[K, str] = {}
    twice: set[K] = set()
    for name, uuid in pairs:
        if named.setdefault(name, uuid) != uuid:
            twice.add(name)
    return {name: uuid for name, uuid in named.items() if name not in twice}
