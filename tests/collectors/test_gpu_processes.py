"""Process lists of simulated cards: how many there are, and what of a list is not believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.collectors.gpu_mig import Instances
from clusterwatt.collectors.gpu_processes import ProcessLists, SmUse
from clusterwatt.inventory import CATALOG
from clusterwatt.node_pids import NodePids
from clusterwatt.nvml.device import PROCESSES_AT_ONCE, Device
from clusterwatt.nvml.values import Process, ProcessSample
from clusterwatt.readings.gpu import GpuProcess, GpuProcesses, HostReading
from clusterwatt.simulate.gpu import ProcessEntry
from clusterwatt.simulate.work import Flat
from tests.collectors.gpus import Everywhere, Watch
from tests.machines import put
from tests.nvml.drivers import Bench
from tests.test_node_pids import KTHREADD

GIB = 1024**3
SHUFFLED = [(4101, 2147483648), (0, 4102), (1073741824, 4294967295), (4103, 9007199254740992)]
V3, V2 = "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"


def held(bench: Bench, *entries: ProcessEntry) -> Device:
    """A GPU that lists these."""
    bench.library.gpu(0).listed = entries
    return bench.device()


def node(root: Path, *pids: int) -> NodePids:
    """A host with these processes."""
    put(root, "/proc/2/stat", KTHREADD)
    for pid in pids:
        put(root, f"/proc/{pid}/stat", f"{pid} (python3) R\n")
    return NodePids(str(root))


def lists_of(
    bench: Bench, device: Device, pids: NodePids | None = None, *, whole: bool = True
) -> ProcessLists:
    return ProcessLists(device, pids, bench.clock, whole=whole)


def counted(lists: ProcessLists, kind: str = "compute") -> list[float]:
    return [reading.processes for reading in lists.read(kind) if isinstance(reading, GpuProcesses)]


def named(lists: ProcessLists, kind: str = "compute") -> list[GpuProcess]:
    return [reading for reading in lists.read(kind) if isinstance(reading, GpuProcess)]


def reasons(device: Device) -> list[str]:
    return [failure.reason for failure in device.take_failures()]


def test_each_kind_is_counted_apart() -> None:
    bench = Bench().open()
    device = held(
        bench,
        ProcessEntry(11, GIB),
        ProcessEntry(12, GIB),
        ProcessEntry(13, GIB, kind="graphics"),
        *(ProcessEntry(pid, GIB, kind="mps") for pid in (14, 15, 16)),
    )
    lists = lists_of(bench, device)
    found = [reading for kind in ("compute", "graphics", "mps") for reading in lists.read(kind)]
    assert [reading for reading in found if isinstance(reading, GpuProcesses)] == [
        GpuProcesses("0", device.uuid, "compute", 2.0),
        GpuProcesses("0", device.uuid, "graphics", 1.0),
        GpuProcesses("0", device.uuid, "mps", 3.0),
    ]


def test_a_gpu_that_nobody_holds_has_zero() -> None:
    bench = Bench().open()
    assert counted(lists_of(bench, held(bench))) == [0.0]


def test_a_list_costs_one_call_and_one_longer_than_the_buffer_is_whole() -> None:
    bench = Bench("t4").open()
    many = [ProcessEntry(100 + place, 0) for place in range(3 * PROCESSES_AT_ONCE)]
    lists = lists_of(bench, held(bench, *many))
    assert counted(lists) == [float(len(many))]
    asked = bench.library.calls[V3]
    assert counted(lists) == [float(len(many))]
    assert bench.library.calls[V3] == asked + 1


def test_a_driver_before_r510_has_the_older_form_of_the_call() -> None:
    bench = Bench("t4", driver_version="470.57.02").open()
    assert counted(lists_of(bench, held(bench, ProcessEntry(11, GIB)))) == [1.0]
    assert bench.library.calls[V2] == 1


@pytest.mark.parametrize("code", [3, 4, 6, 999])
def test_a_list_that_is_refused_is_not_empty(code: int) -> None:
    bench = Bench().open()
    for call in (V3, V2):
        bench.faults.fail(call, code)
    assert counted(lists_of(bench, held(bench, ProcessEntry(11, GIB)))) == []


def test_g28_a_process_whose_memory_is_not_told_is_counted() -> None:
    bench = Bench().open()
    device = held(bench, ProcessEntry(79, None), ProcessEntry(80, 536870912))
    lists = lists_of(bench, device)
    listed = lists.listed("compute")
    assert listed == [Process(79, None, None, None), Process(80, 536870912, None, None)]
    assert counted(lists) == [2.0]
    assert reasons(device) == []


def test_g29_of_a_shuffled_list_only_what_can_be_is_believed(tmp_path: Path) -> None:
    bench = Bench("rtx4080", driver_version="535.54.03").open()
    bench.faults.change("nvmlDeviceGetMemoryInfo_v2", {"total": 25769803776})
    device = held(bench, *(ProcessEntry(pid, used) for pid, used in SHUFFLED))
    listed = lists_of(bench, device, node(tmp_path, 4101, 4103)).listed("compute")
    assert listed == [Process(4101, 2147483648, None, None), Process(4103, None, None, None)]
    failures = device.take_failures()
    assert [failure.reason for failure in failures] == ["inconsistent_list"] * 3
    assert not any(
        str(pid) in failure.detail for failure in failures for pid, _ in SHUFFLED[:1] + SHUFFLED[2:]
    )


def test_g29_a_shuffled_list_leaves_the_memory_of_the_gpu_alone(tmp_path: Path) -> None:
    bench = Bench("rtx4080", driver_version="535.54.03").open()
    watch = Watch(bench, pids=node(tmp_path, 4101, 4103))
    bench.library.gpu(0).listed = []
    right = watch.page()
    bench.library.gpu(0).listed = [ProcessEntry(pid, used) for pid, used in SHUFFLED]
    watch.tick(60)
    shown = watch.page()
    assert shown["gpu_processes", ("compute",)] == 2.0
    assert {failure.reason for failure in watch.failures} == {"inconsistent_list"}
    for family in ("gpu_memory_used_bytes", "gpu_memory_total_bytes"):
        assert shown[family, ()] == right[family, ()]


def test_g08_without_the_hosts_pids_processes_are_counted_by_the_drivers_word(tmp_path: Path) -> None:
    """Here 17 is the agent and 31007 nobody: what /proc shows is no reason to drop either."""
    put(tmp_path, "/proc/17/stat", "17 (agent) S\n")
    bench = Bench().open()
    device = held(bench, ProcessEntry(17, GIB), ProcessEntry(31007, 4 * GIB))
    assert counted(lists_of(bench, device, NodePids(str(tmp_path)))) == [2.0]
    assert reasons(device) == []


def test_g08_without_the_hosts_pids_an_empty_list_says_nothing(tmp_path: Path) -> None:
    bench = Bench().open()
    device = held(bench)
    assert counted(lists_of(bench, device, NodePids(str(tmp_path)))) == []
    assert counted(lists_of(bench, device, node(tmp_path))) == [0.0]


def test_a_board_in_mig_mode_has_the_processes_of_its_instances_only() -> None:
    bench = Bench("a100").open()
    lists = lists_of(bench, bench.device())
    assert counted(lists) == [1.0]
    bench.library.configure_mig(0, ["3g.20gb", "1g.5gb"])
    board = bench.device()
    board.ask_anew()
    assert counted(lists_of(bench, board)) == []
    for slot, made in enumerate(bench.library.gpu(0).mig_devices):
        handle = board.ask("nvmlDeviceGetMigDeviceHandleByIndex", slot)
        instance = lists_of(bench, board.instance(made.uuid, handle), whole=False)
        listed = instance.listed("compute")
        assert listed is not None
        assert {entry.gpu_instance for entry in listed} <= {made.instance}
        assert counted(instance) == [float(len(made.processes(bench.clock.wall_s())))]


# --- which they are ----------------------------------------------------------------------------------


def test_each_process_is_named_with_its_memory_and_the_time_of_the_list() -> None:
    bench = Bench().open()
    device = held(
        bench,
        ProcessEntry(11, GIB, sm_share=0.0),
        ProcessEntry(12, None, sm_share=0.0),
        ProcessEntry(13, 7, kind="graphics", sm_share=0.0),
    )
    lists, now_s = lists_of(bench, device), bench.clock.monotonic_s()
    assert named(lists) == [
        GpuProcess("0", device.uuid, 11, "compute", float(GIB), None, now_s),
        GpuProcess("0", device.uuid, 12, "compute", None, None, now_s),
    ]
    assert [(each.pid, each.used_bytes) for each in named(lists, "graphics")] == [(13, 7.0)]


def test_g02_a_process_that_has_ended_is_not_named_again() -> None:
    bench = Bench().open()
    watch = Watch(bench)
    bench.library.gpu(0).listed = [ProcessEntry(4101, 2 * GIB), ProcessEntry(4102, GIB)]
    assert pids_of(watch.tick()) == [4101, 4102]
    bench.library.gpu(0).listed = [ProcessEntry(4102, GIB)]
    assert pids_of(watch.tick(11)) == [4102]


def pids_of(readings: list[HostReading]) -> list[int]:
    return [reading.pid for reading in readings if isinstance(reading, GpuProcess)]


def test_lists_are_some_seconds_old_at_most() -> None:
    bench = Bench().open()
    watch = Watch(bench)
    for _ in range(60):
        listed = [each.listed_s for each in watch.tick() if isinstance(each, GpuProcess)]
        assert listed
        assert bench.clock.monotonic_s() - min(listed) <= 10.0


def test_processes_of_an_instance_are_named_on_the_instance() -> None:
    bench = Bench("h100").open()
    bench.library.configure_mig(0, ["3g.40gb", "2g.20gb"])
    board = bench.device()
    instances = Instances(board, bench.clock, every_seconds=1.0, slow_seconds=30.0)
    instances.look()
    found = {
        reading.uuid: (reading.gpu, reading.pid, reading.sm_ratio)
        for passed in instances.read()
        for group in passed.groups
        for reading in group
        if isinstance(reading, GpuProcess)
    }
    first, second = bench.library.gpu(0).mig_devices
    now_s = bench.clock.wall_s()
    assert found == {
        first.uuid: ("0:0", first.processes(now_s)[0].pid, None),
        second.uuid: ("0:1", second.processes(now_s)[0].pid, None),
    }


# --- what they use -----------------------------------------------------------------------------------

USE = "nvmlDeviceGetProcessUtilization"


def shared(bench: Bench, *shares: float) -> Device:
    """A GPU that always works, with processes from 501 on that have these shares of its SMs."""
    device = held(bench, *(ProcessEntry(501 + n, GIB, sm_share=share) for n, share in enumerate(shares)))
    bench.library.gpu(0).occupy(Everywhere(Flat(1.0)).tenant(0), bench.clock.wall_s())
    bench.clock.advance(30.0)
    return device


def ratios(lists: ProcessLists, kind: str = "compute") -> dict[int, float | None]:
    return {each.pid: each.sm_ratio for each in named(lists, kind)}


def test_g03_processes_that_share_a_gpu_have_their_share_of_the_sms() -> None:
    bench = Bench().open()
    assert ratios(lists_of(bench, shared(bench, 0.6, 0.2))) == {501: 0.6, 502: 0.2}


def test_a_process_beside_which_others_worked_has_used_nothing() -> None:
    bench = Bench().open()
    assert ratios(lists_of(bench, shared(bench, 0.6, 0.0))) == {501: 0.6, 502: 0.0}


def test_what_a_process_used_costs_one_call_and_only_where_processes_share_a_gpu() -> None:
    bench = Bench().open()
    alone = lists_of(bench, shared(bench, 0.6))
    assert ratios(alone) == {501: None}
    assert bench.library.calls[USE] == 0
    together = lists_of(bench, shared(bench, 0.6, 0.2))
    assert None not in ratios(together).values()
    assert bench.library.calls[USE] == 1


def test_one_process_in_two_lists_does_not_share_with_itself() -> None:
    bench = Bench().open()
    device = held(bench, ProcessEntry(11, GIB), ProcessEntry(11, GIB, kind="graphics"))
    lists = lists_of(bench, device)
    assert ratios(lists) == {11: None}
    assert ratios(lists, "graphics") == {11: None}
    assert bench.library.calls[USE] == 0


def test_a_reading_stands_for_the_time_since_the_last() -> None:
    bench = Bench().open()
    device = shared(bench, 0.6, 0.2)
    lists = lists_of(bench, device)
    ratios(lists)
    bench.library.gpu(0).listed = [ProcessEntry(501, GIB, sm_share=0.0), ProcessEntry(502, GIB, sm_share=0.5)]
    bench.clock.advance(5.0)
    assert ratios(lists) == {501: 0.0, 502: 0.5}


@pytest.mark.parametrize("code", [3, 4, 6, 13, 999])
def test_without_samples_the_use_is_not_known(code: int) -> None:
    bench = Bench().open()
    bench.faults.fail(USE, code)
    assert ratios(lists_of(bench, shared(bench, 0.6, 0.2))) == {501: None, 502: None}


def test_the_use_of_a_gpu_at_rest_is_not_known_and_comes_back() -> None:
    bench = Bench().open()
    device = held(bench, ProcessEntry(501, GIB), ProcessEntry(502, GIB))
    bench.library.gpu(0).occupy(Everywhere(Flat(0.0)).tenant(0), bench.clock.wall_s())
    bench.clock.advance(60.0)
    lists = lists_of(bench, device)
    assert ratios(lists) == {501: None, 502: None}
    bench.library.gpu(0).occupy(Everywhere(Flat(1.0)).tenant(0), bench.clock.wall_s())
    bench.clock.advance(10.0)
    assert set(ratios(lists).values()) == {1.0}


def sampled(monkeypatch: pytest.MonkeyPatch, *samples: ProcessSample) -> object:
    """What is made of these answers of a driver."""
    device = Bench().open().device()
    monkeypatch.setattr(device, "process_samples", lambda _: samples or None)
    return SmUse(device).ratios()


def test_the_mean_is_over_all_periods_not_over_those_in_which_a_process_worked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    always = [ProcessSample(501, 1_000_000 * second, 60) for second in range(1, 11)]
    once = ProcessSample(502, 1_000_000, 60)
    assert sampled(monkeypatch, *always, once) == {501: pytest.approx(0.6), 502: pytest.approx(0.06)}


def test_a_driver_that_has_one_sample_of_each_process_at_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert sampled(monkeypatch, ProcessSample(501, 7, 60), ProcessSample(502, 9, 20)) == {501: 0.6, 502: 0.2}


def test_samples_that_cannot_be_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = (ProcessSample(0, 7, 60), ProcessSample(502, 8, 4_294_967_295))
    assert sampled(monkeypatch, ProcessSample(501, 7, 60), *odd) == {501: 0.6}
    assert sampled(monkeypatch, *odd) is None


def test_more_samples_than_the_buffer_holds_are_read_whole() -> None:
    bench = Bench().open()
    device = shared(bench, *[0.01] * 60)
    assert len(ratios(lists_of(bench, device))) == 60
    assert set(ratios(lists_of(bench, device)).values()) == {0.01}


# --- who is told -------------------------------------------------------------------------------------


def test_no_series_is_made_of_what_names_a_process() -> None:
    assert not [metric.name for metric in CATALOG if metric.reading is GpuProcess]
    assert not [metric.name for metric in CATALOG if "pid" in metric.labels]
