"""Scenarios: mistakes are told with their place; each rule has a firing and a near miss; faults show."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from clusterwatt.config.problems import ConfigError
from clusterwatt.fleet import scenario
from clusterwatt.fleet.scenario import Fault, Scenario
from clusterwatt.readings.agent import CollectorState
from clusterwatt.readings.gpu import GpuThrottle
from clusterwatt.readings.gpu_health import GpuEccErrors
from clusterwatt.readings.gpu_links import GpuNvlinkLink
from clusterwatt.readings.gpu_measured import DriverDown, DriverUp, GpuDown, GpuXid
from clusterwatt.readings.host import BlockedProcesses, ClockSync, NodeMaintenance
from clusterwatt.readings.network import RdmaPort
from clusterwatt.readings.storage import Filesystem, FilesystemProbe
from clusterwatt.readings.training import TrainingNonfinite, TrainingProgress
from clusterwatt.readings.work import AccountMonth
from clusterwatt.simulate.cluster import Cluster
from clusterwatt.simulate.market import BUDGETS
from tests.fleet.fleets import Ticking, looped, settings
from tests.machines import REPOSITORY

RULES = REPOSITORY / "agent" / "clusterwatt" / "rules" / "shipped"
GROUPS = [*(RULES / "loaded").glob("*.yaml"), *(RULES / "off").glob("*.yaml")]
SIMULATE = (REPOSITORY / "docs" / "SIMULATE.md").read_text()
WITHOUT_FAULTS = {"Watchdog"}  # fires always
WITHOUT_NEAR_MISSES = WITHOUT_FAULTS | {"NodeInMaintenance"}  # repeats what it is told


def load(text: str) -> Scenario:
    return scenario.load(text, Cluster(16, 8, 1), BUDGETS)


def played(*faults: Fault) -> Scenario:
    return Scenario(faults=faults)


def test_shipped_scenarios_are_right() -> None:
    assert len(scenario.names()) >= 10
    for name in scenario.names():
        assert load(name).faults, name


@pytest.mark.parametrize("name", scenario.names())
def test_a_shipped_scenario_says_how_many_nodes_it_needs(name: str) -> None:
    nodes = load(name).nodes
    assert scenario.load(name, Cluster(nodes, 8, 1), BUDGETS).faults
    with pytest.raises(ConfigError) as raised:
        scenario.load(name, Cluster(nodes - 1, 8, 1), BUDGETS)
    assert str(raised.value) == (
        f"{name}.yaml:2:1: nodes: expected a cluster of {nodes} nodes at least, got {nodes - 1}: "
        f"start it with --nodes {nodes}"
    )
    line = next(line for line in SIMULATE.splitlines() if line.startswith(f"| `{name}` |"))
    assert line.split(" | ")[1] == str(nodes)


def test_every_rule_has_a_firing_and_a_near_miss() -> None:
    rules = {name for file in GROUPS for name in re.findall(r"alert: (\w+)", file.read_text())}
    assert len(rules) > 40
    faults = [fault for name in scenario.names() for fault in load(name).faults if fault.rule]
    assert {fault.rule for fault in faults} <= rules
    for near_miss, without in ((False, WITHOUT_FAULTS), (True, WITHOUT_NEAR_MISSES)):
        shown = {fault.rule for fault in faults if fault.near_miss is near_miss}
        assert rules - shown == without, f"near miss: {near_miss}"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "fault: xidd, node: node-0001, gpu: 0",
            'bad.yaml:2:4: faults[0].fault: "xidd" is unknown; did you mean xid?',
        ),
        ("fault: xid, node: node-0001, gpu: 0", "bad.yaml:2:3: faults[0].code: missing: xid needs it"),
        ("fault: xid, node: node-0017, gpu: 0, code: 79", "expected node-0001 to node-0016"),
        ("fault: xid, node: node-0001, gpu: 8, code: 79", "faults[0].gpu: expected a GPU from 0 to 7"),
        ("fault: blocked, node: node-0005..node-0002", "expected the first of the nodes before the last"),
        (
            "fault: xid, node: node-0001, gpu: 0, code: 79, at: 5",
            "expected a length of time as 90s, 5m or 1h30m",
        ),
        ("fault: hang, job: nobody", "expected a job of the cluster: chat, "),
        ("fault: hang, jobs: chat", "bad.yaml:2:17: faults[0].jobs: unknown; did you mean job?"),
        ("fault: port_down, item: mlx5_0", "bad.yaml:2:3: faults[0].node: missing: port_down needs it"),
    ],
)
def test_mistakes_are_told_with_their_place(
    line: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(f"faults:\n- {{{line}}}\n")
    with pytest.raises(ConfigError) as raised:
        load("bad.yaml")
    assert expected in str(raised.value)
    assert str(raised.value).startswith("bad.yaml:2:")


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a wrong type, a wrong name, a wrong value, what is missing, and what does not fit the cluster."""
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(
        "abuot: nothing\n"
        "jobs:\n"
        "- {name: mine, node: node-0099, gpus: [0, 9]}\n"
        "- {name: other, node: node-0001, gpus: all, does: nothing}\n"
        "- {name: third, node: node-0001}\n"
        "faults:\n"
        "- {fault: xidd, at: 5, node: node-0017}\n"
        "- {fault: xid, node: node-0001, gpu: many, code: 79}\n"
        "- {fault: hang, job: mine}\n"
        "- {fault: xid, node: node-0001, gpu: 0, cod: 79}\n"
        "- nothing\n"
    )
    with pytest.raises(ConfigError) as raised:
        load("bad.yaml")
    told = [line.split(": ")[:2] for line in str(raised.value).splitlines()]
    assert told == [
        ["bad.yaml:1:1", "abuot"],
        ["bad.yaml:3:16", "jobs[0].node"],
        ["bad.yaml:3:33", "jobs[0].gpus"],
        ["bad.yaml:4:34", "jobs[1].gpus"],
        ["bad.yaml:4:45", "jobs[1].does"],
        ["bad.yaml:7:4", "faults[0].fault"],
        ["bad.yaml:7:17", "faults[0].at"],
        ["bad.yaml:7:24", "faults[0].node"],
        ["bad.yaml:8:33", "faults[1].gpu"],
        ["bad.yaml:10:41", "faults[3].cod"],
        ["bad.yaml:11:3", "faults[4]"],
    ]


