"""What all tests share: the option for golden pages, and programs that are not Python's.

`make check` fetches the programs; without one, its tests are left out.
"""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

from tests.tools import apt

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the pages of tests/golden anew")


@pytest.fixture(autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder for each test: agents of root would share the system's, its ledger and its flag."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setattr("clusterwatt.config.model.places.SYSTEM_STATE_FOLDER", folder)
    monkeypatch.setattr(
        "clusterwatt.config.model.places.SYSTEM_RELEASE_FILE", str(folder / "run/driver-release")
    )
    return folder


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether what stands in tests/golden is to be replaced."""
    return bool(request.config.getoption("--update-golden"))


def _program(name: str) -> Path:
    path = apt.find(name)
    if path is None:
        pytest.skip(f"{name} is not here: `python -m tests.tools.apt {name}` fetches it")
    return path


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus' own checker of pages and rules."""
    return _program("promtool")


@pytest.fixture(scope="session")
def prometheus_program() -> Path:
    """Debian's Prometheus."""
    return _program("prometheus")


@pytest.fixture(scope="session")
def amtool() -> Path:
    """Alertmanager's own checker of its configuration."""
    return _program("amtool")


@pytest.fixture(scope="session")
def alertmanager_program() -> Path:
    """Debian's Alertmanager."""
    return _program("alertmanager")


@pytest.fixture(scope="session")
def node_exporter_program() -> Path:
    """Debian's node_exporter."""
    return _program("node_exporter")


@pytest.fixture(scope="session")
def chromium_program() -> Path:
    """Debian's Chromium."""
    return _program("chromium")


@pytest.fixture(scope="session")
def ip_program() -> Path:
    """The tool that makes network interfaces."""
    return _program("ip")
