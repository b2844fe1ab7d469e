"""Every alert from its fault to the message; opt-in: `pytest -m scale tests/e2e/test_every_alert.py`.

`every-alert.yaml` is played on a simulated cluster, `every-alert-overrides.yaml` shortens all that a rule
waits for, and each alert has to reach its receiver with the labels of its fault, its owner and its runbook.
What an inhibition is to hold back has to be known to Alertmanager and told to nobody.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e import alerting, servers
from tests.rules.known import alerts

pytestmark = pytest.mark.e2e

Key = tuple[str, str]  # name and severity of a rule

HERE = Path(__file__).parent
NODES = 12
SPEED = 30  # of the cluster in which the agent itself has to look on for ten minutes
WITHIN_S = 420.0

# What tells the alert of each fault from others of its name. `user` may stand in the description: rules that
# name only the job ask for its owner.
EXPECTED: Mapping[Key, Mapping[str, str]] = {
    ("GpuAllocatedIdle", "warning"): {"instance": "node-0001", "gpu": "0", "user": "eve"},
    ("GpuAllocatedIdleLong", "critical"): {"instance": "node-0001", "gpu": "2", "user": "grace"},
    ("JobLowGpuUtilization", "warning"): {"user": "tomo"},
    ("JobPartlyIdle", "warning"): {"user": "kofi"},
    ("GpuBusyWithoutAllocation", "warning"): {"instance": "node-0010", "gpu": "4"},
    ("TrainingStalled", "critical"): {"user": "stan"},
    ("TrainingHungInCollective", "critical"): {"user": "hugo"},
    ("TrainingMetricsStale", "warning"): {"user": "sia"},
    ("TrainingLossNonFinite", "critical"): {"user": "nan"},
    ("TrainingThroughputDrop", "warning"): {"user": "sloan"},
    ("TrainingLossDiverging", "warning"): {"user": "diva"},
    ("JobStragglerGpu", "warning"): {"user": "sloan", "instance": "node-0005", "gpu": "0"},
    ("SilentCorruptionSuspected", "warning"): {"user": "nan"},
    ("GpuXidCritical", "critical"): {"instance": "node-0007", "gpu": "0", "xid": "79"},
    ("GpuXidWarning", "warning"): {"instance": "node-0007", "gpu": "1", "xid": "63"},
    ("GpuXidAcrossJobs", "warning"): {"instance": "node-0007", "gpu": "2"},
    ("GpuRecoveryActionRequired", "critical"): {"instance": "node-0007", "gpu": "3"},
    ("GpuUncorrectableEcc", "critical"): {"instance": "node-0007", "gpu": "4", "location": "dram"},
    ("GpuRowRemapFailed", "critical"): {"instance": "node-0007", "gpu": "5"},
    ("GpuRowRemapPending", "warning"): {"instance": "node-0007", "gpu": "6"},
    ("GpuCorrectedEccSurge", "warning"): {"instance": "node-0007", "gpu": "7", "location": "dram"},
    ("GpuMissing", "critical"): {"instance": "node-0008"},
    ("GpuUtilizationSuspect", "info"): {"instance": "fast-node-0001", "gpu": "3"},
    ("GpuThermalSlowdown", "warning"): {"instance": "node-0002", "gpu": "4"},
    ("GpuThermalSlowdown", "critical"): {"instance": "node-0002", "gpu": "5"},
    ("GpuPowerBrake", "warning"): {"instance": "node-0002", "gpu": "6"},
    ("GpuNearSlowdownTemperature", "warning"): {"instance": "node-0006", "gpu": "5"},
    ("GpuClocksLowUnderLoad", "warning"): {"instance": "node-0006", "gpu": "4"},
    ("NvlinkDown", "critical"): {"instance": "node-0002", "gpu": "7"},
    ("NvlinkErrorsRising", "warning"): {"instance": "node-0001", "gpu": "4", "error": "recovery"},
    ("NvswitchFatalSxid", "critical"): {"instance": "node-0005", "sxid": "24007"},
    ("GpuPcieLinkDegraded", "warning"): {"instance": "node-0006", "gpu": "6"},
    ("FabricPortDown", "critical"): {"instance": "node-0001", "device": "mlx5_0"},
    ("FabricPortRateDegraded", "warning"): {"instance": "node-0001", "device": "mlx5_1"},
    ("FabricLinkFlapping", "warning"): {"instance": "node-0001", "device": "mlx5_2"},
    ("FabricPortErrorsRising", "warning"): {"instance": "node-0001", "device": "mlx5_3", "error": "symbol"},
    ("FilesystemFillForecast", "warning"): {"instance": "node-0003", "mountpoint": "/scratch"},
    ("FilesystemFillForecast", "critical"): {"instance": "node-0004", "mountpoint": "/scratch"},
    ("FilesystemAlmostFull", "critical"): {"instance": "node-0007", "mountpoint": "/scratch"},
    ("StorageHung", "critical"): {"instance": "node-0002"},
    ("BudgetBurnFast", "warning"): {"account": "vision"},
    ("BudgetBurnSlow", "info"): {"account": "vision"},
    ("BudgetExhausted", "critical"): {"account": "research"},
    ("FeedPowerNearLimit", "critical"): {"feed": "A"},
    ("ExporterDown", "warning"): {"instance": "node-0009"},
    ("MonitoringBlind", "critical"): {},
    ("ExporterVanished", "warning"): {"instance": "node-0011"},
    ("CollectorStale", "warning"): {"instance": "node-0005", "collector": "hwmon"},
    ("AttributionGap", "warning"): {},
    ("NodeInMaintenance", "none"): {"instance": "node-0012"},
    ("Watchdog", "none"): {},
}
# Alerts that no simulated cluster can bring about, each with the reason.
UNREACHABLE: Mapping[Key, str] = {}

# What is held back, and by what.
INHIBITED: Mapping[Key, Mapping[str, str]] = {
    ("GpuXidWarning", "warning"): {"instance": "node-0008", "gpu": "1"},  # GpuMissing
    ("GpuThermalSlowdown", "warning"): {"instance": "node-0002", "gpu": "5"},  # the critical one
    ("TrainingStalled", "critical"): {"user": "hugo"},  # TrainingHungInCollective
    ("ExporterDown", "warning"): {"instance": "node-0008"},  # MonitoringBlind
    ("FabricPortDown", "critical"): {"instance": "node-0012"},  # NodeInMaintenance
}


def test_every_alert_has_a_fault_or_a_reason() -> None:
    assert EXPECTED.keys() | UNREACHABLE.keys() == alerts().keys()
    assert not EXPECTED.keys() & UNREACHABLE.keys()


def receivers(name: str, route: str, severity: str) -> set[str]:
    """Who is to be told, by the routing of deploy/alertmanager."""
    ops = "ops-pager" if severity == "critical" and name != "GpuAllocatedIdleLong" else "ops-chat"
    return {"owner": {"owners"}, "ops": {ops}, "both": {"owners", ops}}.get(route, {route})


def speaks_of(message: alerting.Message, severity: str, said: Mapping[str, str]) -> bool:
    """Whether a message is the one of the fault."""
    labels = {**said, "severity": severity}
    user = labels.pop("user", "")
    description = " ".join(message.annotations["description"].split())
    owned = not user or message.labels.get("user") == user or f"user {user}, account platform" in description
    return owned and labels.items() <= message.labels.items()


@pytest.mark.scale
def test_every_alert_arrives_and_what_is_inhibited_does_not(
    prometheus_program: Path,
    alertmanager_program: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    alerting.export_rules(tmp_path, (HERE / "every-alert-overrides.yaml").read_text(encoding="utf-8"))
    fast_folder = tmp_path / "fast"
    fast_folder.mkdir()
    with (
        alerting.inbox() as box,
        alerting.alertmanager(alertmanager_program, tmp_path, box) as alerts_at,
        servers.fleet(fast_folder, *played("latched", 1), "--speed", str(SPEED)) as fast,
        servers.fleet(tmp_path, *played("every-alert", NODES)) as cluster,
    ):
        scrapes = alerting.discovered(cluster) + renamed(fast)
        text = alerting.config(alerts_at, tmp_path, scrapes)
        with servers.prometheus_with(prometheus_program, tmp_path, text, alerting.RESEND):
            arrived, held_back = watched(box, alerts_at)
    with capsys.disabled():
        for key, after_s in sorted(arrived.items(), key=lambda item: item[1]):
            print(f"\n{after_s:5.0f} s  {' '.join(key)}", end="")
    assert arrived.keys() == EXPECTED.keys()
    assert held_back == INHIBITED.keys()
    for message in box.messages:
        key = message.name, message.labels["severity"]
        assert message.labels["team"] == "ml-platform"
        assert message.annotations["runbook_url"] == f"{alerting.RUNBOOKS}/{message.name}.md"
        assert message.receiver in receivers(
            message.name, message.labels["route"], message.labels["severity"]
        )
        if key in INHIBITED:
            assert not speaks_of(message, key[1], INHIBITED[key]), message


def played(scenario: str, nodes: int) -> tuple[str, ...]:
    """Arguments of a cluster with a scenario of this folder."""
    return ("--nodes", str(nodes), "--scenario", str(HERE / f"{scenario}.yaml"))


def renamed(fast: servers.Server) -> str:
    """The nodes of the fast cluster under names of their own; of their series only what is not about time."""
    return f"""