def test_a_file_that_is_not_there_lists_those_that_are() -> None:
    with pytest.raises(ConfigError, match="no such file; shipped scenarios: everything, fabric, "):
        load("nothing.yaml")


@looped
async def test_faults_of_gpus_show(tmp_path: Path) -> None:
    faults = played(
        Fault("xid", "3s", node="node-0001", gpu=0, code=79),
        Fault("gpu_lost", "3s", "20s", node="node-0001", gpu=1),
        Fault("uncorrected_ecc", "3s", node="node-0001", gpu=2, amount=2),
        Fault("nvlink_down", "3s", node="node-0001", gpu=3, amount=2),
        Fault("throttled", "3s", node="node-0001", gpu=4, amount=0.5),
    )
    ticking = Ticking(settings(1), tmp_path, faults)
    node = ticking.fleet.nodes[0]
    await ticking.tick(12)
    snapshot = node.snapshot
    assert [(xid.gpu, xid.xid) for xid in snapshot.of(GpuXid)] == [("0", "79")]
    assert [(down.gpu, down.reason) for down in snapshot.of(GpuDown)] == [("1", "lost")]
    errors = {
        e.gpu: e.errors
        for e in snapshot.of(GpuEccErrors)
        if (e.type, e.window, e.location) == ("uncorrected", "volatile", "dram")
    }
    assert errors["2"] == 2
    assert errors["0"] == 0
    held = {t.gpu: t.throttle_seconds for t in snapshot.of(GpuThrottle) if t.reason == "hw_thermal"}
    assert held["4"] == pytest.approx(0.5 * 8, abs=0.6)
    assert held["5"] == 0
    await ticking.tick(30)
    links = [link.up for link in node.snapshot.of(GpuNvlinkLink) if link.gpu == "3"]
    assert links.count(0.0) == 2
    assert not node.snapshot.of(GpuDown)
    assert node.gpus_visible == 8
    await ticking.close()


