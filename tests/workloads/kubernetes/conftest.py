"""A kubelet and an API server for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workloads.kubernetes.api_server import ApiServer
from tests.workloads.kubernetes.kubelet_server import Kubelet, socket_folder


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    with socket_folder() as folder:
        kubelet = Kubelet(folder / "kubelet.sock")
        try:
            yield kubelet
        finally:
            kubelet.stop()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    folder = tmp_path / "api"
    folder.mkdir()
    server = ApiServer(folder)
    try:
        yield server
    finally:
        server.close()
