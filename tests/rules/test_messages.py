"""What arrives: the titles and texts that the example's templates make of a group of alerts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

TEMPLATES = Path(__file__).parents[2] / "deploy/alertmanager/templates"

Alert = dict[str, Any]
Render = Callable[..., str]


def alert(name: str, node: str, summary: str, status: str = "firing") -> Alert:
    return {
        "status": status,
        "labels": {"alertname": name, "instance": node, "severity": "critical"},
        "annotations": {
            "summary": summary,
            "description": f"{summary}. " + "What to do first. " * 20,
            "runbook_url": f"https://runbooks.example.com/{name}.md",
            "dashboard_url": f"https://grafana.example.com/d/cw-node?var-instance={node}",
        },
        "startsAt": "2026-01-01T12:00:00Z",
        "endsAt": "0001-01-01T00:00:00Z",
    }


def common(told: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What all of them say alike, as Alertmanager finds it."""
    return {key: text for key, text in told[0].items() if all(other.get(key) == text for other in told)}


@pytest.fixture
def render(amtool: Path, tmp_path: Path) -> Render:
    def rendered(template: str, alerts: Sequence[Alert], **group: str) -> str:
        data = {
            "receiver": "ops-pager",
            "status": "firing" if any(one["status"] == "firing" for one in alerts) else "resolved",
            "alerts": alerts,
            "groupLabels": group,
            "commonLabels": common([one["labels"] for one in alerts]),
            "commonAnnotations": common([one["annotations"] for one in alerts]),
            "externalURL": "https://alertmanager.example.com",
        }
        file = tmp_path / "data.json"
        file.write_text(json.dumps(data))
        text = f'{{{{ template "{template}" . }}}}'
        options = [
            f"--template.glob={TEMPLATES}/*.tmpl",
            f"--template.data={file}",
            f"--template.text={text}",
        ]
        command = [str(amtool), "template", "render", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return rendered


def test_a_title_says_what_is_wrong_and_where(render: Render) -> None:
    one = [alert("GpuMissing", "node7", "node7 shows fewer GPUs than it should")]
    assert render("clusterwatt.title", one, cluster="main", instance="node7") == (
        "[FIRING 1] critical GpuMissing (main, node7): node7 shows fewer GPUs than it should"
    )
    over = [alert("GpuMissing", "node7", "node7 shows fewer GPUs than it should", "resolved")]
    assert render("clusterwatt.title", over, alertname="GpuMissing", instance="node7") == (
        "[RESOLVED 1] critical GpuMissing (node7): node7 shows fewer GPUs than it should"
    )


def test_a_title_of_several_alerts_names_each_kind_and_the_first_three(render: Render) -> None:
    several = [
        alert("FabricPortDown", "node7", "Port mlx5_0/1 on node7 is down"),
        *(alert("GpuXidCritical", "node7", f"GPU {gpu} on node7 reported XID 79") for gpu in range(4)),
        alert("NvlinkDown", "node7", "GPU 0 on node7 has fewer NVLinks up", "resolved"),
    ]
    assert render("clusterwatt.title", several, instance="node7") == (
        "[FIRING 5] critical FabricPortDown, GpuXidCritical (node7): Port mlx5_0/1 on node7 is down; "
        "GPU 0 on node7 reported XID 79; GPU 1 on node7 reported XID 79; and 2 more"
    )


def test_a_text_tells_what_fires_and_what_is_over_apart(render: Render) -> None:
    told = [alert("NvlinkDown", "node7", "A link"), alert("GpuMissing", "node7", "A GPU", "resolved")]
    text = render("clusterwatt.text", told)
    assert text.startswith("A link\nA link. What to do first.")
    assert "\nRunbook: https://runbooks.example.com/NvlinkDown.md\n" in text
    hour_before_and_after = "from=1767265200000&to=1767272400000"
    assert (
        f"\nBoard: https://grafana.example.com/d/cw-node?var-instance=node7&{hour_before_and_after}\n" in text
    )
    assert text.endswith("\nResolved: A GPU\n")
    assert "GpuMissing.md" not in text


@pytest.mark.parametrize("status", ["firing", "resolved"])
def test_a_message_about_two_hundred_nodes_is_short(status: str, render: Render) -> None:
    many = [
        alert("StorageHung", f"node{at}", f"/ckpt on node{at} does not answer", status) for at in range(200)
    ]
    title = render("clusterwatt.title", many, alertname="StorageHung", mountpoint="/ckpt")
    assert title.startswith(f"[{status.upper()} 200] critical StorageHung (/ckpt): /ckpt on node0 does not")
    assert title.endswith("; and 197 more")
    assert len(title) < 256
    text = render("clusterwatt.text", many)
    assert text.count("does not answer\n") == 10
    assert "… and 190 more" in text
    assert len(text) < 10_000
