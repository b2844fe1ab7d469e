"""`make demo`: a simulated cluster, Prometheus with our rules, Alertmanager, and Grafana with our boards.

Everything listens on the loopback, keeps what it writes in one folder below the system's temporary ones, and
is gone after Ctrl-C. Prometheus and Alertmanager come from Debian's packages where they are not on PATH;
Grafana, which Debian does not have, takes part where it is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from clusterwatt.config.problems import ConfigError
from clusterwatt.fleet.scenario import load
from clusterwatt.simulate.cluster import Cluster
from clusterwatt.simulate.market import BUDGETS
from tests.tools import apt

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PORTS = {"fleet": 10778, "prometheus": 10779, "alertmanager": 10780, "grafana": 10781}
GRAFANA_HOME = Path("/usr/share/grafana")
READY_S = 120.0
END_S = 10.0
POLL_S = 0.2
SCRAPE_S = 5
PAST_STEP_S = 30
MOST_NODES = 64  # that a scenario may need
LINES = 15  # of the log of a program that has ended


# Debian's programs read their pages and templates below /usr/share. Where one is unpacked, not installed, it
# finds them there in a mount namespace of its own; where there are none to be had, it starts without.
PAGES_IN_PLACE = """
shared=$1 needed=$2; shift 2
if [ ! -d "$shared/$needed" ] || [ -d "/usr/share/prometheus/$needed" ] ||
   ! unshare --map-root-user --mount true; then exec "$@"; fi
exec unshare --map-root-user --mount sh -ec 'shared=$1; shift
  mount -t tmpfs tmpfs /mnt; cp -r "$shared" /mnt/prometheus; mount --bind /mnt /usr/share
  exec "$@"' sh "$shared" "$@"
"""


def _with_pages(package: str, needed: str) -> list[str | Path]:
    """What a command begins with that needs a folder of a Debian package below /usr/share/prometheus."""
    return ["sh", "-c", PAGES_IN_PLACE, "sh", apt.CACHE / package / "usr/share/prometheus", needed]


class DemoError(Exception):
    """Why there is no demonstration, in one line."""


class Program(NamedTuple):
    """A running part of it."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    url: str


class Demo:
    """Programs that end together. `ports`: by name; `folder`: for all that they write."""

    def __init__(self, folder: Path, ports: Mapping[str, int]) -> None:
        self.folder = folder
        self.programs: list[Program] = []
        self._ports = ports
        self._stop = threading.Event()

    def stop(self, *_: object) -> None:
        """Let `wait` return."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        """Whether somebody wants it to end."""
        return self._stop.is_set()

    def url(self, name: str) -> str:
        """Where a program answers."""
        return f"http://127.0.0.1:{self._ports[name]}"

    def listen(self, name: str) -> str:
        """Its address. Raises DemoError when another program has it."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self._ports[name]))
            except OSError as error:
                raise DemoError(
                    f"127.0.0.1:{self._ports[name]} for {name}: {error.strerror}; --port names others"
                ) from None
        return f"127.0.0.1:{self._ports[name]}"

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        ready: str,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start a program and wait for a page of it. Raises DemoError when it does not come."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(variables or {}),
                start_new_session=True,  # Ctrl-C is for this program alone, which ends the others in turn
            )
        program = Program(name, process, log, self.url(name))
        self.programs.append(program)
        end_s = time.monotonic() + READY_S
        while not self.stopped and not _answers(program.url + ready):
            if process.poll() is not None:
                raise DemoError(_ended(program))
            if time.monotonic() > end_s:
                raise DemoError(f"{name} does not answer on {program.url}{ready}\n{_tail(log)}")
            self._stop.wait(POLL_S)

    def drop(self, name: str) -> None:
        """Go on without a program that has ended."""
        self.programs = [program for program in self.programs if program.name != name]

    def wait(self) -> None:
        """Until it is stopped. Raises DemoError when a program ends by itself."""
        while not self._stop.wait(POLL_S):
            for program in self.programs:
                if program.process.poll() is not None:
                    raise DemoError(_ended(program))

    def close(self) -> None:
        """End all programs, the newest first, and whatever they have started."""
        for program in reversed(self.programs):
            program.process.terminate()
        for program in reversed(self.programs):
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.process.wait(END_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.process.pid, signal.SIGKILL)
            program.process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status < 400)
    except (urllib.error.URLError, OSError):
        return False


