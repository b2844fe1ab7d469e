"""The examples of scrape configurations, by the programs that read them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusterwatt.rules import expression, shipped
from tests.tools import apt

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "deploy/prometheus/scrape").glob("*.yaml"))
ids = [path.stem for path in EXAMPLES]


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=ids)
def test_prometheus_reads_it(promtool: Path, example: Path, tmp_path: Path) -> None:
    # Debian's Prometheus is built without discovery in Kubernetes: VictoriaMetrics alone reads that part.
    text = re.sub(r"kubernetes_sd_configs:\n(?: {6}.*\n)+", "static_configs: []\n", example.read_text())
    config = tmp_path / example.name
    config.write_text(text)
    run(promtool, "check", "config", "--syntax-only", config)


@pytest.mark.parametrize("example", EXAMPLES, ids=ids)
def test_victoria_metrics_reads_it_too(example: Path, tmp_path: Path) -> None:
    program = apt.find("victoria-metrics")
    if program is None:
        pytest.skip("victoria-metrics is not here: `python -m tests.tools.apt victoria-metrics` fetches it")
    text = example.read_text()
    # It opens these at once.
    text = re.sub(r"    tls_config:\n(?: {6}.*\n)+", "", text)
    text = text.replace("/etc/prometheus/clusterwatt-password", str(tmp_path / "password"))
    (tmp_path / "password").write_text("")
    # It looks for the API server of the cluster that it runs in.
    text = text.replace("- role: pod", "- role: pod\n        api_server: http://127.0.0.1:1")
    config = tmp_path / example.name
    config.write_text(text)
    run(program, f"-promscrape.config={config}", "-promscrape.config.dryRun", "-loggerLevel=ERROR")


def test_only_pods_of_our_namespace_are_nodes() -> None:
    """Else every tenant could add a node by a label."""
    (example,) = [path for path in EXAMPLES if path.stem == "kubernetes"]
    (job,) = yaml.safe_load(example.read_text())["scrape_configs"]
    assert job["kubernetes_sd_configs"] == [{"role": "pod", "namespaces": {"names": ["clusterwatt"]}}]


DOCUMENTS = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every scrape that people are shown, by where it stands."""
    for path in EXAMPLES:
        for job in yaml.safe_load(path.read_text())["scrape_configs"]:
            yield path.name, job
    for path in DOCUMENTS:
        for block in re.findall(r"```yaml\n(.*?)```", path.read_text(encoding="utf-8"), re.S):
            shown = yaml.safe_load(block) if "scrape_configs:" in block else {}
            for job in shown.get("scrape_configs", ()):
                yield path.name, job


def test_instance_is_the_name_of_the_node_wherever_we_show_a_scrape() -> None:
    """Rules, exemptions, boards and silences go by it."""
    ours = [(place, job) for place, job in jobs() if job["job_name"] == "clusterwatt"]
    assert {"static.yaml", "README.md", "SECURITY.md"} <= {place for place, _ in ours}
    for place, job in ours:
        named = [rule for rule in job.get("relabel_configs", ()) if rule.get("target_label") == "instance"]
        of_a_fleet = "/sd" in job.get("http_sd_configs", [{"url": ""}])[0]["url"]  # which names the nodes
        assert named or of_a_fleet, place


def test_every_prometheus_names_its_cluster() -> None:
    for path in EXAMPLES:
        assert "cluster" in yaml.safe_load(path.read_text())["global"]["external_labels"], path.name


ABOVE = ("training", "waste", "money-power")  # beside records, in the Prometheus above the shards
NAME = re.compile(r"\b(?:\w+:)?clusterwatt_\w+(?::\w+)?")


def test_what_the_rules_above_shards_name_is_federated_or_recorded_there() -> None:
    (example,) = [path for path in EXAMPLES if path.stem == "federate"]
    (job,) = yaml.safe_load(example.read_text())["scrape_configs"]
    federated: list[re.Pattern[str]] = []
    for selector in job["params"]["match[]"]:
        by_name = re.search(r'__name__=~"([^"]+)"', selector)
        federated.append(re.compile(by_name[1] if by_name else selector.partition("{")[0]))
    files = {file.name: file.rules for file in shipped.files()}
    recorded = {rule.name for rule in files["records"] if rule.name.startswith(("job:", "account:"))}
    recorded.add("gpu_job:clusterwatt_held:bool")
    named = {
        name
        for file in ABOVE
        for rule in files[file]
        for name in NAME.findall(expression.plain(rule.expression))
    }
    assert named
    missing = {name for name in named - recorded if not any(one.fullmatch(name) for one in federated)}
    assert missing == set()
