"""The session and its devices, with the real binding over a simulated library."""

from __future__ import annotations

import ctypes
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from clusterwatt.nvml.constants import (
    FIELD_ENERGY,
    FIELD_MEMORY_TEMPERATURE,
    FIELD_POWER_INSTANT,
    MEMORY_V2,
    SAMPLES_GPU_UTILIZATION,
    SCOPE_GPU,
    SCOPE_MODULE,
)
from clusterwatt.nvml.errors import DeviceTrouble, DriverUnavailable, GenerationOver, Meaning, ruling
from clusterwatt.nvml.session import Session
from clusterwatt.simulate.gpu import simulated_uuid
from clusterwatt.simulate.nvml import uninstall
from tests.nvml.drivers import CODES, FUTURE_CODES, Bench

LIMIT = "nvmlDeviceGetEnforcedPowerLimit"
FIELDS = "nvmlDeviceGetFieldValues"


# --- opening -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason"),
    [(12, "not_found"), (9, "not_loaded"), (18, "version_mismatch"), (4, "permission"), (999, "unknown")],
)
def test_a_driver_that_cannot_be_opened_says_why_and_is_opened_later(code: int, reason: str) -> None:
    bench = Bench()
    rule = bench.faults.fail("nvmlInitWithFlags", code)
    with pytest.raises(DriverUnavailable) as caught:
        bench.session.open()
    assert caught.value.reason == reason
    assert "nvmlInit" in str(caught.value)
    bench.faults.clear(rule)
    bench.session.open()
    assert bench.session.enumerate().count == 2


def test_a_machine_without_the_library_has_no_driver() -> None:
    uninstall()
    with pytest.raises(DriverUnavailable) as caught:
        Session().open()
    assert caught.value.reason == "not_found"


def test_versions_are_those_of_the_driver() -> None:
    bench = Bench(driver_version="580.105.08", cuda_version=(13, 0)).open()
    versions = bench.session.versions()
    assert (versions.driver, versions.nvml, versions.cuda) == ("580.105.08", "13.580.105.08", "13.0")


def test_cuda_version_without_libcuda_comes_from_the_older_call() -> None:
    bench = Bench(cuda_version=(12, 4))
    bench.faults.fail("nvmlSystemGetCudaDriverVersion_v2", 12)
    bench.open()
    assert bench.session.versions().cuda == "12.4"


def test_a_version_that_is_not_told_is_empty() -> None:
    bench = Bench()
    bench.faults.fail("nvmlSystemGetCudaDriverVersion*", 13)
    bench.faults.fail("nvmlSystemGetNVMLVersion", 999)
    bench.open()
    assert (bench.session.versions().nvml, bench.session.versions().cuda) == ("", "")


def test_another_package_under_the_name_of_the_binding_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = SimpleNamespace(__file__="/usr/lib/python3/dist-packages/pynvml.py", nvmlInit=lambda: None)
    monkeypatch.setitem(sys.modules, "pynvml", other)
    with pytest.raises(
        DriverUnavailable, match=r"/usr/lib/python3/dist-packages/pynvml\.py.*nvidia-ml-py"
    ) as caught:
        Session().open()
    assert caught.value.reason == "wrong_binding"


def test_closing_lets_go_of_the_driver() -> None:
    bench = Bench().open()
    bench.session.close()
    assert not bench.library.initialized
    bench.session.close()  # a second time says UNINITIALIZED, which is no concern of ours


def test_a_session_that_is_opened_again_is_still_one_user_of_the_driver() -> None:
    """Else the driver stays open after `close`, and cannot be unloaded."""
    bench = Bench().open()
    bench.session.open()
    bench.session.close()
    assert not bench.library.initialized
    bench.session.open()
    assert bench.session.count() == 2


# --- finding GPUs ------------------------------------------------------------------------------------


