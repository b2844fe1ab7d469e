"""Initialisation, handles, identity, and which functions there are."""

from __future__ import annotations

import re
from collections.abc import Callable
from ctypes import byref, c_uint
from pathlib import Path

import pynvml
import pytest

from clusterwatt.nvml.session import Session
from clusterwatt.simulate.gpu import simulated_uuid
from clusterwatt.simulate.library.calls import FUNCTIONS
from clusterwatt.simulate.nvml import SimulatedLibrary, another_binding, install
from tests.clocks import FakeClock
from tests.simulate.conftest import Driver, code

CAPTURES = Path(__file__).resolve().parents[3] / "shared/fixtures/nvidia-smi/captures"


def test_nothing_works_before_initialisation(driver: Callable[..., Driver]) -> None:
    driver()
    pynvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 4


def test_two_users_keep_the_library_open(driver: Callable[..., Driver]) -> None:
    driver()
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    assert pynvml.nvmlDeviceGetCount() == 4


def test_handles_die_with_the_last_user(driver: Callable[..., Driver]) -> None:
    handle = driver().handle()
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert code(pynvml.nvmlDeviceGetName, handle) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_a_null_handle_is_an_invalid_argument(driver: Callable[..., Driver]) -> None:
    driver()
    assert code(pynvml.nvmlDeviceGetName, pynvml.c_nvmlDevice_t()) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_versions(driver: Callable[..., Driver]) -> None:
    driver(driver_version="580.105.08", cuda_version=(13, 0))
    assert pynvml.nvmlSystemGetDriverVersion() == "580.105.08"
    assert pynvml.nvmlSystemGetNVMLVersion() == "13.580.105.08"
    assert pynvml.nvmlSystemGetCudaDriverVersion() == 13000
    assert pynvml.nvmlSystemGetCudaDriverVersion_v2() == 13000


def test_a_gpu_is_found_by_index_uuid_bus_id_and_serial(driver: Callable[..., Driver]) -> None:
    handle = driver().handle(2)
    uuid, bus_id = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetPciInfo(handle).busId
    serial = pynvml.nvmlDeviceGetSerial(handle)
    for found in (
        pynvml.nvmlDeviceGetHandleByUUID(uuid),
        pynvml.nvmlDeviceGetHandleByPciBusId(bus_id),
        pynvml.nvmlDeviceGetHandleBySerial(serial),
    ):
        assert pynvml.nvmlDeviceGetIndex(found) == 2
    assert code(pynvml.nvmlDeviceGetHandleByUUID, "GPU-0") == pynvml.NVML_ERROR_NOT_FOUND
    assert code(pynvml.nvmlDeviceGetHandleByIndex, 4) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_boards_differ_and_stay_the_same(driver: Callable[..., Driver]) -> None:
    first = driver(gpus=16)
    uuids = [pynvml.nvmlDeviceGetUUID(first.handle(i)) for i in range(16)]
    buses = {pynvml.nvmlDeviceGetPciInfo(first.handle(i)).busId for i in range(16)}
    assert len(set(uuids)) == len(buses) == 16
    assert uuids == [simulated_uuid(1, i) for i in range(16)]
    assert all(re.fullmatch(r"GPU(-[0-9a-f]+){5}", uuid) for uuid in uuids)
    assert pynvml.nvmlDeviceGetUUID(driver(gpus=16, seed=2).handle()) not in uuids


def test_pci_bus_id_in_both_spellings(driver: Callable[..., Driver]) -> None:
    info = pynvml.nvmlDeviceGetPciInfo(driver().handle())
    assert info.busId == "00000000:18:00.0"
    assert info.busIdLegacy == "0000:18:00.0"
    assert (info.domain, info.bus, info.device) == (0, 0x18, 0)
    assert info.pciDeviceId == 0x233010DE


def test_minor_numbers_may_differ_from_the_index(driver: Callable[..., Driver]) -> None:
    made = driver(gpus=2, minors=[1, 0], serials=["A", None])
    assert [pynvml.nvmlDeviceGetMinorNumber(made.handle(i)) for i in range(2)] == [1, 0]
    assert pynvml.nvmlDeviceGetSerial(made.handle(0)) == "A"
    assert code(pynvml.nvmlDeviceGetSerial, made.handle(1)) == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_g30_a_name_that_is_no_utf8(driver: Callable[..., Driver]) -> None:
    made = driver(names={1: bytes.fromhex("f895a081e74e5649444941")})
    assert pynvml.nvmlDeviceGetName(made.handle(0)) == "NVIDIA H100 80GB HBM3"
    with pytest.raises(UnicodeDecodeError):
        pynvml.nvmlDeviceGetName(made.handle(1))


