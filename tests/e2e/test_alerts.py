"""From a fault on a simulated cluster to the message: real Prometheus with our rules, real Alertmanager.

Thresholds and windows are shortened by an overrides file, as a site would write one; the routing and the
inhibition are those of `deploy/alertmanager`, with a webhook in place of every receiver. Here one alert of
each group; test_every_alert.py has them all.
"""

from __future__ import annotations

import json
from collections.abc import Set
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.e2e import alerting, servers

pytestmark = [pytest.mark.e2e, pytest.mark.full]

WITHIN_S = 150.0

# One fault for each group of rules, and what is to keep silent beside another. The jobs are the scenario's
# own: what the usual ones do depends on the hour.
FAULTS = """
about: One fault for each group of rules.
jobs:
- {name: forgotten, node: node-0002, gpus: [4, 5], does: idle, user: eve, account: vision, ran: 2h}
- {name: own-run, node: node-0003, does: train, user: ada, account: language, ran: 2h}
faults:
- {fault: loss_not_finite, job: own-run, at: 30s}
- {fault: xid, node: node-0001, gpu: 0, code: 79, at: 5s}
- {fault: recovery_action, node: node-0002, gpu: 0, code: 1, at: 5s}
- {fault: xid, node: node-0002, gpu: 0, code: 63, at: 45s}
- {fault: xid, node: node-0002, gpu: 1, code: 63, at: 45s}
- {fault: throttled, node: node-0003, gpu: 0, amount: 0.9, at: 5s}
- {fault: nvlink_down, node: node-0003, gpu: 1, amount: 2, at: 5s}
- {fault: port_down, node: node-0004, item: mlx5_0, at: 5s}
- {fault: maintenance, node: node-0006}
- {fault: port_down, node: node-0006, item: mlx5_0, at: 15s}
- {fault: blocked, node: node-0004, at: 5s}
- {fault: feed_capacity, amount: 0.02, at: 5s}
- {fault: exporter_dies, node: node-0005, at: 20s}
"""

OVERRIDES = f"""
interval: 10s
labels: {{team: ml-platform}}
urls: {{runbooks: {alerting.RUNBOOKS}}}
rules:
  GpuAllocatedIdle: {{window: 20s, guard: 1, idle_ratio: 0.2, age_seconds: 1, for: 0m}}
  GpuXidCritical: {{age_seconds: 3600}}
  GpuXidWarning: {{age_seconds: 3600}}
  GpuRecoveryActionRequired: {{for: 0m}}
  GpuThermalSlowdown:
    warning: {{window: 30s, for: 30s}} # after the critical one
    critical: {{window: 30s, for: 0m}}
  NvlinkDown: {{for: 0m}}
  FabricPortDown: {{for: 0m}}
  StorageHung: {{blocked_age_seconds: 5, for: 0m}}
  FeedPowerNearLimit: {{for: 0m}}
  ExporterDown: {{for: 10s}}
"""

# Alert -> receiver, and what it says of the fault.
EXPECTED = {
    "GpuAllocatedIdle": ("owners", {"instance": "node-0002", "user": "eve", "account": "vision"}),
    "TrainingLossNonFinite": ("owners", {"instance": "node-0003"}),
    "GpuXidCritical": ("ops-pager", {"instance": "node-0001", "gpu": "0", "xid": "79"}),
    "GpuXidWarning": ("ops-chat", {"instance": "node-0002", "gpu": "1", "xid": "63"}),
    "GpuRecoveryActionRequired": ("ops-pager", {"instance": "node-0002", "gpu": "0"}),
    "GpuThermalSlowdown": ("ops-pager", {"instance": "node-0003", "gpu": "0", "reason": "hw_thermal"}),
    "NvlinkDown": ("ops-pager", {"instance": "node-0003", "gpu": "1"}),
    "FabricPortDown": ("ops-pager", {"instance": "node-0004", "device": "mlx5_0", "port": "1"}),
    "StorageHung": ("ops-pager", {"instance": "node-0004"}),
    "FeedPowerNearLimit": ("facility", {"feed": "A"}),
    "ExporterDown": ("ops-chat", {"instance": "node-0005"}),
    "NodeInMaintenance": ("nobody", {"instance": "node-0006"}),
    "Watchdog": ("deadman", {"severity": "none"}),
}
# By which people find the thing, beside what is said above.
ALSO: dict[str, Set[str]] = {
    "GpuAllocatedIdle": {"job_id", "uuid", "gpu"},
    "TrainingLossNonFinite": {"job_id", "run"},
    "GpuXidCritical": {"uuid"},
    "GpuXidWarning": {"uuid"},
    "GpuRecoveryActionRequired": {"uuid", "action"},
    "GpuThermalSlowdown": {"uuid"},
    "NvlinkDown": {"uuid"},
}