def test_gpus_come_by_index_and_are_known_by_uuid() -> None:
    found = Bench(gpus=3).open().session.enumerate()
    assert found.count == 3
    assert [(device.gpu, device.uuid) for device in found.devices] == [
        (str(index), simulated_uuid(1, index)) for index in range(3)
    ]
    assert not found.reasons


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (15, "lost"),
        (16, "reset_required"),
        (10, "timeout"),
        (4, "permission"),
        (17, "permission"),
        (999, "unknown"),
        (8, "unknown"),
    ],
)
@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
def test_a_gpu_that_cannot_be_opened_does_not_hide_the_others(call: str, code: int, reason: str) -> None:
    bench = Bench(gpus=8).open()
    bench.faults.fail(call, code, gpu=3)
    found = bench.session.enumerate()
    assert found.count == 8
    assert [device.gpu for device in found.devices] == ["0", "1", "2", "4", "5", "6", "7"]
    assert found.reasons == {"3": reason}


def test_g17_gpus_that_come_after_the_driver_are_found() -> None:
    bench = Bench(gpus=8)
    bench.faults.gpus = 0
    bench.open()
    assert bench.session.enumerate().devices == ()
    assert bench.session.count() == 0
    bench.faults.gpus = None
    assert bench.session.count() == 8
    assert len(bench.session.enumerate().devices) == 8


def test_a_driver_that_finds_no_gpus_at_all_has_none() -> None:
    bench = Bench().open()
    bench.faults.fail("nvmlDeviceGetCount_v2", 28)
    assert bench.session.enumerate().count == 0


def test_a_gpu_keeps_its_device_when_its_index_moves() -> None:
    bench = Bench(gpus=3).open()
    last = bench.device(2)
    bench.faults.vanished = {0}
    found = bench.session.enumerate()
    assert [device.gpu for device in found.devices] == ["0", "1"]
    assert found.devices[1] is last


@pytest.mark.parametrize(
    ("code", "reason"), [(1, "uninitialized"), (9, "not_loaded"), (18, "version_mismatch")]
)
@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"]
)
def test_g07_the_end_of_a_generation_is_seen_at_any_call(call: str, code: int, reason: str) -> None:
    bench = Bench().open()
    bench.faults.fail(call, code)
    with pytest.raises(GenerationOver) as caught:
        bench.session.enumerate()
    assert caught.value.reason == reason


def test_a_count_that_fails_otherwise_is_an_unavailable_driver() -> None:
    bench = Bench().open()
    bench.faults.fail("nvmlDeviceGetCount_v2", 999)
    with pytest.raises(DriverUnavailable):
        bench.session.count()


# --- asking ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "code"), [*CODES.items(), *FUTURE_CODES.items()])
def test_every_code_has_its_consequence_for_a_quantity_that_was_never_answered(name: str, code: int) -> None:
    bench = Bench().open()
    device = bench.device()
    rule = bench.faults.fail(LIMIT, code, gpu=0)
    meaning = ruling(code).meaning
    if meaning is Meaning.DEVICE:
        with pytest.raises(DeviceTrouble):
            device.ask(LIMIT)
    elif meaning is Meaning.GENERATION:
        with pytest.raises(GenerationOver):
            device.ask(LIMIT)
    else:
        assert device.ask(LIMIT) is None
    failures = device.take_failures()
    assert len(failures) == (1 if meaning is Meaning.FAILED else 0)
    for failure in failures:
        assert failure.item == device.uuid
        assert LIMIT in failure.detail
        assert str(code) in failure.detail
    assert device.take_failures() == []
    bench.faults.clear(rule)
    answered = device.ask(LIMIT)
    assert answered == (None if meaning is Meaning.NOT_OFFERED else 700_000)
    assert bench.device(1).ask(LIMIT) == 700_000


def test_g01_what_a_card_lacks_is_asked_for_once_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench("t4").open()
    device = bench.device()
    with caplog.at_level("DEBUG", "clusterwatt.nvml"):
        for _ in range(100):
            assert device.ask("nvmlDeviceGetMarginTemperature") is None
            assert device.ask("nvmlDeviceGetTemperatureThreshold", 1) == 93
            assert device.ask("nvmlDeviceGetTemperatureThreshold", 2) is None
    assert bench.library.calls["nvmlDeviceGetMarginTemperature"] == 1
    assert bench.library.calls["nvmlDeviceGetTemperatureThreshold"] == 101
    assert len(caplog.records) == 2
    assert device.take_failures() == []


