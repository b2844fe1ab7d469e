"""What a driver answers, in a bundle and out again: below the real binding, over every simulated card."""

from __future__ import annotations

import ctypes
import json
import re
import stat
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pynvml
import pytest

from clusterwatt.config.model import Simulate
from clusterwatt.driver.frames import Frame, HostSettings
from clusterwatt.driver.host import Host
from clusterwatt.driver.recording import deep_pass
from clusterwatt.expose.render import Renderer
from clusterwatt.inventory import CATALOG
from clusterwatt.nvml import bundle, capture
from clusterwatt.nvml.bundle import Bundle, BundleError, Call, Manifest
from clusterwatt.nvml.errors import Refused
from clusterwatt.nvml.pseudonyms import Pseudonyms
from clusterwatt.nvml.session import Session
from clusterwatt.readings.base import Reading, by_type
from clusterwatt.readings.gpu import GpuProcess
from clusterwatt.readings.gpu_measured import DriverInfo, DriverUp
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.simulate.cards import cards
from clusterwatt.simulate.faults import Faults
from clusterwatt.simulate.gpu import simulated_uuid
from clusterwatt.simulate.nvml import SimulatedLibrary, uninstall
from clusterwatt.simulate.work import SlicedNode
from tests.clocks import FakeClock

SETTINGS = HostSettings(1.0, 30.0, 2.0, 5.0, Simulate())
TICKS = 16  # some quantities are read each ten seconds
UNKNOWN, LOST, NOT_SUPPORTED = 999, 15, 3
UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


