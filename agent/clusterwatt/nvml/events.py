"""The driver's event set: XIDs of the GPUs that were registered with it (nvml.h, "Event Handling Methods").

Events of before a registration are lost, and some codes never come here (79, 119, 120: the driver is gone or
stuck when they happen): the kernel log has those.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple

from clusterwatt.nvml.calls import EVENT_WAIT
from clusterwatt.nvml.errors import (
    TIMEOUT,
    DeviceTrouble,
    DriverError,
    GenerationOver,
    Meaning,
    Refused,
    device_reason,
    ruling,
)
from clusterwatt.nvml.session import Session

XID_EVENT = 0x8  # nvmlEventTypeXidCriticalError
NO_INSTANCE = 0xFFFFFFFF


class Xid(NamedTuple):
    """An event: the board's UUID (empty when it is not known), the code, the instances of MIG or None."""

    uuid: str
    xid: int
    gpu_instance: int | None
    compute_instance: int | None


class NotOffered(DriverError):
    """The driver has no event sets (NVML has them on Linux only, and not in every guest)."""


class EventSet:
    """One event set for all GPUs. Belongs to one thread, which has to close it before the session ends."""

    def __init__(self, session: Session) -> None:
        self._calls = session.calls
        self._set: Any = None
        self._registered: dict[str, int] = {}  # uuid -> address behind the handle
        self._uuids: dict[int, str] = {}  # the other way round, also of those that were lost since
        self._without: set[str] = set()  # cards that have no such event

    @property
    def registered(self) -> tuple[str, ...]:
        """UUIDs of the GPUs whose XIDs come."""
        return tuple(self._registered)

    def follow(self, handles: Mapping[str, Any]) -> dict[str, str]:
        """Register those GPUs that are new or have a new handle, and forget those that are gone.

        Returns, by UUID, why a registration failed: one that fails registers nothing and harms no other.
        Raises DriverError when the set cannot be had (NotOffered: never), GenerationOver when nothing works.
        """
        if self._set is None:
            self._set = self._call("nvmlEventSetCreate")
        failed: dict[str, str] = {}
        # A GPU that comes back after a loss has been forgotten by the driver: it is registered again.
        self._registered = {uuid: at for uuid, at in self._registered.items() if uuid in handles}
        for uuid, handle in handles.items():
            if uuid in self._without or self._registered.get(uuid) == _address(handle):
                continue
            try:
                self._register(uuid, handle)
            except DeviceTrouble as trouble:
                failed[uuid] = str(trouble)
        return failed

    def wait(self, timeout_ms: int) -> Xid | None:
        """Wait for the next event; None when none came. The driver may return early.

        Raises NotOffered, GenerationOver, or DriverError for anything else: the set should then be closed. It
        also fails as a whole when one of its GPUs is lost.
        """
        try:
            event = self._calls.call(EVENT_WAIT, self._set, timeout_ms)
        except Refused as refused:
            if refused.code == TIMEOUT:
                return None
            if ruling(refused.code).meaning is Meaning.NOT_OFFERED:
                raise NotOffered("not_offered", str(refused)) from refused
            raise _judged(refused) from refused
        if not event.eventType & XID_EVENT:
            return None
        return Xid(
            uuid=self._uuid(event.device),
            xid=event.eventData,
            gpu_instance=_instance(event.gpuInstanceId),
            compute_instance=_instance(event.computeInstanceId),
        )

    def close(self) -> None:
        """Give the set back; what waits in it is lost."""
        gone, self._set = self._set, None
        self._registered.clear()
        if gone is not None:
            with contextlib.suppress(Refused):  # it went with its generation
                self._calls.call("nvmlEventSetFree", gone)

    def _register(self, uuid: str, handle: Any) -> None:
        # An old driver refuses a mask with types that it does not know, so it is asked for what it has.
        try:
            types = self._calls.call("nvmlDeviceGetSupportedEventTypes", handle)
            if not types & XID_EVENT:
                self._without.add(uuid)
                return
            self._calls.call("nvmlDeviceRegisterEvents", handle, XID_EVENT, self._set)
        except Refused as refused:
            if ruling(refused.code).meaning is not Meaning.NOT_OFFERED:
                raise _judged(refused) from refused
            self._without.add(uuid)
        else:
            self._registered[uuid] = _address(handle)
            self._uuids[_address(handle)] = uuid

    def _uuid(self, handle: Any) -> str:
        # A GPU that fell off the bus no longer says its UUID, and its XID may come after that was seen.
        known = self._uuids.get(_address(handle))
        if known is not None:
            return known
        try:
            text: bytes = self._calls.call("nvmlDeviceGetUUID", handle, undecoded=True)
        except Refused:
            return ""
        return text.decode("utf-8", "replace")

    def _call(self, name: str) -> Any:
        try:
            return self._calls.call(name)
        except Refused as refused:
            if ruling(refused.code).meaning is Meaning.NOT_OFFERED:
                raise NotOffered("not_offered", str(refused)) from refused
            raise _judged(refused) from refused


def _judged(refused: Refused) -> DriverError:
    what = ruling(refused.code)
    if what.meaning is Meaning.GENERATION:
        return GenerationOver(what.reason, str(refused))
    return DeviceTrouble(device_reason(refused.code), str(refused))


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _instance(number: int) -> int | None:
    return None if number == NO_INSTANCE else number