- job_name: fast
  http_sd_configs: [{{url: '{fast.url}/sd', refresh_interval: 5s}}]
  relabel_configs: [{{source_labels: [instance], target_label: instance, replacement: fast-$1}}]
  metric_relabel_configs:
  - {{source_labels: [__name__], regex: clusterwatt_gpu_utilization_suspect, action: keep}}
"""


def watched(box: alerting.Inbox, alerts_at: str) -> tuple[dict[Key, float], set[Key]]:
    """When each alert had reached all of its receivers, and what was held back, as far as they were."""
    end_s = time.monotonic() + WITHIN_S
    arrived: dict[Key, float] = {}
    held_back: set[Key] = set()
    while time.monotonic() < end_s and (arrived.keys() != EXPECTED.keys() or held_back != INHIBITED.keys()):
        for key in EXPECTED.keys() - arrived.keys():
            told: dict[str, float] = {}
            for message in box.named(key[0]):
                if speaks_of(message, key[1], EXPECTED[key]):
                    told.setdefault(message.receiver, message.after_s)
            if told.keys() >= receivers(key[0], alerts()[key].route, key[1]):
                arrived[key] = max(told.values())
        silent = [alert for alert in alerting.held(alerts_at) if alert["status"]["inhibitedBy"]]
        for key in INHIBITED.keys() - held_back:
            for alert in silent:
                unsaid = alerting.Message("", "", alert["labels"], alert["annotations"], 0.0)
                if unsaid.name == key[0] and speaks_of(unsaid, key[1], INHIBITED[key]):
                    held_back.add(key)
        time.sleep(1.0)
    return arrived, held_back
