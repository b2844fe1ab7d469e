"""Event sets: XIDs that a fault raises wait here for whoever registered."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from clusterwatt.clock import SystemClock
from clusterwatt.simulate.gpu import NO_INSTANCE, Gpu
from clusterwatt.simulate.library.calls import (
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    TIMEOUT,
    UNINITIALIZED,
    Filled,
    Refused,
    on_gpu,
    on_system,
)

if TYPE_CHECKING:
    from clusterwatt.simulate.faults import Xid
    from clusterwatt.simulate.nvml import SimulatedLibrary

XID = 0x8  # nvmlEventTypeXidCriticalError
# ECC single and double bit, P-state, XID, clock, power source; MIG configuration; the newer ones since r570.
_TYPES, _MIG_TYPE, _NEWER_TYPES = 0x9F, 0x100, 0xFE00

# How long a waiter sleeps before it looks for XIDs whose time has come.
_LOOK_S = 0.25


class EventSet:
    """Events of the registered boards, oldest first."""

    def __init__(self) -> None:
        self.types: dict[int, int] = {}
        self.events: deque[Xid] = deque()
        self.changed = threading.Condition()


def _event_set(library: SimulatedLibrary, handle: Filled) -> EventSet:
    found = library.target(handle)
    if not isinstance(found, EventSet):
        raise Refused(INVALID_ARGUMENT)
    return found


def supported_types(gpu: Gpu) -> int:
    """The event types of a board under this driver."""
    types = _TYPES | (_MIG_TYPE if gpu.card.mig_profiles else 0)
    return types | (_NEWER_TYPES if gpu.branch >= 590 else 0)


@on_gpu("nvmlDeviceGetSupportedEventTypes")
def get_supported_types(gpu: Gpu, types: Filled) -> None:
    types.value = supported_types(gpu)


@on_system("nvmlEventSetCreate")
def create(library: SimulatedLibrary, handle: Filled) -> None:
    created = EventSet()
    library.event_sets.append(created)
    library.point(handle, created)


@on_gpu("nvmlDeviceRegisterEvents")
def register(gpu: Gpu, types: int, handle: Filled) -> None:
    """All types or none: an unknown one is refused, and the set stays as it was (nvml.h)."""
    if types & ~supported_types(gpu):
        raise Refused(NOT_SUPPORTED)
    found = _event_set(gpu.driver, handle)
    found.types[gpu.board] = found.types.get(gpu.board, 0) | types


@on_system("nvmlEventSetFree")
def free(library: SimulatedLibrary, handle: Filled) -> None:
    found = _event_set(library, handle)
    library.event_sets.remove(found)
    library.drop(found)


@on_system("nvmlEventSetWait_v2")
def wait(library: SimulatedLibrary, handle: Filled, data: Filled, timeout_ms: int) -> None:
    """Blocks in real time, whatever clock the simulation has."""
    found = _event_set(library, handle)
    clock = SystemClock()
    end_s = clock.monotonic_s() + timeout_ms / 1000.0
    with found.changed:
        while True:
            deliver(library)
            if found.events:
                break
            left_s = end_s - clock.monotonic_s()
            if left_s <= 0:
                raise Refused(TIMEOUT)
            found.changed.wait(min(left_s, _LOOK_S))
            if not library.initialized:
                raise Refused(UNINITIALIZED)
        event = found.events.popleft()
    library.point_member(data, "device", library.gpus[event.gpu])
    data.eventType, data.eventData = XID, event.xid
    data.gpuInstanceId = NO_INSTANCE if event.instance is None else event.instance
    data.computeInstanceId = NO_INSTANCE if event.instance is None else 0


def deliver(library: SimulatedLibrary) -> None:
    """Put XIDs whose time has come into the sets of those who registered; without any they are lost."""
    library.faults.refresh()
    for xid in library.faults.due_xids(library.wall_s()):
        for event_set in library.event_sets:
            if event_set.types.get(xid.gpu, 0) & XID:
                event_set.events.append(xid)
