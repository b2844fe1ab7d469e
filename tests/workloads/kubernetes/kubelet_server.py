"""A kubelet's PodResources service over a unix socket: gRPC's own server, protobuf's own encoder.

The messages are those of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto, with fields that the agent does
not read (NUMA topology, CPU ids, memory) filled in.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FIELD = descriptor_pb2.FieldDescriptorProto
STRING, INT64, UINT64 = FIELD.TYPE_STRING, FIELD.TYPE_INT64, FIELD.TYPE_UINT64

# name: (field, number, repeated, scalar type or name of a message)
MESSAGES: dict[str, tuple[tuple[str, int, bool, Any], ...]] = {
    "ListPodResourcesResponse": (("pod_resources", 1, True, "PodResources"),),
    "PodResources": (
        ("name", 1, False, STRING),
        ("namespace", 2, False, STRING),
        ("containers", 3, True, "ContainerResources"),
        ("cpu_ids", 4, True, INT64),
        ("memory", 5, True, "ContainerMemory"),
    ),
    "ContainerResources": (
        ("name", 1, False, STRING),
        ("devices", 2, True, "ContainerDevices"),
        ("cpu_ids", 3, True, INT64),
        ("memory", 4, True, "ContainerMemory"),
        ("dynamic_resources", 5, True, "DynamicResource"),
    ),
    "ContainerDevices": (
        ("resource_name", 1, False, STRING),
        ("device_ids", 2, True, STRING),
        ("topology", 3, False, "TopologyInfo"),
    ),
    "TopologyInfo": (("nodes", 1, True, "NUMANode"),),
    "NUMANode": (("ID", 1, False, INT64),),
    "ContainerMemory": (
        ("memory_type", 1, False, STRING),
        ("size", 2, False, UINT64),
        ("topology", 3, False, "TopologyInfo"),
    ),
    "DynamicResource": (
        ("claim_name", 2, False, STRING),
        ("claim_namespace", 3, False, STRING),
        ("claim_resources", 4, True, "ClaimResource"),
    ),
    "ClaimResource": (
        ("cdi_devices", 1, True, "CDIDevice"),
        ("driver_name", 2, False, STRING),
        ("pool_name", 3, False, STRING),
        ("device_name", 4, False, STRING),
        ("share_id", 5, False, STRING),
    ),
    "CDIDevice": (("name", 1, False, STRING),),
}


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="api.proto", package="v1", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, repeated, kind in fields:
            added = message.field.add(
                name=field, number=number, label=FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL
            )
            if isinstance(kind, str):
                added.type, added.type_name = FIELD.TYPE_MESSAGE, f".v1.{kind}"
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call,unused-ignore]  # absent from some stubs
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}")) for name in MESSAGES
    }


MESSAGE = _messages()
TOPOLOGY = {"nodes": [{"ID": 0}, {"ID": 1}]}


def pod(namespace: str, name: str, *containers: dict[str, Any]) -> dict[str, Any]:
    return {"namespace": namespace, "name": name, "containers": list(containers), "cpu_ids": [0, 1, 64]}


def container(
    name: str, devices: dict[str, list[str]] | None = None, *claims: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "cpu_ids": [0, 1, 300],
        "memory": [{"memory_type": "memory", "size": 1 << 40, "topology": TOPOLOGY}],
        "devices": [
            {"resource_name": resource, "device_ids": ids, "topology": TOPOLOGY}
            for resource, ids in (devices or {}).items()
        ],
        "dynamic_resources": [
            {"claim_name": "gpus", "claim_namespace": "team", "claim_resources": [claim]} for claim in claims
        ],
    }


def claim(device: str, *cdi: str, pool: str = "node-a", driver: str = "gpu.nvidia.com") -> dict[str, Any]:
    names = [{"name": name} for name in cdi]
    return {"driver_name": driver, "pool_name": pool, "device_name": device, "cdi_devices": names}


def encoded(*pods: dict[str, Any]) -> bytes:
    return bytes(MESSAGE["ListPodResourcesResponse"](pod_resources=list(pods)).SerializeToString())


class Kubelet:
    """Serves what is in `answer` until it is stopped; `asked` counts the calls."""

    def __init__(self, path: Path, *, version: str = "v1") -> None:
        self.path = path
        self.version = version
        self.answer: Callable[[], bytes] = encoded
        self.asked = 0
        self.code: Any = None
        self._released = threading.Event()
        self._server: Any = None
        self.start()

    def say(self, *pods: dict[str, Any]) -> None:
        answer = encoded(*pods)
        self.answer = lambda: answer

    def hang(self) -> None:
        """Answer nothing from now on."""

        def wait() -> bytes:
            self._released.wait(10)
            return b""

        self.answer = wait

    def start(self) -> None:
        self._server = grpc.server(
            futures.ThreadPoolExecutor(4), options=[("grpc.max_send_message_length", -1)]
        )
        handlers = {"List": grpc.unary_unary_rpc_method_handler(self._serve)}  # others are unimplemented
        service = f"{self.version}.PodResourcesLister"
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        self._server.add_insecure_port(f"unix:{self.path}")
        self._server.start()

    def stop(self) -> None:
        """Stop serving; the socket is removed."""
        self._released.set()
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None
        self.path.unlink(missing_ok=True)

    def _serve(self, _: bytes, context: Any) -> bytes:
        self.asked += 1
        if self.code is not None:
            context.abort(self.code, "für später")
        return self.answer()


@contextmanager
def socket_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a unix socket."""
    with tempfile.TemporaryDirectory(prefix="cw-") as folder:
        yield Path(folder)
