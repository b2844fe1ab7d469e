"""What a real Alertmanager with the example makes of alerts: how many messages, to whom, and how long."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e import alerting, servers
from tests.rules.known import alerts

pytestmark = [pytest.mark.e2e, pytest.mark.full]

SETTLED_S = 2.0  # a group waits for one second here, see alerting.example
WITHIN_S = 30.0


class Sent(NamedTuple):
    """A message: `/slack/ops-pager`, `/pagerduty/ops-pager`, `/webhook/ops-chat`, and its body."""

    to: str
    body: dict[str, Any]
    size: int

    @property
    def title(self) -> str:
        """As a telephone shows it."""
        if self.to.startswith("/slack"):
            return str(self.body["attachments"][0]["title"])
        return str(self.body["payload"]["summary"])


@contextlib.contextmanager
def receivers(sent: list[Sent]) -> Iterator[str]:
    """Slack, PagerDuty and every webhook in one."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent.append(Sent(self.path, json.loads(body), len(body)))
            self.send_response(202 if self.path.startswith("/pagerduty") else 200)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with alerting.in_thread(server):
        yield f"http://127.0.0.1:{server.server_address[1]}"


@pytest.fixture
def sent() -> list[Sent]:
    return []


@pytest.fixture
def alerts_at(sent: list[Sent], alertmanager_program: Path, tmp_path: Path) -> Iterator[str]:
    with (
        receivers(sent) as url,
        alerting.alertmanager_with(alertmanager_program, tmp_path, redirected(url)) as at,
    ):
        yield at


def redirected(url: str) -> dict[str, Any]:
    """The example with its receivers at `url`; e-mail is left out."""
    document = alerting.example()
    for receiver in document["receivers"]:
        name = receiver["name"]
        receiver.pop("email_configs", None)
        for one in receiver.get("slack_configs", ()):
            one["api_url"] = f"{url}/slack/{name}"
        for one in receiver.get("pagerduty_configs", ()):
            del one["routing_key_file"]
            one |= {"routing_key": "k", "url": f"{url}/pagerduty/{name}"}
        for one in receiver.get("webhook_configs", ()):
            one.pop("http_config")
            one["url"] = f"{url}/webhook/{name}"
    return document


def fire(alerts_at: str, name: str, *things: dict[str, str], severity: str = "") -> None:
    """Raise an alert for each of the things, with the labels and the texts of a rule."""
    (rule,) = [r for (n, s), r in alerts().items() if n == name and (not severity or s == severity)]
    raised = [
        {
            "labels": {"alertname": name, "severity": rule.severity, "route": rule.route, **labels},
            "annotations": {
                "summary": f"{name} of {', '.join(labels.values())}",
                "description": "What it is and what to do first. " * 8,
                "runbook_url": f"https://runbooks.example.com/{name}.md",
                "dashboard_url": "https://grafana.example.com/d/cw-node",
            },
        }
        for labels in things
    ]
    asked = urllib.request.Request(
        f"{alerts_at}/api/v2/alerts", json.dumps(raised).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=servers.ANSWER_S):
        pass


def settled(sent: list[Sent], to: str) -> list[Sent]:
    """What came to a receiver, when nothing has come for a while."""
    servers.until(lambda: any(one.to == to for one in sent), WITHIN_S, f"a message to {to}")
    seen = 0
    while seen < len(sent):
        seen = len(sent)
        time.sleep(SETTLED_S)
    return [one for one in sent if one.to == to]


def nodes(count: int, **labels: str) -> list[dict[str, str]]:
    return [{"instance": f"node{at:03}", **labels} for at in range(count)]


def test_all_that_is_wrong_on_a_node_is_one_page_that_names_it(alerts_at: str, sent: list[Sent]) -> None:
    node = {"cluster": "main", "instance": "node7"}
    fire(alerts_at, "GpuMissing", node)
    fire(alerts_at, "GpuXidCritical", {**node, "gpu": "3", "uuid": "GPU-3", "xid": "79"})
    fire(alerts_at, "FabricPortDown", *({**node, "device": f"mlx5_{at}", "port": "1"} for at in range(8)))
    pages = settled(sent, "/pagerduty/ops-pager")
    assert {page.body["dedup_key"] for page in pages} == {pages[0].body["dedup_key"]}
    kinds, _, place = pages[-1].title.partition(" (")
    assert kinds.startswith("[FIRING 10] critical ")
    assert set(kinds.removeprefix("[FIRING 10] critical ").split(", ")) == {
        "FabricPortDown",
        "GpuMissing",
        "GpuXidCritical",
    }
    assert place.startswith("main, node7): ")


def test_clusters_are_told_of_apart_and_do_not_silence_one_another(alerts_at: str, sent: list[Sent]) -> None:
    fire(alerts_at, "MonitoringBlind", {"cluster": "a"})
    fire(alerts_at, "ExporterDown", *({"cluster": name, "instance": "node1"} for name in "ab"))
    (told,) = settled(sent, "/slack/ops-chat")
    assert "(b, node1)" in told.title
    fire(alerts_at, "GpuXidWarning", *({"cluster": name, "instance": "node2"} for name in "ab"))
    servers.until(lambda: len(settled(sent, "/slack/ops-chat")) == 3, WITHIN_S, "one message a cluster")


def test_each_prometheus_has_a_watchdog_of_its_own(alerts_at: str, sent: list[Sent]) -> None:
    fire(alerts_at, "Watchdog", *({"cluster": "main", "shard": str(at)} for at in range(4)))
    assert len({one.body["groupKey"] for one in settled(sent, "/webhook/deadman")}) == 4


def test_one_service_outside_is_one_message_for_all_nodes(alerts_at: str, sent: list[Sent]) -> None:
    fire(alerts_at, "CollectorStale", *nodes(200, collector="price"))
    (told,) = settled(sent, "/slack/ops-chat")
    assert told.title.startswith("[FIRING 200] warning CollectorStale (price): ")
    assert told.size < 10_000


def test_a_mount_that_hangs_is_one_page_however_many_nodes_wait_for_it(
    alerts_at: str, sent: list[Sent]
) -> None:
    fire(alerts_at, "StorageHung", *nodes(200, mountpoint="/ckpt", fstype="nfs4"), *nodes(200))
    (page,) = settled(sent, "/pagerduty/ops-pager")
    assert page.title.startswith("[FIRING 200] critical StorageHung (/ckpt): ")
    assert page.size < 12_000
    (told,) = (one for one in sent if one.to == "/slack/ops-pager")
    assert told.size < 10_000


def test_a_gpu_that_stands_idle_is_one_alert_and_wakes_nobody(alerts_at: str, sent: list[Sent]) -> None:
    gpu = {"instance": "node7", "gpu": "3", "uuid": "GPU-3", "job_id": "4711"}
    fire(alerts_at, "GpuAllocatedIdleLong", gpu)
    fire(alerts_at, "GpuAllocatedIdle", gpu)
    fire(alerts_at, "JobPartlyIdle", {"job_id": "4711"})
    (told,) = settled(sent, "/webhook/owners")
    assert [one["labels"]["alertname"] for one in told.body["alerts"]] == ["GpuAllocatedIdleLong"]
    assert {one.to for one in sent} == {"/webhook/owners", "/webhook/ops-chat", "/slack/ops-chat"}