@pytest.fixture(autouse=True)
def binding(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("clusterwatt.driver.events.WAIT_MS", 5)  # a host then leaves at once
    yield
    uninstall()


class Recording:
    """A simulated node whose driver host is recorded for some ticks."""

    def __init__(
        self,
        profile: str = "h100",
        gpus: int = 2,
        *,
        pseudonyms: Pseudonyms | None = None,
        ticks: int = TICKS,
        most_bytes: int = capture.MOST_BYTES,
        faults: Faults | None = None,
        mig: Sequence[str] = (),
        **options: Any,
    ) -> None:
        self.clock = FakeClock()
        library = SimulatedLibrary(profile, gpus, 1, self.clock.wall_s, faults, **options)
        if mig:
            library.configure_mig(0, mig)
        self.recorder = capture.Recorder(library, self.clock, pseudonyms, most_bytes=most_bytes)
        capture.put_below(self.recorder)
        session = Session(clock=self.clock)
        self.host = Host(SETTINGS, session, self.clock)
        self.frames = ticked(self.host, self.clock, ticks)
        deep_pass(session, SETTINGS, self.clock)
        self.host.close()

    def bundle(self) -> Bundle:
        calls = tuple(msgspec.json.decode(line, type=Call) for line in self.recorder.lines())
        return Bundle(manifest(missing=self.recorder.missing, calls=len(calls)), calls)


def manifest(**values: Any) -> Manifest:
    known: dict[str, Any] = {
        "agent": "0",
        "binding": "13",
        "captured_s": 0.0,
        "seconds": 1.0,
        "every_seconds": 1.0,
        "slow_seconds": 30.0,
        "calls": 0,
    }
    return Manifest(**(known | values))


def ticked(host: Host, clock: FakeClock, times: int) -> list[Frame]:
    frames = []
    for _ in range(times):
        frames.append(host.tick())
        clock.advance(1.0)
    return frames


def replayed(recorded: Bundle, ticks: int = TICKS) -> tuple[list[Frame], capture.Replay]:
    replay, clock = capture.Replay(recorded), FakeClock()
    capture.put_below(replay)
    host = Host(SETTINGS, Session(replayed=True, clock=clock), clock)
    frames = ticked(host, clock, ticks)
    host.close()
    return frames, replay


def page(frame: Frame, simulated: str) -> str:
    """What a frame puts on the page; the mark of a replay as given."""
    readings: list[Reading] = [
        DriverUp(up=float(frame.driver.up), gpus_visible=float(frame.gpus_visible), gpus_expected=0.0),
        DriverInfo(
            driver=frame.driver.driver, nvml=frame.driver.nvml, cuda=frame.driver.cuda, simulated=simulated
        ),
    ]
    for device in frame.devices:
        readings.extend(device.readings)
    snapshot = Snapshot(tick=1, wall_s=0.0, monotonic_s=0.0, readings=by_type(readings))
    body = Renderer(CATALOG, "full", {}, 100_000).render(snapshot, openmetrics=False).body.decode()
    return body.replace('simulated="false"', f'simulated="{simulated}"')


def identical(recorded: Iterable[Frame], again: Iterable[Frame]) -> None:
    for then, now in zip(recorded, again, strict=True):
        assert page(now, "replay").splitlines() == page(then, "replay").splitlines()
        assert [(d.uuid, d.reason, d.failures) for d in now.devices] == [
            (d.uuid, d.reason, d.failures) for d in then.devices
        ]


@pytest.mark.parametrize("profile", cards())
def test_a_replay_reproduces_the_page_of_every_card(profile: str) -> None:
    recording = Recording(profile)
    frames, replay = replayed(recording.bundle())
    assert len(page(frames[-1], "replay").splitlines()) > 100
    identical(recording.frames, frames)
    # Whether the thread that waits for events frees its set in time differs from run to run.
    assert {name for name, _ in replay.unanswered} <= {"nvmlEventSetFree"}


@pytest.mark.parametrize(("profile", "mig"), [("h100", ["3g.40gb", "1g.10gb"]), ("a100", ["1g.5gb"] * 7)])
def test_a_replay_has_the_instances_of_a_cut_board(profile: str, mig: list[str]) -> None:
    recording = Recording(profile, mig=mig, pseudonyms=Pseudonyms())
    frames, _ = replayed(recording.bundle())
    assert [device.gpu for device in frames[-1].devices] == ["0", *(f"0:{n}" for n in range(len(mig))), "1"]
    assert all(device.uuid.startswith("MIG-") for device in frames[-1].devices if device.parent_uuid)
    for then, now in zip(recording.frames, frames, strict=True):
        assert [(d.gpu, d.reason, len(d.readings)) for d in now.devices] == [
            (d.gpu, d.reason, len(d.readings)) for d in then.devices
        ]


def test_a_replay_says_that_it_is_none_of_the_living() -> None:
    frames, _ = replayed(Recording().bundle())
    assert 'simulated="replay"' in page(frames[-1], "replay")
    assert 'simulated="false"' not in page(frames[-1], "replay")


def test_errors_that_come_and_go_are_replayed() -> None:
    faults = Faults()
    faults.fail("nvmlDeviceGetMemoryInfo_v2", UNKNOWN, gpu=1, skip_calls=3, calls=4)
    faults.fail("nvmlDeviceGetFieldValues", UNKNOWN, field=83, gpu=0, skip_calls=5, calls=2)
    faults.fail("nvmlDeviceGetUtilizationRates", NOT_SUPPORTED, gpu=0)
    faults.fail("*", LOST, gpu=1, from_s=1_700_000_010.0, until_s=1_700_000_013.0)
    recording = Recording(faults=faults)
    reasons = [frame.devices[1].reason for frame in recording.frames]
    assert "lost" in reasons
    assert reasons[-1] == ""
    frames, _ = replayed(recording.bundle())
    identical(recording.frames, frames)


def test_an_old_driver_without_the_newer_functions_is_replayed() -> None:
    recording = Recording("a100", driver_version="470.82.01", cuda_version=(11, 4))
    assert recording.recorder.missing
    frames, _ = replayed(recording.bundle())
    identical(recording.frames, frames)


def test_what_is_not_in_the_bundle_is_not_supported_and_listed() -> None:
    recorded = Recording().bundle()
    _, replay = replayed(recorded)
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetPcieReplayCounter(handle)
    assert "nvmlDeviceGetPcieReplayCounter" in {name for name, _ in replay.unanswered}


def test_fields_that_are_asked_for_in_other_company_are_still_answered() -> None:
    _, _ = replayed(Recording().bundle())
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    energy, nonsense = pynvml.nvmlDeviceGetFieldValues(handle, [83, 9999])
    assert energy.nvmlReturn == 0
    assert energy.value.ullVal > 0
    assert nonsense.nvmlReturn == NOT_SUPPORTED


def test_the_last_answer_stands_when_the_recording_is_over() -> None:
    recording = Recording(ticks=TICKS)
    frames, _ = replayed(recording.bundle(), TICKS + 20)
    assert frames[-1].driver.up
    assert all(device.reason == "" and device.readings for device in frames[-1].devices)


def test_an_event_comes_once() -> None:
    asked = [{"handle": 7}, {"memory": {}}, 500]
    calls = (
        Call("nvmlEventSetCreate", 0.0, 0.0, [{"memory": None}], 0, [7]),
        Call("nvmlEventSetWait_v2", 0.0, 0.0, asked, 0, [None, {"eventType": 8, "eventData": 79}, None]),
    )
    capture.put_below(capture.Replay(Bundle(manifest(), calls)))
    event_set = pynvml.nvmlEventSetCreate()
    event = pynvml.nvmlEventSetWait_v2(event_set, 500)
    assert (event.eventType, event.eventData) == (8, 79)
    waiter = pynvml._nvmlGetFunctionPointer("nvmlEventSetWait_v2")
    assert waiter(event_set, ctypes.byref(event), ctypes.c_uint(500)) == pynvml.NVML_ERROR_TIMEOUT


def test_a_call_that_did_not_come_back_is_in_the_bundle_as_such() -> None:
    faults = Faults()
    library = SimulatedLibrary("h100", 1, 1, FakeClock().wall_s, faults)
    recorder = capture.Recorder(library, FakeClock(), None)
    capture.put_below(recorder)
    pynvml.nvmlInit()
    rule = faults.hang("nvmlDeviceGetCount_v2")
    caller = threading.Thread(target=pynvml.nvmlDeviceGetCount, daemon=True)
    caller.start()
    assert rule.hanging.wait(10)
    last = msgspec.json.decode(recorder.lines()[-1], type=Call)
    assert (last.call, last.code) == ("nvmlDeviceGetCount_v2", None)
    rule.release()
    caller.join(10)
    last = msgspec.json.decode(recorder.lines()[-1], type=Call)
    assert (last.call, last.code, last.answered) == ("nvmlDeviceGetCount_v2", 0, [1])


def test_a_recording_is_bounded_and_says_so() -> None:
    recording = Recording(most_bytes=20_000)
    assert not recording.recorder.complete
    assert sum(len(line) + 1 for line in recording.recorder.lines()) <= 20_000


# --- pseudonyms --------------------------------------------------------------------------------------


def test_no_identity_is_in_a_bundle_unless_it_is_asked_for() -> None:
    plain = Recording(pseudonyms=None)
    text = b"\n".join(plain.recorder.lines()).decode()
    serials = {call.answered[1] for call in plain.bundle().calls if call.call == "nvmlDeviceGetSerial"}
    assert simulated_uuid(1, 0) in text
    assert len(serials) == 2
    hidden = b"\n".join(Recording(pseudonyms=Pseudonyms()).recorder.lines()).decode()
    for identity in (*serials, *UUID.findall(text), "/usr/bin/python3"):
        assert identity not in hidden
    pids = re.compile(r'"pid":(\d+)')
    assert set(pids.findall(text))
    assert not set(pids.findall(text)) & set(pids.findall(hidden))


def test_what_processes_used_is_in_a_bundle_under_the_same_pseudonyms_as_their_lists() -> None:
    work = SlicedNode(1, 1)
    recording = Recording(gpus=1, work=work, pseudonyms=Pseudonyms())
    used = [call for call in recording.bundle().calls if call.call == "nvmlDeviceGetProcessUtilization"]
    assert used
    pids = {process.pid for process in work.tenant(0).processes}
    assert not pids & {
        int(pid) for call in used for pid in re.findall(r'"pid":(\d+)', repr(msgspec.json.encode(call)))
    }
    frames, _ = replayed(recording.bundle())
    found = {r.sm_ratio for r in frames[-1].devices[0].readings if isinstance(r, GpuProcess)}
    assert found == {0.6, 0.2}


def test_pseudonyms_are_stable_in_a_bundle_and_others_in_the_next() -> None:
    first, second = Recording(pseudonyms=Pseudonyms()), Recording(pseudonyms=Pseudonyms())
    uuids = [
        {call.answered[1] for call in recording.bundle().calls if call.call == "nvmlDeviceGetUUID"}
        for recording in (first, second)
    ]
    assert [len(found) for found in uuids] == [2, 2]
    assert not uuids[0] & uuids[1]
    assert all(re.fullmatch(f"GPU-{UUID.pattern}", uuid) for uuid in uuids[0])


def test_under_pseudonyms_the_page_differs_in_names_only() -> None:
    recording = Recording(pseudonyms=Pseudonyms())
    frames, _ = replayed(recording.bundle())
    nameless = re.compile(r'(uuid|serial|cluster_uuid|chassis_serial|chassis)="[^"]*"')
    then, now = (nameless.sub("", page(run[-1], "replay")) for run in (recording.frames, frames))
    assert now == then


def test_pseudonyms_keep_what_kind_of_thing_it_is() -> None:
    names = Pseudonyms()
    mig = names.text("MIG-GPU-8ee76f6e-5a3c-4f3c-8a9e-0123456789ab/1/0")
    assert re.fullmatch(rf"MIG-GPU-{UUID.pattern}/1/0", mig)
    [serial] = names.answered("nvmlDeviceGetSerial", ["1653012345678"])
    assert re.fullmatch(r"\d{13}", serial)
    assert serial != "1653012345678"
    fabric = names.answered(
        "nvmlDeviceGetGpuFabricInfoV", [{"clusterUuid": "\x01\x02\xff" * 4, "cliqueId": 7}]
    )
    assert fabric[0]["cliqueId"] == 7
    assert "\x01" not in fabric[0]["clusterUuid"]
    processes = names.answered("x", [[{"pid": 12}, {"pid": 13}, {"pid": 12}]])
    assert [entry["pid"] for entry in processes[0]] == [1_000_001, 1_000_002, 1_000_001]
    assert names.asked("nvmlSystemGetProcessName", [12, {"memory": None}]) == [1_000_001, {"memory": None}]


# --- the file ----------------------------------------------------------------------------------------

LINE = msgspec.json.encode(Call("nvmlShutdown", 1.0, 0.1, [], 0))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "node.zip"
    bundle.write(path, manifest(calls=1), [LINE])
    return path


def test_a_bundle_is_read_as_it_was_written_and_is_for_its_owner_only(written: Path) -> None:
    assert bundle.read(written) == Bundle(manifest(calls=1), (Call("nvmlShutdown", 1.0, 0.1, [], 0),))
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert list(written.parent.iterdir()) == [written]


def test_a_bundle_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be written: No such file or directory"):
        bundle.write(tmp_path / "nowhere" / "node.zip", manifest(), [])

    def lines() -> Iterator[bytes]:
        yield LINE
        raise RuntimeError

    with pytest.raises(RuntimeError):
        bundle.write(tmp_path / "node.zip", manifest(), lines())
    assert list(tmp_path.iterdir()) == []


def zipped(path: Path, **members: str | bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)
    return path


def head(**values: object) -> str:
    return json.dumps({"format": bundle.FORMAT, "version": 1, **values})


GOOD = msgspec.json.encode(manifest()).decode()
BROKEN: dict[str, tuple[Callable[[Path, bytes], object], str]] = {
    "not there": (lambda path, _: None, "cannot be read: No such file"),
    "a folder": (lambda path, _: path.mkdir(), "found a directory"),
    "cut off": (lambda path, whole: path.write_bytes(whole[: len(whole) // 2]), "its end is missing"),
    "empty": (lambda path, _: path.write_bytes(b""), "no capture bundle"),
    "a text": (lambda path, _: path.write_bytes(b"not a zip"), "no capture bundle"),
    "another zip": (lambda path, _: zipped(path, other_txt="x"), "no bundle that `clusterwatt capture`"),
    "another format": (lambda path, _: zipped(path, manifest_json=head(format="x")), "no bundle that"),
    "another JSON": (lambda path, _: zipped(path, manifest_json="[]"), "no bundle that"),
    "newer": (lambda path, _: zipped(path, manifest_json=head(version=2)), r"newer clusterwatt \(format 2"),
    "half a manifest": (lambda path, _: zipped(path, manifest_json=head()), "damaged: .*agent"),
    "no calls": (lambda path, _: zipped(path, manifest_json=GOOD), "damaged: "),
    "half a call": (lambda path, _: zipped(path, manifest_json=GOOD, calls_jsonl="{"), "damaged: "),
    "no call": (lambda path, _: zipped(path, manifest_json=GOOD, calls_jsonl="[1]"), "damaged: "),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_bundle_that_is_none_is_one_clear_line(case: str, tmp_path: Path, written: Path) -> None:
    path = tmp_path / "x.zip"
    make, text = BROKEN[case]
    make(path, written.read_bytes())
    with pytest.raises(BundleError, match=text) as raised:
        bundle.read(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


def test_a_flipped_byte_is_noticed(written: Path) -> None:
    whole = bytearray(written.read_bytes())
    whole[whole.index(b"calls.jsonl") + len(b"calls.jsonl") + 5] ^= 0xFF
    written.write_bytes(whole)
    with pytest.raises(BundleError, match="damaged"):
        bundle.read(written)


def test_a_machine_without_the_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "_LoadNvmlLibrary", missing)
    with pytest.raises(Refused, match="LIBRARY_NOT_FOUND"):
        capture.load_library()
