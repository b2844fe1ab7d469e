"""Our numbers are those of the driver's interface."""

from __future__ import annotations

import ctypes
import struct

import pynvml

from clusterwatt.nvml import constants, values


def test_numbers_are_those_of_the_binding() -> None:
    assert pynvml.nvmlMemory_v2 == constants.MEMORY_V2
    assert constants.SENSOR_CORE == pynvml.NVML_TEMPERATURE_GPU
    assert constants.THRESHOLD_SHUTDOWN == pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
    assert constants.THRESHOLD_SLOWDOWN == pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    assert constants.THRESHOLD_MEMORY_MAX == pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX
    assert constants.THRESHOLD_CORE_MAX == pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX
    assert constants.CLOCK_GRAPHICS == pynvml.NVML_CLOCK_GRAPHICS
    assert constants.CLOCK_SM == pynvml.NVML_CLOCK_SM
    assert constants.CLOCK_MEMORY == pynvml.NVML_CLOCK_MEM
    assert constants.CLOCK_VIDEO == pynvml.NVML_CLOCK_VIDEO
    assert constants.SAMPLES_GPU_UTILIZATION == pynvml.NVML_GPU_UTILIZATION_SAMPLES
    assert constants.SAMPLES_MEMORY_UTILIZATION == pynvml.NVML_MEMORY_UTILIZATION_SAMPLES
    assert constants.SCOPE_GPU == pynvml.NVML_POWER_SCOPE_GPU
    assert constants.SCOPE_MODULE == pynvml.NVML_POWER_SCOPE_MODULE
    assert constants.SCOPE_MEMORY == pynvml.NVML_POWER_SCOPE_MEMORY
    assert constants.FIELD_MEMORY_TEMPERATURE[0] == pynvml.NVML_FI_DEV_MEMORY_TEMP
    assert constants.FIELD_ENERGY[0] == pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
    assert constants.FIELD_POWER_AVERAGE == pynvml.NVML_FI_DEV_POWER_AVERAGE
    assert constants.FIELD_POWER_INSTANT == pynvml.NVML_FI_DEV_POWER_INSTANT


def test_architectures_are_those_of_the_binding() -> None:
    for number, name in constants.ARCHITECTURES.items():
        assert (
            getattr(pynvml, f"NVML_DEVICE_ARCH_{name.upper()}", number) == number
        )  # an older binding ends sooner


def test_value_types_are_those_of_the_binding() -> None:
    for name in (
        "DOUBLE",
        "UNSIGNED_INT",
        "UNSIGNED_LONG",
        "UNSIGNED_LONG_LONG",
        "SIGNED_LONG_LONG",
        "SIGNED_INT",
        "UNSIGNED_SHORT",
    ):
        assert getattr(values, name) == getattr(pynvml, f"NVML_VALUE_TYPE_{name}")


def test_field_values_and_samples_lie_in_memory_as_the_binding_has_them() -> None:
    field = pynvml.c_nvmlFieldValue_t(1, 2, 3, 4, 5, 6)
    field.value.ullVal = 7
    assert values.FIELD.size == ctypes.sizeof(field)
    assert values.FIELD.unpack(bytes(field)) == (1, 2, 3, 4, 5, 6, (7).to_bytes(8, "little"))
    assert struct.unpack("=" + values.ANSWER, bytes(field)) == (5, 6, (7).to_bytes(8, "little"))
    sample = pynvml.c_nvmlSample_t(1)
    sample.sampleValue.ullVal = 2
    assert values.SAMPLE.size == ctypes.sizeof(sample)
    assert values.SAMPLE.unpack(bytes(sample)) == (1, (2).to_bytes(8, "little"))
    process = pynvml.c_nvmlProcessInfo_v2_t(1, 2, 3, 4)
    assert values.PROCESS.size == ctypes.sizeof(process) == ctypes.sizeof(pynvml.c_nvmlProcessInfo_v3_t)
    assert values.PROCESS.unpack(bytes(process)) == (1, 2, 3, 4)
    used = pynvml.c_nvmlProcessUtilizationSample_t(1, 2, 3, 4, 5, 6)
    assert values.PROCESS_SAMPLE.size == ctypes.sizeof(used)
    assert values.PROCESS_SAMPLE.unpack(bytes(used)) == (1, 2, 3, 4, 5, 6)
    metric = pynvml.c_nvmlGpmMetric_t(1, 2, 0.5)
    assert values.METRIC.size == ctypes.sizeof(metric)
    assert values.METRIC.unpack(bytes(metric)) == (1, 2, 0.5)


def test_members_of_the_union_have_the_size_that_they_are_read_with() -> None:
    union = dict(pynvml.c_nvmlValue_t._fields_)
    members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    assert [ctypes.sizeof(union[member]) for member in members] == [each.size for each in values.UNION]
