"""Over a restart of Prometheus an alert goes on where it was.

One that waits does not wait anew, one that fires is neither taken back nor told again. For that the grace
period of Prometheus has to be shorter than the `for` of the rule, see docs/runbooks/README.md.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e import alerting, servers

pytestmark = [pytest.mark.e2e, pytest.mark.full]

EVALUATED_EVERY_S = 2
FOR_S = 30.0
WAITED_S = 18.0  # by the second alert, when Prometheus is killed
WITHIN_S = 90.0
# What Alertmanager is told holds for four times the longer of evaluation and resend delay.
VALID_S = 4 * 5.0
OVERRIDES = f"""
interval: 10s
rules:
  FabricPortDown: {{for: {FOR_S:g}s}}
"""
PAGE = """clusterwatt_rdma_port_up{{device="mlx5_0",port="1"}} {up}
clusterwatt_rdma_port_expected{{device="mlx5_0",port="1"}} 1
"""


class Ports:
    """Agents of nodes with one port each, at `/NODE` of one address."""

    def __init__(self, *nodes: str) -> None:
        self.nodes = nodes
        self.down: set[str] = set()
        ports = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(PAGE.format(up=int(self.path.strip("/") not in ports.down)).encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def scrapes(self) -> str:
        """All of them, as what a Prometheus scrapes."""
        target = f"targets: ['127.0.0.1:{self.server.server_address[1]}']"
        each = ", ".join(
            f"{{{target}, labels: {{instance: {node}, __metrics_path__: /{node}}}}}" for node in self.nodes
        )
        return (
            f"- {{job_name: clusterwatt, scrape_interval: 1s, scrape_timeout: 1s, static_configs: [{each}]}}"
        )


@contextlib.contextmanager
def ports(*nodes: str) -> Iterator[Ports]:
    made = Ports(*nodes)
    with alerting.in_thread(made.server):
        yield made


def states(prometheus: servers.Server) -> dict[str, str]:
    """Pending or firing, by node."""
    return {
        alert["labels"]["instance"]: alert["state"]
        for alert in alerting.active(prometheus)
        if alert["labels"]["alertname"] == "FabricPortDown"
    }


def test_alerts_go_on_over_a_restart_of_prometheus(
    prometheus_program: Path, alertmanager_program: Path, tmp_path: Path
) -> None:
    alerting.export_rules(tmp_path, OVERRIDES)
    for file in (tmp_path / "rules").glob("*.yaml"):  # a site cannot have them so often, a test can
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("interval: 10s", f"interval: {EVALUATED_EVERY_S}s"), encoding="utf-8")
    with (
        alerting.inbox() as box,
        alerting.alertmanager(alertmanager_program, tmp_path, box) as alerts_at,
        ports("node-0001", "node-0002") as nodes,
    ):

        def prometheus() -> contextlib.AbstractContextManager[servers.Server]:
            text = alerting.config(alerts_at, tmp_path, nodes.scrapes())
            options = (alerting.RESEND, "--rules.alert.for-grace-period=1s")
            return servers.prometheus_with(prometheus_program, tmp_path, text, *options)

        def told(node: str) -> list[alerting.Message]:
            return [message for message in box.named("FabricPortDown") if message.labels["instance"] == node]

        with prometheus() as first:
            nodes.down = {"node-0001"}
            servers.until(lambda: states(first).get("node-0001") == "pending", WITHIN_S, "one waits")
            time.sleep(FOR_S - WAITED_S)
            nodes.down = {"node-0001", "node-0002"}
            servers.until(lambda: told("node-0001"), WITHIN_S, "one is told")
            assert states(first)["node-0002"] == "pending"
            first.process.kill()
            killed_s = time.monotonic()
        started_s = time.monotonic()
        with prometheus():
            servers.until(lambda: told("node-0002"), WITHIN_S, "the other is told")
            # One that waited anew would take at least all of its time.
            assert time.monotonic() - started_s < FOR_S
            time.sleep(max(0.0, killed_s + 1.5 * VALID_S - time.monotonic()))
        for node in nodes.nodes:
            assert [message.status for message in told(node)] == ["firing"], node
