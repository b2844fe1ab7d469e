"""A Kubernetes API server that holds a few objects, over TLS, for who shows the right token."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

DISCOVERY = {
    "/api/v1": {"Pod": "pods", "Node": "nodes"},
    "/apis/batch/v1": {"Job": "jobs", "CronJob": "cronjobs"},
    "/apis/apps/v1": {
        "Deployment": "deployments",
        "ReplicaSet": "replicasets",
        "StatefulSet": "statefulsets",
    },
    "/apis/jobset.x-k8s.io/v1alpha2": {"JobSet": "jobsets"},
    "/apis/kubeflow.org/v1": {"PyTorchJob": "pytorchjobs", "MPIJob": "mpijobs", "Notebook": "notebooks"},
    "/apis/ray.io/v1": {"RayJob": "rayjobs", "RayCluster": "rayclusters"},
    "/apis/leaderworkerset.x-k8s.io/v1": {"LeaderWorkerSet": "leaderworkersets"},
    "/apis/batch.volcano.sh/v1alpha1": {"Job": "jobs"},
    "/apis/example.com/v1": {"Experiment": "experiments"},
}


def reference(kind: str, name: str, *, group: str = "batch/v1", controller: bool = True) -> dict[str, Any]:
    return {
        "apiVersion": group,
        "kind": kind,
        "name": name,
        "uid": f"uid-of-{name}",
        "controller": controller,
        "blockOwnerDeletion": True,
    }


class ApiServer:
    """`lists` and `objects` by path; `status`: by the beginning of a path, what is answered instead."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pods: list[dict[str, Any]] = []
        self.slices: dict[str, list[dict[str, Any]]] = {}
        self.objects: dict[str, dict[str, Any]] = {
            root: {
                "resources": [
                    {"name": name, "kind": kind, "namespaced": kind != "Node"} for kind, name in kinds.items()
                ]
            }
            for root, kinds in DISCOVERY.items()
        }
        for root in DISCOVERY:  # with their parts, which are no objects of their own
            self.objects[root]["resources"].append({"name": "jobs/status", "kind": "Job", "namespaced": True})
        self.objects["/api/v1/nodes/node-a"] = {
            "metadata": {"name": "node-a", "labels": {"nvidia.com/gpu.present": "true", "zone": "a"}}
        }
        self.status: dict[str, int] = {}
        self.bodies: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.queries: list[Mapping[str, list[str]]] = []
        self.accepted: list[str] = []
        self.tokens = {"first"}
        self.expired = False  # lists of an earlier version are no longer had
        self.token_file = folder / "token"
        self.token_file.write_text("first\n")
        self.ca_file = folder / "ca.pem"
        certificate, key = certificates(folder)
        self._server = _Server(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def pod(
        self,
        namespace: str,
        name: str,
        uid: str,
        *owners: dict[str, Any],
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        phase: str = "Running",
        hostname: str | None = None,
    ) -> None:
        """A pod of the node, with the parts that nobody may read."""
        meta = {"namespace": namespace, "name": name, "uid": uid, "ownerReferences": list(owners)}
        environment = [{"name": "DB_PASSWORD", "value": "EXAMPLE-NOT-REAL"}]
        self.pods.append(
            {
                "metadata": {**meta, "labels": labels, "annotations": annotations},
                "spec": {"hostname": hostname, "containers": [{"name": "main", "env": environment}]},
                "status": {"phase": phase, "startTime": "2023-11-14T22:00:00Z"},
            }
        )

    def object(
        self,
        root: str,
        namespace: str,
        plural: str,
        name: str,
        *owners: dict[str, Any],
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        meta = {
            "namespace": namespace,
            "name": name,
            "uid": f"uid-of-{name}",
            "ownerReferences": list(owners),
        }
        self.objects[f"{root}/namespaces/{namespace}/{plural}/{name}"] = {
            "metadata": {**meta, "labels": labels, "annotations": annotations}
        }

    def answer(self, path: str, token: str) -> tuple[int, bytes]:
        if token not in self.tokens:
            return 401, b"{}"
        for beginning, status in self.status.items():
            if path.startswith(beginning):
                return status, b'{"kind": "Status"}'
        if path in self.bodies:
            return 200, self.bodies[path]
        if path == "/api/v1/pods" and self.expired and "resourceVersion" in self.queries[-1]:
            return 410, b"{}"
        if path == "/api/v1/pods":
            return 200, json.dumps({"items": self.pods}).encode()
        version = path.removeprefix("/apis/resource.k8s.io/").removesuffix("/resourceslices")
        if version in self.slices:
            return 200, json.dumps({"items": self.slices[version]}).encode()
        found = self.objects.get(path)
        return (404, b"{}") if found is None else (200, json.dumps(found).encode())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                server.asked.append(parts.path)
                server.queries.append(parse_qs(parts.query))
                server.accepted.append(self.headers["Accept"])
                token = (self.headers["Authorization"] or "").removeprefix("Bearer ")
                status, body = server.answer(parts.path, token)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that does not trust the certificate hangs up."""


def certificates(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key; the authority's is left in ca.pem.

    As in many clusters the certificate does not name its authority's key.
    """
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not here: it makes the API server's certificate")
    authority, certificate, key = folder / "ca.pem", folder / "server.pem", folder / "server.key"
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    signed = ("-CA", str(authority), "-CAkey", str(folder / "ca.key"))
    names = ("-addext", "subjectAltName=IP:127.0.0.1", "-addext", "authorityKeyIdentifier=none")
    for arguments in (
        (*new, "-keyout", str(folder / "ca.key"), "-out", str(authority), "-subj", "/CN=kubernetes"),
        (*new, "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=api", *signed, *names),
    ):
        subprocess.run([openssl, "req", "-x509", "-days", "2", *arguments], check=True, capture_output=True)
    return certificate, key
