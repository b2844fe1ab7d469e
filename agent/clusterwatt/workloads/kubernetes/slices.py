"""UUIDs of the devices that NVIDIA's DRA driver offers on a node, from its ResourceSlices.

The kubelet names a claimed device by pool and device, as `node-a` and `gpu-0`; the slice has its attributes
(github.com/kubernetes-sigs/dra-driver-nvidia-gpu: `uuid`, of a MIG device its own). The API has been v1 since
Kubernetes 1.34; before, attributes of v1beta1 stood one level deeper, in `basic`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusterwatt.workloads.kubernetes.api import Api, ApiError
from clusterwatt.workloads.kubernetes.devices import BY_UUID, DRA_DRIVER, Slices
from clusterwatt.workloads.kubernetes.objects import Attribute, ResourceSlice, ResourceSliceList

VERSIONS = ("v1", "v1beta2", "v1beta1")
NOT_FOUND = 404


def fetch(api: Api, node: str) -> Slices:
    """UUID by pool and device. Raises OSError."""
    query = {"fieldSelector": f"spec.nodeName={node},spec.driver={DRA_DRIVER}", "resourceVersion": "0"}
    for version in VERSIONS:
        try:
            path = f"/apis/resource.k8s.io/{version}/resourceslices"
            return uuids(api.get(path, ResourceSliceList, query).items or ())
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
    raise ApiError("the API has no ResourceSlices", NOT_FOUND)


def uuids(slices: Iterable[ResourceSlice]) -> Slices:
    """UUID by pool and device, of the newest generation of each pool."""
    ours = [found.spec for found in slices if found.spec.driver == DRA_DRIVER]
    newest: dict[str, int] = {}
    for spec in ours:
        newest[spec.pool.name] = max(spec.pool.generation, newest.get(spec.pool.name, 0))
    by_name = {}
    for spec in ours:
        if spec.pool.generation < newest[spec.pool.name]:
            continue
        for device in spec.devices or ():
            attributes = device.attributes or (device.basic.attributes if device.basic else None) or {}
            uuid = _text(attributes, "uuid")
            if BY_UUID.fullmatch(uuid):
                by_name[spec.pool.name, device.name] = uuid
    return by_name


def _text(attributes: Mapping[str, Attribute], name: str) -> str:
    """An attribute's text; its name may stand behind the driver's domain."""
    attribute = attributes.get(name) or attributes.get(f"{DRA_DRIVER}/{name}")
    return (attribute.string or "") if attribute else ""
