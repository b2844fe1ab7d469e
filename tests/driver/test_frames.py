"""What goes over the pipe between driver host and agent: everything once, then what has changed."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.driver.frames import DeviceFrame, DriverState, Frame, FrameReader, FrameWriter, write_message
from clusterwatt.readings.gpu import GpuMemory, GpuPower, Group

UP = DriverState(up=True)

memories = st.builds(
    GpuMemory, gpu=st.just("0"), uuid=st.just("GPU-1"), used_bytes=st.sampled_from([1.0, 2.0])
)
powers = st.builds(
    GpuPower,
    gpu=st.just("0"),
    uuid=st.just("GPU-1"),
    scope=st.just("gpu"),
    kind=st.sampled_from(["average", "instant"]),
    power_watts=st.sampled_from([0.0, 651.0]),
)
group = st.one_of(
    st.lists(memories, min_size=1, max_size=2).map(tuple), st.lists(powers, min_size=1, max_size=2).map(tuple)
)
devices = st.dictionaries(
    st.sampled_from(["GPU-1", "GPU-2", "MIG-1"]), st.lists(group, max_size=4).map(tuple), max_size=3
)


def frame(groups: dict[str, tuple[Group, ...]], sent_s: float = 1.0) -> Frame:
    return Frame(
        sent_s=sent_s,
        driver=UP,
        gpus_visible=len(groups),
        devices=tuple(DeviceFrame("0", uuid, "", sent_s, None, each, ()) for uuid, each in groups.items()),
    )


@given(st.lists(devices, max_size=6))
def test_what_is_read_is_what_was_written(said: list[dict[str, tuple[Group, ...]]]) -> None:
    frames = [frame(groups, float(number)) for number, groups in enumerate(said)]
    pipe = io.BytesIO()
    writer = FrameWriter(pipe)
    for each in frames:
        writer.write(each)
    pipe.seek(0)
    reader = FrameReader(pipe)
    assert [reader.read() for _ in frames] == frames
    assert reader.read() is None


def test_what_has_not_changed_goes_over_the_pipe_once() -> None:
    slow = tuple(GpuMemory(gpu="0", uuid="GPU-1", total_bytes=float(number)) for number in range(100))
    pipe = io.BytesIO()
    writer = FrameWriter(pipe)
    lengths: list[int] = []
    for watts in (1.0, 2.0, 3.0):
        writer.write(frame({"GPU-1": (slow, (GpuPower("0", "GPU-1", "gpu", "average", watts),))}))
        lengths.append(pipe.tell() - sum(lengths))
    assert lengths[0] > 2_000
    assert lengths[1] == lengths[2] < 200


def test_what_was_left_out_and_never_said_is_no_frame() -> None:
    pipe = io.BytesIO()
    write_message(pipe, frame({"GPU-1": ((),)}))
    pipe.seek(0)
    with pytest.raises(ValueError, match="never said"):
        FrameReader(pipe).read()
