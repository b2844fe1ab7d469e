"""Every name under which a plugin or driver hands out a GPU."""

from __future__ import annotations

import pytest

from clusterwatt.config.model import Kubernetes as Settings
from clusterwatt.workloads.kubernetes.devices import devices, of_claim, of_plugin
from clusterwatt.workloads.kubernetes.kubelet import Assigned, ClaimedDevice, Container

U = "aaaaaaaa-0000-0000-0000-00000000000a"
RESOURCES = Settings().resources


@pytest.mark.parametrize(
    ("device_id", "device"),
    [
        (f"GPU-{U}", f"GPU-{U}"),
        (f"GPU-{U}::3", f"GPU-{U}"),
        (f"MIG-{U}", f"MIG-{U}"),
        (f"MIG-{U}::1", f"MIG-{U}"),
        (f"MIG-GPU-{U}/7/0", f"MIG-GPU-{U}/7/0"),
        ("0", "index:0"),
        ("11", "index:11"),
        ("3::0", "index:3"),
        ("nvidia0", "minor:0"),
        ("nvidia12", "minor:12"),
        ("nvidia0/vgpu2", "minor:0"),
        ("nvidia0/gi3", "nvidia0/gi3"),
        ("nvidia0/gi3/vgpu1", "nvidia0/gi3"),
        (f"GPU-{U}-3", None),  # HAMi: which GPU it gives stands in an annotation
        ("", None),
        ("gpu", None),
        ("GPU-", None),
        ("nvidia", None),
        ("nvidiactl", None),
        ("-1", None),
        (f"GPU-{U}\n", None),
    ],
)
def test_ids_of_device_plugins(device_id: str, device: str | None) -> None:
    assert of_plugin(device_id) == device


def claimed(device: str, *cdi: str) -> ClaimedDevice:
    return ClaimedDevice("gpu.nvidia.com", "node-a", device, cdi)


@pytest.mark.parametrize(
    ("found", "device"),
    [
        (claimed("gpu-0"), "minor:0"),
        (claimed("gpu-0", f"nvidia.com/gpu=GPU-{U}"), f"GPU-{U}"),
        (claimed("gpu-0", "nvidia.com/gpu=4"), "index:4"),
        (claimed("gpu-0", "k8s.gpu.nvidia.com/claim=4"), "minor:0"),
        (claimed("gpu-0-mig-9-0-4", f"k8s.gpu.nvidia.com/claim=MIG-{U}"), f"MIG-{U}"),
        (claimed("gpu-0-mig-9-0-4", "nvidia.com/gpu=0:1"), None),
        (claimed("gpu-0", "nvidia.com/gpu=all"), "minor:0"),
        (claimed("gpu-vfio-0"), None),
    ],
)
def test_claimed_devices_without_their_slice(found: ClaimedDevice, device: str | None) -> None:
    assert of_claim(found, {}) == device


def test_the_slice_goes_before_every_other_name() -> None:
    found = claimed("gpu-0", "nvidia.com/gpu=4")
    assert of_claim(found, {("node-a", "gpu-0"): f"GPU-{U}"}) == f"GPU-{U}"
    assert of_claim(found, {("node-b", "gpu-0"): f"GPU-{U}"}) == "index:4"


@pytest.mark.parametrize(
    ("resource", "counts"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.5gb", True),
        ("nvidia.com/gpucores", False),  # fractions of HAMi, beside nvidia.com/gpu
        ("nvidia.com/gpumem-percentage", False),
        ("nvidia.com/a100", False),
        ("amd.com/gpu", False),
        ("example.com/nvidia.com/gpu", False),
    ],
)
def test_which_resources_are_gpus(resource: str, counts: bool) -> None:
    container = Container("main", (Assigned(resource, (f"GPU-{U}",)),), ())
    assert list(devices(container, RESOURCES, {})) == [(f"GPU-{U}", f"GPU-{U}")] * counts


def test_a_site_may_have_its_own_names() -> None:
    container = Container(
        "main", (Assigned("nvidia.com/a100", ("0",)), Assigned("nvidia.com/gpu", ("1",))), ()
    )
    assert list(devices(container, ("nvidia.com/a*",), {})) == [("0", "index:0")]


def test_devices_of_other_drivers_are_none_of_ours() -> None:
    nic = ClaimedDevice("nic.example.com", "node-a", "gpu-0", ())
    assert list(devices(Container("main", (), (nic,)), RESOURCES, {})) == []
