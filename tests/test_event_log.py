"""One line for each XID, and no flood of them."""

from __future__ import annotations

import logging

import msgspec
import pytest

from clusterwatt.event_log import MOST_LINES, EventLog
from clusterwatt.log import LogfmtFormatter
from clusterwatt.readings.gpu_measured import HardwareEvent
from tests.clocks import FakeClock

LOST = HardwareEvent(
    kind="xid",
    code=79,
    name="off-the-bus",
    xid_class="hardware",
    severity="critical",
    action="reboot_node",
    text="The GPU no longer answers on PCIe.",
    gpu="3",
    uuid="GPU-aaaa",
    pci="0000:9b:00",
    instance="",
    switch="",
    fatality="",
    detail="GPU has fallen off the bus.\n",
    echo=False,
    wall_s=0.0,
    monotonic_s=0.0,
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def take(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> EventLog:
    caplog.set_level("INFO")
    return EventLog(clock)


def test_a_line_says_what_where_how_bad_and_what_to_do(
    take: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    take(LOST)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    line = LogfmtFormatter().format(record)
    assert 'msg="XID 79 off-the-bus: The GPU no longer answers on PCIe."' in line
    assert (
        " gpu=3 uuid=GPU-aaaa pci=0000:9b:00 xid_class=hardware severity=critical action=reboot_node" in line
    )
    assert line.endswith('detail="GPU has fallen off the bus.\\n"')


def test_an_echo_is_said_quietly(take: EventLog, caplog: pytest.LogCaptureFixture) -> None:
    take(msgspec.structs.replace(LOST, code=154, severity="warning", echo=True))
    assert caplog.records[0].levelno == logging.INFO
    assert "an echo" in caplog.records[0].getMessage()


def test_a_storm_is_a_line_a_minute_with_its_number(
    take: EventLog, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    storm = msgspec.structs.replace(LOST, code=45, severity="info")
    for _ in range(3_000):
        take(storm)
    take(LOST)  # what else happens is not kept back
    clock.advance(60.0)
    take(storm)
    assert [record.getMessage().split()[1] for record in caplog.records] == ["45", "79", "45"]
    assert vars(caplog.records[2])["more"] == 2_999


def test_many_codes_on_many_gpus_are_limited_together(
    take: EventLog, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    for code in range(1_000):
        take(msgspec.structs.replace(LOST, code=code))
    assert len(caplog.records) == MOST_LINES
    clock.advance(60.0)
    take(LOST)
    assert len(caplog.records) == MOST_LINES + 1