def _first(url: str, *paths: str) -> str:
    """The first of these pages that there is."""
    return next((url + path for path in paths if _answers(url + path)), url)


def _ended(program: Program) -> str:
    return f"{program.name} ended with {program.process.returncode}:\n{_tail(program.log)}"


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LINES:])


def _program(name: str) -> Path:
    try:
        return apt.fetch(name)
    except apt.Unavailable as error:
        raise DemoError(f"{name}: {error}") from None


def check_scenario(scenario: str, nodes: int, gpus: int) -> None:
    """Before anything is started. Raises DemoError when the scenario does not fit such a cluster."""
    if not scenario:
        return
    mistake = _mistake(scenario, nodes, gpus)
    if mistake and not _mistake(scenario, MOST_NODES, gpus):
        fewest = next(more for more in range(nodes, MOST_NODES + 1) if not _mistake(scenario, more, gpus))
        mistake = f"the scenario {scenario} needs {fewest} nodes or more, not {nodes}; --scenario= plays none"
    if mistake:
        raise DemoError(mistake)


def _mistake(scenario: str, nodes: int, gpus: int) -> str:
    try:
        load(scenario, Cluster(nodes, gpus, 1), BUDGETS)
    except ConfigError as error:
        return str(error)
    return ""


def start_fleet(demo: Demo, nodes: int, gpus: int, scenario: str) -> None:
    """The simulated cluster."""
    command = [sys.executable, "-m", "clusterwatt", "simulate", "fleet", "--listen", demo.listen("fleet")]
    command += [f"--nodes={nodes}", f"--gpus={gpus}"]
    demo.start("fleet", [*command, f"--scenario={scenario}"], f"/node-{nodes:04d}/metrics")


def write_past(demo: Demo, nodes: int, gpus: int, hours: int) -> None:
    """Blocks of the hours before, so that the boards are not empty."""
    text = demo.folder / "past"
    command = [sys.executable, "-m", "clusterwatt", "simulate", "backfill", f"--hours={hours}"]
    command += [f"--nodes={nodes}", f"--gpus={gpus}", f"--step={PAST_STEP_S}"]
    _run([*command, text])
    for file in sorted(text.glob("*.om")):
        _run([_program("promtool"), "tsdb", "create-blocks-from", "openmetrics", file, demo.folder / "tsdb"])
    shutil.rmtree(text)


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DemoError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()}")


