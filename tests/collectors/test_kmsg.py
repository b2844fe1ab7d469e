"""XIDs in the kernel log: a pseudo log that gives one record a read, as /dev/kmsg, and captured texts."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.collectors import kmsg
from clusterwatt.collectors.kmsg import KmsgCollector, record
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.kernel_log import KernelLog, KernelSxid, KernelXid
from tests.clocks import FakeClock
from tests.machines import capture, put

BUS_LOST = "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


class Log:
    """A kernel log: a socket keeps records apart, and says EAGAIN when there is none."""

    def __init__(self) -> None:
        self.clock = FakeClock(wall_s=1_700_000_000.0, monotonic_s=5_000.0)
        self.writer, self._reader = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reader.setblocking(False)
        self.writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.sequence = 100
        self.opened: list[str] = []
        self.collector = KmsgCollector("/host/", self.clock, open_log=self._open)

    def write(self, text: str, *, priority: int = 3, extra: str = "") -> None:
        self.sequence += 1
        stamp = int(self.clock.monotonic_s() * 1e6)
        self.writer.send(f"{priority},{self.sequence},{stamp},-;{text}\n{extra}".encode())

    def read(self) -> list[Reading]:
        return list(self.collector.collect())

    def events(self) -> list[Reading]:
        return [r for r in self.read() if isinstance(r, KernelXid | KernelSxid)]

    def _open(self, path: str) -> int:
        self.opened.append(path)
        return os.dup(self._reader.fileno())

    def close(self) -> None:
        self.writer.close()
        self._reader.close()


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    yield log
    log.close()


def test_an_xid_line_becomes_an_event(log: Log) -> None:
    log.read()
    log.clock.advance(2.0)
    log.write(BUS_LOST, extra=" SUBSYSTEM=pci\n DEVICE=+pci:0000:9b:00.0\n")
    (event,) = log.events()
    assert event == KernelXid(
        sequence=101,
        pci="0000:9b:00",
        xid=79,
        detail="pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        wall_s=1_700_000_002.0,
        monotonic_s=5_002.0,
    )
    assert log.opened == ["/host/dev/kmsg"]


def test_what_is_in_the_log_at_the_start_is_history_with_its_own_time(log: Log) -> None:
    log.write(BUS_LOST)
    log.clock.advance(3_600.0)
    (event,) = log.events()
    assert isinstance(event, KernelXid)
    assert event.history
    assert event.wall_s == 1_700_000_000.0
    log.write(BUS_LOST)
    assert [event.history for event in log.events() if isinstance(event, KernelXid)] == [True, False]


def test_an_event_is_told_again_for_some_passes_and_then_no_more(log: Log) -> None:
    log.read()
    log.write(BUS_LOST)
    assert [len(log.events()) for _ in range(5)] == [1, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("place", "instances"),
    [("GPU-I:05", (5, None)), ("GPU-I:01 GPU-CI:02", (1, 2))],
)
def test_a_line_of_a_mig_instance(log: Log, place: str, instances: tuple[int, int | None]) -> None:
    log.read()
    log.write(f"NVRM: Xid (PCI:0000:01:00 {place}): 94, pid=7194, Contained: CE User Channel (0x9).")
    (event,) = log.events()
    assert isinstance(event, KernelXid)
    assert (event.pci, event.xid) == ("0000:01:00", 94)
    assert (event.gpu_instance, event.compute_instance) == instances


def test_an_sxid_is_counted_once_though_it_has_three_lines(log: Log) -> None:
    log.read()
    head = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007"
    log.write(f"{head}, Fatal, Link 14 sourcetrack timeout error (First)")
    log.write(f"{head}, Severity 5 Engine instance 14 Sub-engine instance 00")
    log.write(f"{head}, Data {{0x00140004, 0x00100000, 0x00140004, 0x00000000}}")
    log.write("nvidia-nvswitch0: SXid (PCI:0000:c0:00.0): 20001, Non-fatal, Link 02 TX Replay Error")
    fatal, harmless = log.events()
    assert fatal == KernelSxid(
        sequence=101,
        switch="3",
        pci="0000:c1:00.0",
        sxid=24007,
        fatal=True,
        detail="link 14 sourcetrack timeout error (First)",
        wall_s=1_700_000_000.0,
        monotonic_s=5_000.0,
    )
    assert isinstance(harmless, KernelSxid)
    assert (harmless.switch, harmless.sxid, harmless.fatal) == ("0", 20001, False)


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-nvswitch3: open (major=510)",
        "NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d",
        "NVRM: Xid (PCI:0000:9b:00): ",
        "Xid (PCI:0000:9b:00): 79, not of the driver",
        "NVRM: Xid (somewhere): 79, no address",
    ],
)
def test_other_lines_are_none(log: Log, text: str) -> None:
    log.read()
    log.write(text)
    assert log.events() == []


def test_what_a_program_wrote_into_the_log_is_no_xid(log: Log) -> None:
    log.read()
    log.write(BUS_LOST, priority=12)  # facility 1: the kernel lets nobody else write facility 0
    assert log.events() == []


def test_a_record_without_its_form_is_passed_over() -> None:
    assert record(b"NVRM: Xid (PCI:0000:9b:00): 79") is None
    assert record(b"a,b,c;NVRM: Xid (PCI:0000:9b:00): 79") is None


def test_text_that_is_not_utf8_and_long_does_no_harm(log: Log) -> None:
    log.read()
    log.sequence += 1
    log.writer.send(b"3,101,1,-;NVRM: Xid (PCI:0000:9b:00): 31, name=\xff\xfe" + b"x" * 4_000 + b"\n")
    (event,) = log.events()
    assert isinstance(event, KernelXid)
    assert len(event.detail) == 300
    assert event.xid == 31


def test_an_overrun_is_counted_and_reading_goes_on(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.read()
    log.write(BUS_LOST)
    original, answers = os.read, iter([errno.EPIPE])

    def read(descriptor: int, size: int) -> bytes:
        for number in answers:
            raise OSError(number, os.strerror(number))
        return original(descriptor, size)

    monkeypatch.setattr(os, "read", read)
    readings = log.read()
    assert [(f.item, f.reason) for f in readings if isinstance(f, Failure)] == [("/dev/kmsg", "overrun")]
    assert [r.xid for r in readings if isinstance(r, KernelXid)] == [79]


def test_a_flood_is_read_in_parts_and_nothing_of_it_is_lost(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kmsg, "MOST_EVENTS", 10)
    log.read()
    for _ in range(25):
        log.write("NVRM: Xid (PCI:0000:9b:00): 45, pid=1, name=python, Ch 00000008")
    passes = [{event.sequence for event in log.events() if isinstance(event, KernelXid)} for _ in range(4)]
    assert [len(numbers - set().union(*passes[:n])) for n, numbers in enumerate(passes)] == [10, 10, 5, 0]
    assert set().union(*passes) == set(range(101, 126))


def test_other_records_are_limited_too(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmsg, "MOST_RECORDS", 20)
    log.read()
    for _ in range(50):
        log.write("audit: noise")
    counts = [next(r.records for r in log.read() if isinstance(r, KernelLog)) for _ in range(4)]
    assert counts == [20.0, 40.0, 50.0, 50.0]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES, errno.ENOENT])
def test_a_log_that_may_not_be_read_is_absent_and_said_once(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    attempts: list[str] = []

    def refuse(path: str) -> int:
        attempts.append(path)
        raise OSError(number, os.strerror(number), path)

    collector = KmsgCollector("/", FakeClock(), open_log=refuse)
    assert [list(collector.collect()) for _ in range(3)] == [[], [], []]
    assert attempts == ["/dev/kmsg"]
    assert len(caplog.records) == 1
    assert "/dev/kmsg" in caplog.records[0].getMessage()


def test_a_log_that_cannot_be_opened_now_is_tried_again() -> None:
    attempts: list[str] = []

    def open_log(path: str) -> int:
        attempts.append(path)
        if len(attempts) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return os.open(os.devnull, os.O_RDONLY)

    collector = KmsgCollector("/", FakeClock(), open_log=open_log)
    with pytest.raises(OSError, match="Too many open files"):
        list(collector.collect())
    assert list(collector.collect()) == [KernelLog(records=0.0)]


def test_the_log_of_a_root_is_read_to_its_end_and_then_what_is_appended(tmp_path: Path) -> None:
    path = put(tmp_path, "/dev/kmsg", f"3,7,1000000,-;{BUS_LOST}\n")
    collector = KmsgCollector(str(tmp_path), FakeClock())
    assert [r.sequence for r in collector.collect() if isinstance(r, KernelXid)] == [7]
    with path.open("a") as file:
        file.write(f"3,8,2000000,-;{BUS_LOST}\n")
    assert [r.sequence for r in collector.collect() if isinstance(r, KernelXid)] == [7, 8]


def test_the_log_of_this_machine_can_be_read_or_is_absent() -> None:
    readings = list(KmsgCollector("/", SystemClock()).collect())
    assert not readings or any(isinstance(reading, KernelLog) for reading in readings)
    assert not [reading for reading in readings if isinstance(reading, Failure)]


def test_a_captured_log_without_xids_has_none(log: Log) -> None:
    text = capture("gpud/kmsg.1.log").read_text(encoding="utf-8")
    for line in text.splitlines():
        log.writer.send(f"{line}\n".encode())
    readings = log.read()
    assert readings == [KernelLog(records=float(len(text.splitlines())))]


def test_a_captured_log_with_five_timeouts_of_the_gsp_has_five_events(log: Log) -> None:
    log.read()
    for line in capture("gpud/dmesg-with-xid-119.log").read_text(encoding="utf-8").splitlines():
        log.write(line.partition("] ")[2])
    events = log.events()
    assert [(e.pci, e.xid) for e in events if isinstance(e, KernelXid)] == [("0000:9b:00", 119)] * 5
