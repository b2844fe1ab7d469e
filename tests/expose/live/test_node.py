from __future__ import annotations

import json
import os

from clusterwatt.expose.history import History
from clusterwatt.expose.live.node import NodeView, as_json, node_view
from clusterwatt.readings.agent import BuildInfo, CollectorErrors, CollectorState
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import (
    GpuClock,
    GpuClockMax,
    GpuInfo,
    GpuMemory,
    GpuPerformanceState,
    GpuPower,
    GpuPowerLimit,
    GpuTemperature,
    GpuTemperatureMargin,
    GpuThrottle,
    GpuUse,
)
from clusterwatt.readings.gpu_health import GpuRecoveryAction, GpuRowRemap
from clusterwatt.readings.gpu_measured import DriverDown, DriverInfo, DriverUp, GpuDown, GpuUp
from clusterwatt.readings.host import BlockedProcesses, Boot, Load, Memory
from clusterwatt.readings.network import Network, RdmaPort, RdmaPortExpectation, RdmaPortInfo
from clusterwatt.readings.storage import Disk, DiskInfo, Filesystem, FilesystemProbe, MdArray
from tests.expose.sites import snapshot


def view(*readings: Reading, ticks: int = 1) -> NodeView:
    history = History()
    for tick in range(1, ticks + 1):
        made = snapshot(2 * tick, *readings)
        history.append(made)
    return node_view("gpu-node-17", made, history.curves())


def info(gpu: str, uuid: str, mig_profile: str = "") -> GpuInfo:
    return GpuInfo(
        gpu, uuid, "NVIDIA H100", "hopper", "0000:1b:00.0", gpu, "1", "96", "", mig_profile, "false"
    )


def test_a_gpu_is_put_together_by_uuid() -> None:
    gpu, other = view(
        info("0", "A"),
        info("1", "B"),
        GpuUp("0", "A", 1.0),
        GpuUp("1", "B", 1.0),
        GpuUse("1", "B", 0.9),
        GpuUse("0", "A", 0.1),
        GpuPower("0", "A", "gpu", "average", 651.0),
        GpuPower("0", "A", "gpu", "instant", 700.0),
        GpuPowerLimit("0", "A", "enforced", 700.0),
        GpuPowerLimit("0", "A", "max", 750.0),
        GpuMemory("0", "A", total_bytes=80e9, used_bytes=70e9),
        GpuTemperature("0", "A", "core", 61.0),
        GpuTemperature("0", "A", "memory", 72.0),
        GpuTemperatureMargin("0", "A", 26.0),
        GpuClock("0", "A", "memory", 2.6e9),
        GpuClock("0", "A", "sm", 1.98e9),
        GpuClockMax("0", "A", "sm", 1.99e9),
        GpuPerformanceState("0", "A", 0.0),
    ).gpus
    assert (gpu.gpu, gpu.uuid, gpu.name, gpu.up, gpu.down_reason) == ("0", "A", "NVIDIA H100", True, "")
    assert (gpu.utilization_ratio, gpu.power_watts, gpu.power_limit_watts) == (0.1, 651.0, 700.0)
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (70e9, 80e9)
    assert (gpu.temperature_celsius, gpu.memory_temperature_celsius, gpu.temperature_margin_celsius) == (
        61,
        72,
        26,
    )
    assert (gpu.clock_hertz, gpu.clock_max_hertz, gpu.performance_state) == (1.98e9, 1.99e9, 0.0)
    assert gpu.curves["power_watts"] == (651.0,)
    assert (other.uuid, other.utilization_ratio, other.power_watts) == ("B", 0.9, None)


def test_gpus_stand_in_the_order_of_their_numbers() -> None:
    gpus = view(*(info(gpu, f"U{gpu}") for gpu in ("10", "2", "3:1", "3", "3:0"))).gpus
    assert [gpu.gpu for gpu in gpus] == ["2", "3", "3:0", "3:1", "10"]


