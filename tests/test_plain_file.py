"""What stands in a file's place and is none is refused at once: nobody waits for a pipe."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from clusterwatt import maintenance, plain_file
from clusterwatt.clock import SystemClock
from clusterwatt.config import document
from clusterwatt.config.problems import ConfigError
from clusterwatt.config.web import TlsServer
from clusterwatt.discovery import file_sd, slurm
from clusterwatt.driver.holding import ReleaseFlag, last_answer
from clusterwatt.expose import tls
from clusterwatt.expose.own_names import own_names
from clusterwatt.feeds import fetch
from clusterwatt.flight import bundle as flight_bundle
from clusterwatt.learnt import Learnt
from clusterwatt.ledger import faults as ledger_faults
from clusterwatt.nvml import bundle
from clusterwatt.plain_file import NotPlainError
from clusterwatt.rules import export, scenarios
from clusterwatt.simulate.faults import Faults
from clusterwatt.workloads.kubernetes.api import Address, Api
from clusterwatt.workloads.users import Users
from tests.clocks import FakeClock

REFUSALS = (
    *(OSError, ConfigError, bundle.BundleError, flight_bundle.BundleError, slurm.DiscoveryError),
    *(ledger_faults.LedgerError, fetch.SilentError, tls.TlsFault),
)


def test_a_file_is_read_also_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert plain_file.content(tmp_path / "link", 4) == b"1234"
    with plain_file.opened(str(tmp_path / "file")) as file:
        assert file.read() == b"12345"
        assert not os.get_inheritable(file.fileno())


def test_a_file_that_is_not_there_is_said_as_ever(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        plain_file.opened(tmp_path / "none")


def test_a_directory_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotPlainError, match="expected a plain file, found a directory") as refused:
        plain_file.opened(tmp_path)
    assert refused.value.errno == errno.EISDIR


def test_pipes_sockets_and_devices_are_not_even_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "open", None)
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    for path in (tmp_path / "pipe", tmp_path / "socket", Path("/dev/zero")):
        with pytest.raises(NotPlainError, match="found a pipe or device"):
            plain_file.opened(path)


def test_a_pipe_that_comes_between_look_and_opening_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "file", os.stat
    path.touch()
    before = real(path)
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(os, "stat", lambda _: before)
    free = os.dup(0)
    os.close(free)
    with pytest.raises(NotPlainError):
        plain_file.opened(path)
    assert os.dup(0) == free  # and no descriptor is left open
    os.close(free)
    assert stat.S_ISFIFO(real(path).st_mode)


@contextlib.contextmanager
def waiting_for_nobody() -> Iterator[None]:
    """Ends a test that waits for who would write into a pipe."""

    def waited(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, waited)
    signal.setitimer(signal.ITIMER_REAL, 10.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def api_answers(token: str, authority: str) -> None:
    Api(Address("https://127.0.0.1:1", token, authority), SystemClock(), 1.0).get("/", dict)


READERS: Mapping[str, Callable[[Path], object]] = {
    "a setting's file": document.read,
    "maintenance flag": lambda path: maintenance.look(path, 0.0),
    "what was learnt": lambda path: Learnt(path, FakeClock()),
    "ledger": ledger_faults.check_plain,
    "saved answer of scontrol": slurm.read_file,
    "targets of Prometheus": lambda path: file_sd.write(path, ""),
    "release flag": lambda path: ReleaseFlag(str(path)).look(),
    "answer beside the release flag": lambda path: last_answer(path.with_suffix("")),
    "faults": lambda path: Faults.from_file(path).refresh(),
    "recorded driver": bundle.read,
    "recorded flight": flight_bundle.read,
    "which of both": flight_bundle.is_flight,
    "key of a service": lambda path: fetch.secret(str(path), "header_file"),
    "authorities of a service": lambda path: fetch.fetch(
        "https://127.0.0.1:1", SystemClock(), timeout_s=1.0, max_bytes=1, trust=fetch.Trust(str(path))
    ),
    "token of Kubernetes": lambda path: api_answers(str(path), ""),
    "authorities of Kubernetes": lambda path: api_answers("", str(path)),
    "certificate": lambda path: tls.context(TlsServer(cert_file=str(path), key_file=str(path))),
    "names of this machine": lambda path: own_names("node", path, path),
}


def test_no_pipe_in_a_folder_of_rules_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine.yaml")
    with waiting_for_nobody():
        with pytest.raises(scenarios.ScenarioError, match="expected a plain file"):
            scenarios.load(tmp_path)
        with pytest.raises(NotPlainError):
            export.write([], tmp_path)


@pytest.mark.parametrize("reader", READERS)
def test_nothing_waits_for_a_pipe_in_place_of_its_file(reader: str, tmp_path: Path) -> None:
    path = tmp_path / "file.answer"
    os.mkfifo(path)
    with waiting_for_nobody(), contextlib.suppress(*REFUSALS):
        READERS[reader](path)


def test_users_are_looked_up_in_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    os.mkfifo(tmp_path / "etc/passwd")
    with waiting_for_nobody():
        assert Users(str(tmp_path)).name("1000") == "1000"
