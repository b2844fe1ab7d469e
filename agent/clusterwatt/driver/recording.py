"""`clusterwatt capture`: runs a driver host over a recorder and writes what the driver said into a bundle.

It is a client of the driver of its own, beside a running agent. It only asks: no mode, clock or limit is set.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from pathlib import Path

from clusterwatt import __version__
from clusterwatt.clock import Clock
from clusterwatt.collectors.gpu import GpuReader
from clusterwatt.driver.frames import HostSettings
from clusterwatt.driver.host import Host, stand_in
from clusterwatt.nvml import bundle, capture
from clusterwatt.nvml.device import Device
from clusterwatt.nvml.errors import DriverError, Refused
from clusterwatt.nvml.pseudonyms import FIELDS, Pseudonyms
from clusterwatt.nvml.session import Session
from clusterwatt.worker import Outcome, Worker

log = logging.getLogger("clusterwatt.capture")

DEEP_WITHIN_S = 60.0
LAST_FIELD = 320  # NVML_FI_MAX of the newest binding is 308
SAMPLE_KINDS = range(8)  # nvmlSamplingType_t
# What no part of the agent reads, and what helps to understand a card that behaves oddly.
EXTRA = (
    "nvmlDeviceGetBoardId",
    "nvmlDeviceGetBoardPartNumber",
    "nvmlDeviceGetBrand",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetDecoderUtilization",
    "nvmlDeviceGetDisplayActive",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetGspFirmwareMode",
    "nvmlDeviceGetGspFirmwareVersion",
    "nvmlDeviceGetInforomImageVersion",
    "nvmlDeviceGetJpgUtilization",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetModuleId",
    "nvmlDeviceGetNumFans",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetOfaUtilization",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetSupportedClocksEventReasons",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetVirtualizationMode",
)


class NoDriverError(Exception):
    """There is nothing to record; the text is one line."""


def record(
    path: Path,
    settings: HostSettings,
    clock: Clock,
    seconds: float,
    *,
    pseudonyms: bool = True,
    stop: threading.Event,
) -> bundle.Manifest:
    """Record the driver for so many seconds, or until `stop`, and write the bundle.

    Raises NoDriverError when no driver answers, BundleError when the file cannot be written.
    """
    if settings.simulate.label != "false":
        stand_in(settings)
    try:
        library = capture.load_library(settings.library_roots)
    except Refused:
        raise NoDriverError("no NVIDIA driver here: libnvidia-ml.so.1 was not found") from None
    recorder = capture.Recorder(library, clock, Pseudonyms() if pseudonyms else None)
    capture.put_below(recorder)
    began_wall_s, began_s = clock.wall_s(), clock.monotonic_s()
    session = Session(simulated=settings.simulate.label == "true", clock=clock)
    host = Host(settings, session, clock)
    reason = _watch(host, settings, clock, seconds, stop)
    if not session.versions().driver or deep_pass(session, settings, clock):
        host.close()  # not beside a call that has not come back
    lines, versions = recorder.lines(), session.versions()
    capture.put_below(library)
    if not versions.driver:
        raise NoDriverError(f"the driver does not answer: {reason or 'unknown'}")
    manifest = bundle.Manifest(
        agent=__version__,
        binding=capture.binding_version(),
        driver=versions.driver,
        nvml=versions.nvml,
        cuda=versions.cuda,
        captured_s=began_wall_s,
        seconds=clock.monotonic_s() - began_s,
        every_seconds=settings.every_seconds,
        slow_seconds=settings.slow_seconds,
        calls=len(lines),
        complete=recorder.complete,
        missing=recorder.missing,
        pseudonyms=list(FIELDS) if pseudonyms else [],
    )
    bundle.write(path, manifest, lines)
    return manifest


def _watch(host: Host, settings: HostSettings, clock: Clock, seconds: float, stop: threading.Event) -> str:
    """Let the host work; why the driver did not answer at the end, empty when it did."""
    every_s, end_s = settings.every_seconds, clock.monotonic_s() + seconds
    while True:
        frame = host.tick()
        now_s = clock.monotonic_s()
        pause_s = every_s - now_s % every_s
        if frame.leaving or now_s + pause_s > end_s or stop.wait(pause_s):
            return frame.driver.reason


def deep_pass(
    session: Session, settings: HostSettings, clock: Clock, within_s: float = DEEP_WITHIN_S
) -> bool:
    """Ask every GPU once for what the host reads slowly and for what it never reads.

    On a thread of its own and within a time: a call that hangs costs the rest of the pass, not the bundle.
    False: one does.
    """
    done = threading.Event()

    def ended(outcome: Outcome[None]) -> None:
        if outcome.error is not None:
            log.warning("not everything could be asked: %s", outcome.error)
        done.set()

    def ask() -> None:
        for device in session.enumerate().devices:
            with contextlib.suppress(DriverError):  # a GPU in trouble answers nothing; the next one may
                _ask_everything(device, settings, clock)

    Worker("deep", clock).start(ask, ended)
    in_time = done.wait(within_s)
    if not in_time:
        log.warning("a driver call hangs: the bundle lacks what would have been asked after it")
    return in_time


def _ask_everything(device: Device, settings: HostSettings, clock: Clock) -> None:
    reader = GpuReader(
        device, clock, every_seconds=settings.every_seconds, slow_seconds=settings.slow_seconds
    )
    reader.read_slow_parts()
    for function in EXTRA:
        device.ask(function)
    for kind in SAMPLE_KINDS:
        device.samples(kind, 0)
    for field in range(1, LAST_FIELD + 1):
        device.fields([(field, 0)])