def test_a_lost_gpu_stays_with_its_reason_and_asks_for_attention() -> None:
    node = view(
        DriverUp(1.0, 1.0, 2.0),
        GpuUp("0", "A", 1.0),
        GpuUse("0", "A", 0.5),
        GpuUp("1", "B", 0.0),
        GpuDown("1", "B", "reset_required"),
    )
    lost = node.gpus[1]
    assert (lost.up, lost.down_reason, lost.utilization_ratio, dict(lost.curves)) == (
        False,
        "reset_required",
        None,
        {},
    )
    assert node.attention == ("GPU 1 does not answer: reset required", "1 of 2 GPUs are visible")


def test_the_driver() -> None:
    node = view(DriverUp(1.0, 8.0, 8.0), DriverInfo("570.86.15", "12.570", "12.8", "true"))
    assert (node.driver.up, node.driver.driver, node.driver.cuda, node.driver.simulated) == (
        True,
        "570.86.15",
        "12.8",
        True,
    )
    assert node.attention == ()
    node = view(DriverUp(0.0, 0.0, 0.0), DriverDown("version_mismatch"))
    assert (node.driver.up, node.driver.reason) == (False, "version_mismatch")
    assert node.attention == ("The NVIDIA driver does not answer: version mismatch",)


def test_a_node_without_gpu_part_has_no_driver_and_nothing_to_look_at() -> None:
    node = view(Boot(1_699_999_002.0), BuildInfo("1.2.3", "abc", "3.11"))
    assert (node.driver.up, node.gpus, node.attention) == (None, (), ())
    assert (node.node, node.version, node.uptime_seconds) == ("gpu-node-17", "1.2.3", 1000.0)


def test_a_hot_gpu_asks_for_attention() -> None:
    assert view(info("0", "A"), GpuTemperatureMargin("0", "A", 3.0)).attention == (
        "GPU 0 is within 5 °C of its thermal slowdown",
    )
    assert view(info("0", "A"), GpuTemperatureMargin("0", "A", 20.0)).attention == ()


def test_what_holds_a_gpu_down_and_what_it_needs() -> None:
    node = view(
        *(info(gpu, f"U{gpu}") for gpu in "0123"),
        GpuThrottle("0", "U0", "idle", 0.0, 5.0, 1.0),
        GpuThrottle("1", "U1", "sw_power_cap", 0.0, 5.0, 1.0),
        GpuThrottle("1", "U1", "hw_thermal", 0.0, 5.0, 0.0),
        GpuThrottle("2", "U2", "hw_thermal", 0.0, 5.0, 1.0),
        GpuRecoveryAction("2", "U2", "none", 0.0),
        GpuRecoveryAction("2", "U2", "gpu_reset", 1.0),
        GpuRecoveryAction("0", "U0", "none", 1.0),
        GpuRowRemap("3", "U3", 1.0, 0.0),
        GpuRowRemap("0", "U0", 0.0, 0.0),
    )
    assert [gpu.slowed_by for gpu in node.gpus] == [(), ("sw_power_cap",), ("hw_thermal",), ()]
    assert node.attention == (
        "GPU 2 needs: gpu reset",
        "GPU 2 is slowed down: hw thermal",
        "GPU 3 needs: reset to remap a row",
    )


