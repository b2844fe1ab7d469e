"""The MIG instances of a board, each a device of its own (nvml.h, "Multi Instance GPU Management").

Runs in the driver host, on the board's own thread. An instance has memory, a window on it, a count of errors
and, through GPM, activity. Power, heat, clocks and links belong to the board and are not asked for here.

A handle dies with its instance and may be given to another one, and so may the number of a GPU instance: what
a handle stands for is asked at every tick.
"""

from __future__ import annotations

import collections
import ctypes
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.collectors import gpu_pcie, gpu_processes, gpu_use
from clusterwatt.collectors.gpu import HEALTH_S, OFTEN_S, Part, identity
from clusterwatt.node_pids import NodePids
from clusterwatt.nvml.constants import ECC_UNCORRECTED, ECC_VOLATILE, LOCATION_SRAM
from clusterwatt.nvml.device import Device
from clusterwatt.nvml.errors import DeviceTrouble
from clusterwatt.readings.base import Failure
from clusterwatt.readings.gpu import GpuInfo, GpuIntegrals, Group
from clusterwatt.readings.gpu_health import GpuEccErrors

LOOK_EVERY_S = 10.0
IN_NAMES = " MIG "  # "NVIDIA H100 80GB HBM3 MIG 3g.40gb"


class InstancePass(NamedTuple):
    """What one instance has said: its readings, or the reason why there are none.

    `gpu_instance` is its number for GPM, None where GPM cannot tell it from others. `making` counts how often
    an instance was made under this UUID, which the driver derives from its place on the board.
    """

    gpu: str
    uuid: str
    gpu_instance: int | None
    making: int
    groups: tuple[Group, ...] = ()
    reason: str = ""


class Instance:
    """One MIG instance. `making` as in `InstancePass`."""

    def __init__(
        self,
        device: Device,
        board: Device,
        clock: Clock,
        making: int,
        every_s: float,
        slow_s: float,
        pids: NodePids | None = None,
    ) -> None:
        self.device = device
        self.making = making
        self.gpu_instance: int | None = device.ask("nvmlDeviceGetGpuInstanceId")
        self.alone = True  # no other compute instance shares its GPU instance
        self._clock = clock
        self._every_s = every_s
        self._since_s = clock.monotonic_s()
        processes = gpu_processes.ProcessLists(device, pids, clock, whole=False)
        self._parts = (
            Part(slow_s, partial(instance_identity, device, board)),
            Part(max(every_s, OFTEN_S), partial(gpu_use.memory, device)),
            Part(slow_s, partial(gpu_pcie.bar1, device)),
            Part(slow_s, partial(ecc_errors, device)),
            Part(max(every_s, HEALTH_S), partial(processes.read, "compute")),
            Part(slow_s, partial(processes.read, "graphics")),
            Part(slow_s, partial(processes.read, "mps")),
        )

    def move_to(self, gpu: str) -> None:
        """Take another number: of the board, or of the slot."""
        if self.device.gpu != gpu:
            self.device.gpu = gpu
            for part in self._parts:
                part.forget()

    def is_itself(self) -> bool:
        """Whether the handle still stands for this instance."""
        try:
            return self.device.text("nvmlDeviceGetUUID") == self.device.uuid
        except DeviceTrouble:
            return False  # what a driver says of a handle that has died is not written down

    def read(self) -> InstancePass:
        """Everything known of it now; trouble of an instance is its own, the board speaks for itself."""
        device, now_s = self.device, self._clock.monotonic_s()
        groups: list[Group] = []
        reason = ""
        try:
            for part in self._parts:
                groups.extend(part.groups(now_s, self._every_s))
        except DeviceTrouble as trouble:
            groups, reason = [], trouble.reason
            device.failures.append(Failure(item=device.uuid, reason=reason, detail=str(trouble)))
        else:
            integrals = GpuIntegrals(gpu=device.gpu, uuid=device.uuid, since_s=self._since_s, read_s=now_s)
            groups.append((integrals,))
        gpu_instance = self.gpu_instance if self.alone else None
        return InstancePass(device.gpu, device.uuid, gpu_instance, self.making, tuple(groups), reason)


