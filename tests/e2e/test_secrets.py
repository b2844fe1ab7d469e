"""Secrets that are planted wherever the agent comes by, and are nowhere in what it writes or answers."""

from __future__ import annotations

import base64
import contextlib
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.e2e.servers import Server, agent, until
from tests.expose.certificates import Authority, Pair
from tests.expose.test_auth import hashed
from tests.feeds.web import serving
from tests.workloads.kubernetes.kubelet_server import Kubelet, container, pod, socket_folder
from tests.workloads.trees import Tree

pytestmark = pytest.mark.e2e

WITHIN_S = 30.0
# Each begins with a word of its own, so that a failure says where it comes from.
PASSWORD = "planted-password-7f3a"
OTHER_PASSWORD = "planted-wrong-password-7f3a"
PLAIN_IN_FILE = "planted-plain-in-file-7f3a"
FEED_KEY = "planted-feed-key-7f3a"
CLUSTER_TOKEN = "planted-cluster-token-7f3a"
OF_JOB = "planted-in-job-7f3a"
ARGUMENT = "planted-argument-7f3a"
OF_AGENT = "planted-in-agent-7f3a"
IN_URL = "planted-in-url-7f3a"
HASH = hashed(PASSWORD)
SCOPE = "/system.slice/slurmstepd.scope"


def echo(request: BaseHTTPRequestHandler) -> None:
    """A service that answers with all that it was sent, as careless ones do in their errors."""
    content = str(request.headers).encode()
    request.send_response(500, FEED_KEY)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)


def node(root: Path) -> Tree:
    """A node with a Slurm job whose process has secrets in its environment and on its command line."""
    tree = Tree(root)
    tree.write("/proc/sys/kernel/random/boot_id", "6e6ff0c4-95bb-4bf5-a7b6-3bf9b5a3a5a9\n")
    tree.cgroup(f"{SCOPE}/job_77/step_batch/user/task_0", 100)
    tree.process(100, {"SLURM_JOB_ID": "77", "DB_PASSWORD": OF_JOB, "SLURM_JOB_GPUS": "0"})
    tree.write("/proc/100/cmdline", f"python\0train.py\0--api-key={ARGUMENT}\0")
    tree.write("/proc/100/cgroup", f"0::{SCOPE}/job_77/step_batch/user/task_0\n")
    return tree


@contextlib.contextmanager
def kubelet() -> Iterator[Path]:
    """The socket of a kubelet that has a pod with a GPU, so that the cluster is asked for it."""
    with socket_folder() as folder:
        server = Kubelet(folder / "kubelet.sock")
        server.say(pod("team", "train-0", container("main", {"nvidia.com/gpu": ["GPU-unknown"]})))
        try:
            yield server.path
        finally:
            server.stop()


def everything(folder: Path) -> Iterator[tuple[str, bytes]]:
    """All that the agent has written, unpacked where it is packed."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.name, path.read_bytes()
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as bundle:
                    for name in bundle.namelist():
                        content = bundle.read(name)
                        yield f"{path.name}/{name}", content
                        with contextlib.suppress(zlib.error):
                            yield f"{path.name}/{name}", zlib.decompressobj(47).decompress(content)


def asked(server: Server, path: str, trust: ssl.SSLContext, password: str | None, **headers: str) -> bytes:
    """All of an answer, whatever its status."""
    request = urllib.request.Request(server.url + path, headers=headers)
    if password is not None:
        pair = base64.b64encode(f"prometheus:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {pair}")
    try:
        with urllib.request.urlopen(request, timeout=10, context=trust) as answer:
            return str(answer.headers).encode() + bytes(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.reason}{error.headers}".encode() + error.read()


def test_g18_no_secret_is_in_pages_logs_ledger_receipts_captures_or_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, written = tmp_path / "given", tmp_path / "written"
    written.mkdir()
    tree = node(tmp_path / "root")
    authority = Authority()
    pair: Pair = authority.pair()
    _, key = pair.write(given)
    key_text = pair.key_pem.splitlines()[1].decode()
    web = f"""tls_server_config: {{cert_file: tls.crt, key_file: tls.key}}
