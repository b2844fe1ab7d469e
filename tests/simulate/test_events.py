"""Event sets and XIDs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from tests.simulate.conftest import Driver, code

XID = pynvml.nvmlEventTypeXidCriticalError


def registered(*handles: Any) -> Any:
    events = pynvml.nvmlEventSetCreate()
    for handle in handles:
        pynvml.nvmlDeviceRegisterEvents(handle, XID, events)
    return events


def test_an_xid_reaches_who_has_registered(driver: Callable[..., Driver]) -> None:
    made = driver()
    events = registered(made.handle(0), made.handle(2))
    made.library.inject_xid(2, 79)
    made.library.inject_xid(1, 31)
    event = pynvml.nvmlEventSetWait_v2(events, 1000)
    assert (event.eventType, event.eventData) == (XID, 79)
    assert pynvml.nvmlDeviceGetUUID(event.device) == made.library.gpu(2).uuid
    assert event.gpuInstanceId == 0xFFFFFFFF
    assert code(pynvml.nvmlEventSetWait_v2, events, 1) == pynvml.NVML_ERROR_TIMEOUT


def test_an_xid_before_registration_is_lost(driver: Callable[..., Driver]) -> None:
    made = driver()
    made.library.inject_xid(0, 31)
    events = registered(made.handle(0))
    assert code(pynvml.nvmlEventSetWait_v2, events, 1) == pynvml.NVML_ERROR_TIMEOUT


def test_g14_the_same_xid_twice_is_two_events(driver: Callable[..., Driver]) -> None:
    made = driver()
    events = registered(made.handle(0))
    made.library.inject_xid(0, 31)
    made.library.inject_xid(0, 31)
    assert [pynvml.nvmlEventSetWait_v2(events, 100).eventData for _ in range(2)] == [31, 31]


def test_a_waiter_wakes_up(driver: Callable[..., Driver]) -> None:
    made = driver()
    events = registered(made.handle(0))
    got: list[int] = []
    waiter = threading.Thread(target=lambda: got.append(pynvml.nvmlEventSetWait_v2(events, 10_000).eventData))
    waiter.start()
    made.library.inject_xid(0, 48, instance=3)
    waiter.join(5.0)
    assert got == [48]


def test_an_xid_of_an_instance_names_it(driver: Callable[..., Driver]) -> None:
    made = driver()
    events = registered(made.handle(0))
    made.library.inject_xid(0, 31, instance=9)
    event = pynvml.nvmlEventSetWait_v2(events, 100)
    assert (event.gpuInstanceId, event.computeInstanceId) == (9, 0)


def test_shutdown_ends_the_wait(driver: Callable[..., Driver]) -> None:
    made = driver()
    events = registered(made.handle(0))
    codes: list[int] = []
    waiter = threading.Thread(target=lambda: codes.append(code(pynvml.nvmlEventSetWait_v2, events, 10_000)))
    waiter.start()
    pynvml.nvmlShutdown()
    waiter.join(5.0)
    assert codes == [pynvml.NVML_ERROR_UNINITIALIZED]


def test_unknown_types_are_refused_and_leave_the_set_as_it_was(driver: Callable[..., Driver]) -> None:
    made = driver(driver_version="535.54.03")
    handle = made.handle(0)
    events = pynvml.nvmlEventSetCreate()
    newer = 0x8000
    assert code(pynvml.nvmlDeviceRegisterEvents, handle, XID | newer, events) == 3
    made.library.inject_xid(0, 31)
    assert code(pynvml.nvmlEventSetWait_v2, events, 1) == pynvml.NVML_ERROR_TIMEOUT
    assert pynvml.nvmlDeviceGetSupportedEventTypes(handle) & (XID | newer) == XID


def test_a_freed_set_is_gone(driver: Callable[..., Driver]) -> None:
    made = driver()
    events = registered(made.handle(0))
    pynvml.nvmlEventSetFree(events)
    assert code(pynvml.nvmlEventSetWait_v2, events, 1) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_an_xid_comes_when_its_time_has_come(driver: Callable[..., Driver]) -> None:
    made = driver()
    events = registered(made.handle(0))
    made.faults.xid(0, 79, at_s=made.clock.wall_s() + 60.0)
    assert code(pynvml.nvmlEventSetWait_v2, events, 1) == pynvml.NVML_ERROR_TIMEOUT
    made.clock.advance(60.0)
    assert pynvml.nvmlEventSetWait_v2(events, 1).eventData == 79


def test_a_wait_can_fail(driver: Callable[..., Driver]) -> None:
    made = driver()
    events = registered(made.handle(0))
    made.faults.fail("nvmlEventSetWait_v2", 999)
    with pytest.raises(pynvml.NVMLError_Unknown):
        pynvml.nvmlEventSetWait_v2(events, 1)
