"""`clusterwatt capture`, in this process, over a simulated driver."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.config.model import Simulate
from clusterwatt.driver.frames import HostSettings
from clusterwatt.driver.recording import NoDriverError, deep_pass, record
from clusterwatt.nvml import bundle
from clusterwatt.nvml.bundle import BundleError, Manifest
from clusterwatt.nvml.session import Session
from clusterwatt.simulate.faults import Faults
from clusterwatt.simulate.gpu import simulated_uuid
from clusterwatt.simulate.nvml import SimulatedLibrary, install, uninstall

SETTINGS = HostSettings(0.1, 30.0, 2.0, 5.0, Simulate(profile="h100", gpus=2))


@pytest.fixture(autouse=True)
def binding() -> Iterator[None]:
    yield
    uninstall()


def recorded(path: Path, seconds: float = 0.5, *, pseudonyms: bool = True, stop: bool = False) -> Manifest:
    ended = threading.Event()
    if stop:
        ended.set()
    return record(path, SETTINGS, SystemClock(), seconds, pseudonyms=pseudonyms, stop=ended)


def test_a_bundle_tells_what_the_driver_said_and_where_it_comes_from(tmp_path: Path) -> None:
    manifest = recorded(tmp_path / "node.zip", pseudonyms=False)
    read = bundle.read(tmp_path / "node.zip")
    assert read.manifest == manifest
    assert (manifest.driver, manifest.every_seconds, manifest.pseudonyms) == ("590.48.01", 0.1, [])
    assert manifest.binding
    assert manifest.complete
    calls = [call.call for call in read.calls]
    assert calls[0] == "nvmlInitWithFlags"
    assert calls.count("nvmlDeviceGetMemoryInfo_v2") >= 2  # two GPUs, at least one tick
    uuids = {call.answered[1] for call in read.calls if call.call == "nvmlDeviceGetUUID"}
    assert uuids == {simulated_uuid(1, 0), simulated_uuid(1, 1)}


def test_what_is_read_seldom_and_what_is_never_read_is_asked_too(tmp_path: Path) -> None:
    recorded(tmp_path / "node.zip", 0.1)
    calls = bundle.read(tmp_path / "node.zip").calls
    seldom = [call.call for call in calls if call.call == "nvmlDeviceGetRowRemapperHistogram"]
    never = [call.call for call in calls if call.call == "nvmlDeviceGetNumGpuCores"]
    assert len(seldom) >= 2  # one for each GPU
    assert len(never) == 2
    fields = {
        field["fieldId"]
        for call in calls
        if call.call == "nvmlDeviceGetFieldValues"
        for field in call.asked[2]["memory"]
    }
    assert fields >= set(range(1, 309))


def test_a_recording_that_is_interrupted_is_written(tmp_path: Path) -> None:
    assert recorded(tmp_path / "node.zip", 3_600.0, stop=True).calls > 0
    assert bundle.read(tmp_path / "node.zip").calls


def test_without_a_driver_there_is_no_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "_LoadNvmlLibrary", missing)
    with pytest.raises(NoDriverError, match="libnvidia-ml"):
        recorded(tmp_path / "node.zip")
    assert list(tmp_path.iterdir()) == []


def test_a_driver_that_does_not_answer_is_said(tmp_path: Path) -> None:
    faults = tmp_path / "faults.json"
    faults.write_text('{"rules": [{"call": "nvmlInit*", "fail": 9}]}')
    settings = HostSettings(0.1, 30.0, 2.0, 5.0, Simulate(profile="h100", faults_file=str(faults)))
    with pytest.raises(NoDriverError, match="does not answer: not_loaded"):
        record(tmp_path / "node.zip", settings, SystemClock(), 0.1, stop=threading.Event())
    assert not (tmp_path / "node.zip").exists()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be written"):
        recorded(tmp_path / "nowhere" / "node.zip", 0.1)


def test_a_call_that_hangs_costs_the_rest_of_the_deep_pass_only() -> None:
    faults, clock = Faults(), SystemClock()
    install(SimulatedLibrary("h100", 1, 1, clock.wall_s, faults))
    session = Session(simulated=True, clock=clock)
    session.open()
    rule = faults.hang("nvmlDeviceGetNumGpuCores")
    assert not deep_pass(session, SETTINGS, clock, within_s=0.5)
    assert rule.hanging.wait(30)
    rule.release()
    assert deep_pass(session, SETTINGS, clock)
