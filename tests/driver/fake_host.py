"""A driver host without a driver, for the client's tests: speaks frames and misbehaves as told.

Usage: fake_host.py BEHAVIOUR, one of steady, crash (one frame, then SIGKILL to itself), silent (one frame,
then nothing, leaves when asked), stubborn (silent, and ignores SIGTERM), garbage, leaves (one frame that says
version_mismatch, then exit), mute (never a frame, leaves when asked).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import msgspec

from clusterwatt.driver.frames import (
    DeviceFrame,
    DriverState,
    Frame,
    HostSettings,
    read_message,
    write_message,
)
from clusterwatt.readings.gpu import GpuMemory

UUID = "GPU-aaaaaaaa-0000-0000-0000-00000000000a"


def frame(leaving: str = "") -> Frame:
    now_s = time.monotonic()
    memory = GpuMemory(gpu="0", uuid=UUID, used_bytes=float(os.getpid()))
    return Frame(
        sent_s=now_s,
        driver=DriverState(up=not leaving, reason=leaving, driver="1.2.3"),
        gpus_visible=1,
        devices=() if leaving else (DeviceFrame("0", UUID, "", now_s, None, ((memory,),), ()),),
        leaving=leaving,
    )


def main() -> None:
    behaviour, leave = sys.argv[1], threading.Event()
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    settings = msgspec.msgpack.decode(read_message(sys.stdin.buffer) or b"", type=HostSettings)
    out = sys.stdout.buffer

    def watch_input() -> None:
        sys.stdin.buffer.read()
        leave.set()

    threading.Thread(target=watch_input, daemon=True).start()
    if behaviour == "garbage":
        out.write(b"\xff" * 100)
        out.flush()
    elif behaviour == "leaves":
        write_message(out, frame("version_mismatch"))
        os._exit(0)
    elif behaviour != "mute":
        write_message(out, frame())
    if behaviour == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    while not leave.wait(settings.every_seconds):
        if behaviour == "steady":
            write_message(out, frame())
    if behaviour == "stubborn":
        threading.Event().wait()
    os._exit(0)


if __name__ == "__main__":
    main()
