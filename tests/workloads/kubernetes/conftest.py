"""A kubelet for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.workloads.kubernetes.kubelet_server import Kubelet, socket_folder


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    with socket_folder() as folder:
        kubelet = Kubelet(folder / "kubelet.sock")
        try:
            yield kubelet
        finally:
            kubelet.stop()
