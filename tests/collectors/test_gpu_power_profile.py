"""Workload power profiles: those in force by their names, and cards that have none."""

from __future__ import annotations

import pynvml
import pytest

from clusterwatt.collectors.gpu_power_profile import power_profile
from clusterwatt.nvml.constants import POWER_PROFILES
from tests.nvml.drivers import Bench

CALL = "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles"


def profiles(bench: Bench) -> list[str]:
    return [reading.profile for reading in power_profile(bench.device())]


def test_names_are_those_of_the_binding() -> None:
    prefix = "NVML_POWER_PROFILE_"
    stated = {
        getattr(pynvml, name): name.removeprefix(prefix).lower()
        for name in dir(pynvml)
        if name.startswith(prefix) and not name.startswith(f"{prefix}OPERATION_") and name != f"{prefix}MAX"
    }
    assert stated == POWER_PROFILES


@pytest.mark.parametrize(
    ("in_force", "expected"),
    [
        ((), ["none"]),
        ((pynvml.NVML_POWER_PROFILE_MAX_Q,), ["max_q"]),
        (
            (pynvml.NVML_POWER_PROFILE_MAX_P, pynvml.NVML_POWER_PROFILE_LLM_TRAINING),
            ["max_p", "llm_training"],
        ),
        ((31, 32, 254), ["31", "32", "254"]),
    ],
)
def test_profiles_in_force(in_force: tuple[int, ...], expected: list[str]) -> None:
    bench = Bench("b200").open()
    bench.library.gpu(0).power_profiles = in_force
    assert profiles(bench) == expected


@pytest.mark.parametrize("card", ["h100", "b200"])
def test_a_board_that_states_no_profiles_has_none_and_is_not_asked_twice(card: str) -> None:
    bench = Bench(card).open()
    assert [profiles(bench) for _ in range(3)] == [[], [], []]
    assert bench.library.calls[CALL] == 1


def test_an_older_driver_does_not_know_the_call() -> None:
    bench = Bench("b200", driver_version="565.57.01").open()
    assert profiles(bench) == []
