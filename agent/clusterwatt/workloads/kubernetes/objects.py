"""Objects of the Kubernetes API, as far as they are read; everything else is passed over undecoded.

k8s.io/api/core/v1, apimachinery/pkg/apis/meta/v1, k8s.io/api/resource/{v1,v1beta2,v1beta1}. Environments,
commands and volumes of pods are never decoded: what is not read cannot leak.
"""

from __future__ import annotations

import msgspec


class OwnerReference(msgspec.Struct, frozen=True, rename="camel"):
    """Who made an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = False


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class Object(msgspec.Struct, frozen=True):
    """Any object, also a `PartialObjectMetadata`."""

    metadata: Meta = Meta()


class NodeSpec(msgspec.Struct, frozen=True):
    """What people want of a node. `unschedulable`: it is cordoned.

    The taint `node.kubernetes.io/unschedulable` is made of it by the node controller and says no more.
    """

    unschedulable: bool = False


class Node(Object, frozen=True):
    """A node."""

    spec: NodeSpec = NodeSpec()


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the kubelet says of a pod; `phase`: Pending, Running, Succeeded, Failed, Unknown."""

    phase: str = ""
    start_time: str | None = None


class PodSpec(msgspec.Struct, frozen=True):
    """What a pod is to be. `hostname`: its host name where that is not its name, as in jobs with an index."""

    hostname: str | None = None


class Pod(msgspec.Struct, frozen=True):
    """A pod."""

    metadata: Meta = Meta()
    status: PodStatus = PodStatus()
    spec: PodSpec = PodSpec()


class PodList(msgspec.Struct, frozen=True):
    """Pods."""

    items: list[Pod] | None = None


class Resources(msgspec.Struct, frozen=True):
    """What a container may use, by resource; whole numbers of devices, texts for all else."""

    limits: dict[str, str | int | float] | None = None


class Container(msgspec.Struct, frozen=True):
    """A container of a pod's specification."""

    resources: Resources = Resources()


class WaitingSpec(PodSpec, frozen=True, rename="camel"):
    """What a pod asks for."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None


class WaitingPod(Pod, frozen=True):
    """A pod with what it asks for."""

    spec: WaitingSpec = WaitingSpec()


class WaitingPodList(msgspec.Struct, frozen=True):
    """Pods with what they ask for."""

    items: list[WaitingPod] | None = None


class Attribute(msgspec.Struct, frozen=True):
    """An attribute of a device; those of other types have no `string`."""

    string: str | None = None


class Basic(msgspec.Struct, frozen=True):
    """The level that stood around a device's attributes before v1beta2."""

    attributes: dict[str, Attribute] | None = None


class Device(msgspec.Struct, frozen=True):
    """A device that a driver offers."""

    name: str = ""
    attributes: dict[str, Attribute] | None = None
    basic: Basic | None = None


class Pool(msgspec.Struct, frozen=True):
    """The devices that belong together; slices of an older generation are void."""

    name: str = ""
    generation: int = 0


class SliceSpec(msgspec.Struct, frozen=True):
    """A part of a pool."""

    driver: str = ""
    pool: Pool = Pool()
    devices: list[Device] | None = None


class ResourceSlice(msgspec.Struct, frozen=True):
    """What a driver offers on a node."""

    spec: SliceSpec = SliceSpec()


class ResourceSliceList(msgspec.Struct, frozen=True):
    """Slices."""

    items: list[ResourceSlice] | None = None


class Resource(msgspec.Struct, frozen=True):
    """A resource of an API group: `name` is its place in a path."""

    name: str = ""
    kind: str = ""
    namespaced: bool = True


class ResourceList(msgspec.Struct, frozen=True):
    """The resources of one version of an API group."""

    resources: list[Resource] | None = None