class Instances:
    """All instances of a board. Everything here is called by the board's own thread."""

    def __init__(
        self,
        board: Device,
        clock: Clock,
        *,
        every_seconds: float,
        slow_seconds: float,
        pids: NodePids | None = None,
    ) -> None:
        self._board = board
        self._clock = clock
        self._every_s = every_seconds
        self._slow_s = slow_seconds
        self._pids = pids
        self._mode = False
        self._look_at_s = float("-inf")
        self._instances: dict[str, Instance] = {}
        self._makings: collections.Counter[str] = collections.Counter()

    def look(self) -> bool:
        """Find the instances anew when it is time, or when one is not what it was.

        Whether the board has entered or left MIG mode: it then offers other things than before. Raises as
        `Device.ask`.
        """
        now_s = self._clock.monotonic_s()
        if now_s < self._look_at_s - self._every_s / 2:
            known = len(self._instances)
            self._instances = self._themselves()
            if len(self._instances) == known:
                return False
            self._look_at_s = now_s
        answer = self._board.ask("nvmlDeviceGetMigMode")
        if answer is None and not self._board.lacks("nvmlDeviceGetMigMode"):  # not known this time
            self._instances = self._themselves()
            return False
        self._look_at_s = now_s + LOOK_EVERY_S
        mode = bool(answer and answer[0])
        changed, self._mode = mode != self._mode, mode
        if changed:
            self._board.ask_anew()
        self._instances = self._found() if mode else {}
        return changed

    def read(self) -> tuple[InstancePass, ...]:
        """What each instance says now."""
        return tuple(instance.read() for instance in self._instances.values())

    def take_failures(self) -> list[Failure]:
        """Failures of the instances since the last call."""
        return [failure for each in self._instances.values() for failure in each.device.take_failures()]

    def _themselves(self) -> dict[str, Instance]:
        return {uuid: instance for uuid, instance in self._instances.items() if instance.is_itself()}

    def _found(self) -> dict[str, Instance]:
        """The instances that there are now; one that was known keeps its memory unless it was made anew."""
        board = self._board
        found: dict[str, Instance] = {}
        for slot in range(board.ask("nvmlDeviceGetMaxMigDeviceCount") or 0):
            handle = board.ask("nvmlDeviceGetMigDeviceHandleByIndex", slot)
            if handle is None:
                continue  # slots are sparse
            try:
                instance = self._instance(handle)
            except DeviceTrouble as trouble:  # gone between two calls, or in trouble alone
                place = f"{board.uuid}/{slot}"
                board.failures.append(Failure(item=place, reason=trouble.reason, detail=str(trouble)))
                continue
            if instance is not None:
                instance.move_to(f"{board.gpu}:{slot}")
                found[instance.device.uuid] = instance
        shares = collections.Counter(instance.gpu_instance for instance in found.values())
        for instance in found.values():
            # GPM speaks of a GPU instance as a whole: given to each compute instance it would count twice.
            instance.alone = shares[instance.gpu_instance] == 1
        return found

    def _instance(self, handle: Any) -> Instance | None:
        unknown = self._board.instance(self._board.uuid, handle)
        uuid = unknown.text("nvmlDeviceGetUUID")
        if not uuid:
            self._board.failures += unknown.take_failures()
            return None
        known = self._instances.get(uuid)
        if known is not None and _address(known.device.handle) == _address(handle):
            return known
        self._makings[uuid] += 1
        return Instance(
            self._board.instance(uuid, handle),
            self._board,
            self._clock,
            self._makings[uuid],
            self._every_s,
            self._slow_s,
            self._pids,
        )


def instance_identity(device: Device, board: Device) -> Iterator[GpuInfo]:
    """What the instance is. The driver's name for it is that of the card and the profile in one."""
    number = device.ask("nvmlDeviceGetGpuInstanceId")
    for info in identity(device):
        name, _, profile = info.name.partition(IN_NAMES)
        yield msgspec.structs.replace(
            info,
            name=name,
            parent_uuid=board.uuid,
            mig_profile=profile or "unknown",
            gpu_instance="" if number is None else str(number),
        )


def ecc_errors(device: Device) -> Iterator[GpuEccErrors]:
    """The only errors that are told by instance (nvml.h, nvmlDeviceGetMemoryErrorCounter)."""
    errors = device.ask("nvmlDeviceGetMemoryErrorCounter", ECC_UNCORRECTED, ECC_VOLATILE, LOCATION_SRAM)
    if errors is not None:
        yield GpuEccErrors(
            gpu=device.gpu,
            uuid=device.uuid,
            type="uncorrected",
            window="volatile",
            location="sram",
            errors=float(errors),
        )


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
