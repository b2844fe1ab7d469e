"""What the kubelet's service says, from gRPC's own server; and what it should not say."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.workloads.kubernetes import kubelet as asked
from clusterwatt.workloads.kubernetes.kubelet import Assigned, AssignedPod, ClaimedDevice, Container
from clusterwatt.workloads.kubernetes.rpc import RpcError
from tests.workloads.kubernetes.kubelet_server import Kubelet, claim, container, encoded, pod, socket_folder

GPU = "GPU-aaaaaaaa-0000-0000-0000-00000000000a"


def pods(path: Path, deadline_s: float = 10.0) -> list[AssignedPod]:
    return asked.assigned_pods(str(path), SystemClock(), deadline_s)


@contextmanager
def saying(*answers: bytes) -> Iterator[Path]:
    """A socket on which each connection is given bytes, and closed when the client closes."""
    with socket_folder() as folder, socket.socket(socket.AF_UNIX) as listening:
        path = folder / "s"
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            for answer in answers:
                connection, _ = listening.accept()
                with connection:
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(4096):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        thread.join(10)


def test_whole_shared_and_claimed_devices_are_read(kubelet: Kubelet) -> None:
    kubelet.say(
        pod("team", "train-0", container("main", {"nvidia.com/gpu": [GPU, f"{GPU}::3"]}), container("side")),
        pod("team", "dra", container("main", {}, claim("gpu-0", "k8s.gpu.nvidia.com/device=gpu-0"))),
        pod("kube-system", "proxy"),
    )
    assert pods(kubelet.path) == [
        AssignedPod(
            "team",
            "train-0",
            (
                Container("main", (Assigned("nvidia.com/gpu", (GPU, f"{GPU}::3")),), ()),
                Container("side", (), ()),
            ),
        ),
        AssignedPod(
            "team",
            "dra",
            (
                Container(
                    "main",
                    (),
                    (
                        ClaimedDevice(
                            "gpu.nvidia.com", "node-a", "gpu-0", ("k8s.gpu.nvidia.com/device=gpu-0",)
                        ),
                    ),
                ),
            ),
        ),
        AssignedPod("kube-system", "proxy", ()),
    ]


def test_a_kubelet_without_pods_has_none(kubelet: Kubelet) -> None:
    assert pods(kubelet.path) == []


def test_an_answer_of_more_than_4_mib_is_read(kubelet: Kubelet) -> None:
    many = [
        pod(
            "team",
            f"pod-{number}",
            container("main", {"example.com/nic": [f"nic-{number}-{i:040}" for i in range(100)]}),
        )
        for number in range(1200)
    ]
    assert len(encoded(*many)) > 5 << 20
    kubelet.say(*many)
    assert [found.name for found in pods(kubelet.path)] == [f"pod-{number}" for number in range(1200)]


def test_an_answer_over_the_limit_is_refused(kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "MAX_ANSWER_BYTES", 10_000)
    kubelet.say(pod("team", "big", container("main", {"example.com/nic": ["x" * 10_001]})))
    with pytest.raises(RpcError, match="more than 10000 bytes"):
        pods(kubelet.path)


def test_an_old_kubelet_is_asked_for_v1alpha1() -> None:
    with socket_folder() as folder:
        kubelet = Kubelet(folder / "s", version="v1alpha1")
        try:
            kubelet.say(pod("team", "old", container("main", {"nvidia.com/gpu": [GPU]})))
            assert [found.name for found in pods(kubelet.path)] == ["old"]
        finally:
            kubelet.stop()


def test_a_kubelet_that_has_neither_is_refused() -> None:
    with socket_folder() as folder:
        kubelet = Kubelet(folder / "s", version="v2")
        try:
            with pytest.raises(RpcError, match="gRPC status 12"):
                pods(kubelet.path)
        finally:
            kubelet.stop()


def test_what_the_kubelet_says_of_its_failure_is_passed_on(kubelet: Kubelet) -> None:
    kubelet.code = grpc.StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(RpcError, match="gRPC status 8: für später"):
        pods(kubelet.path)


def test_a_kubelet_that_hangs_costs_the_deadline(kubelet: Kubelet) -> None:
    kubelet.hang()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.3 s"):
        pods(kubelet.path, 0.3)


def test_a_kubelet_that_is_replaced_is_found_again(kubelet: Kubelet) -> None:
    kubelet.say(pod("team", "one"))
    assert len(pods(kubelet.path)) == 1
    kubelet.stop()
    with pytest.raises(FileNotFoundError):
        pods(kubelet.path)
    kubelet.start()
    assert len(pods(kubelet.path)) == 1


def test_a_socket_that_nobody_serves_is_an_error() -> None:
    with socket_folder() as folder, socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "s"))
        with pytest.raises(ConnectionRefusedError, match=r"/s"):
            pods(folder / "s")


# An empty SETTINGS frame; then HEADERS of stream 1 with :status 200 alone, which ends the stream.
SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
NOT_GRPC = SETTINGS + bytes((0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88))


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 4096, bytes(range(256)) * 20, SETTINGS, NOT_GRPC],
)
def test_garbage_is_an_error_of_the_call(answer: bytes) -> None:
    with saying(answer) as path, pytest.raises(RpcError):
        pods(path)


def test_a_message_that_is_no_list_of_pods_is_an_error_of_the_call(kubelet: Kubelet) -> None:
    kubelet.answer = lambda: b"\x0a\xff\xff\xff\xff\x0fnot a message"
    with pytest.raises(RpcError, match="cannot be read"):
        pods(kubelet.path)