def test_an_old_driver_lacks_functions(driver: Callable[..., Driver]) -> None:
    old = driver(driver_version="535.54.03").handle()
    for call in (pynvml.nvmlDeviceGetMarginTemperature, pynvml.nvmlDeviceGetRepairStatus):
        assert code(call, old) == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert code(pynvml.nvmlDeviceGetTemperatureV, old, 0) == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert pynvml.nvmlDeviceGetTemperature(old, 0) > 0
    new = driver().handle()
    assert pynvml.nvmlDeviceGetTemperatureV(new, 0) == pynvml.nvmlDeviceGetTemperature(new, 0)


def test_any_function_can_be_hidden(driver: Callable[..., Driver]) -> None:
    handle = driver(hidden={"nvmlDeviceGetMemoryInfo_v2"}).handle()
    assert code(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2) == 13
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).total == 81559 * 1024**2


def test_unknown_functions_are_missing_not_wrong(driver: Callable[..., Driver]) -> None:
    made = driver()
    with pytest.raises(AttributeError):
        _ = made.library.nvmlDeviceGetWeather


def test_calls_are_counted_by_their_c_name(driver: Callable[..., Driver]) -> None:
    made = driver()
    made.library.calls.clear()
    for _ in range(3):
        pynvml.nvmlDeviceGetPowerUsage(made.handle())
    assert made.library.calls == {"nvmlDeviceGetHandleByIndex_v2": 3, "nvmlDeviceGetPowerUsage": 3}


def test_installing_another_library_leaves_nothing_of_the_first(driver: Callable[..., Driver]) -> None:
    handle = driver("h100").handle()
    install(SimulatedLibrary("t4", 1, 1, FakeClock().wall_s))
    pynvml.nvmlInit()
    assert code(pynvml.nvmlDeviceGetName, handle) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)) == "Tesla T4"


def test_error_texts_are_texts(driver: Callable[..., Driver]) -> None:
    driver()
    assert "mismatch" in pynvml.nvmlErrorString(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)


def test_module_numbers_and_process_names(driver: Callable[..., Driver]) -> None:
    made = driver()
    modules = [c_uint() for _ in range(4)]
    for index, module in enumerate(modules):
        pynvml.nvmlDeviceGetModuleId(made.handle(index), byref(module))
    assert len({module.value for module in modules}) == 4
    process = pynvml.nvmlDeviceGetComputeRunningProcesses(made.handle())[0]
    assert pynvml.nvmlSystemGetProcessName(process.pid) == "/usr/bin/python3"
    assert code(pynvml.nvmlSystemGetProcessName, 999999) == pynvml.NVML_ERROR_NOT_FOUND


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="this machine has no captures")
def test_every_function_is_exported_by_a_real_library() -> None:
    """The symbols of a libnvidia-ml.so.1 of driver 590.48.01."""
    text = (CAPTURES / "nvidia-h100-80gb-hbm3/load.dmon.txt").read_text()
    real = set(re.findall(r"^nvml\w+$", text, re.MULTILINE))
    assert len(real) > 400
    for name, entry in FUNCTIONS.items():
        assert (name in real) == (entry.since <= 590), name


def test_two_bindings_have_two_libraries() -> None:
    clock = FakeClock()
    cards = {"h100": "NVIDIA H100 80GB HBM3", "t4": "Tesla T4"}
    sessions = []
    for number, profile in enumerate(cards):
        binding = another_binding()
        install(SimulatedLibrary(profile, number + 1, number, clock.wall_s), binding)
        sessions.append(Session(simulated=True, clock=clock, binding=binding))
    for session in sessions:
        session.open()
    assert [session.count() for session in sessions] == [1, 2]
    names = [session.enumerate().devices[0].ask("nvmlDeviceGetName") for session in sessions]
    assert names == list(cards.values())


def test_another_binding_leaves_the_errors_of_the_first_alone() -> None:
    before = pynvml.NVMLError_NotSupported
    binding = another_binding()
    assert pynvml.NVMLError_NotSupported is before
    assert binding.NVMLError_NotSupported is not before
    with pytest.raises(binding.NVMLError_NotSupported):
        raise binding.NVMLError(3)
    with pytest.raises(before):
        raise pynvml.NVMLError(3)
