"""Which GPUs and instances the agent remembers, frame by frame."""

from __future__ import annotations

from clusterwatt.driver.frames import DeviceFrame
from clusterwatt.driver.known import Known, remembered
from clusterwatt.readings.gpu import GpuMemory

BOARD, OTHER, FIRST, SECOND = "GPU-1", "GPU-2", "MIG-1", "MIG-2"


def frame(gpu: str, uuid: str, parent: str = "", reason: str = "") -> DeviceFrame:
    groups = () if reason else ((GpuMemory(gpu=gpu, uuid=uuid),),)
    return DeviceFrame(gpu, uuid, reason, 1.0, None, groups, (), parent)


def after(*frames: list[DeviceFrame]) -> dict[str, str]:
    known: dict[str, Known] = {}
    for devices in frames:
        known = remembered(known, devices)
    return {uuid: one.gpu for uuid, one in known.items()}


WHOLE = [frame("0", BOARD), frame("0:0", FIRST, BOARD), frame("0:1", SECOND, BOARD), frame("1", OTHER)]


def test_a_gpu_once_seen_stays() -> None:
    assert after(WHOLE, [frame("0", OTHER)]) == {BOARD: "0", FIRST: "0:0", SECOND: "0:1", OTHER: "0"}
    assert after(WHOLE, []) == after(WHOLE)


def test_an_instance_goes_when_its_gpu_answers_without_it() -> None:
    later = [frame("0", BOARD), frame("0:1", SECOND, BOARD), frame("1", OTHER)]
    assert after(WHOLE, later) == {BOARD: "0", SECOND: "0:1", OTHER: "1"}


def test_an_instance_stays_while_its_gpu_does_not_answer() -> None:
    assert after(WHOLE, [frame("0", BOARD, reason="lost"), frame("1", OTHER)]) == after(WHOLE)


def test_an_instance_follows_its_gpu_to_another_index() -> None:
    moved = [frame("0", OTHER), frame("1", BOARD), frame("1:0", FIRST, BOARD), frame("1:1", SECOND, BOARD)]
    assert after(WHOLE, moved) == {BOARD: "1", FIRST: "1:0", SECOND: "1:1", OTHER: "0"}