def test_what_was_answered_before_is_asked_for_again() -> None:
    """MIG mode takes utilisation away, and gives it back when it is switched off."""
    bench = Bench().open()
    device = bench.device()
    assert device.ask("nvmlDeviceGetUtilizationRates") is not None
    rule = bench.faults.fail("nvmlDeviceGetUtilizationRates", 3)
    assert device.ask("nvmlDeviceGetUtilizationRates") is None
    assert not device.lacks("nvmlDeviceGetUtilizationRates")
    bench.faults.clear(rule)
    assert device.ask("nvmlDeviceGetUtilizationRates") is not None


def test_what_a_device_lacks_is_known_as_long_as_the_session_lasts() -> None:
    bench = Bench("t4").open()
    bench.device().ask("nvmlDeviceGetMarginTemperature")
    assert bench.device().lacks("nvmlDeviceGetMarginTemperature")
    fresh = Session()
    fresh.open()
    assert not fresh.enumerate().devices[0].lacks("nvmlDeviceGetMarginTemperature")


def test_a_function_that_the_binding_lacks_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Bench().open().device()
    monkeypatch.delattr(pynvml, "nvmlDeviceGetMarginTemperature")
    assert device.ask("nvmlDeviceGetMarginTemperature") is None
    assert device.lacks("nvmlDeviceGetMarginTemperature")


def test_a_mismatch_that_is_no_error_of_the_binding_is_a_missing_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mismatch(handle: object) -> None:
        raise pynvml.NVMLLibraryMismatchError("Unversioned function called")

    device = Bench().open().device()
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", mismatch)
    assert device.ask("nvmlDeviceGetComputeRunningProcesses") is None
    assert device.lacks("nvmlDeviceGetComputeRunningProcesses")


