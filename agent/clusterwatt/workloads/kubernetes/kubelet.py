"""Which devices the kubelet has assigned to which container: its PodResources service.

k8s.io/kubelet/pkg/apis/podresources/v1/api.proto; v1alpha1 (kubelets before 1.20) has the same messages with
fewer fields. `List` serves what is assigned whether or not anything runs, and may name pods that are over
(kubernetes/kubernetes#132020): who asks has to tell these apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from clusterwatt.clock import EARLY, Clock
from clusterwatt.failures import failure
from clusterwatt.protobuf import LENGTH, MalformedError, fields
from clusterwatt.readings.base import Failure
from clusterwatt.workloads.kubernetes import rpc

METHOD = "/v1.PodResourcesLister/List"
OLD_METHOD = "/v1alpha1.PodResourcesLister/List"
MAX_ANSWER_BYTES = 128 << 20
MAX_FIELDS = 4_000_000  # of a whole answer: what is read takes some seconds at most
AT_ONCE_SECONDS = 1.0  # when pods came or went


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


class Kubelet:
    """Asks when it is time, and keeps the last answer. Belongs to one thread.

    `paths`: where the socket may be; the first that is there is taken.
    """

    def __init__(self, paths: tuple[str, ...], clock: Clock, *, every_s: float, deadline_s: float) -> None:
        self.pods: list[AssignedPod] | None = None
        self.answered_s = float("-inf")
        self._paths = paths
        self._clock = clock
        self._every_s = every_s
        self._deadline_s = deadline_s
        self._asked_s = float("-inf")
        self._changed = False
        self._failing: Failure | None = None

    def socket(self) -> str | None:
        """Where the service's socket is now; None when there is none."""
        return next((path for path in self._paths if os.path.exists(path)), None)

    def forget(self) -> None:
        """Drop the last answer."""
        self.pods = self._failing = None

    def refresh(self, *, changed: bool) -> Failure | None:
        """Ask if it is time, sooner when pods came or went. The failure is that of the whole source."""
        now_s = self._clock.monotonic_s()
        self._changed |= changed
        wait_s = AT_ONCE_SECONDS if self._changed else self._every_s
        if now_s - self._asked_s < wait_s * (1 - EARLY):
            return self._failing and msgspec.structs.replace(self._failing, ongoing=True)
        self._asked_s, self._changed = now_s, False
        path = self.socket() or self._paths[0]
        try:
            self.pods = assigned_pods(path, self._clock, self._deadline_s)
        except ImportError:
            remedy = "h2 is not installed: pip install 'clusterwatt[kubernetes]'"
            self._failing = Failure(
                "", "not_installed", f"the kubelet's socket {path} is there, but {remedy}"
            )
        except OSError as error:
            problem = failure("", error)
            self._failing = Failure("", problem.reason, f"the kubelet cannot be asked: {error}")
        else:
            self._failing, self.answered_s = None, now_s
        return self._failing


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
    except MalformedError as error:
        raise rpc.RpcError(f"the list of pods cannot be read: {error}") from error


class Reader:
    """Reads the messages of one answer; counts their fields, so that none is read without end."""

    def __init__(self, max_fields: int = MAX_FIELDS) -> None:
        self._left = max_fields

    def parts(self, message: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Number and content of each field that holds bytes: text or a message. Raises MalformedError."""
        for field in fields(message, 0, len(message)):
            self._left -= 1
            if self._left < 0:
                raise MalformedError("too many fields")
            if field.wire == LENGTH:
                yield field.tag, message[field.start : field.end]


def decoded(answer: bytes) -> list[AssignedPod]:
    """The message ListPodResourcesResponse. Raises MalformedError."""
    reader = Reader()
    return [_pod(reader, part) for number, part in reader.parts(memoryview(answer)) if number == 1]


def _pod(reader: Reader, message: memoryview) -> AssignedPod:
    name = namespace = ""
    containers = []
    for number, part in reader.parts(message):
        if number == 1:
            name = _text(part)
        elif number == 2:
            namespace = _text(part)
        elif number == 3:
            containers.append(_container(reader, part))
    return AssignedPod(namespace, name, tuple(containers))


def _container(reader: Reader, message: memoryview) -> Container:
    name = ""
    assigned: list[Assigned] = []
    claimed: list[ClaimedDevice] = []
    for number, part in reader.parts(message):
        if number == 1:
            name = _text(part)
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
            resource = _text(part)
        elif number == 2:
            ids.append(_text(part))
    return Assigned(resource, tuple(ids))


def _claimed(reader: Reader, message: memoryview) -> ClaimedDevice:
    names = {2: "", 3: "", 4: ""}  # driver, pool, device
    cdi: list[str] = []
    for number, part in reader.parts(message):
        if number == 1:
            cdi.extend(_text(inner) for place, inner in reader.parts(part) if place == 1)
        elif number in names:
            names[number] = _text(part)
    return ClaimedDevice(names[2], names[3], names[4], tuple(cdi))


def _text(content: memoryview) -> str:
    """A string; what is not UTF-8 in it is replaced."""
    return str(content, "utf-8", "replace")
