"""The way of an alert for the end-to-end tests: Prometheus with our rules, Alertmanager, and who is told."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from clusterwatt import cli
from tests.e2e import servers
from tests.tools import apt

CONFIG = Path(__file__).parents[2] / "deploy/alertmanager/alertmanager.yaml"
RUNBOOKS = "https://runbooks.example.com"

# Debian's Alertmanager reads its templates below /usr/share, where nothing is installed: in a mount namespace
# of its own it finds those of the unpacked package there.
IN_NAMESPACE = ("unshare", "--map-root-user", "--mount")
TEMPLATES = "/usr/share/prometheus/alertmanager"
TEMPLATES_IN_PLACE = (
    *(*IN_NAMESPACE, "sh", "-ec"),
    """mount -t tmpfs tmpfs /mnt; cp -r "$1" /mnt/prometheus; mount --bind /mnt /usr/share
       shift; exec "$@" """,
    "alertmanager",
    apt.CACHE / "prometheus-alertmanager/usr/share/prometheus",
)


class Message(NamedTuple):
    """An alert as Alertmanager sent it to a receiver; `after_s`: since the inbox was opened."""

    receiver: str
    status: str
    labels: dict[str, str]
    annotations: dict[str, str]
    after_s: float

    @property
    def name(self) -> str:
        """Of the rule."""
        return self.labels["alertname"]


class Inbox:
    """A webhook in place of every receiver, which keeps what it is sent."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        inbox, opened_s = self, time.monotonic()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver, after_s = self.path.strip("/"), time.monotonic() - opened_s
                inbox.messages += [
                    Message(receiver, alert["status"], alert["labels"], alert["annotations"], after_s)
                    for alert in body["alerts"]
                ]
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def named(self, name: str) -> list[Message]:
        """What came of a rule so far."""
        return [message for message in list(self.messages) if message.name == name]

    def has(self, name: str, receiver: str, said: Mapping[str, str]) -> bool:
        """Whether the receiver was told of an alert with these labels."""
        return any(
            message.receiver == receiver and said.items() <= message.labels.items()
            for message in self.named(name)
        )


@contextlib.contextmanager
def in_thread(server: ThreadingHTTPServer) -> Iterator[None]:
    """Have a server answer as long as the block lasts."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def inbox() -> Iterator[Inbox]:
    box = Inbox()
    with in_thread(box.server):
        yield box


def export_rules(folder: Path, overrides: str) -> None:
    """The rules of a site that has written these overrides, into `folder/rules`."""
    (folder / "overrides.yaml").write_text(overrides, encoding="utf-8")
    changed = ["--overrides", str(folder / "overrides.yaml")]
    assert cli.main(["export", "rules", str(folder / "rules"), *changed]) == 0


def example() -> dict[str, Any]:
    """The example without what is of a site, and at once instead of after half a minute."""
    text = re.sub(r"(group_wait|group_interval): \w+", r"\1: 1s", CONFIG.read_text(encoding="utf-8"))
    document: dict[str, Any] = yaml.safe_load(text)
    del document["global"]
    document["templates"] = [str(CONFIG.parent / "templates/*.tmpl")]
    return document


@contextlib.contextmanager
def alertmanager(program: Path, folder: Path, box: Inbox) -> Iterator[str]:
    """With the routes and inhibitions of the example, which tells all to the inbox."""
    document = example()
    document["receivers"] = [
        {"name": one["name"], "webhook_configs": [{"url": f"{box.url}/{one['name']}"}]}
        for one in document["receivers"]
    ]
    with alertmanager_with(program, folder, document) as url:
        yield url


@contextlib.contextmanager
def alertmanager_with(program: Path, folder: Path, document: Mapping[str, Any]) -> Iterator[str]:
    """With this configuration."""
    config, log, port = folder / "alertmanager.yaml", folder / "alertmanager.log", servers.free_port()
    config.write_text(yaml.safe_dump(document))
    command: list[str | Path] = [
        *_with_templates(),
        program,
        f"--config.file={config}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    with servers.running(command, log) as process:
        servers.wait_for(process, log, lambda: servers.answers(f"http://127.0.0.1:{port}/-/ready"), "ready")
        yield f"http://127.0.0.1:{port}"


def _with_templates() -> Sequence[str | Path]:
    if Path(TEMPLATES).is_dir():
        return ()
    if subprocess.run([*IN_NAMESPACE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine: no mount namespace, so Debian's Alertmanager would not find its templates")
    return TEMPLATES_IN_PLACE


RESEND = "--rules.alert.resend-delay=5s"


def config(alerts_at: str, folder: Path, scrapes: str, replica: str = "a") -> str:
    """Of a Prometheus with the rules in `folder/rules`, which is one of several replicas."""
    return f"""
global: {{scrape_interval: 3s, scrape_timeout: 3s, external_labels: {{replica: {replica}}}}}
rule_files: ['{folder}/rules/*.yaml']
alerting:
  alert_relabel_configs: [{{action: labeldrop, regex: replica}}]
  alertmanagers: [{{static_configs: [{{targets: ['{alerts_at.removeprefix("http://")}']}}]}}]
scrape_configs:
{scrapes}"""


def discovered(cluster: servers.Server) -> str:
    """The nodes of a simulated cluster, as what a Prometheus scrapes."""
    asked = f"{{url: '{cluster.url}/sd', refresh_interval: 5s}}"
    return f"- {{job_name: clusterwatt, http_sd_configs: [{asked}]}}\n"


def active(prometheus: servers.Server) -> list[dict[str, Any]]:
    """The alerts that a Prometheus holds for pending or firing."""
    found: list[dict[str, Any]] = json.loads(prometheus.get("/api/v1/alerts"))["data"]["alerts"]
    return found


def held(alerts_at: str) -> list[dict[str, Any]]:
    """The alerts that Alertmanager has, sent or held back."""
    with urllib.request.urlopen(f"{alerts_at}/api/v2/alerts", timeout=servers.ANSWER_S) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


def inhibited(alerts_at: str, name: str, severity: str, **labels: str) -> bool:
    """Whether there is such an alert and an inhibition holds all of them back."""
    labels |= {"alertname": name, "severity": severity}
    states = [
        alert["status"]["state"] for alert in held(alerts_at) if labels.items() <= alert["labels"].items()
    ]
    return bool(states) and set(states) == {"suppressed"}