def test_success_as_an_exception_is_an_answer_without_content(monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(handle: object, since_us: int) -> None:
        raise pynvml.NVMLError(0)

    device = Bench().open().device()
    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", empty)
    assert device.ask("nvmlDeviceGetProcessUtilization", 0) is None
    assert not device.lacks("nvmlDeviceGetProcessUtilization", 0)
    assert device.take_failures() == []


def test_newer_functions_are_asked_first_and_older_ones_only_where_they_are_missing() -> None:
    forms = (("nvmlDeviceGetTemperatureV", 0), ("nvmlDeviceGetTemperature", 0))
    new = Bench().open()
    celsius = new.device().ask_first(*forms)
    assert isinstance(celsius, int)
    assert new.library.calls["nvmlDeviceGetTemperature"] == 0
    old = Bench(driver_version="550.54.15").open()
    device = old.device()
    assert device.ask_first(*forms) == device.ask_first(*forms) == celsius
    assert old.library.calls["nvmlDeviceGetTemperatureV"] == 0  # the symbol is not there
    assert old.library.calls["nvmlDeviceGetTemperature"] == 2


@pytest.mark.parametrize("code", [999, 21])
def test_a_newer_function_that_fails_now_is_not_replaced_by_the_older_one(code: int) -> None:
    """The two may count differently: memory version 1 has the reserve in `used`."""
    bench = Bench().open()
    bench.faults.fail("nvmlDeviceGetMemoryInfo_v2", code)
    forms = (("nvmlDeviceGetMemoryInfo", MEMORY_V2), ("nvmlDeviceGetMemoryInfo",))
    assert bench.device().ask_first(*forms) is None
    assert bench.library.calls["nvmlDeviceGetMemoryInfo"] == 0


# --- text --------------------------------------------------------------------------------------------

G30_BYTES = bytes.fromhex("f8 95 a0 81 e7 4e 56 49 44 49 41")


def test_g30_a_name_that_is_not_utf8_keeps_what_can_be_read() -> None:
    bench = Bench(names={0: G30_BYTES}).open()
    assert bench.device().text("nvmlDeviceGetName") == "\ufffd" * 5 + "NVIDIA"
    assert bench.device(1).text("nvmlDeviceGetName") == "NVIDIA H100 80GB HBM3"
    assert bench.device().uuid == simulated_uuid(1, 0)


def test_g30_a_binding_that_cannot_decode_costs_the_text_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def strict(handle: object) -> str:
        return G30_BYTES.decode()

    bench = Bench().open()
    device = bench.device()
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", strict)
    assert device.text("nvmlDeviceGetName") is None
    assert device.take_failures() == []
    assert device.ask(LIMIT) == 700_000


# --- fields ------------------------------------------------------------------------------------------

INSTANT = (FIELD_POWER_INSTANT, SCOPE_GPU)
MODULE = (FIELD_POWER_INSTANT, SCOPE_MODULE)
ECC_VOLATILE = (3, 0)
NEVER_HEARD_OF = (12345, 0)


def test_fields_share_a_call_once_they_are_known_and_missing_ones_are_left_out() -> None:
    bench = Bench().open()
    device = bench.device()
    wanted = (INSTANT, FIELD_ENERGY, MODULE, NEVER_HEARD_OF)
    first = device.fields(wanted)
    assert set(first) == {INSTANT, FIELD_ENERGY}
    asked = bench.library.calls[FIELDS]
    assert set(device.fields(wanted)) == {INSTANT, FIELD_ENERGY}
    assert bench.library.calls[FIELDS] == asked + 1
    assert device.lacks(*MODULE)
    assert device.lacks(*NEVER_HEARD_OF)
    assert device.fields((MODULE,)) == {}
    assert bench.library.calls[FIELDS] == asked + 1


def test_fields_of_every_type_are_read_by_the_type_they_really_have() -> None:
    """r545 and newer call the memory temperature a double; ids 1 to 31 have no type at all."""
    entries = {
        FIELD_MEMORY_TEMPERATURE: ("uiVal", 48, 0),
        ECC_VOLATILE: ("ullVal", 7, 0),
        (300, 0): ("dVal", 2.5, 0),
        (301, 0): ("uiVal", 9, 1),
        (302, 0): ("ullVal", 1 << 40, 3),
        (303, 0): ("sllVal", -5, 4),
        (304, 0): ("siVal", -6, 5),
        (305, 0): ("usVal", 11, 6),
    }
    device = Bench().open().device()
    _answer_fields(entries)
    assert device.fields(tuple(entries)) == {field: value for field, (_, value, _) in entries.items()}


@pytest.mark.parametrize(
    ("member", "value", "value_type"),
    [
        ("uiVal", 0xFFFFFFFF, 1),
        ("ullVal", 0xFFFFFFFFFFFFFFFF, 3),
        ("dVal", float("nan"), 0),
        ("dVal", float("inf"), 0),
        ("uiVal", 5, 7),  # a type that only a later driver knows
    ],
)
def test_a_mark_for_not_available_is_no_value(member: str, value: float, value_type: int) -> None:
    device = Bench().open().device()
    _answer_fields({(300, 0): (member, value, value_type)})
    assert device.fields(((300, 0),)) == {}
    assert not device.lacks(300, 0)


@pytest.mark.parametrize(("name", "code"), [*CODES.items(), *FUTURE_CODES.items()])
def test_every_code_has_its_consequence_for_one_field_among_others(name: str, code: int) -> None:
    bench = Bench().open()
    device = bench.device()
    device.fields((INSTANT, FIELD_ENERGY))
    bench.faults.fail(FIELDS, code, field=FIELD_ENERGY[0])
    meaning = ruling(code).meaning
    if meaning is Meaning.DEVICE:
        with pytest.raises(DeviceTrouble):
            device.fields((INSTANT, FIELD_ENERGY))
    elif meaning is Meaning.GENERATION:
        with pytest.raises(GenerationOver):
            device.fields((INSTANT, FIELD_ENERGY))
    else:
        assert set(device.fields((INSTANT, FIELD_ENERGY))) == {INSTANT}
    assert len(device.take_failures()) == (1 if meaning is Meaning.FAILED else 0)


def test_a_call_for_fields_that_fails_as_a_whole_is_one_failure() -> None:
    bench = Bench().open()
    device = bench.device()
    device.fields((INSTANT, FIELD_ENERGY))
    bench.faults.fail(FIELDS, 999)
    assert device.fields((INSTANT, FIELD_ENERGY)) == {}
    assert len(device.take_failures()) == 1


def test_a_driver_without_field_values_offers_none() -> None:
    bench = Bench(hidden={FIELDS}).open()
    device = bench.device()
    assert device.fields((INSTANT, FIELD_ENERGY)) == {}
    assert device.lacks(*INSTANT)
    assert device.lacks(*FIELD_ENERGY)


def test_the_scope_of_a_field_reaches_the_driver() -> None:
    asked: list[tuple[int, int]] = []

    def fields(handle: object, count: Any, values: Any) -> int:
        asked.extend((entry.fieldId, entry.scopeId) for entry in values._obj)
        return 0

    device = Bench().open().device()
    pynvml._nvmlGetFunctionPointer_cache[FIELDS] = fields
    device.fields((INSTANT, MODULE))
    assert asked == [(186, 0), (186, 1)]


def _answer_fields(entries: dict[tuple[int, int], tuple[str, float, int]]) -> None:
    def fields(handle: object, count: Any, values: Any) -> int:
        for entry in values._obj:
            member, value, entry.valueType = entries[entry.fieldId, entry.scopeId]
            setattr(entry.value, member, value)
        return 0

    pynvml._nvmlGetFunctionPointer_cache[FIELDS] = fields


# --- samples -----------------------------------------------------------------------------------------


def test_samples_go_on_where_the_last_ones_ended_for_one_call_each() -> None:
    bench = Bench().open()
    device = bench.device()
    history = device.samples(SAMPLES_GPU_UTILIZATION, 0)
    assert history is not None
    assert len(history.values) == 119
    assert device.samples(SAMPLES_GPU_UTILIZATION, history.newest_us) is None
    bench.clock.advance(1.0)
    new = device.samples(SAMPLES_GPU_UTILIZATION, history.newest_us)
    assert new is not None
    assert len(new.values) == 6
    assert new.newest_us - history.newest_us == pytest.approx(1e6, abs=200_000)
    assert bench.library.calls["nvmlDeviceGetSamples"] == 3
    assert device.take_failures() == []


def test_a_ring_buffer_larger_than_ours_is_read_whole() -> None:
    def samples(handle: object, kind: Any, since: Any, value_type: Any, count: Any, array: Any) -> int:
        if count._obj.value < 600:
            return 7
        for place in range(600):
            array[place].timeStamp = place + 1
            array[place].sampleValue.uiVal = 50
        value_type._obj.value, count._obj.value = 1, 600
        return 0

    device = Bench().open().device()
    pynvml._nvmlGetFunctionPointer_cache["nvmlDeviceGetSamples"] = samples
    found = device.samples(SAMPLES_GPU_UTILIZATION, 0)
    assert found is not None
    assert (len(found.values), found.newest_us) == (600, 600)
    again = device.samples(SAMPLES_GPU_UTILIZATION, 599)
    assert again is not None
    assert again.values == (50.0,)  # what is not newer was in the last answer already


def test_a_card_without_ring_buffers_is_asked_once() -> None:
    bench = Bench().open()
    bench.faults.fail("nvmlDeviceGetSamples", 3)
    device = bench.device()
    for _ in range(5):
        assert device.samples(SAMPLES_GPU_UTILIZATION, 0) is None
    assert bench.library.calls["nvmlDeviceGetSamples"] == 1


# --- counting and timing -----------------------------------------------------------------------------


def test_every_call_is_timed_from_any_thread() -> None:
    took: list[tuple[str, float]] = []
    bench = Bench(gpus=4)
    bench.session = Session(clock=bench.clock, took=lambda name, seconds: took.append((name, seconds)))
    bench.open()
    devices = bench.session.enumerate().devices
    before = len(took)
    threads = [
        threading.Thread(target=lambda device=device: [device.ask(LIMIT) for _ in range(500)])
        for device in devices
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(took) - before == 2000
    assert took[-1] == (LIMIT, 0.0)


def test_a_call_that_fails_is_timed_too() -> None:
    took: list[str] = []
    bench = Bench()
    bench.session = Session(clock=bench.clock, took=lambda name, seconds: took.append(name))
    bench.open()
    bench.faults.fail(LIMIT, 999)
    bench.device().ask(LIMIT)
    assert took[-1] == LIMIT


def test_a_handle_of_another_device_is_not_used() -> None:
    bench = Bench(gpus=2).open()
    bench.faults.change(LIMIT, 300_000, gpu=1)
    assert bench.device(0).ask(LIMIT) == 700_000
    assert bench.device(1).ask(LIMIT) == 300_000
    assert isinstance(bench.device(0).handle, ctypes._Pointer)
