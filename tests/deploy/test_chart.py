"""The chart, rendered by Helm: every variant, against the schemas of three versions of Kubernetes."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.objects import above_baseline, agent, mounts, objects, only, pod
from tests.tools import helm, manifests

VERSIONS = ("1.29", "1.33", "1.36")
EVERYTHING = (
    *("podMonitor.enabled=true", "prometheusRule.enabled=true", "dashboards.enabled=true"),
    *("networkPolicy.enabled=true", "networkPolicy.egress=true", "service.enabled=true", "gpu.mig=true"),
)
VARIANTS: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "everything": EVERYTHING,
    "privileged": ("security.profile=privileged", "gpu.runtimeClassName="),
    "non-root": ("security.profile=nonRoot", "web.existingSecret=clusterwatt-web"),
    "host network and TLS": ("hostNetwork=true", "web.existingSecret=clusterwatt-web", "web.scheme=https"),
    "service monitor": ("service.enabled=true", "serviceMonitor.enabled=true"),
    "quota and confinement": (
        *("resourceQuota.enabled=true", "security.seLinuxOptions.type=spc_t"),
        *("port=9400", "config.http.listen=10.0.0.1:9400"),
    ),
    "nothing kept": ("host.state=", "rbac.create=false", "serviceAccount.create=false"),
}

pytestmark = pytest.mark.full  # Helm and the schemas are large packages, of the extra `dev`


@pytest.fixture(scope="module")
def rendered() -> dict[str, str]:
    """What each variant renders to; made once."""
    return {name: helm.template(manifests.CHART, *settings) for name, settings in VARIANTS.items()}


def test_helm_has_nothing_against_it(rendered: dict[str, str]) -> None:
    done = helm.run("lint", "--strict", manifests.CHART)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_every_variant_is_valid_in_three_versions_of_kubernetes(
    rendered: dict[str, str], version: str
) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    for name, text in rendered.items():
        for each in objects(text):
            if each["apiVersion"].startswith("monitoring.coreos.com/"):
                continue  # kinds of Prometheus' operator: their schemas are in no package
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    validate.validate(each, version, strict=True)
                except validate.ValidationError as error:
                    pytest.fail(f"{name}: {each['kind']} {each['metadata']['name']}: {error.message}")


def test_the_manifests_are_what_the_chart_renders(rendered: dict[str, str]) -> None:
    expected = manifests.rendered()
    for path, text in expected.items():
        assert (manifests.FOLDER / path).read_text() == text, f"{path}: python -m tests.tools.manifests"
    written = {
        str(path.relative_to(manifests.FOLDER))
        for path in manifests.FOLDER.rglob("*.yaml")
        if path.read_text().startswith(manifests.HEADER)
    }
    assert written == set(expected)


@pytest.mark.parametrize("folder", ["base", "operator"])
def test_kustomize_takes_them(folder: str) -> None:
    beside = Path(sys.executable).with_name("kubectl")
    kubectl = beside if beside.exists() else shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl")
    command = [kubectl, "kustomize", manifests.FOLDER / folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kinds = {each["kind"] for each in objects(done.stdout)}
    assert kinds >= {"Namespace", "DaemonSet", "ConfigMap", "ClusterRole", "ClusterRoleBinding"}
    assert ("PodMonitor" in kinds) == (folder == "operator")


def test_each_profile_asks_for_what_it_says(rendered: dict[str, str]) -> None:
    """The host's files and process ids are needed by all: no profile is below the level `privileged`."""
    host = {"hostPID", "hostPath"}
    assert set(above_baseline(rendered["non-root"])) == host
    assert set(above_baseline(rendered["privileged"])) == {*host, "privileged"}
    two = {"capability SYS_PTRACE", "capability DAC_READ_SEARCH"}
    assert set(above_baseline(rendered["defaults"])) == host | two
    assert set(above_baseline(rendered["everything"])) == host | two | {"capability SYS_ADMIN"}
    for text in rendered.values():
        assert agent(text)["securityContext"]["readOnlyRootFilesystem"] is True


def test_without_root_there_is_no_capability_and_no_socket_of_the_kubelet(rendered: dict[str, str]) -> None:
    security = agent(rendered["non-root"])["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 10777)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert "/var/lib/kubelet/pod-resources" not in mounts(rendered["non-root"])
    _, web = mounts(rendered["non-root"])["/etc/clusterwatt-web"]
    assert (web["secret"]["defaultMode"], pod(rendered["non-root"])["securityContext"]["fsGroup"]) == (
        0o440,
        10777,
    )
    _, volume = mounts(rendered["non-root"])["/var/lib/clusterwatt"]
    assert volume["hostPath"]["type"] == "Directory"  # one that the kubelet makes would be root's


def test_with_tls_probes_and_prometheus_speak_it(rendered: dict[str, str]) -> None:
    text = rendered["host network and TLS"]
    assert agent(text)["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
    named = {each["name"]: each.get("value") for each in agent(text)["env"]}
    assert named["CLUSTERWATT_HTTP__WEB_CONFIG_FILE"] == "/etc/clusterwatt-web/web.yaml"
    assert mounts(text)["/etc/clusterwatt-web"][0]["readOnly"] is True
    assert pod(text)["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_the_agent_listens_where_probes_and_prometheus_ask(rendered: dict[str, str]) -> None:
    def listens(text: str) -> tuple[str, int]:
        configuration = only(text, "ConfigMap")["data"]["clusterwatt.yaml"]
        return yaml.safe_load(configuration)["http"]["listen"], agent(text)["ports"][0]["containerPort"]

    assert listens(rendered["defaults"]) == (":10777", 10777)
    assert listens(rendered["quota and confinement"]) == ("10.0.0.1:9400", 9400)
    assert listens(helm.template(manifests.CHART, "port=9401")) == (":9401", 9401)


@pytest.mark.parametrize(
    "content",
    [
        "  indented: 1\nthen: not\n",
        "\n\n    deep\n",
        "plain: 1\n",
        "ends without",
        "# {{ x }}: |\n\ttab\n",
        "trail \n\n",
    ],
)
def test_further_files_come_through_as_they_are(tmp_path: Path, content: str) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"files": {"prices.yaml": content, "1": "x: 1\n"}}))
    done = helm.run("template", "clusterwatt", manifests.CHART, "--values", values)
    assert done.returncode == 0, done.stderr
    data = only(done.stdout, "ConfigMap")["data"]
    assert (data["prices.yaml"], data["1"]) == (content, "x: 1\n")


