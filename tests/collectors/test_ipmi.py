"""Power from the BMC through a program: its answers, its failures, its deadline."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from clusterwatt.collectors.ipmi import IpmiCollector
from clusterwatt.config.model import IpmiCollector as Settings
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.host import BoardPower, Temperature

POWER = """
    Instantaneous power reading:                  5218 Watts
    Minimum during sampling period:                412 Watts
    Maximum during sampling period:               6690 Watts
    Average power reading over sample period:     4986 Watts
    IPMI timestamp:                           Mon Nov 30 10:00:00 2026
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   {state}
"""
TEMPERATURES = """
\t2 temperature sensors found:
\tEntity ID\t\t\tEntity Instance\t   Temp. Readings
Inlet air temperature(40h)    \t\t  1 \t\t+23 C
CPU temperature sensors(41h)  \t\t  1 \t\t+61 C
"""


def said(answers: dict[str, str | OSError]) -> list[Reading]:
    def run(command: Sequence[str], _: float) -> str:
        answer = answers[command[2]]
        if isinstance(answer, OSError):
            raise answer
        return answer

    return list(IpmiCollector(Settings(), run).collect())


def test_power_is_that_of_the_platform_and_the_inlet_is_a_temperature() -> None:
    assert said({"power": POWER.format(state="activated"), "get_temp_reading": TEMPERATURES}) == [
        BoardPower("bmc/dcmi", "platform", "instant", 5218.0),
        Temperature("bmc/inlet1", 23.0),
    ]


def test_a_meter_that_is_off_is_not_zero_watts() -> None:
    assert said({"power": POWER.format(state="deactivated"), "get_temp_reading": ""}) == []


@pytest.mark.parametrize("answer", ["", "DCMI request failed because: Invalid command", "0 Watts"])
def test_an_answer_without_power_is_a_failure(answer: str) -> None:
    (failure,) = said({"power": answer, "get_temp_reading": ""})
    assert isinstance(failure, Failure)


def test_one_question_that_fails_costs_itself_only() -> None:
    failure, inlet = said({"power": OSError("no /dev/ipmi0"), "get_temp_reading": TEMPERATURES})
    assert failure == Failure("power", "ipmitool", "no /dev/ipmi0")
    assert isinstance(inlet, Temperature)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    assert not os.path.exists(tmp_path / "ipmitool")
    (first, second) = IpmiCollector(Settings(command=str(tmp_path / "ipmitool"))).collect()
    assert isinstance(first, Failure)
    assert isinstance(second, Failure)
