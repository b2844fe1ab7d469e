"""Which devices the kubelet has assigned to which container: its PodResources service.

k8s.io/kubelet/pkg/apis/podresources/v1/api.proto; v1alpha1 (kubelets before 1.20) has the same messages with
fewer fields. `List` serves what is assigned whether or not anything runs, and may name pods that are over
(kubernetes/kubernetes#132020): who asks has to tell these apart.
"""

from __future__ import annotations

import msgspec

from clusterwatt.clock import Clock
from clusterwatt.workloads.kubernetes import rpc
from clusterwatt.workloads.kubernetes.wire import Reader, WireError, text

METHOD = "/v1.PodResourcesLister/List"
OLD_METHOD = "/v1alpha1.PodResourcesLister/List"
MAX_ANSWER_BYTES = 128 << 20


class Assigned(msgspec.Struct, frozen=True):
    """Devices of one resource, by the ids of its device plugin."""

    resource: str
    ids: tuple[str, ...]


class ClaimedDevice(msgspec.Struct, frozen=True):
    """A device of a ResourceClaim (DRA): the driver's name for it, and the names given to the runtime."""

    driver: str
    pool: str
    device: str
    cdi: tuple[str, ...]


class Container(msgspec.Struct, frozen=True):
    """A container with what was assigned to it."""

    name: str
    assigned: tuple[Assigned, ...]
    claimed: tuple[ClaimedDevice, ...]


class AssignedPod(msgspec.Struct, frozen=True):
    """A pod as the kubelet lists it: without its uid."""

    namespace: str
    name: str
    containers: tuple[Container, ...]


def assigned_pods(path: str, clock: Clock, deadline_s: float) -> list[AssignedPod]:
    """All pods of the node with their devices, from the service's socket. Raises OSError and ImportError."""

    def ask(method: str) -> bytes:
        return rpc.call(path, method, clock, deadline_s=deadline_s, max_bytes=MAX_ANSWER_BYTES)

    try:
        answer = ask(METHOD)
    except rpc.RpcError as error:
        if error.status != rpc.UNIMPLEMENTED:
            raise
        answer = ask(OLD_METHOD)
    try:
        return decoded(answer)
    except WireError as error:
        raise rpc.RpcError(f"the list of pods cannot be read: {error}") from error


def decoded(answer: bytes) -> list[AssignedPod]:
    """The message ListPodResourcesResponse. Raises WireError."""
    reader = Reader()
    return [_pod(reader, part) for number, part in reader.parts(memoryview(answer)) if number == 1]


def _pod(reader: Reader, message: memoryview) -> AssignedPod:
    name = namespace = ""
    containers = []
    for number, part in reader.parts(message):
        if number == 1:
            name = text(part)
        elif number == 2:
            namespace = text(part)
        elif number == 3:
            containers.append(_container(reader, part))
    return AssignedPod(namespace, name, tuple(containers))


def _container(reader: Reader, message: memoryview) -> Container:
    name = ""
    assigned: list[Assigned] = []
    claimed: list[ClaimedDevice] = []
    for number, part in reader.parts(message):
        if number == 1:
            name = text(part)
        elif number == 2:
            assigned.append(_assigned(reader, part))
        elif number == 5:
            claimed.extend(_claimed(reader, inner) for place, inner in reader.parts(part) if place == 4)
    return Container(name, tuple(assigned), tuple(claimed))


def _assigned(reader: Reader, message: memoryview) -> Assigned:
    resource = ""
    ids = []
    for number, part in reader.parts(message):
        if number == 1:
            resource = text(part)
        elif number == 2:
            ids.append(text(part))
    return Assigned(resource, tuple(ids))


def _claimed(reader: Reader, message: memoryview) -> ClaimedDevice:
    names = {2: "", 3: "", 4: ""}  # driver, pool, device
    cdi: list[str] = []
    for number, part in reader.parts(message):
        if number == 1:
            cdi.extend(text(inner) for place, inner in reader.parts(part) if place == 1)
        elif number in names:
            names[number] = text(part)
    return ClaimedDevice(names[2], names[3], names[4], tuple(cdi))
