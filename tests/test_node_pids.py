"""Whether /proc below a root shows the host's processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterwatt.node_pids import NodePids
from tests.machines import ROOTS, put

KTHREADD = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 12 0 0\n"
# A shell's child that has given itself the name; the kernel's mark is not for it to set.
IMPOSTOR = "2 (kthreadd) S 1 2 2 0 -1 4194304 100 0 0 0 31 12 0 0 20 0 1 0 1234 22990848 3114\n"


def test_the_host_has_kernel_threads(tmp_path: Path) -> None:
    put(tmp_path, "/proc/2/stat", KTHREADD)
    assert NodePids(str(tmp_path)).visible()
    assert NodePids(f"{tmp_path}/").visible()
    assert NodePids(str(ROOTS / "h100-ib")).visible()


@pytest.mark.parametrize("stat", [IMPOSTOR, "", None])
def test_a_container_has_none(tmp_path: Path, stat: str | None) -> None:
    put(tmp_path, "/proc/1/stat", "1 (agent) S 0 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0\n")
    if stat is not None:
        put(tmp_path, "/proc/2/stat", stat)
    assert not NodePids(str(tmp_path)).visible()


def test_processes_of_others_that_are_hidden_are_not_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mounted with hidepid=noaccess: the folder is there, what is in it may not be read."""

    def refused(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refused)
    assert not NodePids(str(tmp_path)).visible()


def test_a_process_exists_while_its_folder_does(tmp_path: Path) -> None:
    put(tmp_path, "/proc/4101/stat", "4101 (python3) R\n")
    pids = NodePids(str(tmp_path))
    assert pids.exists(4101)
    assert not pids.exists(1073741824)
