"""The API over TLS: tokens that change, answers without an end, and who answers in its place."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.config.model import Kubernetes
from clusterwatt.workloads.kubernetes import api as asked
from clusterwatt.workloads.kubernetes.api import Address, Api, ApiError, address
from clusterwatt.workloads.kubernetes.objects import PodList
from tests.workloads.kubernetes.api_server import ApiServer


def client(api: ApiServer, *, deadline_s: float = 5.0, ca_file: str | None = None) -> Api:
    trusted = str(api.ca_file) if ca_file is None else ca_file
    return Api(Address(api.url, str(api.token_file), trusted), SystemClock(), deadline_s)


def pod_names(api: Api) -> list[str]:
    return [pod.metadata.name for pod in api.get("/api/v1/pods", PodList).items or ()]


def test_a_token_that_was_replaced_is_used_at_once(api: ApiServer) -> None:
    api.pod("team", "one", "1")
    asking = client(api)
    assert pod_names(asking) == ["one"]
    api.tokens = {"second"}
    with pytest.raises(ApiError, match="HTTP status 401") as refused:
        pod_names(asking)
    assert "first" not in str(refused.value)
    api.token_file.write_text("second")
    assert pod_names(asking) == ["one"]


def test_only_who_the_authority_has_signed_gets_the_token(api: ApiServer, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    stranger = ApiServer(other)
    try:
        with pytest.raises(ssl.SSLCertVerificationError):
            pod_names(client(api, ca_file=str(stranger.ca_file)))
        with pytest.raises(ssl.SSLCertVerificationError):
            pod_names(client(api, ca_file=""))
    finally:
        stranger.close()
    assert api.asked == []


def test_an_answer_without_an_end_is_cut_off(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "MAX_ANSWER_BYTES", 100_000)
    for number in range(1000):
        api.pod("team", f"pod-{number}", str(number))
    with pytest.raises(ApiError, match="more than 100000 bytes"):
        pod_names(client(api))


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"\xff\xfe", b'{"items": 3}', b"[" * 100_000, b'{"items": [{"metadata": {"uid": 7}}]}'],
)
def test_what_is_no_list_of_pods_is_an_error(api: ApiServer, body: bytes) -> None:
    api.bodies["/api/v1/pods"] = body
    with pytest.raises(ApiError, match="cannot be read"):
        pod_names(client(api))


def test_a_redirect_is_not_followed(api: ApiServer) -> None:
    api.status["/api/v1/pods"] = 307
    with pytest.raises(ApiError, match="HTTP status 307"):
        pod_names(client(api))


def test_a_server_that_says_nothing_costs_the_deadline(api: ApiServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = Address(f"http://127.0.0.1:{silent.getsockname()[1]}", "", "")
        with pytest.raises(TimeoutError, match="no answer from"):
            pod_names(Api(where, SystemClock(), 0.2))


def test_what_does_not_speak_http_is_an_error_and_gets_no_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("EXAMPLE-NOT-REAL")
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                heard.append(connection.recv(4096))
                connection.sendall(b"SSH-2.0-OpenSSH\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        where = Address(f"http://127.0.0.1:{listening.getsockname()[1]}", str(token), "")
        with pytest.raises(ApiError, match="does not speak HTTP"):
            pod_names(Api(where, SystemClock(), 5.0))
        thread.join(10)
    assert heard[0].startswith(b"GET /api/v1/pods ")
    assert b"EXAMPLE" not in heard[0]


def test_a_missing_token_or_authority_is_an_error(api: ApiServer) -> None:
    api.token_file.unlink()
    with pytest.raises(FileNotFoundError):
        pod_names(client(api))
    with pytest.raises(OSError, match="No such file"):
        pod_names(client(api, ca_file="/nowhere"))


def test_the_cluster_around_the_agent_is_found(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    account = str(tmp_path)
    nothing_said = Kubernetes()
    assert address(nothing_said, environ, account) is None  # no service account is mounted
    (tmp_path / "token").write_text("t")
    assert address(nothing_said, {}, account) is None
    found = Address("https://10.0.0.1:6443", f"{account}/token", f"{account}/ca.crt")
    assert address(nothing_said, environ, account) == found
    environ["KUBERNETES_SERVICE_HOST"] = "fd00::1"
    assert address(Kubernetes(token_file="/t"), environ, account) == Address(
        "https://[fd00::1]:6443", "/t", f"{account}/ca.crt"
    )
    said = Kubernetes(api_url="https://api:1", token_file="/t", ca_file="/c")
    assert address(said, {}, account) == Address("https://api:1", "/t", "/c")


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1",
        b"HTTP/1.1 200 OK\r\nX-More:",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
    ],
)
def test_a_server_that_answers_without_haste_costs_the_deadline(first: bytes) -> None:
    """Each read is in time, and the answer never ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(ConnectionError):
                connection.sendall(first)
                for _ in range(500):
                    connection.sendall(b" ")
                    gone.wait(0.02)

        gone = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        where = Address(f"http://127.0.0.1:{listening.getsockname()[1]}", "", "")
        began_s = time.monotonic()
        with pytest.raises(TimeoutError, match="no answer from"):
            pod_names(Api(where, SystemClock(), 0.3))
        assert time.monotonic() - began_s < 3
        thread.join(10)
    assert not thread.is_alive()