basic_auth_users: {{prometheus: {HASH}}}
"""
    (given / "web.yml").write_text(web)
    (given / "feed-key").write_text(FEED_KEY)
    (given / "token").write_text(CLUSTER_TOKEN)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", OF_AGENT)
    trust = authority.client()
    pages: list[bytes] = []
    of_service = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_service.load_cert_chain(*authority.pair().write(given, "service"))
    (given / "ca.crt").write_bytes(authority.pem)
    with serving(of_service) as service, kubelet() as socket:
        service.answer = echo
        settings = {
            "log.level": "debug",
            "simulate.jobs": "false",
            "node.root": str(tree.root),
            "limits.profile": "full",
            "expose.node_exporter_names": "true",
            "http.web_config_file": str(given / "web.yml"),
            "ledger.path": str(written / "ledger.db"),
            "ledger.commit_seconds": "0.5",
            "recorder.directory": str(written / "flight"),
            "feeds.grid.service.url": service.url,
            "feeds.grid.service.value_path": "v",
            "feeds.grid.service.header": "auth-token",
            "feeds.grid.service.header_file": str(given / "feed-key"),
            "workloads.kubernetes.api_url": service.url,
            "workloads.kubernetes.token_file": str(given / "token"),
            "workloads.kubernetes.ca_file": str(given / "ca.crt"),
            "feeds.grid.service.ca_file": str(given / "ca.crt"),
            "workloads.kubernetes.node_name": "node-a",
            "workloads.kubernetes.socket": str(socket),
        }
        arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        with agent(written, "--simulate", "h100", *arguments, tls=trust) as server:

            def page() -> bytes:
                return asked(server, "/metrics", trust, PASSWORD)

            until(lambda: b'job_id="slurm/77"' in page(), WITHIN_S, "the job is attributed")
            until(
                lambda: CLUSTER_TOKEN in str(service.requests),
                WITHIN_S,
                "the cluster was asked with its token",
            )
            until(lambda: FEED_KEY in str(service.requests), WITHIN_S, "the service was asked with its key")
            server.process.send_signal(signal.SIGUSR2)
            tree.remove(f"{SCOPE}/job_77")
            for path in ("/metrics", "/dcgm/metrics", "/node/metrics", "/api/v1/node", "/nothing", "/readyz"):
                for password in (None, PASSWORD, OTHER_PASSWORD):
                    told = asked(server, f"{path}?token={IN_URL}", trust, password, Expect=IN_URL)
                    pages += [told, asked(server, f"{path}?token={IN_URL}", trust, password)]
            pages.append(asked(server, f"/{IN_URL}", trust, PASSWORD))
            refused_now = errors(page())
            (given / "web.yml").write_text(f"{web}{PLAIN_IN_FILE}: *{PLAIN_IN_FILE}\n")
            until(lambda: errors(page()) > refused_now, WITHIN_S, "the file was refused")
            key.write_text(f"-----BEGIN PRIVATE KEY-----\n{key_text}\n")
            (given / "web.yml").write_text(web)
            until(lambda: "key_file" in server.log.read_text(), WITHIN_S, "the key was refused")
            server.process.send_signal(signal.SIGHUP)
            until(lambda: any((written / "flight").glob("*.zip")), WITHIN_S, "a bundle of the recorder")
            until(lambda: any((written / "receipts").glob("*")), WITHIN_S, "a receipt of the job")
            pages.append(page())
    done = subprocess.run(
        [sys.executable, "-m", "clusterwatt", "capture", written / "capture.zip", "--seconds", "1",
         "--simulate", "h100"],
        capture_output=True,
        check=True,
    )  # fmt: skip
    checked = subprocess.run(
        [sys.executable, "-m", "clusterwatt", "check-config", *arguments], capture_output=True, check=False
    )
    found = [*everything(written), *(("page", page) for page in pages)]
    found += [("command", done.stdout + done.stderr), ("command", checked.stdout + checked.stderr)]
    names = {name for name, _ in found}
    assert {"agent.log", "ledger.db", "capture.zip", "page"} <= names
    assert any(b"slurm/77" in content for name, content in found if name == "ledger.db")
    assert any(name.endswith(".flight.zip") for name in names)
    secrets = (PASSWORD, OTHER_PASSWORD, PLAIN_IN_FILE, FEED_KEY, CLUSTER_TOKEN, OF_JOB, ARGUMENT, OF_AGENT)
    for secret in (*secrets, IN_URL, HASH, HASH[7:29], key_text):
        for text in (secret.encode(), base64.b64encode(f"prometheus:{secret}".encode())):
            assert not [name for name, content in found if text in content], secret


def errors(page: bytes) -> float:
    """Changes of the web file that could not be used so far."""
    lines = [line for line in page.splitlines() if line.startswith(b"clusterwatt_tls_reload_errors_total ")]
    return float(lines[0].split()[1]) if lines else 0.0