def test_a_quota_lets_pods_of_the_systems_priority_in(rendered: dict[str, str]) -> None:
    """GKE: outside of kube-system such a priority needs one whose scope names it."""
    (scope,) = only(rendered["quota and confinement"], "ResourceQuota")["spec"]["scopeSelector"][
        "matchExpressions"
    ]
    priority = pod(rendered["quota and confinement"])["priorityClassName"]
    assert scope == {"scopeName": "PriorityClass", "operator": "In", "values": [priority]}


def test_confinement_by_the_kernels_modules_is_the_sites_to_say(rendered: dict[str, str]) -> None:
    assert agent(rendered["quota and confinement"])["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    unconfined = helm.template(manifests.CHART, "security.appArmorProfile.type=Unconfined")
    assert agent(unconfined)["securityContext"]["appArmorProfile"] == {"type": "Unconfined"}
    assert not {"appArmorProfile", "seLinuxOptions"} & set(agent(rendered["defaults"])["securityContext"])


def test_the_rules_come_through_helm_as_they_are(rendered: dict[str, str]) -> None:
    """Both have templates in double braces: Helm must not take those of the alerts for its own."""
    folder = manifests.KUBERNETES.parent / "prometheus" / "rules"
    of_files = {path.stem: yaml.safe_load(path.read_text()) for path in folder.glob("*.yaml")}
    found = {
        each["metadata"]["name"].removeprefix("clusterwatt-"): each["spec"]
        for each in objects(rendered["everything"])
        if each["kind"] == "PrometheusRule"
    }
    assert found == of_files


def test_each_board_is_a_configmap_that_the_api_takes(rendered: dict[str, str]) -> None:
    maps = [
        each
        for each in objects(rendered["everything"])
        if each["kind"] == "ConfigMap" and each["metadata"]["labels"].get("grafana_dashboard") == "1"
    ]
    boards = sorted((manifests.KUBERNETES.parents[1] / "dashboards" / "json").glob("*.json"))
    assert len(maps) == len(boards) > 0
    for each in maps:
        ((_, text),) = each["data"].items()
        assert len(text) < 1 << 20
        assert json.loads(text)["title"]


def test_a_release_with_everything_fits_into_the_secret_that_helm_keeps(
    rendered: dict[str, str],
) -> None:
    """Chart and manifest, zipped and in base64; the API refuses objects above 1 MiB. Boards grow."""
    files = [path for path in manifests.CHART.rglob("*") if path.is_file()]
    files += [path for link in (manifests.CHART / "files").iterdir() for path in link.iterdir()]
    chart = {str(path): base64.b64encode(path.read_bytes()).decode() for path in files}
    release = json.dumps({"chart": chart, "manifest": rendered["everything"]}).encode()
    assert len(base64.b64encode(base64.b64encode(gzip.compress(release)))) < 0.8 * (1 << 20)


def test_what_contradicts_itself_is_refused(rendered: dict[str, str]) -> None:
    for settings, complaint in (
        (("gpu.mgi=true",), "mgi"),
        (("image.digest=latest",), "image.digest"),
        (("gpu.mig=true", "security.profile=nonRoot"), "SYS_ADMIN"),
        (("podMonitor.enabled=true", "service.enabled=true", "serviceMonitor.enabled=true"), "twice"),
        (("serviceMonitor.enabled=true",), "service.enabled"),
        (("config.http.listen=:9400",), "set port"),
        (("config.http.listen=127.0.0.1:10777",), "127.0.0.1:10777, which only the pod itself reaches"),
        (("config.http.listen=localhost:10777",), "only the pod itself"),
        (("config.http.listen=[::1]:10777",), "only the pod itself"),
        (("web.scheme=https",), "web.existingSecret"),
        (("resourceQuota.enabled=true", "priorityClassName="), "priorityClassName"),
    ):
        with pytest.raises(ValueError, match=complaint):
            helm.template(manifests.CHART, *settings)


def test_every_value_is_in_the_schema() -> None:
    values = yaml.safe_load((manifests.CHART / "values.yaml").read_text())
    schema = json.loads((manifests.CHART / "values.schema.json").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}
    free = {"config", "files", "resources", "affinity", "nodeSelector", "updateStrategy"}
    for name, value in values.items():
        if isinstance(value, dict) and name not in free and "properties" in schema["properties"][name]:
            known: dict[str, Any] = schema["properties"][name]["properties"]
            assert set(value) <= set(known), name


def test_another_release_has_names_of_its_own(rendered: dict[str, str]) -> None:
    text = helm.template(manifests.CHART, release="blue")
    assert only(text, "DaemonSet")["metadata"]["name"] == "blue-clusterwatt"
    assert only(text, "ClusterRoleBinding")["roleRef"]["name"] == "blue-clusterwatt"
