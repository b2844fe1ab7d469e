"""Process lists of simulated cards: how many there are, and what of a list is not believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.collectors.gpu_processes import ProcessLists
from clusterwatt.node_pids import NodePids
from clusterwatt.nvml.session import PROCESSES_AT_ONCE, Device
from clusterwatt.nvml.values import Process
from clusterwatt.readings.gpu import GpuProcesses
from clusterwatt.simulate.gpu import ProcessEntry
from tests.collectors.gpus import Watch
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


def counted(lists: ProcessLists, kind: str = "compute") -> list[float]:
    return [reading.processes for reading in lists.count(kind)]


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
    lists = ProcessLists(device, None)
    found = [reading for kind in ("compute", "graphics", "mps") for reading in lists.count(kind)]
    assert found == [
        GpuProcesses("0", device.uuid, "compute", 2.0),
        GpuProcesses("0", device.uuid, "graphics", 1.0),
        GpuProcesses("0", device.uuid, "mps", 3.0),
    ]


def test_a_gpu_that_nobody_holds_has_zero() -> None:
    assert counted(ProcessLists(held(Bench().open()), None)) == [0.0]


def test_a_list_costs_one_call_and_one_longer_than_the_buffer_is_whole() -> None:
    bench = Bench("t4").open()
    many = [ProcessEntry(100 + place, 0) for place in range(3 * PROCESSES_AT_ONCE)]
    lists = ProcessLists(held(bench, *many), None)
    assert counted(lists) == [float(len(many))]
    asked = bench.library.calls[V3]
    assert counted(lists) == [float(len(many))]
    assert bench.library.calls[V3] == asked + 1


def test_a_driver_before_r510_has_the_older_form_of_the_call() -> None:
    bench = Bench("t4", driver_version="470.57.02").open()
    assert counted(ProcessLists(held(bench, ProcessEntry(11, GIB)), None)) == [1.0]
    assert bench.library.calls[V2] == 1


@pytest.mark.parametrize("code", [3, 4, 6, 999])
def test_a_list_that_is_refused_is_not_empty(code: int) -> None:
    bench = Bench().open()
    for call in (V3, V2):
        bench.faults.fail(call, code)
    assert counted(ProcessLists(held(bench, ProcessEntry(11, GIB)), None)) == []


def test_g28_a_process_whose_memory_is_not_told_is_counted() -> None:
    bench = Bench().open()
    device = held(bench, ProcessEntry(79, None), ProcessEntry(80, 536870912))
    lists = ProcessLists(device, None)
    listed = lists.listed("compute")
    assert listed == [Process(79, None, None, None), Process(80, 536870912, None, None)]
    assert counted(lists) == [2.0]
    assert reasons(device) == []


def test_g29_of_a_shuffled_list_only_what_can_be_is_believed(tmp_path: Path) -> None:
    bench = Bench("rtx4080", driver_version="535.54.03").open()
    bench.faults.change("nvmlDeviceGetMemoryInfo_v2", {"total": 25769803776})
    device = held(bench, *(ProcessEntry(pid, used) for pid, used in SHUFFLED))
    listed = ProcessLists(device, node(tmp_path, 4101, 4103)).listed("compute")
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
    device = held(Bench().open(), ProcessEntry(17, GIB), ProcessEntry(31007, 4 * GIB))
    assert counted(ProcessLists(device, NodePids(str(tmp_path)))) == [2.0]
    assert reasons(device) == []


def test_g08_without_the_hosts_pids_an_empty_list_says_nothing(tmp_path: Path) -> None:
    device = held(Bench().open())
    assert counted(ProcessLists(device, NodePids(str(tmp_path)))) == []
    assert counted(ProcessLists(device, node(tmp_path))) == [0.0]


def test_a_board_in_mig_mode_has_the_processes_of_its_instances_only() -> None:
    bench = Bench("a100").open()
    lists = ProcessLists(bench.device(), None)
    assert counted(lists) == [1.0]
    bench.library.configure_mig(0, ["3g.20gb", "1g.5gb"])
    board = bench.device()
    board.ask_anew()
    assert counted(ProcessLists(board, None)) == []
    for slot, made in enumerate(bench.library.gpu(0).mig_devices):
        handle = board.ask("nvmlDeviceGetMigDeviceHandleByIndex", slot)
        instance = ProcessLists(board.instance(made.uuid, handle), None, whole=False)
        listed = instance.listed("compute")
        assert listed is not None
        assert {entry.gpu_instance for entry in listed} <= {made.instance}
        assert counted(instance) == [float(len(made.processes(bench.clock.wall_s())))]
