"""What becomes of every return code of the driver."""

from __future__ import annotations

import pynvml
import pytest

from clusterwatt.nvml.errors import (
    RULINGS,
    UNDECODABLE,
    DeviceTrouble,
    Meaning,
    described,
    device_reason,
    open_reason,
    ruling,
)
from tests.nvml.drivers import CODES, FUTURE_CODES

NOT_OFFERED, NO_SAMPLE, FAILED, DEVICE, GENERATION = Meaning

# What nvml.h says of the code, when one quantity of a GPU is asked for; and the word for it.
FATES = {
    "UNINITIALIZED": (GENERATION, "uninitialized"),
    "INVALID_ARGUMENT": (NOT_OFFERED, "unknown"),
    "NOT_SUPPORTED": (NOT_OFFERED, "unknown"),
    "NO_PERMISSION": (NOT_OFFERED, "permission"),
    "ALREADY_INITIALIZED": (FAILED, "unknown"),
    "NOT_FOUND": (NO_SAMPLE, "unknown"),
    "INSUFFICIENT_SIZE": (NO_SAMPLE, "unknown"),
    "INSUFFICIENT_POWER": (FAILED, "unknown"),
    "DRIVER_NOT_LOADED": (GENERATION, "not_loaded"),
    "TIMEOUT": (DEVICE, "timeout"),
    "IRQ_ISSUE": (FAILED, "unknown"),
    "LIBRARY_NOT_FOUND": (NOT_OFFERED, "not_found"),
    "FUNCTION_NOT_FOUND": (NOT_OFFERED, "unknown"),
    "CORRUPTED_INFOROM": (FAILED, "corrupted_inforom"),
    "GPU_IS_LOST": (DEVICE, "lost"),
    "RESET_REQUIRED": (DEVICE, "reset_required"),
    "OPERATING_SYSTEM": (FAILED, "permission"),
    "LIB_RM_VERSION_MISMATCH": (GENERATION, "version_mismatch"),
    "IN_USE": (NO_SAMPLE, "unknown"),
    "MEMORY": (FAILED, "unknown"),
    "NO_DATA": (NO_SAMPLE, "unknown"),
    "VGPU_ECC_NOT_SUPPORTED": (NOT_OFFERED, "unknown"),
    "INSUFFICIENT_RESOURCES": (FAILED, "unknown"),
    "FREQ_NOT_SUPPORTED": (NOT_OFFERED, "unknown"),
    "ARGUMENT_VERSION_MISMATCH": (NOT_OFFERED, "unknown"),
    "DEPRECATED": (NOT_OFFERED, "unknown"),
    "NOT_READY": (NO_SAMPLE, "unknown"),
    "GPU_NOT_FOUND": (DEVICE, "lost"),
    "INVALID_STATE": (NO_SAMPLE, "unknown"),
    "RESET_TYPE_NOT_SUPPORTED": (NOT_OFFERED, "unknown"),
    "UNKNOWN": (FAILED, "unknown"),
}


def test_every_code_of_the_binding_has_its_fate_here_and_in_the_table() -> None:
    assert set(CODES) <= set(FATES)  # an older binding knows fewer
    assert set(CODES.values()) <= set(RULINGS) - {UNDECODABLE, pynvml.NVML_SUCCESS}


@pytest.mark.parametrize("name", sorted(CODES))
def test_a_code_means_what_nvml_h_says_of_it(name: str) -> None:
    what = ruling(CODES[name])
    assert (what.meaning, what.reason) == FATES[name]
    assert what.name == name


@pytest.mark.parametrize("code", FUTURE_CODES.values())
def test_a_code_that_nobody_knows_yet_costs_one_quantity_and_is_counted(code: int) -> None:
    assert ruling(code).meaning is FAILED
    assert device_reason(code) == open_reason(code) == "unknown"
    assert str(code) in described("nvmlDeviceGetName", code)


def test_one_lost_gpu_never_ends_the_generation() -> None:
    generation = {name for name, (meaning, _) in FATES.items() if meaning is GENERATION}
    assert generation == {"UNINITIALIZED", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH"}


def test_success_that_the_binding_raises_for_an_empty_list_is_no_failure() -> None:
    assert ruling(pynvml.NVMLError(0).value).meaning is NO_SAMPLE


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("GPU_IS_LOST", "lost"),
        ("GPU_NOT_FOUND", "lost"),
        ("RESET_REQUIRED", "reset_required"),
        ("TIMEOUT", "timeout"),
        ("NO_PERMISSION", "permission"),
        ("OPERATING_SYSTEM", "permission"),
        ("UNKNOWN", "unknown"),
        ("NOT_READY", "unknown"),
        ("NOT_SUPPORTED", "unknown"),
        ("CORRUPTED_INFOROM", "unknown"),
    ],
)
def test_why_a_gpu_does_not_answer_is_a_word_of_the_contract(name: str, reason: str) -> None:
    assert device_reason(CODES[name]) == reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("LIBRARY_NOT_FOUND", "not_found"),
        ("DRIVER_NOT_LOADED", "not_loaded"),
        ("LIB_RM_VERSION_MISMATCH", "version_mismatch"),
        ("NO_PERMISSION", "permission"),
        ("UNINITIALIZED", "unknown"),
        ("FUNCTION_NOT_FOUND", "unknown"),
        ("UNKNOWN", "unknown"),
    ],
)
def test_why_the_driver_cannot_be_opened_is_a_word_of_the_contract(name: str, reason: str) -> None:
    assert open_reason(CODES[name]) == reason


def test_an_exception_says_its_reason_and_its_detail() -> None:
    assert DeviceTrouble("lost", "nvmlDeviceGetName: GPU_IS_LOST (15)").reason == "lost"
    assert str(DeviceTrouble("lost", "nvmlDeviceGetName: GPU_IS_LOST (15)")) == (
        "nvmlDeviceGetName: GPU_IS_LOST (15)"
    )
    assert str(DeviceTrouble("lost")) == "lost"