def test_faults_become_messages_and_what_is_inhibited_does_not(
    prometheus_program: Path, alertmanager_program: Path, tmp_path: Path
) -> None:
    alerting.export_rules(tmp_path, OVERRIDES)
    scenario = tmp_path / "faults.yaml"
    scenario.write_text(FAULTS)
    with (
        alerting.inbox() as box,
        alerting.alertmanager(alertmanager_program, tmp_path, box) as alerts_at,
        servers.fleet(tmp_path, "--nodes", "6", "--scenario", str(scenario)) as cluster,
    ):

        def prometheus(replica: str) -> AbstractContextManager[servers.Server]:
            folder = tmp_path / replica
            folder.mkdir(exist_ok=True)
            text = alerting.config(alerts_at, tmp_path, alerting.discovered(cluster), replica)
            return servers.prometheus_with(prometheus_program, folder, text, alerting.RESEND)

        with prometheus("a"):
            with prometheus("b"):
                for name, (receiver, said) in EXPECTED.items():
                    servers.until(
                        partial(box.has, name, receiver, said), WITHIN_S, f"{name} with {said} to {receiver}"
                    )
                servers.until(
                    lambda: alerting.inhibited(alerts_at, "GpuThermalSlowdown", "warning"),
                    WITHIN_S,
                    "the warning is inhibited",
                )
                servers.until(
                    lambda: alerting.inhibited(alerts_at, "FabricPortDown", "critical", instance="node-0006"),
                    WITHIN_S,
                    "a cable that is being changed is inhibited",
                )
            # The second replica has gone, and comes back with its store: nothing is said anew.
            with prometheus("b") as again:
                servers.until(
                    lambda: any(
                        alert["labels"]["alertname"] == "GpuXidCritical" for alert in alerting.active(again)
                    ),
                    WITHIN_S,
                    "it fires again",
                )
                known = [json.dumps(alert["labels"], sort_keys=True) for alert in alerting.held(alerts_at)]
                assert len(set(known)) == len(known)
    for message in box.messages:
        assert message.labels["team"] == "ml-platform"
        assert "replica" not in message.labels
        assert message.annotations["runbook_url"] == f"{alerting.RUNBOOKS}/{message.name}.md"
        assert message.labels.keys() >= ALSO.get(message.name, set())
    assert {message.labels["severity"] for message in box.named("GpuThermalSlowdown")} == {"critical"}
    # XID 63 on the GPU whose driver asks for an action is held back, on its neighbour it is not.
    assert {message.labels["gpu"] for message in box.named("GpuXidWarning")} == {"1"}
    # Whose node is in maintenance, pages nobody.
    assert {message.labels["instance"] for message in box.named("FabricPortDown")} == {"node-0004"}
    # Of the node's other GPUs, which a run keeps busy, nothing is said.
    idle = [message for message in box.named("GpuAllocatedIdle") if message.labels["user"] == "eve"]
    assert {message.labels["gpu"] for message in idle} == {"4", "5"}
    assert all("eve, account vision" in message.annotations["description"] for message in idle)
