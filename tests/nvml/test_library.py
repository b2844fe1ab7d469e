"""The driver's library below other roots, with two real libraries where there is a compiler."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from clusterwatt.config.model import Config, Driver
from clusterwatt.nvml.errors import DriverUnavailable
from clusterwatt.nvml.library import NAME, candidates, load_below
from clusterwatt.nvml.session import Session

OPERATOR, HOST = "run/nvidia/driver", "."
# A driver of which only the version matters.
SOURCE = """
#include <string.h>
int nvmlInitWithFlags(unsigned int flags) { (void)flags; return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned int size) { strncpy(text, VERSION, size); return 0; }
int nvmlSystemGetNVMLVersion(char *text, unsigned int size) { strncpy(text, VERSION, size); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12080; return 0; }
"""
ASK = """
import sys
from clusterwatt.nvml.session import Session
session = Session(library_roots=sys.argv[1:])
for line in sys.stdin:
    session.open()
    print(session.versions().driver, flush=True)
"""


@pytest.fixture(autouse=True)
def _no_library_stays() -> Iterator[None]:
    """The binding keeps its library in a global."""
    yield
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()


def place(root: Path, folder: str = "usr/lib/x86_64-linux-gnu") -> Path:
    path = root / folder / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"not a library")
    return path


def test_the_first_root_that_has_the_library_counts(tmp_path: Path) -> None:
    operator, host = tmp_path / "driver", tmp_path / "host"
    on_host = place(host, "usr/lib64")
    assert load_below([str(operator), str(host)], str) == str(on_host)
    of_operator = place(operator)
    assert load_below([str(operator), str(host)], str) == str(of_operator)


def test_a_folder_of_that_name_is_none(tmp_path: Path) -> None:
    """Docker makes one where a file that it mounts is missing."""
    (tmp_path / "usr/lib64" / NAME).mkdir(parents=True)
    assert list(candidates([str(tmp_path)])) == []


def test_one_that_cannot_be_loaded_is_passed_over(tmp_path: Path) -> None:
    broken, good = place(tmp_path / "a"), place(tmp_path / "b")

    def load(path: str) -> str:
        if path == str(broken):
            raise OSError("wrong ELF class: ELFCLASS32")
        return path

    assert load_below([str(tmp_path / "a"), str(tmp_path / "b")], load) == str(good)


def test_without_a_library_there_the_binding_looks_where_it_always_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-17: the driver's container comes later; until then the driver is not found, and tried again."""
    place(tmp_path)  # cannot be loaded
    pynvml.nvmlLib = None
    asked: list[str] = []

    def cdll(name: str) -> None:
        asked.append(name)
        raise OSError("cannot open shared object file")

    monkeypatch.setattr(pynvml, "CDLL", cdll)
    with pytest.raises(DriverUnavailable) as caught:
        Session(library_roots=(str(tmp_path),)).open()
    assert (caught.value.reason, asked) == ("not_found", [NAME])


def test_the_setting_reaches_the_driver_host() -> None:
    from clusterwatt.app import host_settings

    config = Config(driver=Driver(library_roots=("/host/run/nvidia/driver", "/host")))
    assert host_settings(config).library_roots == ("/host/run/nvidia/driver", "/host")


def build(version: str, path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("this machine has no C compiler")
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-shared", "-fPIC", f'-DVERSION="{version}"', "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=SOURCE, text=True, check=True, capture_output=True)


def host(root: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", ASK, str(root / OPERATOR), str(root)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def asked(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_after_an_upgrade_a_fresh_driver_host_loads_the_new_library(tmp_path: Path) -> None:
    """The operator takes its driver container's file system away, and mounts that of the next one there."""
    library = tmp_path / OPERATOR / "usr/lib/x86_64-linux-gnu" / NAME
    build("570.86.15", library.with_name("libnvidia-ml.so.570.86.15"))
    library.symlink_to("libnvidia-ml.so.570.86.15")
    with host(tmp_path) as before:
        assert asked(before) == "570.86.15"
        (tmp_path / OPERATOR).rename(tmp_path / "gone")
        build("580.65.06", library.with_name("libnvidia-ml.so.580.65.06"))
        library.symlink_to("libnvidia-ml.so.580.65.06")
        assert asked(before) == "570.86.15"  # mapped for good: why the host ends with its generation
        assert before.stdin is not None
        before.stdin.close()
    with host(tmp_path) as after:
        assert asked(after) == "580.65.06"
        assert after.stdin is not None
        after.stdin.close()