def test_ports_have_rates_and_a_port_that_should_be_up_asks_for_attention() -> None:
    node = view(
        Network(
            "eth0",
            "physical",
            receive_bytes=1e6,
            transmit_bytes=0.0,
            up=1.0,
            link_rate_bytes_per_second=12.5e9,
        ),
        Network("veth1", "virtual", receive_bytes=1e6),
        RdmaPort("mlx5_0", "1", receive_bytes=5.0, up=1.0),
        RdmaPort("mlx5_1", "1", up=0.0),
        RdmaPort("mlx5_2", "1", up=0.0),
        RdmaPortExpectation("mlx5_0", "1", 1.0),
        RdmaPortExpectation("mlx5_1", "1", 1.0),
        RdmaPortExpectation("mlx5_2", "1", 0.0),
        RdmaPortInfo("mlx5_0", "1", "InfiniBand", "ib0", "0", "28.39"),
        ticks=2,
    )
    (eth,) = node.network
    assert (eth.name, eth.detail, eth.up, eth.receive_bytes_per_second) == ("eth0", "physical", True, 0.0)
    assert [port.name for port in node.rdma] == ["mlx5_0/1", "mlx5_1/1", "mlx5_2/1"]
    assert node.rdma[0].detail == "InfiniBand · ib0"
    assert node.rdma[0].transmit_bytes_per_second is None
    assert node.attention == ("RDMA port mlx5_1/1 is down",)


def test_storage() -> None:
    node = view(
        Disk("nvme0n1", *[0.0] * 9),
        DiskInfo("nvme0n1", "SAMSUNG", "nvme"),
        MdArray("md0", 1.0),
        MdArray("md1", 0.0),
        Filesystem("/", "ext4", size_bytes=100.0, available_bytes=45.0, free_bytes=50.0, readonly=0.0),
        Filesystem("/full", "xfs", size_bytes=100.0, available_bytes=1.0, free_bytes=1.0),
        Filesystem("/image", "squashfs", size_bytes=100.0, available_bytes=0.0, free_bytes=0.0, readonly=1.0),
        FilesystemProbe("/", "ext4", 1_700_000_000.0, 0.1),
        FilesystemProbe("/scratch", "lustre", 1_699_999_902.0, 5.0),
    )
    assert [(disk.name, disk.detail, disk.missing_members) for disk in node.disks] == [
        ("nvme0n1", "nvme · SAMSUNG", 0.0),
        ("md0", "RAID array", 1.0),
    ]
    root = node.filesystems[0]
    assert root.used_ratio is not None
    assert abs(root.used_ratio - 50 / 95) < 1e-9  # as df counts: what root keeps back is nobody's
    assert [mount.mountpoint for mount in node.filesystems] == ["/", "/full", "/image", "/scratch"]
    assert node.attention == (
        "RAID array md0: members missing: 1",
        "/full is 99% full",
        "/scratch does not answer",
    )


def test_g19_names_that_are_not_unicode_reach_the_page() -> None:
    made = as_json(
        view(Filesystem(os.fsdecode(b'/\xffdata "x"'), "ext4", size_bytes=1.0), GpuUse("0", "A", 0.5))
    )
    node = json.loads(made)
    assert node["filesystems"][0]["mountpoint"] == '/\ufffddata "x"'
    assert node["gpus"][0]["curves"] == {"utilization_ratio": [0.5]}


def test_the_host() -> None:
    host = view(
        Memory(total_bytes=100.0, available_bytes=60.0), Load(load1=3.5), BlockedProcesses(2.0, 30.0)
    ).host
    assert (host.memory_total_bytes, host.memory_available_bytes, host.load1) == (100.0, 60.0, 3.5)
    assert (host.blocked_processes, host.cpus, host.cpu_busy_ratio) == (2.0, None, None)


def test_collectors_that_are_not_well_say_why() -> None:
    node = view(
        CollectorState("gpu", 1.0, 0.5, 0.0),
        CollectorState("rdma", 0.0, 42.0, 40.0),
        CollectorErrors("rdma", "timeout", 3.0),
        CollectorErrors("rdma", "permission", 0.0),
        CollectorErrors("gpu", "lost", 1.0),
    )
    assert node.collectors == 2
    (rdma,) = node.unwell_collectors
    assert (rdma.name, rdma.age_seconds, rdma.stuck_seconds, rdma.reasons) == (
        "rdma",
        42.0,
        40.0,
        ("timeout",),
    )
    assert node.attention == ("Collector rdma gives nothing new",)
