"""The manifests that are committed: what they ask of node and cluster, and what the agent makes of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from clusterwatt.config.load import load
from clusterwatt.expose.server import PROBES
from clusterwatt.inventory import CATALOG
from tests.deploy.objects import above_baseline, agent, mounts, objects, only, pod

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "deploy/kubernetes/manifests/base"
TEXT = "\n---\n".join(path.read_text() for path in sorted(BASE.glob("*.yaml")) if "kustom" not in path.name)


def test_the_configuration_in_it_is_one_that_the_agent_takes(tmp_path: Path) -> None:
    file = tmp_path / "clusterwatt.yaml"
    file.write_text(only(TEXT, "ConfigMap")["data"]["clusterwatt.yaml"])
    environment = {each["name"]: each.get("value", "gpu-17") for each in agent(TEXT)["env"]}
    config = load(file, environment, [], families=[metric.name for metric in CATALOG]).config
    assert (config.node.root, config.http.listen) == ("/host", ":10777")
    assert config.driver.library_roots[0] == "/host/run/nvidia/driver"
    kept = (config.ledger.path, config.recorder.directory, config.collectors.maintenance.file)
    for path in (*kept, config.driver.release_file):
        mount, volume = mounts(TEXT)[str(Path(path).parent)]
        assert not mount.get("readOnly")
        assert "hostPath" in volume  # it outlives the pod


def test_the_pod_asks_for_two_capabilities_and_may_not_get_more() -> None:
    security = agent(TEXT)["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE", "DAC_READ_SEARCH"]}
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True


def test_the_pod_security_level_is_privileged_and_for_these_reasons_only() -> None:
    assert set(above_baseline(TEXT)) == {
        "hostPID",
        "hostPath",
        "capability SYS_PTRACE",
        "capability DAC_READ_SEARCH",
    }
    level = only(TEXT, "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert level == "privileged"


def test_what_of_the_host_can_be_written_is_two_folders_of_our_own() -> None:
    written = {
        volume["hostPath"]["path"]
        for mount, volume in mounts(TEXT).values()
        if "hostPath" in volume and not mount.get("readOnly")
    }
    assert written == {"/var/lib/clusterwatt", "/run/clusterwatt"}


def test_a_driver_that_is_mounted_later_is_seen() -> None:
    mount, volume = mounts(TEXT)["/host"]
    assert (mount["mountPropagation"], mount["readOnly"]) == ("HostToContainer", True)
    assert volume["hostPath"]["path"] == "/"


def test_the_kubelet_is_reached_by_the_folder_so_that_it_may_restart() -> None:
    mount, volume = mounts(TEXT)["/var/lib/kubelet/pod-resources"]
    assert volume["hostPath"] == {"path": "/var/lib/kubelet/pod-resources", "type": "Directory"}
    assert mount["readOnly"] is True


def test_probes_ask_only_what_is_answered_from_memory() -> None:
    container = agent(TEXT)
    paths = {
        container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == PROBES
    assert (
        container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    )  # a lost GPU must not restart the agent


def test_no_gpu_is_asked_for() -> None:
    """It would be taken away from a job."""
    resources = agent(TEXT)["resources"]
    named = set(resources["requests"]) | set(resources["limits"])
    assert named == {"cpu", "memory"}
    assert "cpu" not in resources["limits"]  # throttled, the agent would miss its ticks


def test_it_runs_on_every_gpu_node_and_is_not_put_off_it() -> None:
    assert pod(TEXT)["tolerations"] == [{"operator": "Exists"}]
    assert pod(TEXT)["priorityClassName"] == "system-node-critical"


def test_the_mig_monitor_is_not_asked_for_without_the_capability_that_it_needs() -> None:
    """NVIDIA's runtime refuses to start such a container."""
    names = {each["name"] for each in agent(TEXT)["env"]}
    assert "NVIDIA_MIG_MONITOR_DEVICES" not in names


def test_the_role_only_reads_and_no_secrets() -> None:
    rules = only(TEXT, "ClusterRole")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} <= {"get", "list", "watch"}
    resources = {resource for rule in rules for resource in rule["resources"]}
    assert not resources & {"secrets", "configmaps", "*", "nodes/proxy", "pods/exec"}


def test_the_role_is_the_one_in_the_documentation() -> None:
    (documented,) = [
        yaml.safe_load(block)
        for block in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/KUBERNETES.md").read_text(), re.DOTALL)
        if "kind: ClusterRole" in block
    ]
    assert documented["rules"] == only(TEXT, "ClusterRole")["rules"]


@pytest.mark.parametrize("path", sorted((ROOT / "deploy/kubernetes/manifests").rglob("*.yaml")), ids=str)
def test_all_objects_are_in_one_namespace(path: Path) -> None:
    for each in objects(path.read_text()):
        namespace = each["metadata"].get("namespace") if "metadata" in each else None
        assert namespace in (None, "clusterwatt")
