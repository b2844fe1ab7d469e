"""Steady traffic on this machine that both the agent and node_exporter can see, without leaving it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

EVERY_S = 0.05
FRAME = b"\xff" * 6 + b"\x02clwat" + b"\x88\xb5" + b"\0" * 1386  # EtherType for local experiments (IEEE 802)
BLOCK = os.urandom(256 << 10)
ENDS = ("cwload0", "cwload1")


@contextlib.contextmanager
def repeated(step: Callable[[], None]) -> Iterator[None]:
    """Do a step again and again, at an even pace, for as long as the block lasts."""
    done = threading.Event()
    failed: list[OSError] = []

    def run() -> None:
        try:
            while not done.wait(EVERY_S):
                step()
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="load")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if failed:
        raise failed[0]


@contextlib.contextmanager
def virtual_cable(ip: Path) -> Iterator[tuple[str, str]]:
    """Two network interfaces joined by a cable, both on this machine and without an address. Needs root."""

    def link(*arguments: str) -> None:
        subprocess.run([ip, "link", *arguments], check=True, capture_output=True)

    link("add", ENDS[0], "type", "veth", "peer", "name", ENDS[1])
    try:
        for end in ENDS:
            link("set", end, "up")
        yield ENDS
    finally:
        link("delete", ENDS[0])


@contextlib.contextmanager
def frames(interface: str) -> Iterator[None]:
    """Ethernet frames into one end of the cable."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind((interface, 0))

        def send() -> None:
            for _ in range(10):
                wire.send(FRAME)

        with repeated(send):
            yield


@contextlib.contextmanager
def blocks(file: Path) -> Iterator[None]:
    """Blocks written to the disk below a file, and read back from it, past the page cache."""
    with contextlib.closing(_Blocks(file)) as disk, repeated(disk.step):
        yield


class _Blocks:
    def __init__(self, file: Path) -> None:
        self._file = file
        file.parent.mkdir(exist_ok=True)
        self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def step(self) -> None:
        """Write a block through to the disk, make the kernel forget it, read it."""
        os.pwrite(self._descriptor, BLOCK, 0)
        os.fdatasync(self._descriptor)
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.pread(self._descriptor, len(BLOCK), 0)

    def close(self) -> None:
        """Remove the file."""
        os.close(self._descriptor)
        self._file.unlink()
