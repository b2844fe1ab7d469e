"""Processes on a device: who holds memory, who used the SMs."""

from __future__ import annotations

from collections.abc import Sequence

from clusterwatt.simulate.gpu import MEMORY_PER_SM, Gpu, MigDevice, ProcessEntry
from clusterwatt.simulate.library.calls import (
    INSUFFICIENT_SIZE,
    NOT_FOUND,
    NOT_SUPPORTED,
    Filled,
    Refused,
    check_version,
    fill_array,
    needs,
    on_device,
    on_gpu,
)
from clusterwatt.simulate.library.clocks import percent
from clusterwatt.simulate.work import ProcessKind, mean

UNKNOWN_BYTES = (
    0xFFFFFFFFFFFFFFFF  # NVML_VALUE_NOT_AVAILABLE: the driver does not know (WDDM, some vGPU guests)
)
DETAIL_LIST_V1 = 0x01000018
UTILIZATION_V1 = 0x01000018

_SAMPLE_US = 1_000_000
_MOST_SAMPLES = 10
_MODES: tuple[ProcessKind, ...] = ("compute", "graphics", "mps")  # NVML_PROCESS_MODE_*


def _listed(device: Gpu | MigDevice, kind: ProcessKind) -> list[ProcessEntry]:
    """A MIG device lists its own; the whole GPU lists all of them, in MIG mode to root only (nvml.h)."""
    gpu = device.gpu
    entries = [entry for entry in gpu.processes(gpu.now_s()) if entry.kind == kind]
    if isinstance(device, MigDevice):
        return [entry for entry in entries if entry.gpu_instance == device.instance]
    return entries if gpu.driver.privileged or not gpu.mig_enabled else []


def _members(entry: ProcessEntry) -> dict[str, int]:
    return {
        "pid": entry.pid,
        "usedGpuMemory": UNKNOWN_BYTES if entry.used_bytes is None else entry.used_bytes,
        "gpuInstanceId": entry.gpu_instance,
        "computeInstanceId": entry.compute_instance,
    }


def _fill(device: Gpu | MigDevice, kind: ProcessKind, count: Filled, array: Filled) -> None:
    fill_array(count, array, [_members(entry) for entry in _listed(device, kind)])


@on_device("nvmlDeviceGetComputeRunningProcesses_v3", since=510)
@on_device("nvmlDeviceGetComputeRunningProcesses_v2", since=460)
def compute_processes(device: Gpu | MigDevice, count: Filled, array: Filled) -> None:
    _fill(device, "compute", count, array)


@on_device("nvmlDeviceGetGraphicsRunningProcesses_v3", since=510)
@on_device("nvmlDeviceGetGraphicsRunningProcesses_v2", since=460)
def graphics_processes(device: Gpu | MigDevice, count: Filled, array: Filled) -> None:
    _fill(device, "graphics", count, array)


@on_device("nvmlDeviceGetMPSComputeRunningProcesses_v3", since=510)
@on_device("nvmlDeviceGetMPSComputeRunningProcesses_v2", since=460)
def mps_processes(device: Gpu | MigDevice, count: Filled, array: Filled) -> None:
    _fill(device, "mps", count, array)


@on_device("nvmlDeviceGetRunningProcessDetailList", since=545)
def process_details(device: Gpu | MigDevice, details: Filled) -> None:
    """Hopper and newer (nvml.h)."""
    needs(device.gpu.card.gpm)
    check_version(details, DETAIL_LIST_V1)
    if details.mode >= len(_MODES):
        raise Refused(NOT_SUPPORTED)
    entries = _listed(device, _MODES[details.mode])
    room, details.numProcArrayEntries = details.numProcArrayEntries, len(entries)
    if (room if details.procArray else 0) < len(entries):
        raise Refused(INSUFFICIENT_SIZE)
    for place, entry in enumerate(entries):
        for name, value in _members(entry).items():
            setattr(details.procArray[place], name, value)


# --- utilisation -------------------------------------------------------------------------------------


def _samples(gpu: Gpu, after_us: int) -> list[dict[str, int]]:
    """One sample a second and process; who did nothing does not appear (nvidia-smi pmon shows a dash)."""
    needs(not gpu.mig_enabled)
    newest = int(gpu.now_s() * 1e6) // _SAMPLE_US
    oldest = max(newest - _MOST_SAMPLES + 1, after_us // _SAMPLE_US + 1)
    busy = [entry for entry in gpu.processes(gpu.now_s()) if entry.sm_share > 0]
    found: list[dict[str, int]] = []
    for place in range(oldest, newest + 1):
        to_s = place * _SAMPLE_US / 1e6
        effort = mean(gpu.signals.busy, to_s - 1.0, to_s)
        if effort <= 0:
            continue
        found.extend(
            {
                "pid": entry.pid,
                "timeStamp": place * _SAMPLE_US,
                "smUtil": percent(effort * entry.sm_share),
                "memUtil": percent(effort * entry.sm_share * MEMORY_PER_SM),
            }
            for entry in busy
        )
    if busy and not found:
        raise Refused(NOT_FOUND)
    return found


@on_gpu("nvmlDeviceGetProcessUtilization")
def process_utilization(gpu: Gpu, array: Filled, count: Filled, after_us: int) -> None:
    """With nothing on the GPU the size query succeeds; the binding makes an error "Success" of it."""
    fill_array(count, array, _samples(gpu, after_us))


@on_gpu("nvmlDeviceGetProcessesUtilizationInfo", since=550)
def processes_utilization_info(gpu: Gpu, info: Filled) -> None:
    check_version(info, UTILIZATION_V1)
    entries = _samples(gpu, info.lastSeenTimeStamp)
    room, info.processSamplesCount = info.processSamplesCount, len(entries)
    if (room if info.procUtilArray else 0) < len(entries):
        raise Refused(INSUFFICIENT_SIZE)
    _copy(info.procUtilArray, entries)


def _copy(array: Filled, entries: Sequence[dict[str, int]]) -> None:
    for place, members in enumerate(entries):
        for name, value in members.items():
            setattr(array[place], name, value)


# --- accounting: off, as on all boards seen ----------------------------------------------------------


@on_gpu("nvmlDeviceGetAccountingMode")
def accounting_mode(gpu: Gpu, mode: Filled) -> None:
    mode.value = 0


@on_gpu("nvmlDeviceGetAccountingBufferSize")
def accounting_buffer_size(gpu: Gpu, size: Filled) -> None:
    size.value = 4000


@on_gpu("nvmlDeviceGetAccountingPids")
def accounting_pids(gpu: Gpu, count: Filled, pids: Filled) -> None:
    count.value = 0


@on_gpu("nvmlDeviceGetEncoderStats")
def encoder_stats(gpu: Gpu, sessions: Filled, frames_per_s: Filled, latency_us: Filled) -> None:
    sessions.value = frames_per_s.value = latency_us.value = 0