def start_prometheus(demo: Demo) -> None:
    """Debian's Prometheus with the shipped rules; it finds the nodes by itself."""
    config = demo.folder / "prometheus.yaml"
    alerting = {"static_configs": [{"targets": [demo.url("alertmanager").removeprefix("http://")]}]}
    settings = {
        "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": "15s"},
        "rule_files": [str(DEPLOY / "prometheus/rules/*.yaml")],
        "alerting": {"alertmanagers": [alerting]},
        "scrape_configs": [
            {
                "job_name": "clusterwatt",
                "http_sd_configs": [{"url": f"{demo.url('fleet')}/sd", "refresh_interval": "10s"}],
            }
        ],
    }
    config.write_text(json.dumps(settings, indent=1))
    command: list[str | Path] = [
        *_with_pages("prometheus", "web"),
        _program("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={demo.folder / 'tsdb'}",
        f"--web.listen-address={demo.listen('prometheus')}",
    ]
    demo.start("prometheus", command, "/-/ready")


def start_alertmanager(demo: Demo) -> bool:
    """Alertmanager with the shipped inhibition, which tells nobody; False where it cannot be had."""
    try:
        program = apt.fetch("alertmanager")
    except apt.Unavailable as error:
        print(f"Without Alertmanager: {error}")
        return False
    shipped = yaml.safe_load((DEPLOY / "alertmanager/alertmanager.yaml").read_text())
    config = demo.folder / "alertmanager.yaml"
    settings = {
        "route": {"receiver": "nobody", "group_by": ["alertname", "instance"]},
        "receivers": [{"name": "nobody"}],
        "inhibit_rules": shipped["inhibit_rules"],
    }
    config.write_text(json.dumps(settings, indent=1))
    command: list[str | Path] = [
        *_with_pages("prometheus-alertmanager", "alertmanager"),
        program,
        f"--config.file={config}",
        f"--storage.path={demo.folder / 'alertmanager'}",
        f"--web.listen-address={demo.listen('alertmanager')}",
        "--cluster.listen-address=",
    ]
    try:
        demo.start("alertmanager", command, "/-/ready")
    except DemoError as error:
        print(f"Without Alertmanager: {error}")
        demo.drop("alertmanager")
        return False
    return True


def start_grafana(demo: Demo) -> bool:
    """Grafana with the boards, for everybody to look at; False where it is not installed."""
    program = shutil.which("grafana") or shutil.which("grafana-server")
    if program is None:
        print("Without Grafana: it is not on PATH. https://grafana.com/docs/grafana/latest/setup-grafana/")
        return False
    root = demo.folder / "grafana"
    sources, dashboards, boards = root / "datasources", root / "dashboards", root / "boards"
    for folder in (sources, dashboards, boards):
        folder.mkdir(parents=True)
    source = {
        "name": "Prometheus",
        "uid": "demo",
        "type": "prometheus",
        "access": "proxy",
        "isDefault": True,
        "url": demo.url("prometheus"),
        "jsonData": {"timeInterval": f"{SCRAPE_S}s"},
    }
    (sources / "demo.yaml").write_text(json.dumps({"apiVersion": 1, "datasources": [source]}, indent=1))
    _run([sys.executable, "-m", "clusterwatt", "export", "boards", "--datasource", "demo", boards])
    (boards / "provider.yaml").rename(dashboards / "provider.yaml")
    address, _, port = demo.listen("grafana").partition(":")
    variables = {
        "GF_PATHS_DATA": str(root / "data"),
        "GF_PATHS_LOGS": str(root / "logs"),
        "GF_PATHS_PLUGINS": str(root / "plugins"),
        "GF_PATHS_PROVISIONING": str(root),
        "GF_SERVER_HTTP_ADDR": address,
        "GF_SERVER_HTTP_PORT": port,
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
    }
    home = Path(os.environ.get("GF_PATHS_HOME", GRAFANA_HOME))
    command: list[str | Path] = [
        program,
        *(["server"] if Path(program).name == "grafana" else []),
        f"--homepath={home}",
    ]
    demo.start("grafana", command, "/api/health", variables)
    return True


def show(demo: Demo, *, alertmanager: bool, grafana: bool) -> None:
    """What to open."""
    pages = [("The cluster, node by node", demo.url("fleet"))]
    # Debian's builds have the older pages, or none.
    alerts = _first(demo.url("prometheus"), "/alerts", "/classic/alerts", "/api/v1/alerts")
    pages.append(("Alerts and queries", alerts))
    if alertmanager:
        pages.append(("Alerts as they are sent", _first(demo.url("alertmanager"), "", "/api/v2/alerts")))
    if grafana:
        pages.append(("Boards", f"{demo.url('grafana')}/dashboards"))
    print("Every value is simulated. Open:")
    for title, url in pages:
        print(f"  {title:<26}{url}")
    print("Ctrl-C ends it.", flush=True)


@contextlib.contextmanager
def prepared(first_port: int) -> Iterator[Demo]:
    """A demonstration in a folder of its own; afterwards nothing of it is left."""
    ports = {name: port - PORTS["fleet"] + first_port for name, port in PORTS.items()}
    with tempfile.TemporaryDirectory(prefix="clusterwatt-demo-") as name:
        demo = Demo(Path(name), ports)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, demo.stop)
        try:
            yield demo
        finally:
            demo.close()


def main(arguments: Sequence[str]) -> int:
    """Run it until Ctrl-C; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make demo", description="A simulated cluster to look at.")
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--scenario", default="everything", help="faults to play; empty: none")
    parser.add_argument("--past", type=int, default=1, metavar="HOURS", help="of the past; default 1")
    parser.add_argument("--port", type=int, default=PORTS["fleet"], help="the first of four")
    wanted = parser.parse_args(arguments)
    try:
        check_scenario(wanted.scenario, wanted.nodes, wanted.gpus)
        with prepared(wanted.port) as demo:
            print("Starting; the first time, programs are downloaded.", flush=True)
            if wanted.past:
                write_past(demo, wanted.nodes, wanted.gpus, wanted.past)
            start_fleet(demo, wanted.nodes, wanted.gpus, wanted.scenario)
            alertmanager = start_alertmanager(demo)
            start_prometheus(demo)
            grafana = start_grafana(demo)
            if not demo.stopped:
                show(demo, alertmanager=alertmanager, grafana=grafana)
            demo.wait()
    except DemoError as error:
        print(f"make demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