def example_of_the_docs() -> Scenario:
    """The scenario that docs/SIMULATE.md shows."""
    blocks = re.findall(r"```yaml\n(.*?)```", (REPOSITORY / "docs" / "SIMULATE.md").read_text(), re.DOTALL)
    (text,) = (block for block in blocks if "fault: xid" in block)
    return msgspec.yaml.decode(text, type=Scenario)


def losses_of_everything() -> Scenario:
    """The XIDs and lost GPUs of the shipped scenario `everything`."""
    faults = load("everything").faults
    return played(*(fault for fault in faults if fault.fault in ("xid", "gpu_lost")))


@pytest.mark.parametrize("scene", [example_of_the_docs, losses_of_everything])
@looped
async def test_the_xid_of_a_gpu_that_is_lost_with_it_is_counted_and_logged_once(
    scene: Callable[[], Scenario], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made_of = msgspec.structs.replace(settings(3, gpus=3), every_s=15.0)
    ticking = Ticking(made_of, tmp_path, scene())
    await ticking.tick(11)
    snapshot = ticking.fleet.nodes[2].snapshot
    assert [(xid.gpu, xid.xid, xid.events) for xid in snapshot.of(GpuXid)] == [("2", "79", 1.0)]
    assert [(down.gpu, down.reason) for down in snapshot.of(GpuDown)] == [("2", "lost")]
    (line,) = (each for each in caplog.records if each.getMessage().startswith("XID 79 "))
    assert line.levelname == "ERROR"
    assert line.__dict__["gpu"] == "2"
    await ticking.close()


@looped
async def test_a_gpu_that_heat_holds_back_already_is_held_back_for_no_more_than_all_the_time(
    tmp_path: Path,
) -> None:
    on_all = [Fault("throttled", "2s", node="node-0001", gpu=gpu, amount=0.5) for gpu in range(8)]
    faults = played(Fault("straggler", "2s", job="pretrain-70b"), *on_all)
    ticking = Ticking(settings(1), tmp_path, faults)
    node = ticking.fleet.nodes[0]

    def held() -> dict[str, float]:
        throttled = node.snapshot.of(GpuThrottle)
        return {each.gpu: each.throttle_seconds or 0.0 for each in throttled if each.reason == "hw_thermal"}

    await ticking.tick(5)
    before, before_s = held(), node.snapshot.wall_s
    await ticking.tick(30)
    during_s = node.snapshot.wall_s - before_s
    shares = {gpu: (seconds - before[gpu]) / during_s for gpu, seconds in held().items()}
    assert max(shares.values()) <= 1.001
    assert max(shares.values()) > 0.9  # the straggler
    assert min(shares.values()) == pytest.approx(0.5, abs=0.01)
    await ticking.close()


@looped
async def test_faults_of_nodes_show_and_end(tmp_path: Path) -> None:
    faults = played(
        Fault("port_down", "2s", "20s", "node-0001", item="mlx5_3"),
        Fault("mount_hangs", "2s", "20s", "node-0001"),
        Fault("clock_unsynchronized", "2s", "20s", "node-0001"),
        Fault("maintenance", "2s", "20s", "node-0001"),
        Fault("collector_fails", "2s", "20s", "node-0001", item="hwmon"),
        Fault("disk_fills", "2s", "20s", "node-0001", item="/scratch", amount=0.97),
        Fault("budget", "2s", "20s", account="vision", amount=0.5),
    )
    ticking = Ticking(settings(1), tmp_path, faults)
    node = ticking.fleet.nodes[0]
    await ticking.tick()
    usual = {m.account: m.budget for m in node.snapshot.of(AccountMonth) if m.budget}
    await ticking.tick(20)
    snapshot = node.snapshot
    assert [port.device for port in snapshot.of(RdmaPort) if port.up == 0] == ["mlx5_3"]
    probes = {probe.mountpoint: probe.last_probe_timestamp_seconds for probe in snapshot.of(FilesystemProbe)}
    assert probes["/checkpoints"] == ticking.fleet.nodes[0].snapshot.wall_s - 18
    assert snapshot.of(BlockedProcesses)[0].oldest_age_seconds > 10
    assert snapshot.of(ClockSync)[0].synchronized == 0
    assert snapshot.of(NodeMaintenance)[0].maintenance == 1
    assert {state.collector for state in snapshot.of(CollectorState) if not state.up} == {"hwmon"}
    cut = {m.account: m.budget for m in snapshot.of(AccountMonth) if m.budget}
    assert cut["vision"] == usual["vision"] / 2
    assert cut["language"] == usual["language"]
    await ticking.tick(30)
    snapshot = node.snapshot
    scratch = next(fs for fs in snapshot.of(Filesystem) if fs.mountpoint == "/scratch")
    assert (scratch.available_bytes or 0) / (scratch.size_bytes or 1) < 0.05
    assert all(port.up for port in snapshot.of(RdmaPort))
    assert snapshot.of(NodeMaintenance)[0].maintenance == 0
    await ticking.close()


@looped
async def test_a_run_that_hangs_keeps_its_gpus_busy_at_low_power_and_makes_no_step(tmp_path: Path) -> None:
    ticking = Ticking(settings(4), tmp_path, played(Fault("hang", job="pretrain-70b", at="20s", lasts="60s")))
    await ticking.tick(9, step_s=3.0)
    node = ticking.fleet.nodes[0]
    before = node.snapshot.of(TrainingProgress)[0]
    await ticking.tick(6, step_s=3.0)
    hung = node.snapshot.of(TrainingProgress)[0]
    assert hung.step == before.step
    assert hung.last_event_timestamp_seconds == before.last_event_timestamp_seconds
    for other in ticking.fleet.nodes:
        for gpu in other.library.gpus:
            assert gpu.power_w(ticking.clock.wall_s()) < 0.3 * gpu.power_limit_w
            assert gpu.signals.busy.at(ticking.clock.wall_s()) == 1.0
    await ticking.tick(16, step_s=3.0)
    assert (node.snapshot.of(TrainingProgress)[0].step or 0) > (hung.step or 0)
    await ticking.close()


@looped
async def test_a_straggler_slows_all_and_only_it_is_hot(tmp_path: Path) -> None:
    ticking = Ticking(settings(4), tmp_path, played(Fault("straggler", job="pretrain-70b", at="60s")))
    await ticking.tick(3)
    node = ticking.fleet.nodes[0]
    usual_s = node.snapshot.of(TrainingProgress)[0].step_duration_seconds
    await ticking.tick(4, step_s=60.0)
    slow_s = node.snapshot.of(TrainingProgress)[0].step_duration_seconds
    assert usual_s is not None
    assert slow_s is not None
    assert slow_s > 1.25 * usual_s
    now_s = ticking.clock.wall_s()
    clocks = {
        (n.name, gpu.board): gpu.clocks(now_s).sm for n in ticking.fleet.nodes for gpu in n.library.gpus
    }
    assert [place for place, clock in clocks.items() if clock < 1_500] == [("node-0001", 0)]
    assert node.library.gpus[0].temperature_c(now_s) > node.library.gpus[1].temperature_c(now_s) + 5
    await ticking.close()


@looped
async def test_a_loss_that_is_not_finite_is_counted_and_not_shown(tmp_path: Path) -> None:
    ticking = Ticking(settings(4), tmp_path, played(Fault("loss_not_finite", job="pretrain-70b", at="5s")))
    await ticking.tick(2)
    node = ticking.fleet.nodes[0]
    assert {n.nonfinite for n in node.snapshot.of(TrainingNonfinite)} == {0.0}
    await ticking.tick(7, step_s=3.0)
    assert all(n.nonfinite > 3 for n in node.snapshot.of(TrainingNonfinite))
    assert node.snapshot.of(TrainingProgress)[0].gradient_norm is None
    await ticking.close()


@looped
async def test_a_driver_that_goes_down_comes_back(tmp_path: Path) -> None:
    ticking = Ticking(
        settings(1), tmp_path, played(Fault("driver_down", node="node-0001", at="3s", lasts="10s"))
    )
    node = ticking.fleet.nodes[0]
    await ticking.tick(10)
    assert [down.reason for down in node.snapshot.of(DriverDown)] == ["not_loaded"]
    await ticking.tick(30)
    assert node.snapshot.of(DriverUp)[0].gpus_visible == 8
    await ticking.close()
