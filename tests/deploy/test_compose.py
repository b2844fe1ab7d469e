"""The compose files: what is open, what is pinned, and that everything they mount is there."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from clusterwatt.config.load import load

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/compose"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]


def mounted(name: str) -> dict[str, str]:
    """Where each volume of a service is, by what it is of."""
    pairs = [
        (volume["source"], volume["target"]) if isinstance(volume, dict) else volume.split(":")[:2]
        for volume in SERVICES[name]["volumes"]
    ]
    return dict(pairs)


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_open_on_the_loopback_only(name: str) -> None:
    for port in SERVICES[name]["ports"]:
        assert re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port)


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - {"agent"}))
def test_images_of_others_have_a_version(name: str) -> None:
    assert re.fullmatch(r"docker\.io/[a-z/]+:v?\d+\.\d+\.\d+", SERVICES[name]["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_is_there(name: str) -> None:
    for source in mounted(name):
        if source.startswith("."):
            assert (FOLDER / source).exists(), source
        elif not source.startswith("/"):
            assert source in COMPOSE["volumes"]


def test_the_agent_reads_the_host_and_may_not_write_to_it() -> None:
    agent = SERVICES["agent"]
    assert "/:/host:ro,rslave" in agent["volumes"]
    assert (agent["cap_drop"], agent["cap_add"]) == (["ALL"], ["SYS_PTRACE", "DAC_READ_SEARCH"])
    assert agent["read_only"] is True
    assert "privileged" not in agent


def test_the_agent_can_write_its_state() -> None:
    """A new volume has the owner of the image's folder, where root without DAC_OVERRIDE may not write."""
    agent = SERVICES["agent"]
    (state,) = [volume for volume in agent["volumes"] if isinstance(volume, dict)]
    assert state["target"] == "/var/lib/clusterwatt"
    assert state["volume"] == {"nocopy": True}
    assert agent["user"] == "0:0"
    assert "DAC_OVERRIDE" not in agent["cap_add"]


def test_the_agent_takes_its_settings() -> None:
    command = SERVICES["agent"]["command"]
    sets = [after for word, after in itertools.pairwise(command) if word == "--set"]
    assert load(None, {"CLUSTERWATT_SIMULATE__PROFILE": "h100"}, sets).config.node.root == "/host"
    assert load(None, {"CLUSTERWATT_SIMULATE__PROFILE": ""}, sets).config.simulate.label == "false"


def test_prometheus_scrapes_and_alerts_services_that_are_there() -> None:
    text = (FOLDER / "prometheus.yaml").read_text()
    for host, port in re.findall(r'"([a-z]+):(\d+)"', text):
        assert f"127.0.0.1:{port}:{port}" in SERVICES[host]["ports"]


def test_boards_and_rules_of_the_repository_are_the_ones_shown() -> None:
    targets = {source: target for name in SERVICES for source, target in mounted(name).items()}
    provider = yaml.safe_load((FOLDER / "grafana/dashboards/clusterwatt.yaml").read_text())["providers"][0]
    assert targets["../../dashboards/json"] == provider["options"]["path"]
    rules = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["rule_files"]
    assert rules == [f"{targets['../prometheus/rules']}/*.yaml"]


@pytest.mark.full
def test_promtool_takes_the_configuration(tmp_path: Path) -> None:
    from tests.tools import apt

    try:
        promtool = apt.fetch("promtool")
    except apt.Unavailable as unavailable:
        pytest.skip(f"no promtool: {unavailable}")
    shutil.copytree(ROOT / "deploy/prometheus/rules", tmp_path / "rules")
    file = tmp_path / "prometheus.yaml"
    file.write_text(
        (FOLDER / "prometheus.yaml").read_text().replace("/etc/prometheus/rules", f"{tmp_path}/rules")
    )
    done = subprocess.run([promtool, "check", "config", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
